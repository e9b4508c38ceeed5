"""A tiny ChunkFormer folder with random weights that says words, built once per test session."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import torch
from tiny import noise

from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.encoder import Network, Shape
from streaming_asr.methods.chunkformer.features import fbank
from streaming_asr.methods.chunkformer.load import save

TOKENS = ["<blank>", "<unk>", "▁the", "▁fox", "▁", "ed", "s", "▁runs", "ing", "a", "<sos/eos>"]
SHAPE = Shape(d=32, heads=2, layers=3, hidden=48, vocabulary=len(TOKENS))
# Of the features of audio at the usual level: 14 +- 5.
STATISTICS = {
    "mean_stat": [1400.0] * 80,
    "var_stat": [100 * (14.0**2 + 5.0**2)] * 80,
    "frame_num": 100,
}


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
        network.encoder.global_cmvn.mean += 14
        network.encoder.global_cmvn.istd *= 0.2
        # Tokens come in turn, and some blanks, as from a trained network.
        (logits,) = network.eval()([fbank(torch.from_numpy(noise(8.0, seed=9)))], Context(4, 50, 0))
        head, spread = network.ctc.ctc_lo, logits.std(0)
        head.bias.copy_((head.bias - logits.mean(0)) / spread)
        head.weight /= spread[:, None]
        head.bias[0] += 0.7
    return network.eval()


@functools.cache
def tiny_folder(seed: int = 3) -> Path:
    """A folder that `load` reads. The same seed gives the same folder."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-chunkformer-"))
    save(folder, tiny_network(seed), TOKENS)
    (folder / "global_cmvn").write_text(json.dumps(STATISTICS))
    return folder
