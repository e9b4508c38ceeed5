"""The hush word's encoder beside the padded one, random weights at Whisper base's dimensions."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F

AUDIO_S = 5.0
LESS = 3.0  # times at least that the padded encoder takes
TOLERANCE = 1e-3  # of the largest value


@dataclass(frozen=True)
class HushCost:
    """Milliseconds of CPU time of the two encoders, medians. same: the short one is transformers'
    own layers on its frames."""

    hush_ms: float
    full_ms: float
    n_frames: int
    n_full: int
    same: bool

    @property
    def ratio(self) -> float:
        return self.full_ms / self.hush_ms


def measure(folder: str, audio_s: float = AUDIO_S, repeats: int = 5) -> HushCost:
    """Encode `audio_s` of made-up audio with half a second after it, and padded to the context."""
    from experiments.bench.models import synthetic_audio
    from streaming_asr.methods.hush_word.padding import PaddedEncoder, make_padding
    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(folder)
    # Half a second of noise costs what half a second of hush word costs.
    short, full = (
        PaddedEncoder(whisper, make_padding(kind, whisper)) for kind in ("noise", "full")
    )
    audio = synthetic_audio(audio_s, seed=0)
    spent: dict[str, list[float]] = {"short": [], "full": []}
    mels = {"short": short.mel(audio), "full": full.mel(audio)}
    short.encode(mels["short"])  # warm
    for _ in range(repeats):
        for name, encoder in (("short", short), ("full", full)):
            begin = time.thread_time_ns()
            encoder.encode(mels[name])
            spent[name].append((time.thread_time_ns() - begin) / 1e6)
    ours, plain = short.encode(mels["short"]), _by_transformers(whisper.model, mels["short"])
    return HushCost(
        statistics.median(spent["short"]),
        statistics.median(spent["full"]),
        mels["short"].shape[-1] // 2,
        mels["full"].shape[-1] // 2,
        bool((ours - plain).abs().max() < TOLERANCE * plain.abs().max()),
    )


@torch.inference_mode()
def _by_transformers(model: Any, mel: torch.Tensor) -> torch.Tensor:
    """Frames of transformers' own layers, with as many positions as there are frames."""
    encoder = model.model.encoder
    x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
    x = x + encoder.embed_positions.weight[: x.shape[1]]
    for layer in encoder.layers:
        x = layer(x, None)
    hidden: torch.Tensor = encoder.layer_norm(x)
    return hidden


def base_cost() -> HushCost:
    """`measure` on random weights of Whisper base; nothing is downloaded."""
    from experiments.bench.models import random_whisper

    with TemporaryDirectory(prefix="bench-") as folder:
        return measure(str(random_whisper("base", Path(folder))))
