"""Where a pass of the decoder writes its keys and values, and which of them each query reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F


class KeyPositions:
    """Where a pass writes its keys, and which keys each query may read."""

    def __init__(
        self,
        max_tokens: int,
        starts: Sequence[int],
        n_new: int,
        ragged: bool,
        device: torch.device,
    ) -> None:
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
            # Padding lies behind a row's tokens, or in the one position beyond the model's: unread.
            self._at = (begin[:, None] + offsets).clamp(max=max_tokens)
            self._row_index = torch.arange(len(starts), device=device)[:, None]
            self._mask = (torch.arange(self._stop, device=device) <= self._at[..., None])[:, None]
        elif n_new > 1:
            # torch has a faster kernel for a plain triangle than for a mask.
            self._causal = self._start == 0
            self._at = (self._start + offsets)[None]
            if not self._causal:
                self._mask = torch.arange(self._stop, device=device) <= self._at[0, :, None]

    def position_embedding(self, table: torch.Tensor) -> torch.Tensor:
        if self._ragged:
            return table[self._at.clamp(max=table.shape[0] - 1)]
        return table[self._start : self._stop]

    def write(self, cache: torch.Tensor, new: torch.Tensor) -> None:
        """Write `new` (rows, heads, n_new, size) into cache (all rows, heads, positions, size)."""
        if self._ragged:
            cache[self._row_index, :, self._at] = new.transpose(1, 2)
        else:
            cache[: self._n_rows, :, self._start : self._stop] = new

    def narrow(self, picks: torch.Tensor) -> None:
        """Compute from now on only the queries at `picks` (rows, wanted)."""
        keys = torch.arange(self._stop, device=picks.device)
        at = self._at.expand(picks.shape[0], -1).gather(1, picks)
        self._mask = (keys <= at[..., None])[:, None]
        self._causal = False

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q,
            keys[: self._n_rows, :, : self._stop],
            values[: self._n_rows, :, : self._stop],
            attn_mask=self._mask,
            is_causal=self._causal,
        )
