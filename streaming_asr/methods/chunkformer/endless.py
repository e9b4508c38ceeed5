"""Encoding as the audio comes in, with caches between the windows (II-A of the paper).

Two ways to have right context:

`advance` is the masked batch in instalments, and equals it: a layer keeps frames back until the
frames to their right are there, so every frame is computed once in every layer, where the paper's
scheme computes the frames past each window's end again. The output lags behind the input by what
equation 5 counts. Memory depends on the context and the window, not on the recording.

`look_ahead` computes a chunk with a fixed number of frames past its end, the same in all layers,
and keeps the chunk. It answers sooner, and the last layers see less than in training. Without
right context both are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from streaming_asr.methods.chunkformer.context import (
    SIDE,
    Context,
    Span,
    Table,
    Tables,
    rows_of,
    table,
)
from streaming_asr.methods.chunkformer.encoder import Encoder
from streaming_asr.methods.chunkformer.layers import Layer


@dataclass(slots=True)
class Held:
    """Rows of the frames `first`.. of one audio."""

    rows: Tensor
    first: int = 0

    @property
    def stop(self) -> int:
        return self.first + len(self.rows)

    def append(self, rows: Tensor) -> None:
        self.rows = torch.cat([self.rows, rows])

    def drop_before(self, frame: int) -> None:
        n = min(max(0, frame - self.first), len(self.rows))
        self.rows, self.first = self.rows[n:].clone(), self.first + n


@dataclass(slots=True)
class LayerCache:
    """The frames that one layer keeps of one audio."""

    waiting: Held  # frames that have not attended yet
    keys_values: Held
    heard: Held  # frames that have attended, not yet convolved
    gated: Held


@dataclass(slots=True)
class Cache:
    """The layers' caches of one audio between windows."""

    layers: list[LayerCache] = field(default_factory=list)

    @staticmethod
    def empty(encoder: Encoder) -> Cache:
        none = encoder.after_norm.weight.new_zeros

        def held(width: int) -> Held:
            return Held(none(0, width))

        d = encoder.d
        return Cache([LayerCache(held(d), held(2 * d), held(d), held(d)) for _ in encoder.encoders])


@torch.inference_mode()
def advance(
    encoder: Encoder,
    context: Context,
    positions: Sequence[Tensor],
    caches: Sequence[Cache],
    frames: Sequence[Tensor],
    last: Sequence[bool],
) -> list[Tensor]:
    """Take in new subsampled frames of each audio, (n_i, d), n_i >= 0; return the encoded ones that
    are complete.

    All that is given out is equal to `encoder(...)` of the whole audio. last: which audios end.
    """
    # What one layer gives out is the next one's input; a layer may hold all of it back.
    new = list(frames)
    for number, (layer, position) in enumerate(zip(encoder.layers, positions, strict=True)):
        held = [cache.layers[number] for cache in caches]
        entered, keys_values = layer.enter(torch.cat(new))
        lengths = [len(rows) for rows in new]
        for one, x, kv in zip(
            held, entered.split(lengths), keys_values.split(lengths), strict=True
        ):
            one.waiting.append(x)
            one.keys_values.append(kv)
        new = _attend(layer, context, position, held, last)
        gated = layer.gate(torch.cat(new)).split([len(rows) for rows in new])
        for one, x, rows in zip(held, new, gated, strict=True):
            one.heard.append(x)
            one.gated.append(rows)
        new = _convolve(layer, context, held, last)
    return list(encoder.after_norm(torch.cat(new)).split([len(rows) for rows in new]))


def _attend(
    layer: Layer,
    context: Context,
    positions: Tensor,
    held: Sequence[LayerCache],
    last: Sequence[bool],
) -> list[Tensor]:
    """Return the frames of `waiting` whose right context is there, after attention."""
    chunk, left, right = context.chunk, context.left, context.right
    x, ready = _ready([one.waiting for one in held], chunk, right, last)
    if len(x):
        sources = [one.keys_values for one in held]
        rows = torch.cat([one.rows for one in sources])
        keys = table(_spans(sources, ready.starts), left, chunk, right, device=x.device)
        x = layer.attend(x, ready.queries, rows_of(ready.queries), rows, keys, positions)
    for one, end in zip(held, ready.ends, strict=True):
        one.waiting.drop_before(end)
        # The next chunk begins at `end` and looks back `left` frames.
        one.keys_values.drop_before(end - left)
    return list(x.split(ready.lengths))


def _convolve(
    layer: Layer, context: Context, held: Sequence[LayerCache], last: Sequence[bool]
) -> list[Tensor]:
    """Return the frames of `heard` whose right side is there, after the rest of the layer."""
    side = min(context.right, SIDE)
    x, ready = _ready([one.heard for one in held], context.chunk, side, last)
    if len(x):
        sources = [one.gated for one in held]
        rows, spans = torch.cat([one.rows for one in sources]), _spans(sources, ready.starts)
        taps = table(spans, SIDE, context.chunk, SIDE, seen=side, device=x.device)
        x = layer.leave(x, rows, taps, rows_of(ready.queries))
    for one, end in zip(held, ready.ends, strict=True):
        one.heard.drop_before(end)
        one.gated.drop_before(end - SIDE)
    return list(x.split(ready.lengths))


