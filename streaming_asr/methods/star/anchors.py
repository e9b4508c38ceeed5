"""Where anchors lie: by accumulated scores, by rank, or at a fixed stride.

A segmenter scores every frame; alpha = sigmoid(score) is summed up, and the frame that brings the
sum to 1 is an anchor (algorithm 1, line 6). The last frame is always one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

TOLERANCE = 1e-6  # ten scores of 0.1 make 1
SMOOTHING_ROUNDS = 10


def accumulate(
    alphas: Sequence[float], total: float = 0.0, *, carry: bool = False
) -> tuple[list[int], float]:
    """Return the indices of anchors among the alphas of frames, and the running sum at their end.

    total: the running sum before these frames. carry: False sets the sum to 0 after an anchor, as
    algorithm 1 (line 4) has it; True takes off 1 and keeps the residual, as the published
    code does.
    """
    anchors = []
    for i, alpha in enumerate(alphas):
        total += alpha
        if total >= 1.0 - TOLERANCE:
            anchors.append(i)
            total = max(0.0, total - 1.0) if carry else 0.0
    return anchors, total


def rescale(alpha: torch.Tensor, n: float) -> torch.Tensor:
    """Return the scores (T,) multiplied so that they sum to `n` (equation 9).

    Where one of them is then above 1, which would be two anchors in one frame, all are drawn
    half-way to their mean, at most ten times; the sum stays.
    """
    scaled = alpha * (n / alpha.sum().clamp(min=1e-8))
    for _ in range(SMOOTHING_ROUNDS):
        if not bool((scaled > 1.0).any()):
            break
        scaled = 0.5 * scaled + 0.5 * scaled.mean()
    return scaled


def top_k(scores: torch.Tensor, rate: float) -> list[int]:
    """Return the k = ceil(T / rate) best frames of scores (T,), in order, the last among them.

    Equation 3, for audio that is compressed as a whole. A rate above T leaves only the last frame.
    """
    n_frames = scores.shape[0]
    if n_frames == 0:
        return []
    k = min(n_frames, math.ceil(n_frames / rate - 1e-9))
    forced = scores.detach().float().clone()
    # The end of the audio always is an anchor: what follows the last one would be lost.
    forced[-1] = torch.inf
    return sorted(forced.topk(k).indices.tolist())


def fixed(n_frames: int, stride: int, before: int = 0) -> list[int]:
    """Return the indices, among `n_frames` that follow `before` others, of each stride-th frame."""
    return [i for i in range(n_frames) if (before + i + 1) % stride == 0]
