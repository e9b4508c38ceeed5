"""Which frames each chunk sees: the overlapping chunk transformation and its masks (II-A, II-B).

Frames of all audios lie one after the other on one axis. A chunk's window is a list of places on
that axis, left context, the chunk, right context; places that belong to another audio, or to none,
are masked. Tables are made once for a batch and serve every layer. No frame is padded anywhere but
at the end of an audio's last chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

KERNEL = 15
"""Of the convolution modules: seven frames to each side."""
SIDE = KERNEL // 2


@dataclass(frozen=True, slots=True)
class Context:
    """Frames of 80 ms in a chunk and around it."""

    chunk: int
    left: int
    right: int

    @property
    def window(self) -> int:
        return self.left + self.chunk + self.right


@dataclass(frozen=True, slots=True)
class Span:
    """Where one audio's frames lie on the flat axis, and which of its chunks are to be computed."""

    base: int
    """Place of frame `first` on the axis."""
    first: int
    stop: int
    """The axis holds the frames first .. stop - 1 of the audio."""
    starts: range
    """First frame of each chunk to compute."""


@dataclass(frozen=True, slots=True)
class Table:
    """Windows of M chunks, W places each, into a flat axis of rows."""

    index: Tensor  # (M, W) int64; a masked place points at row 0
    valid: Tensor  # (M, W) bool


def table(
    spans: Sequence[Span],
    left: int,
    chunk: int,
    right: int,
    *,
    seen: int | None = None,
    device: torch.device | str = "cpu",
) -> Table:
    """Return the windows around all chunks of `spans`: M chunks, W = left + chunk + right places.

    seen: only this many of the `right` frames are unmasked; default all.
    """
    starts = torch.tensor([start for span in spans for start in span.starts], dtype=torch.int64)
    n_chunks = torch.tensor([len(span.starts) for span in spans], dtype=torch.int64)

    def per_chunk(values: list[int]) -> Tensor:
        """Return (M, 1): the value of each chunk's span."""
        return torch.tensor(values, dtype=torch.int64).repeat_interleave(n_chunks)[:, None]

    # Frame numbers within the audio, (M, W).
    frames = starts[:, None] + torch.arange(-left, chunk + right)
    first, stop = per_chunk([s.first for s in spans]), per_chunk([s.stop for s in spans])
    valid = (frames >= first) & (frames < stop)
    if seen is not None:
        valid &= frames < starts[:, None] + chunk + seen
    index = (frames - first + per_chunk([s.base for s in spans])).where(valid, 0)
    return Table(index.to(device), valid.to(device))


def rows_of(queries: Table) -> Tensor:
    """Return the places (N,) of a flattened (M, chunk) table that hold a frame, in order."""
    return queries.valid.flatten().nonzero()[:, 0]
