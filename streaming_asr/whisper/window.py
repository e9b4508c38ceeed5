"""The audio side of a stream that is encoded block by block: samples in, mel frames of a window.

A block is the audio of one chunk. It can be encoded when its last frame's look-ahead has arrived;
at the end of the stream the block that holds the last samples is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_S, SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.whisper.features import (
    FRAME_SAMPLES,
    LOOKAHEAD_SAMPLES,
    StreamingLogMel,
)
from streaming_asr.whisper.sound import Sound
from streaming_asr.whisper.words import Emitter


def frames_of(duration_s: float, name: str) -> int:
    """Return the encoder frames of 20 ms in a duration. Raises UserError, naming the setting
    `name`, where it is not a whole number of them or none."""
    frames = round(duration_s / FRAME_S)
    if frames < 1 or abs(frames * FRAME_S - duration_s) > 1e-6:
        raise UserError(
            f"{name}={duration_s}: must be a positive multiple of 0.02 s, the length of one "
            "encoder frame"
        )
    return frames


@dataclass(slots=True, kw_only=True)
class StreamState:
    """The base of a method's state of one stream: its samples, and the words that it commits."""

    recorder: Recorder
    language: str | None
    pending: list[Samples] = field(default_factory=list)
    """Samples that no step has used."""
    n_samples: int = 0
    """Received so far."""
    sound: Sound = field(default_factory=Sound)
    emitter: Emitter = field(init=False)

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.language, self.sound)

    @property
    def heard_s(self) -> float:
        """Return the audio received, in seconds."""
        return self.n_samples / SAMPLE_RATE

    def take_in(self, audio: Samples) -> None:
        """Add (n,) new samples to those that are pending."""
        if audio.size:
            self.pending.append(np.asarray(audio, dtype=np.float32))
            self.sound.hear(self.pending[-1])
            self.n_samples += audio.size


@dataclass(slots=True, kw_only=True)
class BlockWindow(StreamState):
    """The base of a method's state of one stream whose audio is taken block by block.

    Frames are encoder frames of 20 ms; the window is what the context holds.
    """

    mel: torch.Tensor
    """(n_mels, 2 * context + 1), normalised frames of the window, kept to encode them again."""
    features: StreamingLogMel
    n_mel: int = 0

    chunk_frames: int
    next_end: int
    """Frame of the stream at which the block now being filled ends."""

    n_taken: int = 0
    """Samples handed to the features."""
    ended: bool = False

    window_start: int = 0
    """Frame of the stream at which the window begins."""
    position: int = 0
    """Frames of the window that are encoded."""
    block_ends: list[int] = field(default_factory=list)
    """Ends of the window's encoded blocks, in frames of the window."""

    @property
    def n_real(self) -> int:
        """Return the frames of the window for which audio has arrived, rounded up."""
        return -(-self.n_samples // FRAME_SAMPLES) - self.window_start

    def arrive(self, audio: Samples, last: bool) -> None:
        """Add new samples; `last`: none follow."""
        self.take_in(audio)
        self.ended = self.ended or last

    def block_is_there(self) -> bool:
        """Return whether another block can be encoded: all of its samples have arrived, or the
        stream has ended, and zeros fill up its last block."""
        if self.ended:
            # There is a last block if a sample lies in it; its look-ahead does not count.
            start = self.next_end - self.chunk_frames if self.n_taken else 0
            return start * FRAME_SAMPLES < self.n_samples
        return self.n_samples >= self.next_end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES

    def take_block(self) -> int:
        """Put the next block's mel frames into the window; return its end in encoder frames. Zeros
        are its samples after the stream's end."""
        n_needed = self.next_end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES - self.n_taken
        audio = np.concatenate(self.pending) if self.pending else np.zeros(0, np.float32)
        samples, rest = audio[:n_needed], audio[n_needed:]
        self.pending = [rest] if rest.size else []
        self.n_taken += n_needed
        samples = np.pad(samples, (0, n_needed - samples.size))
        frames = self.features.push(torch.from_numpy(samples)[None])[0]
        stop = self.n_mel + frames.shape[-1]
        self.mel[:, self.n_mel : stop] = frames
        self.n_mel = stop
        end = self.next_end - self.window_start
        self.next_end += self.chunk_frames
        return end

    def encoded(self, ends: Sequence[int], flops: float, *, again: bool = False) -> None:
        """Record that the next blocks of the window, which end at frames `ends`, are encoded.

        flops: what it cost. again: their audio was counted in the window before.
        """
        start, self.position = self.position, ends[-1]
        self.block_ends += ends
        self.recorder.count(
            frames_real=0 if again else max(0, min(self.n_real, self.position) - start),
            frames_computed=self.position - start,
            encoder_flops=flops,
        )

    def emit(self, text: str, start: int, end: int, probability: float | None) -> Word:
        """Return the next committed word; start, end: in frames of the window."""
        start_s, end_s = ((self.window_start + frame) * FRAME_S for frame in (start, end))
        return self.emitter.emit(text, start_s, end_s, self.heard_s, probability)

    def shift(self, start: int, shortest: int) -> list[int]:
        """Let the window begin at its frame `start`, its mel frames too; return the ends, in frames
        of the new window, of the blocks to encode again.

        Blocks keep their places in the stream. The first ones are merged until they are `shortest`
        frames long together, so that no frame sees fewer frames than in training.
        """
        n_mel = self.n_mel - 2 * start
        self.mel[:, :n_mel] = self.mel[:, 2 * start : self.n_mel].clone()
        self.n_mel = n_mel
        n_remaining = self.position - start
        least_end = min(shortest, n_remaining)
        # To leave out an end merges its block with the next.
        ends = [end - start for end in self.block_ends if end - start >= least_end]
        self.window_start += start
        self.position, self.block_ends = 0, []
        return ends
