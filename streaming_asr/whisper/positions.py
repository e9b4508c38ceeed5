"""Where a pass of the decoder writes its keys and values, and which of them each query reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F


class KeyPositions:
    """Where a pass writes its keys, and which keys each query may read: those up to its own.

    Rows that begin at one position and are equally long are slices, which copy nothing; ragged ones
    are indexed, and need a mask.
    """

    def __init__(
        self,
        max_tokens: int,
        starts: Sequence[int],
        n_new: int,
        ragged: bool,
        device: torch.device,
    ) -> None:
        """max_tokens: positions of the model; the cache has one more, for padding. starts: for each
        row the position of its first new token. n_new: tokens of a row, padding included."""
        self._ragged = ragged
        self._start = starts[0]
        self._stop = min(max(starts) + n_new, max_tokens)
        self._n_rows = len(starts)
        self._n_new = n_new
        self._causal = False
        self._mask: torch.Tensor | None = None
        offsets = torch.arange(n_new, device=device)
        if ragged:
            begin = torch.tensor(starts, device=device)
            # (rows, n_new). Padding lies after a row's tokens, or in the one position beyond the
            # model's: no query of a token reads it.
            self._positions = (begin[:, None] + offsets).clamp(max=max_tokens)
            self._row_index = torch.arange(len(starts), device=device)[:, None]
            keys = torch.arange(self._stop, device=device)
            self._mask = (keys <= self._positions[..., None])[:, None]
        elif n_new > 1:  # a single token sees all keys, without a mask
            self._positions = (self._start + offsets)[None]
            # torch has a faster kernel for a plain triangle than for a mask.
            self._causal = self._start == 0
            if not self._causal:
                keys = torch.arange(self._stop, device=device)
                self._mask = keys <= self._positions[0, :, None]

    def position_embedding(self, table: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (rows or 1, n_new, d) of the positions; table: (positions, d)."""
        if self._ragged:
            return table[self._positions.clamp(max=table.shape[0] - 1)]
        return table[self._start : self._stop]

    def write(self, cache: torch.Tensor, new: torch.Tensor) -> None:
        """Write `new` (rows, heads, n_new, size) into cache (all rows, heads, positions, size)."""
        if self._ragged:
            cache[self._row_index, :, self._positions] = new.transpose(1, 2)
        else:
            cache[: self._n_rows, :, self._start : self._stop] = new

    def narrow(self, picks: torch.Tensor) -> None:
        """Let `attend` take only the queries of new tokens at indices `picks` (rows, n)."""
        keys = torch.arange(self._stop, device=picks.device)
        positions = self._positions.expand(picks.shape[0], -1).gather(1, picks)
        self._mask = (keys <= positions[..., None])[:, None]
        self._causal = False

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the attention of q (rows, heads, n, size), of q's shape, to the cached keys and
        values (all rows, heads, positions, size) that each query may read."""
        return F.scaled_dot_product_attention(
            q,
            keys[: self._n_rows, :, : self._stop],
            values[: self._n_rows, :, : self._stop],
            attn_mask=self._mask,
            is_causal=self._causal,
        )
