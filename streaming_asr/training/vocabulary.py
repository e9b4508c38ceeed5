"""The cross-entropy over a Whisper's whole vocabulary, some rows at a time.

The logits of 2,000 tokens over 51,864 are 400 MB in float32, and each pass over them goes to memory
and back: on a CPU they take most of a step. Here the logits of a slice of rows are computed, then
their gradient, and both are dropped before the next slice: a third of the time, and little memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 256  # of a slice: its logits are 53 MB


class _Sliced(torch.autograd.Function):
    """The mean cross-entropy; its forward pass also computes the gradient of the hidden states."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross-entropy and the likeliest tokens; see `vocabulary_loss`."""
        gradient = torch.zeros_like(hidden, dtype=torch.float32)
        likeliest = torch.empty_like(labels)
        total = torch.zeros((), device=hidden.device)
        for begin in range(0, len(hidden), ROWS):
            rows = slice(begin, begin + ROWS)
            logits = (hidden[rows].to(weight.dtype) @ weight.T).float()
            targets = labels[rows, None]
            log_sum = logits.logsumexp(-1, keepdim=True)
            likeliest[rows] = logits.argmax(-1)
            total += (log_sum - logits.gather(1, targets)).sum()
            if ctx.needs_input_grad[0]:
                # The gradient by the logits: probabilities, minus 1 at the target.
                by_logits = logits.sub_(log_sum).exp_()
                by_logits.scatter_add_(1, targets, -torch.ones_like(targets, dtype=torch.float32))
                gradient[rows] = (by_logits.to(weight.dtype) @ weight).float()
        ctx.save_for_backward(gradient / max(1, len(hidden)))
        ctx.dtype = hidden.dtype
        ctx.mark_non_differentiable(likeliest)
        return total / max(1, len(hidden)), likeliest

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * grads[0]).to(ctx.dtype), None, None


def vocabulary_loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of `hidden @ weight.T` with `labels`, a scalar, and the
    likeliest tokens, (n,).

    hidden: (n, d), which gets a gradient. weight: (V, d), which gets none, in autocast's type where
    that is on. labels: (n,) int64."""
    device_type = hidden.device.type
    if torch.is_autocast_enabled(device_type):
        weight = weight.to(torch.get_autocast_dtype(device_type))
    result: tuple[Tensor, Tensor] = _Sliced.apply(hidden, weight.detach(), labels)
    return result
