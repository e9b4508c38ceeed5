"""The network: encoder and CTC head, on recordings and on streams as their audio comes in.

`Encoder.advance` is the masked batch (II-B of the paper) in instalments (II-A), and equals it: a
layer keeps frames back until the frames to their right are there, so every frame is computed once
in every layer, where the paper's scheme computes the frames past each window's end again. The
output lags behind the input by what equation 5 counts. Memory depends on the context and the
window, not on the recording.

A stream has a fixed look-ahead instead, the same in all layers: its frames are part of the chunk
and come `again` with the next one. It answers sooner, and the last layers see less than in
training. Without right context both are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from streaming_asr.methods.chunkformer.context import (
    KERNEL,
    SIDE,
    Context,
    Span,
    Table,
    rows_of,
    table,
)
from streaming_asr.methods.chunkformer.layers import Layer, Subsampling, distances, n_frames


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a network."""

    d: int
    heads: int
    layers: int
    hidden: int
    vocabulary: int
    n_mels: int = 80


class GlobalCmvn(nn.Module):
    """Mean and inverse standard deviation of each mel bin over the training data."""

    mean: Tensor
    istd: Tensor

    def __init__(self, n_mels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_mels))
        self.register_buffer("istd", torch.ones(n_mels))

    def forward(self, mel: Tensor) -> Tensor:
        return (mel - self.mean) * self.istd


@dataclass(slots=True)
class Held:
    """Rows of the frames `first`.. of one audio."""

    rows: Tensor
    first: int = 0

    @property
    def stop(self) -> int:
        return self.first + len(self.rows)

    def append(self, rows: Tensor) -> None:
        # (an empty part would make float32 of rows in the half precision of a training)
        self.rows = torch.cat([self.rows, rows]) if len(self.rows) else rows

    def drop_before(self, frame: int) -> None:
        """Forget the rows of the frames before `frame`."""
        n = min(max(0, frame - self.first), len(self.rows))
        self.rows, self.first = self.rows[n:].clone(), self.first + n


@dataclass(slots=True)
class LayerCache:
    """The frames that one layer keeps of one audio."""

    waiting: Held  # frames that have not attended yet
    keys_values: Held
    attended: Held  # frames that have attended, not yet convolved
    gated: Held

    def settle(self, left: int, again: int) -> None:
        """Forget the `again` newest frames, which come once more, and what no later frame needs.

        Attention needs the keys and values of `left` frames before the first waiting one, the
        convolution the gated frames of seven.
        """
        for queue, context, n_needed in (
            (self.waiting, self.keys_values, left),
            (self.attended, self.gated, SIDE),
        ):
            # With `again` frames the queue is empty: `first` is the next frame to come.
            queue.first -= again
            context.rows = context.rows[: len(context.rows) - again]
            context.drop_before(queue.first - n_needed)


@dataclass(slots=True)
class EndlessCache:
    """The layers' caches of one audio between windows."""

    layers: list[LayerCache] = field(default_factory=list)

    @property
    def n_held(self) -> list[int]:
        """Return how many frames wait in each layer for those to their right."""
        return [max(len(layer.waiting.rows), len(layer.attended.rows)) for layer in self.layers]

    @staticmethod
    def empty(encoder: Encoder) -> EndlessCache:
        """Return the cache of an audio of which nothing was encoded."""

        def held(width: int) -> Held:
            return Held(encoder.after_norm.weight.new_zeros(0, width))

        d = encoder.d
        return EndlessCache(
            [LayerCache(held(d), held(2 * d), held(d), held(d)) for _ in encoder.encoders]
        )


