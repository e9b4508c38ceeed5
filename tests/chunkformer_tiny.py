"""A tiny ChunkFormer folder with random weights that says words, built once per test session."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch

from streaming_asr.methods.chunkformer.encoder import Network, Shape
from streaming_asr.methods.chunkformer.load import Statistics, normalisation, save

TOKENS = ["<blank>", "<unk>", "▁the", "▁fox", "▁", "ed", "s", "▁runs", "ing", "a", "<sos/eos>"]
SHAPE = Shape(d=32, heads=2, layers=3, hidden=48, vocabulary=len(TOKENS))
# Of filter bank values: about 4 +- 5 for audio of the usual level.
STATISTICS = Statistics([400.0] * 80, [100 * (16.0 + 25.0)] * 80, 100)


def tiny_network(seed: int = 3, shape: Shape = SHAPE) -> Network:
    """Random weights, large enough for what is heard to decide."""
    torch.manual_seed(seed)
    network = Network(shape)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim >= 2:
                weight.normal_(0.0, 1.4 * weight[0].numel() ** -0.5)
            elif "bias" in name:
                weight.normal_(0.0, 0.1)
        network.ctc.ctc_lo.bias[0] += 0.5  # blanks, as a trained network has them
        network.encoder.global_cmvn.mean, network.encoder.global_cmvn.istd = normalisation(
            STATISTICS
        )
    return network.eval()


@functools.cache
def tiny_folder(seed: int = 3) -> Path:
    """A folder that `load` reads. The same seed gives the same folder."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-chunkformer-"))
    save(folder, tiny_network(seed), TOKENS, STATISTICS)
    return folder