class _Ready(NamedTuple):
    """The complete chunks of each audio, the frames to their right included."""

    ends: list[int]
    lengths: list[int]
    starts: list[range]
    queries: Table


def _ready(
    held: Sequence[Held], chunk: int, right: int, last: Sequence[bool]
) -> tuple[Tensor, _Ready]:
    """Return the rows of complete chunks, joined, and where they lie."""
    ends = [
        one.stop if done else max(one.first, (one.stop - right) // chunk * chunk)
        for one, done in zip(held, last, strict=True)
    ]
    lengths = [end - one.first for one, end in zip(held, ends, strict=True)]
    starts = [range(one.first, end, chunk) for one, end in zip(held, ends, strict=True)]
    x = torch.cat([one.rows[:n] for one, n in zip(held, lengths, strict=True)])
    queries = table(_spans(held, starts, lengths), 0, chunk, 0, device=x.device)
    return x, _Ready(ends, lengths, starts, queries)


def _spans(
    held: Sequence[Held], starts: Sequence[range], lengths: Sequence[int] | None = None
) -> list[Span]:
    """Return where the rows of each lie once all are joined; `lengths`: only so many of each."""
    spans, base = [], 0
    for i, (one, begins) in enumerate(zip(held, starts, strict=True)):
        n = len(one.rows) if lengths is None else lengths[i]
        spans.append(Span(base, one.first, one.first + n, begins))
        base += n
    return spans


@dataclass(slots=True)
class LookAheadCache:
    """Keys, values and gated frames of each layer, up to frame `stop` of one stream."""

    keys_values: list[Tensor]  # (at most left, 2 d) each
    gated: list[Tensor]  # (at most 7, d) each
    stop: int = 0

    @staticmethod
    def empty(encoder: Encoder) -> LookAheadCache:
        none, n = encoder.after_norm.weight.new_zeros, len(encoder.encoders)
        return LookAheadCache([none(0, 2 * encoder.d)] * n, [none(0, encoder.d)] * n)


@torch.inference_mode()
def look_ahead(
    encoder: Encoder,
    context: Context,
    positions: Sequence[Tensor],
    caches: Sequence[LookAheadCache],
    frames: Sequence[Tensor],
    keep: Sequence[int],
) -> list[Tensor]:
    """Encode one chunk of each stream, (n_i, d) with its look-ahead, n_i >= 1, to (keep_i, d).

    context: chunk is that of chunk and look-ahead together, right is 0. Streams may be at different
    places and their chunks of different lengths.
    """
    lengths = [len(part) for part in frames]
    x = torch.cat(list(frames))
    tables = _look_ahead_tables(context, caches, lengths, x.device)
    for number, (layer, position) in enumerate(zip(encoder.layers, positions, strict=True)):
        x, new = layer.enter(x)
        kv = [
            torch.cat([c.keys_values[number], part])
            for c, part in zip(caches, new.split(lengths), strict=True)
        ]
        x = layer.attend(x, tables.queries, tables.rows, torch.cat(kv), tables.keys, position)
        gated = [
            torch.cat([c.gated[number], part])
            for c, part in zip(caches, layer.gate(x).split(lengths), strict=True)
        ]
        x = layer.leave(x, torch.cat(gated), tables.taps, tables.rows)
        for cache, k, g, n, kept in zip(caches, kv, gated, lengths, keep, strict=True):
            # Look-ahead frames are computed again with the next chunk, as part of it.
            k, g = k[: len(k) - n + kept], g[: len(g) - n + kept]
            cache.keys_values[number] = k[max(0, len(k) - context.left) :]
            cache.gated[number] = g[-SIDE:]
    for cache, kept in zip(caches, keep, strict=True):
        cache.stop += kept
    done = encoder.after_norm(x).split(lengths)
    return [part[:kept] for part, kept in zip(done, keep, strict=True)]


def _look_ahead_tables(
    context: Context,
    caches: Sequence[LookAheadCache],
    lengths: Sequence[int],
    device: torch.device,
) -> Tables:
    def windows(cached: Sequence[int], left: int, right: int) -> Table:
        spans, base = [], 0
        for cache, n_cached, n in zip(caches, cached, lengths, strict=True):
            start = cache.stop
            spans.append(Span(base, start - n_cached, start + n, range(start, start + 1)))
            base += n_cached + n
        return table(spans, left, context.chunk, right, seen=0, device=device)

    queries = windows([0] * len(caches), 0, 0)
    return Tables(
        queries,
        rows_of(queries),
        windows([len(c.keys_values[0]) for c in caches], context.left, 0),
        windows([len(c.gated[0]) for c in caches], SIDE, SIDE),
    )