class Encoder(nn.Module):
    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.global_cmvn = GlobalCmvn(shape.n_mels)
        self.embed = Subsampling(shape.n_mels, shape.d)
        self.encoders = nn.ModuleList(
            Layer(shape.d, shape.heads, shape.hidden, dropout) for _ in range(shape.layers)
        )
        self.after_norm = nn.LayerNorm(shape.d)
        self.d = shape.d

    @property
    def device(self) -> torch.device:
        return self.after_norm.weight.device

    def subsample(self, mels: Sequence[Tensor]) -> list[Tensor]:
        """Return (n_i, d) of each audio's (T_i, n_mels) frames; n_i = 1 + (T_i - 15) // 8."""
        joined = self.embed([self.global_cmvn(mel.to(self.after_norm.weight)) for mel in mels])
        return list(joined.split([n_frames(len(mel)) for mel in mels]))

    def positions(self, context: Context) -> list[Tensor]:
        """Return each layer's projected distances, (heads, d / heads, distances)."""
        sinusoids = distances(context, self.d, self.device).to(self.after_norm.weight)
        return [layer.self_attn.positions(sinusoids) for layer in self.layers]

    @property
    def layers(self) -> list[Layer]:
        """Return `encoders`, typed."""
        return [layer for layer in self.encoders if isinstance(layer, Layer)]

    def forward(self, frames: Sequence[Tensor], context: Context) -> list[Tensor]:
        """Encode the subsampled frames of each audio, (n_i, d), in one pass: (n_i, d) of each."""
        longest = max(1, *(len(audio_frames) for audio_frames in frames))
        if context.chunk > longest:  # the same chunks, in smaller tables
            context = replace(context, chunk=longest)
        caches = [EndlessCache.empty(self) for _ in frames]
        last = [True] * len(frames)
        return self.advance(context, self.positions(context), caches, frames, last)

    def advance(
        self,
        context: Context,
        positions: Sequence[Tensor],
        caches: Sequence[EndlessCache],
        frames: Sequence[Tensor],
        last: Sequence[bool],
        again: Sequence[int] | None = None,
    ) -> list[Tensor]:
        """Take in new subsampled frames of each audio, (n_i, d), n_i >= 0; return the encoded
        frames that are complete, (m_i, d).

        They are equal to `forward` of the whole audio. last: which audios end. positions: of
        `positions` for this context, or for a smaller chunk where no audio has more frames than
        that. again: for a stream with a look-ahead, how many of each audio's newest frames are
        passed in once more by the next call, and left out of this result; the context then has the
        look-ahead in its chunk and no right side, and `last` is set.
        """
        again = again or [0] * len(frames)
        # The output of a layer is the next one's input; a layer may hold all of it back.
        new = list(frames)
        for i, (layer, layer_positions) in enumerate(zip(self.layers, positions, strict=True)):
            layer_caches = [cache.layers[i] for cache in caches]
            entered, keys_values = layer.enter(torch.cat(new))
            lengths = [len(rows) for rows in new]
            for cache, x, kv in zip(
                layer_caches, entered.split(lengths), keys_values.split(lengths), strict=True
            ):
                cache.waiting.append(x)
                cache.keys_values.append(kv)
            new = _attend(layer, context, layer_positions, layer_caches, last)
            gated = layer.gate(torch.cat(new)).split([len(rows) for rows in new])
            for cache, x, gated_x in zip(layer_caches, new, gated, strict=True):
                cache.attended.append(x)
                cache.gated.append(gated_x)
            new = _convolve(layer, context, layer_caches, last)
            for cache, n_again in zip(layer_caches, again, strict=True):
                cache.settle(context.left, n_again)
        encoded = self.after_norm(torch.cat(new)).split([len(rows) for rows in new])
        return [rows[: len(rows) - n_again] for rows, n_again in zip(encoded, again, strict=True)]


def _attend(
    layer: Layer,
    context: Context,
    positions: Tensor,
    caches: Sequence[LayerCache],
    last: Sequence[bool],
) -> list[Tensor]:
    """Return the waiting frames (n_i, d) of each audio whose right context is there, after
    attention, and take them off the queue."""
    left, right = context.left, context.right
    x, ready = _ready([cache.waiting for cache in caches], context.chunk, right, last)
    if len(x):
        sources = [cache.keys_values for cache in caches]
        keys_values = torch.cat([source.rows for source in sources])
        width = ready.width
        keys = table(_spans(sources, ready.starts), left, width, right, device=x.device)
        # Positions run from the largest distance to the smallest, in the same steps for any chunk:
        # those of chunks of `width` frames are the middle ones.
        made_for = (positions.shape[-1] - left - right) // 2  # chunk frames
        first, n_distances = made_for - width, left + 2 * width + right
        middle = positions[..., first : first + n_distances]
        x = layer.attend(x, ready.queries, rows_of(ready.queries), keys_values, keys, middle)
    for cache, end in zip(caches, ready.ends, strict=True):
        cache.waiting.drop_before(end)
    return list(x.split(ready.lengths))


