"""Compressors: feature frames to the few vectors that the decoder attends to.

`star`  the semantic encoder's output at the anchors (section 2.2);
`cif`   continuous integrate-and-fire: frames averaged by their scores (appendix B);
`cnn`   strided causal convolutions before the encoder (section 3.1, figure 13);
`none`  every frame: the model without compression, with a decision at a fixed stride.

All have one interface. `compress` takes a whole window, in training with the number of tokens;
`start` and `push` take it frame by frame and give what `compress` gives. What comes out is a
`Compressed`: vectors, and segments, each of which lets one token be emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from streaming_asr.methods.star.anchors import accumulate, fixed, rescale, top_k
from streaming_asr.methods.star.semantic import SemanticCache, SemanticEncoder

COMPRESSORS = ("star", "cif", "cnn", "none")
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
    weight: float = 0.0
    """cif: weight already in `partial`."""
    partial: Tensor | None = None
    """cif: (d,) weighted sum of the open segment."""
    convolutions: list[Tensor | None] = field(default_factory=list)


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
    """The interface of the four.

    stride: of star and none, frames of a segment instead of the learned ones (figures 6 and 9).
    keep_all: of star, the decoder attends to every frame, not only to the compressed ones (figure
    9, STAR-ALL); the segments stay. select: of `star` with a rate, how the anchors are chosen:
    accumulate, where the scores, scaled to T / rate in all, sum up to one; top_k, the best ones
    (equation 3), which lie side by side where scores of neighbours are alike. shift: added to the
    scores of a stream before the sigmoid, so that they sum up to the number of tokens, to which
    they are scaled in training.
    """

    name = ""

    def __init__(self, encoder: SemanticEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.stride: int | None = None
        self.keep_all = False
        self.select = "top_k"
        self.shift = 0.0

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


class ScoredCompressor(Compressor):
    """A compressor with a segmenter."""

    def __init__(self, encoder: SemanticEncoder, d: int, *, carry: bool = False) -> None:
        super().__init__(encoder)
        self.segmenter = Segmenter(d)
        self.carry = carry

    def length_error(self, alpha: Tensor, n: float) -> Tensor:
        """Return (sum of alpha (T,) - n)^2, a scalar (equation 10)."""
        return (alpha.sum() - n).square()

    def alphas(self, scores: Tensor) -> Tensor:
        """Return a stream's alphas (T,) of scores (T,)."""
        return (scores.float() + self.shift).sigmoid()


class Anchors(ScoredCompressor):
    """STAR: the encoder's output at the anchors, their raw scores injected (equations 2 to 5)."""

    name = "star"

    def _segments(self, alphas: Sequence[float], state: CompressorState) -> list[int]:
        """Return the anchors among the next frames, by scores or stride; update the running sum."""
        if self.stride is not None:
            return fixed(len(alphas), self.stride, state.n_frames)
        anchors, state.total = accumulate(alphas, state.total, carry=self.carry)
        return anchors

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
            scaled = self.alphas(scores) if n_tokens is None else rescale(alpha, n_tokens)
            anchors = self._segments(scaled.detach().tolist(), self.start())
        is_anchor = self._no_anchors(x)
        is_anchor[anchors] = True
        if not anchors or anchors[-1] != n_frames - 1:
            # The end of the audio closes a segment. Its last frame is an anchor, except with
            # keep_all: there a stream has encoded it before it knew that the audio ends.
            anchors = [*anchors, n_frames - 1]
            is_anchor[-1] = not self.keep_all
        h = self.encoder(x, is_anchor)
        error = None if n_segments is None else self.length_error(alpha, n_segments)
        ends = [i + 1 for i in anchors]
        if self.keep_all:
            return Compressed(h, scores, ends, ends, error)
        ready = list(range(1, len(ends) + 1))
        return Compressed(h[anchors], scores[anchors], ready, ends, error)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        """See `Compressor`; `last` may come with no frames, after the window's last ones."""
        scores = self.segmenter(x)
        anchors = self._segments(self.alphas(scores).tolist(), state)
        n, n_before = x.shape[0], state.n_frames
        # The audio may end within a segment, which its last frame then closes.
        is_open = anchors[-1:] != [n - 1] if n else state.open
        closes = last and is_open
        if closes and n == 0 and not self.keep_all:
            # That frame was encoded before the stream was known to end: again, as an anchor.
            assert state.tail is not None
            x, scores = state.tail
            SemanticEncoder.drop_last(state.cache)
            n, n_before = 1, n_before - 1
        is_anchor = self._no_anchors(x)
        is_anchor[anchors] = True
        if closes:
            anchors = [*anchors, n - 1]
            if not self.keep_all:
                is_anchor[-1] = True
        h = self.encoder.append(state.cache, x, is_anchor) if n else x
        state.n_frames = n_before + n
        if n:
            state.open = not anchors or anchors[-1] != n - 1
            state.tail = (x[-1:], scores[-1:])
        ends = [n_before + i + 1 for i in anchors]
        if self.keep_all:
            return Compressed(h, scores, ends, ends)
        ready = [state.n_vectors + i + 1 for i in range(len(anchors))]
        state.n_vectors += len(anchors)
        return Compressed(h[anchors], scores[anchors], ready, ends)


