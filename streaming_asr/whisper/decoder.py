"""Whisper's decoder over kept keys and values.

Cross-attention keys and values are projected once per encoder frame and kept. The audio is fixed
within a chunk, so one teacher-forced pass over prompt and tokens gives the logits of every
position asked for and fills the self-attention cache; each further token is one cached step. Both
are exact: equal to transformers' full forward pass.

Every cache has a batch axis. Rows may have token counts of their own (shorter rows are padded on
the right and never read there) but stand at the same number of frames in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from streaming_asr.whisper.encoder import Rows, merge_heads, split_heads
from streaming_asr.whisper.load import Whisper

OnCross = Callable[[int, torch.Tensor], None]
"""Called with (layer, cross-attention queries (rows, heads, queries, d / heads))."""


class DecoderCache:
    """Keys and values of a pool of streams, allocated once.

    keys, values: per layer (rows, heads, max tokens, d / heads);
    cross_keys, cross_values: per layer (streams, heads, context, d / heads).
    """

    def __init__(self, decoder: Decoder, rows: int = 1, streams: int | None = None) -> None:
        def allocate(n: int, length: int) -> list[torch.Tensor]:
            shape = (n, decoder.n_heads, length, decoder.head_size)
            return [decoder.embedding.new_empty(shape) for _ in decoder.layers]

        self.rows = rows
        streams = rows if streams is None else streams
        # One position more than the model has: padding of short rows is dropped there.
        self.keys = allocate(rows, decoder.max_tokens + 1)
        self.values = allocate(rows, decoder.max_tokens + 1)
        for cache in (*self.keys, *self.values):
            cache.zero_()  # a masked position still enters the product, with weight 0
        self.cross_keys = allocate(streams, decoder.context_frames)
        self.cross_values = allocate(streams, decoder.context_frames)

    def reorder(self, parents: Sequence[int], n_tokens: int) -> None:
        """Row i takes over the first `n_tokens` positions of row parents[i] (beams)."""
        if list(parents) == list(range(len(parents))):
            return
        index = torch.tensor(parents, device=self.keys[0].device)
        for cache in (*self.keys, *self.values):
            cache[: len(parents), :, :n_tokens] = cache[index, :, :n_tokens]


class Decoder:
    """The passes over a `DecoderCache`; holds weights only."""

    def __init__(self, whisper: Whisper) -> None:
        decoder = whisper.model.model.decoder
        self.layers: list[Any] = list(decoder.layers)
        self.embedding: torch.Tensor = decoder.embed_tokens.weight
        self.positions: torch.Tensor = decoder.embed_positions.weight
        self.final_norm = decoder.layer_norm
        self.output: torch.Tensor = whisper.model.proj_out.weight
        self.n_heads: int = whisper.config.decoder_attention_heads
        self.head_size: int = whisper.config.d_model // self.n_heads
        self.max_tokens: int = whisper.max_tokens
        self.context_frames: int = whisper.context_frames
        self.suppressed = whisper.suppressed
        self.pad = whisper.eot

    @torch.inference_mode()
    def append_frames(
        self, cache: DecoderCache, hidden: torch.Tensor, start: int, rows: Rows = slice(None)
    ) -> None:
        """Project encoder frames (rows, n, d) that begin at frame `start`, once and for all."""
        stop = start + hidden.shape[1]
        for i, layer in enumerate(self.layers):
            attention = layer.encoder_attn
            keys = split_heads(attention.k_proj(hidden), self.n_heads)
            values = split_heads(attention.v_proj(hidden), self.n_heads)
            cache.cross_keys[i][rows, :, start:stop] = keys
            cache.cross_values[i][rows, :, start:stop] = values

    @torch.inference_mode()
    def run(
        self,
        cache: DecoderCache,
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        n_frames: int,
        *,
        rows: Sequence[int] | None = None,
        stream: int | None = None,
        take: Sequence[Sequence[int]] | None = None,
        on_cross: OnCross | None = None,
    ) -> torch.Tensor:
        """Feed tokens[r] at positions starts[r].. of each row; earlier positions are cached.

        rows: cache rows of the tokens (default 0..len(tokens)-1), each also its stream's row in
        the cross cache, unless all are hypotheses of one `stream`. take: for each row, indices
        into tokens[r] whose outputs are wanted (default the last one); shorter lists are filled
        with their last. Returns hidden states (rows, len(take[0]), d).
        """
        lengths = [len(row) for row in tokens]
        longest = max(lengths)
        device = self.embedding.device
        rows = list(range(len(tokens))) if rows is None else list(rows)
        take = [[length - 1] for length in lengths] if take is None else take
        n_take = max(len(wanted) for wanted in take)
        if min(len(wanted) for wanted in take) < n_take:
            take = [[*wanted, *[wanted[-1]] * (n_take - len(wanted))] for wanted in take]
        if max(starts[r] + n for r, n in enumerate(lengths)) > self.max_tokens:
            raise ValueError(f"more than {self.max_tokens} tokens: the decoder has no positions")

        ragged = min(lengths) < longest or min(starts) < max(starts)
        if min(lengths) < longest:
            ids = torch.tensor(
                [[*row, *[self.pad] * (longest - len(row))] for row in tokens], device=device
            )
        else:
            ids = torch.tensor(tokens, device=device)
        where = KeyPositions(self, starts, longest, rows, ragged, device)
        x = self.embedding[ids] + where.position_embedding(self.positions)
        picks = torch.tensor(take, device=device)
        partial_last = n_take < longest
        for i, layer in enumerate(self.layers):
            attention = layer.self_attn
            h = layer.self_attn_layer_norm(x)
            where.write(cache.keys[i], split_heads(attention.k_proj(h), self.n_heads))
            where.write(cache.values[i], split_heads(attention.v_proj(h), self.n_heads))
            if partial_last and i == len(self.layers) - 1:
                # Nothing after this layer's keys needs the other positions.
                gather = picks[..., None].expand(-1, -1, x.shape[-1])
                x, h = x.gather(1, gather), h.gather(1, gather)
                where.narrow(picks)
            q = split_heads(attention.q_proj(h), self.n_heads)
            h = where.attend(q, cache.keys[i], cache.values[i])
            x = x + attention.out_proj(merge_heads(h))
            x = self._cross(cache, i, x, rows, stream, n_frames, on_cross)
            h = layer.final_layer_norm(x)
            x = x + layer.fc2(F.gelu(layer.fc1(h)))
        if not partial_last and n_take == longest and longest > 1:
            x = x.gather(1, picks[..., None].expand(-1, -1, x.shape[-1]))
        hidden: torch.Tensor = self.final_norm(x)
        return hidden

    def _cross(
        self,
        cache: DecoderCache,
        i: int,
        x: torch.Tensor,
        rows: list[int],
        stream: int | None,
        n_frames: int,
        on_cross: OnCross | None,
    ) -> torch.Tensor:
        layer = self.layers[i]
        attention = layer.encoder_attn
        q = split_heads(attention.q_proj(layer.encoder_attn_layer_norm(x)), self.n_heads)
        if on_cross is not None:
            on_cross(i, q)
        keys, values = cache.cross_keys[i], cache.cross_values[i]
        if stream is not None:
            # Hypotheses of one stream share its frames: fold them into the query axis.
            n_rows, n_heads, n_queries, size = q.shape
            folded = q.transpose(0, 1).reshape(1, n_heads, n_rows * n_queries, size)
            own = slice(stream, stream + 1)
            h = F.scaled_dot_product_attention(
                folded, keys[own, :, :n_frames], values[own, :, :n_frames]
            )
            h = h.view(n_heads, n_rows, n_queries, size).transpose(0, 1)
        elif _contiguous(rows) or q.is_cuda:
            chosen = slice(rows[0], rows[-1] + 1) if _contiguous(rows) else rows
            h = F.scaled_dot_product_attention(
                q, keys[chosen, :, :n_frames], values[chosen, :, :n_frames]
            )
        else:  # row by row: views, where an index would copy all the frames
            h = torch.cat(
                [
                    F.scaled_dot_product_attention(
                        q[j : j + 1],
                        keys[row : row + 1, :, :n_frames],
                        values[row : row + 1, :, :n_frames],
                    )
                    for j, row in enumerate(rows)
                ]
            )
        return x + attention.out_proj(merge_heads(h))

    @torch.inference_mode()
    def log_probs(self, hidden: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return log-probabilities (..., vocabulary) float32, none for control tokens."""
        logits = F.linear(hidden, self.output).float()
        logits += self.suppressed if bias is None else bias
        return logits.log_softmax(-1)


