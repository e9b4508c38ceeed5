"""The network: encoder and CTC head, on whole recordings (masked batch, II-B of the paper)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from streaming_asr.methods.chunkformer.context import KERNEL, Context, Tables, whole
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

    def forward(
        self, frames: Sequence[Tensor], context: Context, tables: Tables | None = None
    ) -> list[Tensor]:
        """Encode the subsampled frames of each audio, (n_i, d), in one pass: (n_i, d) of each.

        Every frame is computed once. tables: of `whole`, where the caller has them already.
        """
        lengths = [len(audio_frames) for audio_frames in frames]
        if sum(lengths) == 0:
            return list(frames)
        x = torch.cat(list(frames))
        if tables is None:
            if context.chunk > max(lengths):  # the same chunks, in smaller tables
                context = replace(context, chunk=max(lengths))
            tables = whole(lengths, context, x.device)
        for layer, positions in zip(self.layers, self.positions(context), strict=True):
            x, keys_values = layer.enter(x)
            x = layer.attend(x, tables.queries, tables.rows, keys_values, tables.keys, positions)
            x = layer.leave(x, layer.gate(x), tables.taps, tables.rows)
        return list(self.after_norm(x).split(lengths))


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
        if context is None:
            context = Context(max(1, *(len(part) for part in frames)), 0, 0)
        lengths = [len(part) for part in frames]
        encoded = self.encoder(frames, context)
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
