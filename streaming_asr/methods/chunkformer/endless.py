"""Encoding as the audio comes in, with caches between the windows (II-A of the paper).

`advance` is the masked batch in instalments, and equals it: a layer keeps frames back until the
frames to their right are there, so every frame is computed once in every layer, where the paper's
scheme computes the frames past each window's end again. The output lags behind the input by what
equation 5 counts. Memory depends on the context and the window, not on the recording.

A stream has a fixed look-ahead instead, the same in all layers: its frames are part of the chunk
and come `again` with the next one. It answers sooner, and the last layers see less than in
training. Without right context both are the same.
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

    def settle(self, left: int, again: int) -> None:
        """Forget the `again` newest frames, which come once more, and what no later frame needs."""
        for queue, frames, back in (
            (self.waiting, self.keys_values, left),
            (self.heard, self.gated, SIDE),
        ):
            queue.first -= again
            frames.rows = frames.rows[: len(frames.rows) - again]
            frames.drop_before(queue.first - back)


@dataclass(slots=True)
class EndlessCache:
    """The layers' caches of one audio between windows."""

    layers: list[LayerCache] = field(default_factory=list)

    @property
    def n_held(self) -> list[int]:
        """Return how many frames wait in each layer for those to their right."""
        return [max(len(one.waiting.rows), len(one.heard.rows)) for one in self.layers]

    @staticmethod
    def empty(encoder: Encoder) -> EndlessCache:
        none = encoder.after_norm.weight.new_zeros

        def held(width: int) -> Held:
            return Held(none(0, width))

        d = encoder.d
        return EndlessCache(
            [LayerCache(held(d), held(2 * d), held(d), held(d)) for _ in encoder.encoders]
        )


@torch.inference_mode()
def advance(
    encoder: Encoder,
    context: Context,
    positions: Sequence[Tensor],
    caches: Sequence[EndlessCache],
    frames: Sequence[Tensor],
    last: Sequence[bool],
    again: Sequence[int] | None = None,
) -> list[Tensor]:
    """Take in new subsampled frames of each audio, (n_i, d), n_i >= 0; return the encoded ones that
    are complete.

    All that is given out is equal to `encoder(...)` of the whole audio. last: which audios end.
    positions: of `encoder.positions` for this context, or for a smaller chunk where no audio has
    more frames than that. again: look-aheads, so many of each audio's newest frames, which come
    once more; for these the context has the look-ahead in its chunk and no right side, and `last`
    is set.
    """
    again = again or [0] * len(frames)
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
        for one, n in zip(held, again, strict=True):
            one.settle(context.left, n)
    done = encoder.after_norm(torch.cat(new)).split([len(rows) for rows in new])
    return [rows[: len(rows) - n] for rows, n in zip(done, again, strict=True)]


def _attend(
    layer: Layer,
    context: Context,
    positions: Tensor,
    held: Sequence[LayerCache],
    last: Sequence[bool],
) -> list[Tensor]:
    """Return the frames (n_i, d) of each `waiting` with their right context, after attention."""
    chunk, left, right = context.chunk, context.left, context.right
    x, ready = _ready([one.waiting for one in held], chunk, right, last)
    if len(x):
        sources = [one.keys_values for one in held]
        rows = torch.cat([one.rows for one in sources])
        width = ready.width
        keys = table(_spans(sources, ready.starts), left, width, right, device=x.device)
        # Positions begin with the largest distance; those of a smaller chunk lie among them.
        n_distances = left + 2 * width + right
        n_chunk = (positions.shape[-1] - left - right) // 2  # the chunk that they were made for
        near = positions[..., n_chunk - width : n_chunk - width + n_distances]
        x = layer.attend(x, ready.queries, rows_of(ready.queries), rows, keys, near)
    for one, end in zip(held, ready.ends, strict=True):
        one.waiting.drop_before(end)
    return list(x.split(ready.lengths))


def _convolve(
    layer: Layer, context: Context, held: Sequence[LayerCache], last: Sequence[bool]
) -> list[Tensor]:
    """Return the frames (n_i, d) of each `heard` whose right side is there, after the rest of the
    layer."""
    side = min(context.right, SIDE)
    x, ready = _ready([one.heard for one in held], context.chunk, side, last)
    if len(x):
        sources = [one.gated for one in held]
        rows, spans = torch.cat([one.rows for one in sources]), _spans(sources, ready.starts)
        taps = table(spans, SIDE, ready.width, SIDE, seen=side, device=x.device)
        x = layer.leave(x, rows, taps, rows_of(ready.queries))
    for one, end in zip(held, ready.ends, strict=True):
        one.heard.drop_before(end)
    return list(x.split(ready.lengths))


class _Ready(NamedTuple):
    """The complete chunks of each audio, the frames to their right included.

    width: of the longest of them, at most the context's chunk: a chunk that is longer than every
    recording costs no more than the recording.
    """

    width: int
    ends: list[int]
    lengths: list[int]
    starts: list[range]
    queries: Table


def _ready(
    held: Sequence[Held], chunk: int, right: int, last: Sequence[bool]
) -> tuple[Tensor, _Ready]:
    """Return the rows (N, d) of all complete chunks, joined, and their places."""
    ends = [
        one.stop if done else max(one.first, (one.stop - right) // chunk * chunk)
        for one, done in zip(held, last, strict=True)
    ]
    lengths = [end - one.first for one, end in zip(held, ends, strict=True)]
    starts = [range(one.first, end, chunk) for one, end in zip(held, ends, strict=True)]
    x = torch.cat([one.rows[:n] for one, n in zip(held, lengths, strict=True)])
    width = min(chunk, max(lengths, default=0))
    queries = table(_spans(held, starts, lengths), 0, width, 0, device=x.device)
    return x, _Ready(width, ends, lengths, starts, queries)


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