def _contiguous(rows: Sequence[int]) -> bool:
    return rows[-1] - rows[0] == len(rows) - 1 and list(rows) == sorted(rows)


class KeyPositions:
    """Where a pass writes its keys, and which keys each query may read."""

    def __init__(
        self,
        decoder: Decoder,
        starts: Sequence[int],
        n_new: int,
        rows: list[int],
        ragged: bool,
        device: torch.device,
    ) -> None:
        self._ragged = ragged
        self._start = starts[0]
        self._stop = min(max(starts) + n_new, decoder.max_tokens)
        self._rows: Any = (
            slice(rows[0], rows[-1] + 1) if _contiguous(rows) else torch.tensor(rows, device=device)
        )
        self._n_new = n_new
        self._causal = False
        self._mask: torch.Tensor | None = None
        offsets = torch.arange(n_new, device=device)
        if ragged:
            begin = torch.tensor(starts, device=device)
            self._at = (begin[:, None] + offsets).clamp(max=decoder.max_tokens)
            self._row_index = torch.tensor(rows, device=device)[:, None]
            self._mask = (torch.arange(self._stop, device=device) <= self._at[..., None])[:, None]
        elif n_new > 1:
            self._causal = self._start == 0
            self._at = (self._start + offsets)[None]
            if not self._causal:
                self._mask = torch.arange(self._stop, device=device) <= self._at[0, :, None]

    def position_embedding(self, table: torch.Tensor) -> torch.Tensor:
        if self._ragged:
            return table[self._at.clamp(max=table.shape[0] - 1)]
        return table[self._start : self._stop]

    def write(self, cache: torch.Tensor, new: torch.Tensor) -> None:
        """new: (rows, heads, n_new, size) into cache (all rows, heads, positions, size)."""
        if self._ragged:
            cache[self._row_index, :, self._at] = new.transpose(1, 2)
        else:
            cache[self._rows, :, self._start : self._stop] = new

    def narrow(self, picks: torch.Tensor) -> None:
        """From now on only the queries at `picks` (rows, wanted) are computed."""
        keys = torch.arange(self._stop, device=picks.device)
        at = self._at.expand(picks.shape[0], -1).gather(1, picks)
        self._mask = (keys <= at[..., None])[:, None]
        self._causal = False

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            q,
            keys[self._rows, :, : self._stop],
            values[self._rows, :, : self._stop],
            attn_mask=self._mask,
            is_causal=self._causal,
        )
