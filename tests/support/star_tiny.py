"""STAR networks with random weights on a tiny Whisper, for its tests."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from tiny import tiny_folder

from streaming_asr.methods.star.network import StarConfig, StarNetwork, save_network
from streaming_asr.whisper.load import load_whisper

FRAMES_PER_ANCHOR = 6


def randomise(module: torch.nn.Module, seed: int = 5) -> None:
    """Weights that matter: nothing at zero; anchors every few frames, at no fixed distance."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim >= 2:
                gain = 0.3 if ".out." in name or ".fc2." in name else 0.7
                std = 0.3 if "types" in name else gain * weight[0].numel() ** -0.5
                weight.normal_(0.0, std, generator=random)
            if "segmenter.score.weight" in name:
                weight *= 3.0
            if "segmenter.score.bias" in name:
                weight.fill_(-torch.log(torch.tensor(FRAMES_PER_ANCHOR - 1.0)).item())


def model_folder(d_model: int = 32) -> Path:
    """The tiny Whisper: one that says several words, and the end at times."""
    return tiny_folder(seed=3, eot_logit=2.0, d_model=d_model)


@functools.cache
def star_folder(d_model: int = 32, **config: Any) -> Path:
    """A folder that `method.weights` takes. The same arguments give the same folder."""
    whisper = load_whisper(model_folder(d_model))
    network = StarNetwork(whisper, StarConfig(**{"layers": 2, **config}))
    randomise(network.compressor)
    folder = Path(tempfile.mkdtemp(prefix="tiny-star-"))
    save_network(network, folder)
    return folder
