"""What STAR knows about one stream: its window of audio, its anchors, its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from streaming_asr.methods.star.compressors import CompressorState
from streaming_asr.methods.star.decoder import AnchorCache
from streaming_asr.whisper.window import BlockAudio


@dataclass(slots=True, kw_only=True)
class StarState(BlockAudio):
    """One stream. Frames are of 20 ms; positions in the window unless noted."""

    features: Any
    """The extractor's state."""
    compressor: CompressorState
    cache: AnchorCache
    prompt: list[int]

    ready: list[int] = field(default_factory=list)
    """For each segment, the vectors the decoder has when it is complete."""
    ends: list[int] = field(default_factory=list)
    """For each segment, its end."""
    uncompressed: list[torch.Tensor] = field(default_factory=list)
    """Frames (n, d) of the window so far, in the form that is not streaming."""

    tokens: list[int] = field(default_factory=list)
    n_fed: int = 0
    """Positions of prompt and tokens that are in the decoder's cache."""
    log_probs: list[float] = field(default_factory=list)
    n_committed: int = 0
    """Words of the window that are committed."""
    finished: bool = False
