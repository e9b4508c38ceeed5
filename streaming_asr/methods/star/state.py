"""What STAR knows about one stream: its window of audio, its anchors, its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from streaming_asr.method import Recorder, Samples, Word
from streaming_asr.methods.star.compressors import CompressorState
from streaming_asr.methods.star.decoder import AnchorCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.window import FRAME_S


@dataclass(slots=True)
class StreamState:
    """One stream. Frames are of 20 ms; positions in the window unless said otherwise."""

    features: Any
    """The extractor's state."""
    compressor: CompressorState
    cache: AnchorCache
    prompt: list[int]
    language: str | None
    recorder: Recorder
    chunk_frames: int
    next_end: int
    """Frame of the stream at which the block now being filled ends."""
    lookahead: int

    pending: list[Samples] = field(default_factory=list)
    n_samples: int = 0
    n_taken: int = 0
    ended: bool = False

    window_start: int = 0
    """Frame of the stream at which the window begins."""
    position: int = 0
    block_ends: list[int] = field(default_factory=list)

    ready: list[int] = field(default_factory=list)
    """For each segment, the vectors the decoder has when it is complete."""
    ends: list[int] = field(default_factory=list)
    """For each segment, its end."""
    whole: list[torch.Tensor] = field(default_factory=list)
    """Frames held back, in the form that is not streaming."""

    tokens: list[int] = field(default_factory=list)
    n_fed: int = 0
    """Positions of prompt and tokens that are in the decoder's cache."""
    n_held: int = 0
    """Segments at which the end was predicted before the audio had ended."""
    log_probs: list[float] = field(default_factory=list)
    n_committed: int = 0
    """Words of the window that are committed."""
    finished: bool = False

    has_text: bool = False
    last_end_s: float = 0.0

    def arrive(self, audio: Samples, last: bool) -> None:
        """Keep new samples; `last` says that none follow."""
        if audio.size:
            self.pending.append(np.asarray(audio, dtype=np.float32))
            self.n_samples += audio.size
        self.ended = self.ended or last

    def block_is_there(self) -> bool:
        """Whether the next block can be encoded; at the end of the stream zeros fill it up."""
        if self.ended:
            start = self.next_end - self.chunk_frames if self.n_taken else 0
            return start * FRAME_SAMPLES < self.n_samples
        return self.n_samples >= self.next_end * FRAME_SAMPLES + self.lookahead

    def take_samples(self) -> torch.Tensor:
        """(n,) new samples that the next block needs, zeros past the end."""
        wanted = self.next_end * FRAME_SAMPLES + self.lookahead - self.n_taken
        audio = np.concatenate(self.pending) if self.pending else np.zeros(0, np.float32)
        taken, rest = audio[:wanted], audio[wanted:]
        self.pending = [rest] if rest.size else []
        self.n_taken += wanted
        return torch.from_numpy(np.pad(taken, (0, wanted - taken.size)))

    @property
    def n_real(self) -> int:
        """Frames of the window that carry audio, as far as is known."""
        return -(-self.n_samples // FRAME_SAMPLES) - self.window_start

    def timed(self, text: str, start: int, end: int, probability: float | None) -> Word:
        """A committed word at frames of the window: times inside the audio heard, in order."""
        heard_s = self.n_samples / 16_000
        times = ((self.window_start + frame) * FRAME_S for frame in (start, end))
        start_s, end_s = (min(max(t, self.last_end_s), heard_s) for t in times)
        end_s = max(start_s, end_s)
        self.last_end_s = end_s
        return Word(text, start_s, end_s, probability)
