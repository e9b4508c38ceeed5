"""Compressors: feature frames to the few vectors that the decoder attends to.

`star`  the semantic encoder's output at the anchors (section 2.2);
`none`  every frame: the model without compression, with a decision at a fixed stride.

Commit 916c7372 has the paper's other two, CIF and CNN. Both here have one interface. `compress`
takes a whole window, in training with the number of tokens;
`start` and `push` take it frame by frame and give what `compress` gives. What comes out is a
`Compressed`: vectors, and segments, each of which lets one token be emitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from streaming_asr.methods.star.anchors import accumulate, fixed, rescale, top_k
from streaming_asr.methods.star.semantic import SemanticCache, SemanticEncoder

COMPRESSORS = ("star", "none")
FRAMES_PER_TOKEN = 12
"""The segmenter begins with scores that make an anchor this often."""


@dataclass(slots=True)
class Compressed:
    """What comes out of a compressor: vectors for the decoder, and segments."""

    vectors: Tensor
    """(n, d)"""
    scores: Tensor
    """(n,), added to the logits of cross-attention."""
    ready: list[int]
    """For each segment, how many vectors of the window there are when it is complete."""
    ends: list[int]
    """For each segment, the frame of the window after its last one."""
    length_error: Tensor | None = None
    """(sum of the unscaled alphas - tokens)^2, in training (equation 10)."""


@dataclass(slots=True)
class CompressorState:
    """The state of a stream's window between two chunks."""

    cache: SemanticCache
    n_frames: int = 0
    n_vectors: int = 0
    total: float = 0.0
    """Scores summed up since the last anchor."""
    open: bool = False
    """Frames came after the last segment's end."""
    tail: tuple[Tensor, Tensor] | None = None
    """Feature (1, d) and score (1,) of the newest frame."""


class Segmenter(nn.Module):
    """Two linear layers with a ReLU between them: a score for every frame (appendix F)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.hidden, self.score = nn.Linear(d, d), nn.Linear(d, 1)
        # The sigmoid of this bias is 1 / FRAMES_PER_TOKEN.
        nn.init.constant_(self.score.bias, -torch.log(torch.tensor(FRAMES_PER_TOKEN - 1.0)).item())

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (T,) of frames (T, d), before the sigmoid."""
        return self.score(torch.relu(self.hidden(x)))[:, 0]


class Compressor(nn.Module):
    """The interface of both.

    stride: of none, frames of a segment (section 4, fixed decision). select: of `star` with a rate,
    how the anchors are chosen: accumulate, where the scores, scaled to T / rate in all, sum up to
    one; top_k, the best ones (equation 3), which lie side by side where scores of neighbours are
    alike.
    """

    def __init__(self, encoder: SemanticEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.stride = FRAMES_PER_TOKEN
        self.select = "top_k"

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        """Compress a whole window x (T, d), T >= 1.

        n_tokens: in training, the scores are scaled so that they make so many segments. rate: the
        form that is not streaming, frames per vector. With neither, what `push` gives.
        """
        raise NotImplementedError

    def start(self) -> CompressorState:
        """Return the state of a new window."""
        return CompressorState(self.encoder.start())

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        """Take in the next frames x (n, d), n >= 0; return vectors and segments now complete."""
        raise NotImplementedError

    def _no_anchors(self, x: Tensor) -> Tensor:
        return torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)


class Anchors(Compressor):
    """STAR: the encoder's output at the anchors, their raw scores injected (equations 2 to 5)."""

    def __init__(self, encoder: SemanticEncoder, d: int, *, carry: bool = False) -> None:
        super().__init__(encoder)
        self.segmenter = Segmenter(d)
        self.carry = carry

    def length_error(self, alpha: Tensor, n: float) -> Tensor:
        """Return (sum of alpha (T,) - n)^2, a scalar (equation 10)."""
        return (alpha.sum() - n).square()

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        """See `Compressor`: a segment ends with each anchor and with the window."""
        # Detached as in the published code: features learn only from the encoder.
        scores = self.segmenter(x.detach())
        alpha = scores.float().sigmoid()
        n_frames = x.shape[0]
        n_segments = n_frames / rate if rate is not None else n_tokens
        if rate is not None and self.select == "top_k":
            anchors = top_k(scores, rate)
        elif rate is not None:
            scaled = rescale(alpha, n_frames / rate)
            anchors, _ = accumulate(scaled.detach().tolist(), carry=True)
        else:
            scaled = alpha if n_tokens is None else rescale(alpha, n_tokens)
            anchors, _ = accumulate(scaled.detach().tolist(), carry=self.carry)
        is_anchor = self._no_anchors(x)
        is_anchor[anchors] = True
        if not anchors or anchors[-1] != n_frames - 1:
            # The end of the audio closes a segment.
            anchors = [*anchors, n_frames - 1]
            is_anchor[-1] = True
        h = self.encoder(x, is_anchor)
        error = None if n_segments is None else self.length_error(alpha, n_segments)
        ends = [i + 1 for i in anchors]
        ready = list(range(1, len(ends) + 1))
        return Compressed(h[anchors], scores[anchors], ready, ends, error)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        """See `Compressor`; `last` may come with no frames, after the window's last ones."""
        scores = self.segmenter(x)
        alphas = scores.float().sigmoid().tolist()
        anchors, state.total = accumulate(alphas, state.total, carry=self.carry)
        n, n_before = x.shape[0], state.n_frames
        # The audio may end within a segment, which its last frame then closes.
        is_open = anchors[-1:] != [n - 1] if n else state.open
        closes = last and is_open
        if closes and n == 0:
            # That frame was encoded before the stream was known to end: again, as an anchor.
            assert state.tail is not None
            x, scores = state.tail
            SemanticEncoder.drop_last(state.cache)
            n, n_before = 1, n_before - 1
        is_anchor = self._no_anchors(x)
        is_anchor[anchors] = True
        if closes:
            anchors = [*anchors, n - 1]
            is_anchor[-1] = True
        h = self.encoder.append(state.cache, x, is_anchor) if n else x
        state.n_frames = n_before + n
        if n:
            state.open = not anchors or anchors[-1] != n - 1
            state.tail = (x[-1:], scores[-1:])
        ends = [n_before + i + 1 for i in anchors]
        ready = [state.n_vectors + i + 1 for i in range(len(anchors))]
        state.n_vectors += len(anchors)
        return Compressed(h[anchors], scores[anchors], ready, ends)


class Uncompressed(Compressor):
    """No compression: all frames, a segment every `stride` of them (section 4, fixed decision)."""

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        return self._all(self.start(), self.encoder(x, self._no_anchors(x)), True)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        h = self.encoder.append(state.cache, x, self._no_anchors(x)) if len(x) else x
        return self._all(state, h, last)

    def _all(self, state: CompressorState, h: Tensor, last: bool) -> Compressed:
        """Return all encoded frames h (n, d); at the `last` ones an incomplete segment ends too."""
        n, stride = h.shape[0], self.stride
        ends = [state.n_frames + i + 1 for i in fixed(n, stride, state.n_frames)]
        state.n_frames += n
        if last and state.n_frames % stride:
            ends.append(state.n_frames)
        return Compressed(h, h.new_zeros(n), ends, ends)
