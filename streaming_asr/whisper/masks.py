"""Block structure of a causal encoder: which frames a frame may look at.

Frames are encoder frames of 20 ms. A stream is a row of blocks: the first of
`first_chunk_frames`, every later one of `chunk_frames`. A frame sees every frame up to the end of
its own block (WhisperRT eq. 37; equal to it where the first block is a multiple of the chunk).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def block_ends(n_frames: int, chunk_frames: int, first_chunk_frames: int) -> list[int]:
    """Return the ends (exclusive) of blocks that cover `n_frames`; the last may be cut short."""
    if n_frames <= 0:
        return []
    ends = list(range(first_chunk_frames, n_frames, chunk_frames))
    return [*ends, n_frames]


def whole_block_ends(
    n_frames: int, chunk_frames: int, first_chunk_frames: int, context_frames: int
) -> list[int]:
    """Return the ends of the whole blocks that hold `n_frames`; the context may cut the last."""
    n_later = max(0, -(-(n_frames - first_chunk_frames) // chunk_frames))  # blocks, rounded up
    n_whole = min(first_chunk_frames + n_later * chunk_frames, context_frames)
    return block_ends(n_whole, chunk_frames, first_chunk_frames)


def visible_until(ends: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """Return for every frame the end of its block, (n_frames,) int64, where n_frames = ends[-1]."""
    edges = torch.tensor([0, *ends], device=device)
    return torch.repeat_interleave(edges[1:], edges[1:] - edges[:-1])


def mask_from_ends(ends: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """Return bool (n_frames, n_frames) of blocks that end at `ends`; True: frame i may see j."""
    until = visible_until(ends, device)
    return torch.arange(until.numel(), device=device)[None, :] < until[:, None]
