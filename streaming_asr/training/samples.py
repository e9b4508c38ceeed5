"""Windows as samples of 16 bits, from which the features of a batch are made where the model is.

The processes that draw windows have less to do then, and a teacher's features are not sent at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

FULL_SCALE = 32768
"""Of the shards' int16, so that speech which no augmentation has changed comes back as it was."""


def as_int16(windows: Sequence[np.ndarray]) -> Tensor:
    """Return windows of (n_i,) samples in [-1, 1] as (batch, n) int16, padded with zeros."""
    scaled = [(window * FULL_SCALE).round().clip(-FULL_SCALE, FULL_SCALE - 1) for window in windows]
    tensors = [torch.from_numpy(samples).short() for samples in scaled]
    return pad_sequence(tensors, batch_first=True)


def from_int16(samples: Tensor) -> Tensor:
    """Return int16 samples of any shape as float32 in [-1, 1]."""
    return samples.float() / FULL_SCALE
