"""What STAR knows about one stream: its window of audio, its anchors, its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from streaming_asr.method import Word
from streaming_asr.methods.star.compressors import CompressorState
from streaming_asr.methods.star.decoder import AnchorCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.window import FRAME_S, BlockAudio


@dataclass(slots=True, kw_only=True)
class StreamState(BlockAudio):
    """One stream. Frames are of 20 ms; positions in the window unless said otherwise."""

    features: Any
    """The extractor's state."""
    compressor: CompressorState
    cache: AnchorCache
    prompt: list[int]
    language: str | None

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

    @property
    def n_real(self) -> int:
        """Frames of the window that carry audio, as far as is known."""
        return -(-self.n_samples // FRAME_SAMPLES) - self.window_start

    def timed(self, text: str, start: int, end: int, probability: float | None) -> Word:
        """A committed word at frames of the window: times inside the audio heard, in order."""
        times = ((self.window_start + frame) * FRAME_S for frame in (start, end))
        start_s, end_s = (min(max(t, self.last_end_s), self.heard_s) for t in times)
        end_s = max(start_s, end_s)
        self.last_end_s = end_s
        return Word(text, start_s, end_s, probability)
