"""What WhisperRT knows about one stream, and the pool that holds many streams' caches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from streaming_asr.method import Recorder, Samples, Word
from streaming_asr.methods.whisperrt.hypothesis import Hypothesis
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES, StreamingLogMel
from streaming_asr.whisper.load import Whisper

FRAME_S = 0.02


class Pool:
    """Caches of `n_streams` streams, one row each; `beams` decoder rows where one stream beams."""

    def __init__(self, whisper: Whisper, decoder: Decoder, n_streams: int, beams: int = 1) -> None:
        self.encoder = StreamingEncoder(whisper.model, n_streams)
        self.scratch_row = n_streams * beams
        """A decoder row for alignment, which so leaves no trace in the streams' caches."""
        self.decoder = DecoderCache(decoder, n_streams * beams + 1, n_streams)
        n_mel_frames = 2 * whisper.context_frames + 1
        self.mel = torch.zeros(n_streams, whisper.n_mels, n_mel_frames, device=whisper.device)
        """Normalised frames of each stream's window, kept to encode them anew after a cut."""


@dataclass(slots=True)
class StreamState:
    """One stream. Frames are encoder frames of 20 ms; the window is what the context holds."""

    pool: Pool
    row: int
    prompt: list[int]
    language: str | None
    recorder: Recorder
    features: StreamingLogMel
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
    ready: list[int] = field(default_factory=list)
    """Ends of blocks whose mel frames are there, not yet encoded."""

    hypotheses: list[Hypothesis] = field(default_factory=lambda: [Hypothesis()])
    """Best first; one when greedy."""
    floor: int = 0
    """Tokens of the window that will not change any more."""
    emitted: list[str] = field(default_factory=list)
    """Committed words that lie in the window, in order."""
    goes_on: bool = False
    """Committed text lies before the window, so that its first word wants a space."""
    last_end_s: float = 0.0
    partial: tuple[Word, ...] = ()

    @property
    def heard_s(self) -> float:
        """Audio received, in seconds."""
        return self.n_samples / 16_000

    @property
    def more_to_come(self) -> bool:
        """Whether another block will be encoded."""
        return not self.ended or self._block_is_there()

    def take_in(self, audio: Samples, last: bool, limit: int) -> None:
        """Turn samples into mel frames, block by block, as far as the window's `limit` allows.

        At the end of the stream the block that holds the last samples is filled up with zeros.
        """
        if audio.size:
            self.pending.append(np.asarray(audio, dtype=np.float32))
            self.n_samples += audio.size
        self.ended = self.ended or last
        while self._block_is_there() and self.next_end - self.window_start <= limit:
            end = self.next_end - self.window_start
            frames = self.features.push(self._samples_to(self.next_end))[0]
            stop = self.n_mel + frames.shape[-1]
            self.pool.mel[self.row, :, self.n_mel : stop] = frames
            self.n_mel = stop
            self.ready.append(end)
            self.next_end += self.chunk_frames

    def _block_is_there(self) -> bool:
        if self.ended:
            begun = self.ready[-1] if self.ready else self.position
            return (self.window_start + begun) * FRAME_SAMPLES < self.n_samples
        return self.n_samples >= self.next_end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES

    def _samples_to(self, end: int) -> torch.Tensor:
        """(1, n) new samples up to the last that frame `end` - 1 needs, zeros past the end."""
        wanted = end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES - self.n_taken
        audio = np.concatenate(self.pending) if self.pending else np.zeros(0, np.float32)
        taken = audio[:wanted]
        rest = audio[wanted:]
        self.pending = [rest] if rest.size else []
        self.n_taken += wanted
        if taken.size < wanted:
            taken = np.pad(taken, (0, wanted - taken.size))
        return torch.from_numpy(taken)[None]

    def move_window(self, start: int) -> list[int]:
        """Let the window begin at its frame `start`; ends of the blocks to encode anew.

        Blocks keep their places in the stream; the first one is merged until it is as long as the
        stream's first, so that no frame is encoded with less to its left than the model knows.
        """
        first = self.block_ends[0]
        kept = self.position - start
        mel = self.pool.mel[self.row]
        mel[:, : self.n_mel - 2 * start] = mel[:, 2 * start : self.n_mel].clone()
        self.n_mel -= 2 * start
        ends = [end - start for end in self.block_ends if end - start >= min(first, kept)]
        self.window_start += start
        self.position = 0
        self.block_ends = []
        return ends