class Cif(ScoredCompressor):
    """CIF: every segment is the average of its frames, weighted by their scores (equation 7).

    The encoder sees no anchors, so that its mask is `history`. A frame with which the sum goes past
    1 is shared between two segments. What is left at the end is fired if it is above a half or
    nothing was fired yet, at full weight.
    """

    name = "cif"

    def _weights(self, alpha: Tensor, total: float) -> tuple[Tensor, list[int]]:
        """Return how much each frame adds to each segment, and the frames that complete one.

        alpha: (T,) of frames that follow a running sum of `total`, 0 <= total < 1. Weights
        (segments, T): one row for each segment that is completed, and one for the open segment.
        """
        # Frame t fills lower[t] .. upper[t] of the running sum; segment i is the part i .. i + 1.
        upper = total + alpha.cumsum(0)
        lower = torch.cat([upper.new_full((1,), total), upper])[: len(upper)]
        # A sum that misses a whole number by rounding only has reached it.
        n_complete = (upper.detach() + 1e-5).floor().long()  # segments after each frame, (T,)
        n_fired = int(n_complete[-1]) if len(n_complete) else 0
        begins = torch.arange(n_fired + 1.0, device=alpha.device)[:, None]
        # The length of the overlap of frame and segment, negative where there is none.
        weights = torch.minimum(upper, begins + 1.0) - torch.maximum(lower, begins)
        # Segment i is complete with the first frame at which more than i are.
        segments = torch.arange(n_fired, device=n_complete.device)
        # One transfer from a GPU for all of them.
        last_frames: list[int] = torch.searchsorted(n_complete, segments, right=True).tolist()
        return weights.clamp(min=0.0), last_frames

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        """See `Compressor`: a segment ends where the sum of alphas reaches a whole number."""
        # Detached as in the published code: features learn only from the encoder.
        scores = self.segmenter(x.detach())
        n_segments = x.shape[0] / rate if rate is not None else n_tokens
        error = None
        if n_segments is None:
            alpha = self.alphas(scores)
        else:
            alpha = scores.float().sigmoid()
            error = self.length_error(alpha, n_segments)
            # To a whole number of segments, so that nothing is left over at the end.
            alpha = rescale(alpha, max(1.0, float(round(n_segments))))
        state = self.start()
        return self._integrate(state, self.encoder(x, self._no_anchors(x)), alpha, True, error)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        h = self.encoder.append(state.cache, x, self._no_anchors(x)) if len(x) else x
        return self._integrate(state, h, self.alphas(self.segmenter(x)), last, None)

    def _integrate(
        self, state: CompressorState, h: Tensor, alpha: Tensor, last: bool, error: Tensor | None
    ) -> Compressed:
        """Add the next encoded frames h (n, d) with `alpha` (n,) to the segments.

        Returns the segments that are complete, at the `last` frames of a window also the open one
        if it fires; `error` is passed on.
        """
        n_before = state.n_frames
        state.n_frames += h.shape[0]
        # The open segment's sum so far, carried from chunk to chunk.
        partial = h.new_zeros(h.shape[1]) if state.partial is None else state.partial
        weights, last_frames = self._weights(alpha, state.weight)
        sums = weights.to(h.dtype) @ h
        # The first of the segments is the one that was open.
        sums = torch.cat([(sums[0] + partial)[None], sums[1:]])
        totals = weights.sum(1)
        totals = torch.cat([totals[:1] + state.weight, totals[1:]])
        # A complete segment has the weight 1, so that its sum is its average.
        vectors = sums[: len(last_frames)]
        state.partial, state.weight = sums[-1].detach(), float(totals[-1].detach())
        ends = [n_before + i + 1 for i in last_frames]
        is_first = state.n_vectors == 0 and not last_frames
        fires = state.weight > 0.5 or (is_first and state.weight > 1e-6)
        if last and state.n_frames and fires:
            average = sums[-1] / totals[-1].clamp(min=1e-6).to(h.dtype)
            vectors = torch.cat([vectors, average[None]])
            ends = [*ends, state.n_frames]
            state.weight, state.partial = 0.0, None
        ready = [state.n_vectors + i + 1 for i in range(len(ends))]
        state.n_vectors += len(ends)
        return Compressed(vectors, vectors.new_zeros(len(ends)), ready, ends, error)


class Uncompressed(Compressor):
    """No compression: all frames, a segment every `stride` of them (section 4, fixed decision)."""

    name = "none"

    def __init__(self, encoder: SemanticEncoder) -> None:
        super().__init__(encoder)
        self.stride = FRAMES_PER_TOKEN

    def compress(
        self, x: Tensor, n_tokens: float | None = None, rate: float | None = None
    ) -> Compressed:
        return self._all(self.start(), self.encoder(x, self._no_anchors(x)), True)

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        h = self.encoder.append(state.cache, x, self._no_anchors(x)) if len(x) else x
        return self._all(state, h, last)

    def _all(self, state: CompressorState, h: Tensor, last: bool) -> Compressed:
        """Return all encoded frames h (n, d); at the `last` ones an incomplete segment ends too."""
        n, stride = h.shape[0], self.stride or FRAMES_PER_TOKEN
        ends = [state.n_frames + i + 1 for i in fixed(n, stride, state.n_frames)]
        state.n_frames += n
        if last and state.n_frames % stride:
            ends.append(state.n_frames)
        return Compressed(h, h.new_zeros(n), ends, ends)
