"""What U2 knows about one stream: its audio window, its caches and its first pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import Recorder, Samples, Word
from streaming_asr.methods.u2.ctc import PrefixBeamSearch
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES, StreamingLogMel

FRAME_S = 0.02


def frames_of(duration_s: float, name: str) -> int:
    """Encoder frames in a duration; raises UserError where it is not a whole number of them."""
    frames = round(duration_s / FRAME_S)
    if frames < 1 or abs(frames * FRAME_S - duration_s) > 1e-6:
        raise UserError(f"{name}={duration_s}: a positive multiple of 0.02 s, one encoder frame")
    return frames


@dataclass(slots=True)
class StreamState:
    """One stream. Frames are encoder frames of 20 ms; the window holds the open segment."""

    encoder: StreamingEncoder
    cache: DecoderCache
    mel: torch.Tensor
    """(1, n_mels, 2 * context + 1), normalised frames of the window."""
    features: StreamingLogMel
    search: PrefixBeamSearch
    prompt: list[int]
    language: str | None
    recorder: Recorder
    chunk_frames: int
    next_end: int
    """Frame of the stream at which the block now being filled ends."""

    pending: list[Samples] = field(default_factory=list)
    n_samples: int = 0
    n_taken: int = 0
    """Samples handed to the features."""
    ended: bool = False

    window_start: int = 0
    """Frame of the stream at which the window begins."""
    position: int = 0
    """Frames of the window that are encoded."""
    n_mel: int = 0
    block_ends: list[int] = field(default_factory=list)
    """Ends of the window's encoded blocks, in frames of the window."""
    silent_run: int = 0
    """Silent frames that the window ends with."""

    has_text: bool = False
    """Words have been committed, so that the next one wants a space."""
    last_end_s: float = 0.0

    @property
    def heard_s(self) -> float:
        """Audio received, in seconds."""
        return self.n_samples / 16_000

    def arrive(self, audio: Samples, last: bool) -> None:
        """Keep new samples; `last` says that none follow."""
        if audio.size:
            self.pending.append(np.asarray(audio, dtype=np.float32))
            self.n_samples += audio.size
        self.ended = self.ended or last

    def block_is_there(self) -> bool:
        """Whether the next block can be encoded; at the end of the stream zeros fill it up."""
        if self.ended:
            return (self.next_end - self.block_length()) * FRAME_SAMPLES < self.n_samples
        return self.n_samples >= self.next_end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES

    def block_length(self) -> int:
        """Frames of the block now being filled that are new to the stream."""
        return self.chunk_frames if self.n_taken else self.next_end

    def take_block(self) -> int:
        """Mel frames of the next block into the window; its end in frames of the window."""
        frames = self.features.push(self._samples_to(self.next_end))
        stop = self.n_mel + frames.shape[-1]
        self.mel[:, :, self.n_mel : stop] = frames
        self.n_mel = stop
        end = self.next_end - self.window_start
        self.next_end += self.chunk_frames
        return end

    def _samples_to(self, end: int) -> torch.Tensor:
        """(1, n) new samples up to the last that frame `end` - 1 needs, zeros past the end."""
        wanted = end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES - self.n_taken
        audio = np.concatenate(self.pending) if self.pending else np.zeros(0, np.float32)
        taken, rest = audio[:wanted], audio[wanted:]
        self.pending = [rest] if rest.size else []
        self.n_taken += wanted
        return torch.from_numpy(np.pad(taken, (0, wanted - taken.size)))[None]

    def move_window(self, start: int) -> list[int]:
        """Let the window begin at its frame `start`; ends of the blocks to encode anew.

        Blocks keep their places in the stream; the first one is merged until it is as long as a
        chunk, so that no frame is encoded with less to its left than the model knows.
        """
        kept = self.position - start
        n_mel = self.n_mel - 2 * start
        self.mel[:, :, :n_mel] = self.mel[:, :, 2 * start : self.n_mel].clone()
        ends = [e - start for e in self.block_ends if e - start >= min(self.chunk_frames, kept)]
        self.n_mel = n_mel
        self.window_start += start
        self.position, self.block_ends, self.silent_run = 0, [], 0
        self.search = PrefixBeamSearch(self.search.blank, self.search.beam, self.search.top)
        return ends

    def timed(self, text: str, start: int, end: int, probability: float | None) -> Word:
        """A committed word at frames of the window: times inside the audio heard, in order."""
        times = ((self.window_start + frame) * FRAME_S for frame in (start, end))
        start_s, end_s = (min(max(t, self.last_end_s), self.heard_s) for t in times)
        end_s = max(start_s, end_s)
        self.last_end_s = end_s
        return Word(text, start_s, end_s, probability)