def _convolve(
    layer: Layer, context: Context, caches: Sequence[LayerCache], last: Sequence[bool]
) -> list[Tensor]:
    """Return the attended frames (n_i, d) of each audio whose right side is there, after
    convolution and the rest of the layer, and take them off the queue."""
    right = min(context.right, SIDE)
    x, ready = _ready([cache.attended for cache in caches], context.chunk, right, last)
    if len(x):
        sources = [cache.gated for cache in caches]
        gated = torch.cat([source.rows for source in sources])
        spans = _spans(sources, ready.starts)
        taps = table(spans, SIDE, ready.width, SIDE, seen=right, device=x.device)
        x = layer.leave(x, gated, taps, rows_of(ready.queries))
    for cache, end in zip(caches, ready.ends, strict=True):
        cache.attended.drop_before(end)
    return list(x.split(ready.lengths))


class _Ready(NamedTuple):
    """The chunks of each audio that can be computed: their frames and those to the right are there.

    width: frames of a chunk, at most as many as an audio has: a chunk that is longer than every
    recording costs no more than the recording.
    """

    width: int
    ends: list[int]  # of each audio, the frame after its last such chunk
    lengths: list[int]  # of each audio, the frames of such chunks
    starts: list[range]  # of each audio, the first frame of each such chunk
    queries: Table  # (M, width) into these frames


def _ready(
    held: Sequence[Held], chunk: int, right: int, last: Sequence[bool]
) -> tuple[Tensor, _Ready]:
    """Return the rows (N, d) of all complete chunks, joined, and their places.

    A chunk is complete with `right` frames after it, the last one of an audio with its end.
    """
    ends, lengths, starts, rows = [], [], [], []
    for queue, is_last in zip(held, last, strict=True):
        whole_chunks_end = (queue.stop - right) // chunk * chunk
        end = queue.stop if is_last else max(queue.first, whole_chunks_end)
        ends.append(end)
        lengths.append(end - queue.first)
        starts.append(range(queue.first, end, chunk))
        rows.append(queue.rows[: end - queue.first])
    x = torch.cat(rows)
    width = min(chunk, max(lengths, default=0))
    queries = table(_spans(held, starts, lengths), 0, width, 0, device=x.device)
    return x, _Ready(width, ends, lengths, starts, queries)


def _spans(
    held: Sequence[Held], starts: Sequence[range], lengths: Sequence[int] | None = None
) -> list[Span]:
    """Return where each audio's rows lie once all are joined, and the `starts` of its chunks.

    lengths: how many of each audio's rows are joined; None: all.
    """
    spans, base = [], 0
    if lengths is None:
        lengths = [len(audio.rows) for audio in held]
    for audio, chunk_starts, n in zip(held, starts, lengths, strict=True):
        spans.append(Span(base, audio.first, audio.first + n, chunk_starts))
        base += n
    return spans


class Network(nn.Module):
    """Names of its parameters are those of the published checkpoints."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape, dropout)
        self.ctc = nn.Sequential(OrderedDict(ctc_lo=nn.Linear(shape.d, shape.vocabulary)))

    def forward(self, mels: Sequence[Tensor], context: Context | None = None) -> list[Tensor]:
        """Return logits (n_i, vocabulary) of each audio's mel frames (T_i, n_mels).

        context: None for the full context, every audio one chunk.
        """
        frames = self.encoder.subsample(mels)
        lengths = [len(part) for part in frames]
        encoded = self.encoder(frames, context or Context(max(1, *lengths), 0, 0))
        return list(self.ctc(torch.cat(encoded)).split(lengths))


def encoder_flops(shape: Shape, context: Context, n_frames: int, n_chunks: int) -> float:
    """Return the FLOPs of the encoder without CTC head: `n_frames` frames in `n_chunks` chunks.

    One multiply-accumulate is two; the projection of the distances, once per pass, is left out.
    """
    d, taps = shape.d, 9  # of a kernel of 3 x 3
    bins = [shape.n_mels]  # frequency bins before and after each of the three convolutions
    for _ in range(3):
        bins.append((bins[-1] - 3) // 2 + 1)
    # The convolutions have 4, 2 and 1 outputs in time for an encoder frame.
    subsampling = (
        4 * bins[1] * taps * d
        + 2 * bins[2] * (taps * d + d * d)
        + bins[3] * (taps * d + d * d)
        + bins[3] * d * d
    )
    # Two half feed-forwards; q, k, v and out; the convolution module's three products.
    layer_per_frame = 4 * d * shape.hidden + 4 * d * d + 3 * d * d + KERNEL * d
    # Scores and sums over the window, and the products with the distances.
    n_products = context.chunk * (2 * context.window + context.window + context.chunk)
    layer_per_chunk = n_products * d
    per_frame = subsampling + shape.layers * layer_per_frame
    per_chunk = shape.layers * layer_per_chunk
    return 2.0 * (n_frames * per_frame + n_chunks * per_chunk)
