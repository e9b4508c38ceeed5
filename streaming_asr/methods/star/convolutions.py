"""The paper's CNN baseline: strided convolutions over the features, then the encoder.

A block is a residual of two convolutions (kernels 5 and 1, stride 1) and one that strides by s,
with a kernel of 2 s + 1 (figure 13). All are causal. The published code reflects the audio's start
into the padding left of it, which needs s frames of the future; here there are zeros.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.errors import UserError
from streaming_asr.methods.star.compressors import Compressed, Compressor, CompressorState
from streaming_asr.methods.star.semantic import SemanticEncoder

STRIDES = {12: (4, 3), 18: (6, 3), 30: (5, 3, 2)}  # figure 13


class CausalConv(nn.Module):
    """A convolution whose output i needs inputs up to (i + 1) * stride - 1."""

    def __init__(self, d: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(d, d, kernel, stride)
        self.n_past = kernel - stride

    def forward(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs of the next inputs x (1, d, n), and the inputs that later ones need.

        past: these inputs as the call before returned them, None at the start of a window.
        """
        x = F.pad(x, (self.n_past, 0)) if past is None else torch.cat([past, x], dim=-1)
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        n_out = max(0, (x.shape[-1] - kernel) // stride + 1)
        if n_out == 0:
            return x[..., :0], x
        return self.conv(x), x[..., n_out * stride :]


class Strided(nn.Module):
    """One block: (1, d, n) -> (1, d, n / stride)."""

    def __init__(self, d: int, stride: int) -> None:
        super().__init__()
        self.wide, self.narrow = CausalConv(d, 5), CausalConv(d, 1)
        self.down = CausalConv(d, 2 * stride + 1, stride)

    def forward(self, x: Tensor, past: list[Tensor | None]) -> Tensor:
        """Return (1, d, n / stride) of the next inputs (1, d, n).

        past: of the two convolutions that need it, changed in place.
        """
        y, past[0] = self.wide(F.elu(x), past[0])
        y, _ = self.narrow(F.elu(y), None)
        y, past[1] = self.down(F.elu(x + y), past[1])
        return y


class Convolutions(Compressor):
    """CNN: `rate` frames to one vector, always; each vector is a segment."""

    name = "cnn"

    def __init__(self, encoder: SemanticEncoder, d: int, rate: float) -> None:
        super().__init__(encoder)
        if rate < 2 or rate != int(rate):
            raise UserError(
                f"rate={rate}: the cnn's is a whole number of frames from 2 on, "
                f"{', '.join(map(str, STRIDES))} as in the paper"
            )
        self.rate = int(rate)
        strides = STRIDES.get(self.rate, (self.rate,))
        self.strided = nn.ModuleList(Strided(d, stride) for stride in strides)

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        if rate is not None and rate != self.rate:
            raise UserError(f"rate={rate}: this cnn has the rate {self.rate}; train another")
        state = self.start()
        y = self._convolve(state, x, True)
        return self._segments(state, self.encoder(y, self._no_anchors(y)), True)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        y = self._convolve(state, x, last)
        h = self.encoder.append(state.cache, y, self._no_anchors(y)) if len(y) else y
        return self._segments(state, h, last)

    def _convolve(self, state: CompressorState, x: Tensor, last: bool) -> Tensor:
        """Return the vectors (m, d) that the next frames x (n, d) complete."""
        if not state.convolutions:
            state.convolutions = [None] * (2 * len(self.strided))
        state.n_frames += x.shape[0]
        if last:  # zeros fill up the last vector
            x = F.pad(x, (0, 0, 0, -state.n_frames % self.rate))
        y = x.T[None]
        for i, block in enumerate(self.strided):
            past = state.convolutions[2 * i : 2 * i + 2]
            y = block(y, past)
            state.convolutions[2 * i : 2 * i + 2] = past
        return y[0].T

    def _segments(self, state: CompressorState, h: Tensor, last: bool) -> Compressed:
        """Return the encoded vectors h (m, d), each a segment of `rate` frames."""
        first, n = state.n_vectors, h.shape[0]
        state.n_vectors += n
        ready = list(range(first + 1, first + n + 1))
        ends = [min(i * self.rate, state.n_frames) for i in ready]
        assert not last or state.n_vectors == math.ceil(state.n_frames / self.rate)
        return Compressed(h, h.new_zeros(n), ready, ends)
