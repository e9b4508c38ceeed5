"""Whisper's decoder over kept keys and values.

Cross-attention keys and values are projected once per encoder frame and kept. The audio is fixed
within a chunk, so one teacher-forced pass over prompt and tokens gives the logits of every
position asked for and fills the self-attention cache; each further token is one cached step. Both
are exact: equal to transformers' full forward pass.

A cache is one stream's, its rows are hypotheses. Rows may have token counts of their own: shorter
ones are padded on the right and never read there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from streaming_asr.machine import is_intel
from streaming_asr.whisper.encoder import (
    feed_forward,
    merge_heads,
    of_rows,
    pack,
    split_heads,
    unpack,
)
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.positions import KeyPositions
from streaming_asr.whisper.quantise import is_quantised

OnCross = Callable[[int, torch.Tensor], None]
"""Called with (layer, cross-attention queries (rows, heads, queries, d / heads))."""


class DecoderCache:
    """Keys and values of one stream, allocated once.

    keys, values: per layer (rows, heads, max tokens, d / heads);
    cross_keys, cross_values: per layer (1, heads, context, d / heads).
    """

    def __init__(self, decoder: Decoder, rows: int = 1) -> None:
        def allocate(n: int, length: int) -> list[torch.Tensor]:
            shape = (n, decoder.n_heads, length, decoder.head_size)
            return [decoder.embedding.new_empty(shape) for _ in decoder.layers]

        # One position more than the model has: padding of short rows is dropped there.
        self.keys = allocate(rows, decoder.max_tokens + 1)
        self.values = allocate(rows, decoder.max_tokens + 1)
        for cache in (*self.keys, *self.values):
            cache.zero_()  # a masked position still enters the product, with weight 0
        self.cross_keys = allocate(1, decoder.context_frames)
        self.cross_values = allocate(1, decoder.context_frames)

    def reorder(self, parents: Sequence[int], n_tokens: int) -> None:
        """Copy the first `n_tokens` positions of row parents[i] to row i, for all i (beams)."""
        if list(parents) == list(range(len(parents))):
            return  # every row goes on from itself
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
        self.is_quantised = is_quantised(self.layers[0])
        self.suppressed = whisper.suppressed
        self.pad = whisper.eot

    @torch.inference_mode()
    def append_frames(self, cache: DecoderCache, hidden: torch.Tensor, start: int) -> None:
        """Write the cross-attention keys and values of encoder frames (1, n, d) into the cache.

        start: the frame of the window at which they begin.
        """
        stop = start + hidden.shape[1]
        for i, layer in enumerate(self.layers):
            attention = layer.encoder_attn
            keys = split_heads(attention.k_proj(hidden), self.n_heads)
            values = split_heads(attention.v_proj(hidden), self.n_heads)
            cache.cross_keys[i][:, :, start:stop] = keys
            cache.cross_values[i][:, :, start:stop] = values

    @torch.inference_mode()
    def run(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Run a pass over one part, for the arguments see `part`.

        Returns its hidden states (rows, taken positions, d)."""
        return self.run_parts([self.part(*arguments, **options)])[0]

    @torch.inference_mode()
    def part(
        self,
        cache: DecoderCache,
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        n_frames: int,
        *,
        take: Sequence[Sequence[int]] | None = None,
        on_cross: OnCross | None = None,
        bias: torch.Tensor | None = None,
        n_next: int = 1,
    ) -> TokenPart:
        """Return the tokens of one stream, embedded, as a part of a pass (`run_parts`).

        tokens: for each row (hypothesis) the ids to feed, at positions starts[row] and after it;
        the keys and values of the positions before are in the cache. n_frames: the frames that they
        attend to. take: for each row, indices into tokens[row] whose outputs to return (default the
        last `n_next`); shorter lists are filled with their last. on_cross: see `OnCross`. bias:
        (vocabulary,) on the logits of what follows, in place of `suppressed`. n_next:
        `next_log_probs` gives what follows each of so many last positions. Raises ValueError where
        the decoder has too few positions.
        """
        lengths = [len(row) for row in tokens]
        longest = max(lengths)
        device = self.embedding.device
        if take is None:
            take = [range(n - n_next, n) for n in lengths]
        if max(start + n for start, n in zip(starts, lengths, strict=True)) > self.max_tokens:
            raise ValueError(f"more than {self.max_tokens} tokens: the decoder has no positions")
        # A tensor needs rows of one length; callers read as many outputs as they asked for.
        n_taken = max(len(indices) for indices in take)
        picks = [[*indices, *[indices[-1]] * (n_taken - len(indices))] for indices in take]
        ids = [[*row, *[self.pad] * (longest - len(row))] for row in tokens]

        # Rows in phase are written and read as slices, which copies nothing.
        is_ragged = min(lengths) < longest or min(starts) < max(starts)
        where = KeyPositions(self.max_tokens, starts, longest, is_ragged, device)
        x = self.embedding[torch.tensor(ids, device=device)]
        x = x + where.position_embedding(self.positions)
        taken = torch.tensor(picks, device=device)
        return TokenPart(x, cache, where, n_frames, taken, on_cross, bias, n_next)

    @torch.inference_mode()
    def run_parts(self, parts: Sequence[TokenPart]) -> list[torch.Tensor]:
        """Run one pass over all parts; return hidden states (rows, taken positions, d) of each.

        Writes the new keys and values into the parts' caches. As in `encode_parts`, all positions
        go through the linear layers as one, without padding, and each part attends by itself; in
        int8 the parts go one by one.
        """
        # int8 scales by all rows of a call: a stream's numbers would depend on the others.
        if len(parts) > 1 and self.is_quantised:
            return [self.run_parts([part])[0] for part in parts]
        shapes = [part.x.shape[:2] for part in parts]

        def heads_by_part(packed: torch.Tensor) -> list[torch.Tensor]:
            return [split_heads(rows, self.n_heads) for rows in unpack(packed, shapes)]

        def only_taken(packed: torch.Tensor) -> torch.Tensor:
            by_part = zip(parts, unpack(packed, shapes), strict=True)
            return pack([part.narrow(rows) for part, rows in by_part])

        x = pack([part.x for part in parts])
        for i, layer in enumerate(self.layers):
            attention = layer.self_attn
            h = layer.self_attn_layer_norm(x)
            keys, values = heads_by_part(attention.k_proj(h)), heads_by_part(attention.v_proj(h))
            for part, key, value in zip(parts, keys, values, strict=True):
                part.where.write(part.cache.keys[i], key)
                part.where.write(part.cache.values[i], value)
            is_last_layer = i == len(self.layers) - 1
            if is_last_layer and any(part.is_narrowed for part in parts):
                # Its keys and values are written: from here on only taken positions are needed.
                x, h = only_taken(x), only_taken(h)
                for part in parts:
                    if part.is_narrowed:
                        part.where.narrow(part.picks)
                shapes = [part.narrow(part.x).shape[:2] for part in parts]
            queries = heads_by_part(attention.q_proj(h))
            attended = [part.attend(i, q) for part, q in zip(parts, queries, strict=True)]
            x = x + attention.out_proj(pack(attended))
            attention = layer.encoder_attn
            queries = heads_by_part(attention.q_proj(layer.encoder_attn_layer_norm(x)))
            attended = [part.attend_frames(i, q) for part, q in zip(parts, queries, strict=True)]
            x = x + attention.out_proj(pack(attended))
            x = x + feed_forward(layer, x)
        hidden = unpack(self.final_norm(x), shapes)
        return [
            rows if part.is_narrowed else part.take(rows)
            for part, rows in zip(parts, hidden, strict=True)
        ]

    @torch.inference_mode()
    def taken_log_probs(self, parts: Sequence[TokenPart]) -> list[torch.Tensor]:
        """Run one pass; return log-probabilities (rows, taken positions, vocabulary) of each part:
        of what follows each taken position."""
        hidden = self.run_parts(parts)
        shapes = [rows.shape[:2] for rows in hidden]
        return unpack(self.log_probs(pack(hidden)), shapes)

    @torch.inference_mode()
    def next_log_probs(self, parts: Sequence[TokenPart]) -> list[torch.Tensor]:
        """Run one pass; return log-probabilities (rows * n_next, vocabulary) of each part: of what
        follows its last `n_next` tokens, row by row."""
        by_part = zip(self.run_parts(parts), parts, strict=True)
        last = [hidden[:, -part.n_next :].flatten(0, 1) for hidden, part in by_part]
        sizes = [len(rows) for rows in last]
        bias = None
        if any(part.bias is not None for part in parts):
            biases = [self.suppressed if part.bias is None else part.bias for part in parts]
            bias = torch.cat([each.expand(n, -1) for each, n in zip(biases, sizes, strict=True)])
        return list(self.log_probs(torch.cat(last), bias).split(sizes))

    @torch.inference_mode()
    def log_probs(self, hidden: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return log-probabilities (..., vocabulary) float32 of hidden states (..., d).

        bias: added to the logits; by default `suppressed`, -inf on control tokens.
        """
        logits = times_vocabulary(hidden, self.output).float()
        logits += self.suppressed if bias is None else bias
        return logits.log_softmax(-1)


def times_vocabulary(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product (..., vocabulary) of x (..., d) with weight (vocabulary, d).

    Where MKL runs on a processor that is not Intel's, up to 11 rows are computed as the transpose
    of `weight x^T` (one row as two equal ones): 2 to 7 rows take about half the time of
    `x weight^T`. Intel's kernels take twice as long for it (docs/bench.md). The processor decides
    and no clock, so that a machine gives the same text each time.
    """
    by_mkl = torch.backends.mkl.is_available() and x.device.type == "cpu"
    rows = x.flatten(0, -2)
    n_rows = len(rows)
    is_faster_transposed = by_mkl and not is_intel() and x.dtype == torch.float32 and n_rows < 12
    if not is_faster_transposed:
        return of_rows(lambda rows: F.linear(rows, weight), x)
    two_or_more = torch.cat([rows, rows]) if n_rows == 1 else rows
    return torch.mm(weight, two_or_more.t()).t()[:n_rows].unflatten(0, x.shape[:-1])


@dataclass(slots=True)
class TokenPart:
    """Tokens at positions of their own caches, as a part of one pass of the decoder."""

    x: torch.Tensor
    """(rows, n, d), embedded."""
    cache: DecoderCache
    where: KeyPositions
    n_frames: int
    picks: torch.Tensor
    """(rows, taken): for each row, the indices of the n positions whose outputs are returned."""
    on_cross: OnCross | None
    bias: torch.Tensor | None
    n_next: int

    @property
    def is_narrowed(self) -> bool:
        """Return whether fewer outputs are taken than tokens are fed."""
        return self.picks.shape[1] < self.x.shape[1]

    def take(self, x: torch.Tensor) -> torch.Tensor:
        """Return the taken positions (rows, taken, d) of (rows, n, d)."""
        if self.x.shape[1] == 1:
            return x
        return x.gather(1, self.picks[..., None].expand(-1, -1, x.shape[-1]))

    def narrow(self, x: torch.Tensor) -> torch.Tensor:
        """Return the taken positions, or x (rows, n, d) as it is where as many are taken as fed.

        Then `take`, which also orders them, follows after the last layer.
        """
        return self.take(x) if self.is_narrowed else x

    def attend(self, i: int, q: torch.Tensor) -> torch.Tensor:
        """Attend to the tokens in layer i: (rows, heads, n, size) -> (rows, n, d)."""
        return merge_heads(self.where.attend(q, self.cache.keys[i], self.cache.values[i]))

    def attend_frames(self, i: int, q: torch.Tensor) -> torch.Tensor:
        """Attend to the frames in layer i: (rows, heads, n, size) -> (rows, n, d)."""
        if self.on_cross is not None:
            self.on_cross(i, q)
        keys = self.cache.cross_keys[i][:, :, : self.n_frames]
        values = self.cache.cross_values[i][:, :, : self.n_frames]
        # All rows attend to the same frames: fold them into the query axis.
        n_rows, n_heads, n_queries, size = q.shape
        folded = q.transpose(0, 1).reshape(1, n_heads, n_rows * n_queries, size)
        h = F.scaled_dot_product_attention(folded, keys, values)
        return merge_heads(h.view(n_heads, n_rows, n_queries, size).transpose(0, 1))
