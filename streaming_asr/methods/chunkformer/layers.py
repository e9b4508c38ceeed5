"""The encoder's parts: subsampling, relative attention, convolution, and the layer they make.

Frames of all audios lie on one axis, (N, d); only attention and convolution look at windows of it,
given by a `Table`. Module names are those of the published checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.methods.chunkformer.context import KERNEL, Context, Table

STRIDE = 8
"""Mel frames per encoder frame: three convolutions of kernel 3 and stride 2."""
RECEPTIVE = 15
"""Mel frames that one encoder frame depends on: frame i on 8 i .. 8 i + 14."""
GROUP_FRAMES = 64
GROUP_ELEMENTS = 2**22
"""Subsampling goes through groups of windows whose first activation has at most this many values
(the paper's II-C: batch splitting, which masked batching makes possible). So large they stay near a
CPU's caches, which makes them 1.6 times as fast as with four times as many; a GPU gets more."""


def n_frames(n_mel: int) -> int:
    """Return the encoder frames of `n_mel` mel frames."""
    return max(0, (n_mel - RECEPTIVE) // STRIDE + 1)


class Subsampling(nn.Module):
    """Depthwise striding convolutions, 8 x in time (II-C; FastConformer's, wider)."""

    def __init__(self, n_mels: int, d: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, d, 3, 2),
            nn.ReLU(),
            nn.Conv2d(d, d, 3, 2, groups=d),
            nn.Conv2d(d, d, 1),
            nn.ReLU(),
            nn.Conv2d(d, d, 3, 2, groups=d),
            nn.Conv2d(d, d, 1),
            nn.ReLU(),
        )
        self.out = nn.Linear(d * n_frames(n_mels), d)
        self.d = d

    def forward(self, mels: Sequence[Tensor]) -> Tensor:
        """Return (sum of n_i, d), joined, of each audio's normalised mel frames (T_i, n_mels).

        No convolution is padded, so windows of any width give the same frames: every audio is cut
        into equal windows, which go through in groups.
        """
        lengths = [n_frames(len(mel)) for mel in mels]
        width = min(GROUP_FRAMES, max(lengths, default=0))  # encoder frames of a window
        if width == 0:
            return self.out.weight.new_zeros(0, self.d)
        windows, sizes = [], []
        for mel, n in zip(mels, lengths, strict=True):
            n_windows = -(-n // width)
            if n_windows == 0:
                continue
            n_mel = STRIDE * n_windows * width + RECEPTIVE - STRIDE
            padded = F.pad(mel[:n_mel], (0, 0, 0, max(0, n_mel - len(mel))))
            cut = padded.unfold(0, STRIDE * width + RECEPTIVE - STRIDE, STRIDE * width)
            windows.append(cut.transpose(1, 2))
            sizes.append((n, n_windows * width))
        batch = torch.cat(windows)[:, None]  # (windows, 1, 8 * width + 7, n_mels)
        most_elements = GROUP_ELEMENTS * (1 if batch.device.type == "cpu" else 16)
        # The first convolution has d channels and halves time and frequency.
        window_elements = self.d * batch[0].numel() // 4
        group_size = max(1, most_elements // window_elements)
        groups = [self._convolve(group) for group in batch.split(group_size)]
        # Of each audio's windows, the frames that are not of the padding.
        audios = torch.cat(groups).flatten(0, 1).split([n_padded for _, n_padded in sizes])
        return torch.cat([audio[:n] for audio, (n, _) in zip(audios, sizes, strict=True)])

    def _convolve(self, windows: Tensor) -> Tensor:
        """Return the encoder frames (windows, width, d) of (windows, 1, 8 * width + 7, n_mels).

        Computes `self.out` of `self.conv(windows)` in half the time on a CPU, forward and backward:
        the channels lie last in memory, and the first convolution, of one channel, is a product.
        """
        first = self.conv[0]
        assert isinstance(first, nn.Conv2d)
        taps = windows[:, 0].unfold(1, 3, 2).unfold(2, 3, 2).flatten(3)
        x = F.linear(taps, first.weight.flatten(1), first.bias).permute(0, 3, 1, 2)
        x = self.conv[1:](x)
        # `out` expects (channel, frequency); with the channels last it is (frequency, channel).
        weight = self.out.weight.unflatten(1, (self.d, -1)).transpose(1, 2).flatten(1)
        x = F.linear(x.permute(0, 2, 3, 1).flatten(2), weight, self.out.bias)
        return x * math.sqrt(self.d)


def distances(context: Context, d: int, device: torch.device | str) -> Tensor:
    """Return sinusoids (window + chunk, d) of the distances query - key, the largest first.

    One row more than there are distances, so that `SelfAttention` needs no special case for
    chunk = 1.
    """
    largest = context.left + context.chunk - 1
    smallest = largest - context.window - context.chunk
    distance = torch.arange(largest, smallest, -1.0, device=device)
    frequency = torch.exp(torch.arange(0, d, 2, device=device) * (-math.log(10000.0) / d))
    angle = distance[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class SelfAttention(nn.Module):
    """Attention with relative positions (equations 2-4)."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(d, d)
        self.linear_k = nn.Linear(d, d)
        self.linear_v = nn.Linear(d, d)
        self.linear_out = nn.Linear(d, d)
        self.linear_pos = nn.Linear(d, d, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, d // heads))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, d // heads))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def keys_values(self, x: Tensor) -> Tensor:
        """Return keys and values (N, 2 d) of (N, d)."""
        return torch.cat([self.linear_k(x), self.linear_v(x)], dim=-1)

    def positions(self, sinusoids: Tensor) -> Tensor:
        """Return (heads, d / heads, distances) of the sinusoids (distances, d)."""
        return self.linear_pos(sinusoids).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)

    def forward(
        self, x: Tensor, queries: Table, keys_values: Tensor, valid: Tensor, positions: Tensor
    ) -> Tensor:
        """Return the output (M * chunk, d) of M chunks, masked queries included.

        x: the frames (N, d), of which `queries` are the chunks. keys_values: (M, window, 2 d), of
        which `valid` (M, window) bool are no padding. positions: see the method of that name.
        """
        q = self.linear_q(x)[queries.index].unflatten(-1, (self.heads, -1))  # (M, c, h, dk)
        keys, values = keys_values.chunk(2, dim=-1)
        k = keys.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (M, h, w, dk)
        v = values.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        chunk, window = queries.index.shape[1], valid.shape[1]
        # Row i holds the product of query i with distance d at column largest - d. Key p is at
        # distance left + i - p, so that row i has to be read from column chunk - 1 - i on. In
        # rows that are one shorter each begins one earlier: read as such, all begin alike.
        by_distance = (q + self.pos_bias_v).transpose(1, 2) @ positions  # (M, h, c, window + c)
        n = by_distance.shape[-1] - 1
        shifted = by_distance.flatten(-2)[..., chunk - 1 : chunk - 1 + chunk * n]
        bias = shifted.unflatten(-1, (chunk, n))[..., :window] * q.shape[-1] ** -0.5
        bias = bias.masked_fill(~valid[:, None, None], -math.inf)
        attended = F.scaled_dot_product_attention(
            (q + self.pos_bias_u).transpose(1, 2), k, v, attn_mask=bias
        )
        return self.linear_out(attended.transpose(1, 2).flatten(2)).flatten(0, 1)


class Convolution(nn.Module):
    """Pointwise, gated; depthwise over 15 frames; layer norm (not batch norm); swish; pointwise."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise_conv = nn.Conv1d(d, d, KERNEL, groups=d)
        self.norm = nn.LayerNorm(d)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1)

    def gate(self, x: Tensor) -> Tensor:
        """Return the gated frames (N, d), which the windows are cut from, of (N, d)."""
        conv = self.pointwise_conv1
        return F.glu(F.linear(x, conv.weight[..., 0], conv.bias), dim=-1)

    def forward(self, windows: Tensor) -> Tensor:
        """Return (M * chunk, d) of gated frames (M, 7 + chunk + 7, d), which zeros pad."""
        conv = self.depthwise_conv
        # In two dimensions: only there torch keeps the channels last in memory, which is faster.
        x = F.conv2d(
            windows.transpose(1, 2)[:, :, None],
            conv.weight.flatten(1)[:, None, None],
            conv.bias,
            groups=len(conv.weight),
        )
        x = x[:, :, 0].transpose(1, 2).flatten(0, 1)
        conv = self.pointwise_conv2
        return F.linear(F.silu(self.norm(x)), conv.weight[..., 0], conv.bias)


class FeedForward(nn.Module):
    def __init__(self, d: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d, hidden)
        self.w_2 = nn.Linear(hidden, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(F.silu(self.w_1(x))))


class Layer(nn.Module):
    """Half a feed-forward, attention, convolution, half a feed-forward; pre-norm, normed at last.

    In four steps, because between the second and the third frames may have to wait for those to
    their right: `enter`, `attend`, `gate`, `leave`.
    """

    def __init__(self, d: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = SelfAttention(d, heads)
        self.feed_forward = FeedForward(d, hidden, dropout)
        self.feed_forward_macaron = FeedForward(d, hidden, dropout)
        self.conv_module = Convolution(d)
        self.norm_ff = nn.LayerNorm(d)
        self.norm_mha = nn.LayerNorm(d)
        self.norm_ff_macaron = nn.LayerNorm(d)
        self.norm_conv = nn.LayerNorm(d)
        self.norm_final = nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the frames (N, d) after the first half feed-forward, and their keys and values."""
        x = x + 0.5 * self.dropout(self.feed_forward_macaron(self.norm_ff_macaron(x)))
        return x, self.self_attn.keys_values(self.norm_mha(x))

    def attend(
        self,
        x: Tensor,
        queries: Table,
        rows: Tensor,
        keys_values: Tensor,
        keys: Table,
        positions: Tensor,
    ) -> Tensor:
        """Return the frames x (N, d) after attention to `keys_values` (K, 2 d).

        queries: the chunks of x; rows: (N,) where each frame lies in them; keys: the windows of
        the chunks in `keys_values`; positions: see `SelfAttention.positions`.
        """
        windows = keys_values[keys.index]
        attended = self.self_attn(self.norm_mha(x), queries, windows, keys.valid, positions)
        return x + self.dropout(attended[rows])

    def gate(self, x: Tensor) -> Tensor:
        """Return the gated frames (N, d), the input of the convolution, of (N, d)."""
        return self.conv_module.gate(self.norm_conv(x))

    def leave(self, x: Tensor, gated: Tensor, taps: Table, rows: Tensor) -> Tensor:
        """Return the frames x (N, d) after convolution and the last half feed-forward.

        gated: (G, d); taps: the windows of the chunks in it; rows: (N,) where each frame lies in
        the chunks.
        """
        windows = gated[taps.index] * taps.valid[..., None]
        x = x + self.dropout(self.conv_module(windows)[rows])
        x = x + 0.5 * self.dropout(self.feed_forward(self.norm_ff(x)))
        return self.norm_final(x)
