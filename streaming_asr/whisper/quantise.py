"""8-bit linear layers on the CPU: `dtype=int8`, torch's dynamic quantisation.

Weights are rounded to 8 bits once, after the adapter is merged (only training knows adapters that
are not, and it has no int8: 8-bit weights are no parameters). Every call scales its activations by
the largest of all its rows. So a row's numbers depend on what else is in the call: streams in int8
share no pass (`encode_parts`, `Decoder.run_parts`), and a batch gives the texts of one by one.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn


def quantise(*parts: nn.Module) -> None:
    """Turn the linear layers inside `parts`, float32 on the CPU, into 8 bits, in place."""
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        # Deprecated in favour of another package, but still a part of torch.
        warnings.filterwarnings("ignore", message=".*torch.ao.quantization")
        warnings.filterwarnings("ignore", message=".*quantized tensor creation")
        for part in parts:
            quantize_dynamic(part, {nn.Linear}, dtype=torch.qint8, inplace=True)


def is_quantised(layer: Any) -> bool:
    """Return whether `quantise` has changed this layer of Whisper's."""
    return type(layer.fc1).__module__.startswith("torch.ao.")
