"""Encoder cost counted from shapes: one multiply-accumulate is two floating point operations.

Per layer and n new frames: 2 n (4 d^2 + 2 d dff) for the projections and the feed-forward,
4 n m d for attention over m keys. Convolutions on the mel frames they read. Norms, activations and
softmax are left out, as torch's FlopCounterMode leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def encoder_flops(config: Any, n_frames: int, n_keys: int | None = None) -> float:
    """Return the FLOPs of encoding `n_frames` frames that attend to `n_keys` (default: themselves).

    config: a WhisperConfig. `n_keys` counts the frames seen, cached and new.
    """
    if n_frames <= 0:
        return 0.0
    keys = n_frames if n_keys is None else n_keys
    d = config.d_model
    # A block in mid-stream needs one more output of the first convolution than two per frame.
    conv1_frames = 2 * n_frames + (1 if keys > n_frames else 0)
    conv = 2 * 3 * config.num_mel_bins * d * conv1_frames + 2 * 3 * d * d * n_frames
    return float(conv + config.encoder_layers * layer_flops(config, n_frames, keys))


def layer_flops(config: Any, n_frames: int, n_keys: int) -> float:
    """Return the FLOPs of one encoder layer over `n_frames` frames that attend to `n_keys`."""
    d, ff = config.d_model, config.encoder_ffn_dim
    return float(2 * n_frames * (4 * d * d + 2 * d * ff) + 4 * n_frames * n_keys * d)


def block_flops(config: Any, start: int, ends: Sequence[int]) -> float:
    """Return the FLOPs of encoding, from frame `start` on, the blocks that end at `ends`."""
    blocks = zip([start, *ends[:-1]], ends, strict=True)
    return sum(encoder_flops(config, end - begin, end) for begin, end in blocks)
