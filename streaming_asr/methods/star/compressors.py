"""Compressors: feature frames to the few vectors that the decoder attends to.

`star`  the semantic encoder's output at the anchors (section 2.2). A segmenter scores every frame;
        alpha = sigmoid(score) is summed up, and the frame that brings the sum to 1 is an anchor
        (algorithm 1, line 6). The last frame is always one;
`none`  every frame: the model without compression, with a decision at a fixed stride.

Commit 916c7372 has the paper's other two, CIF and CNN; commit 12931f89 compresses whole recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from streaming_asr.methods.star.semantic import SemanticCache, SemanticEncoder

COMPRESSORS = ("star", "none")
FRAMES_PER_TOKEN = 12
"""The segmenter begins with scores that make an anchor this often."""
TOLERANCE = 1e-6  # ten scores of 0.1 make 1
SMOOTHING_ROUNDS = 10


def accumulate(
    alphas: Sequence[float], total: float = 0.0, *, carry: bool = False
) -> tuple[list[int], float]:
    """Return the indices of anchors among the alphas of frames, and the running sum at their end.

    total: the running sum before these frames. carry: False sets the sum to 0 after an anchor, as
    algorithm 1 (line 4) has it; True takes off 1 and keeps the residual, as the published
    code does.
    """
    anchors = []
    for i, alpha in enumerate(alphas):
        total += alpha
        if total >= 1.0 - TOLERANCE:
            anchors.append(i)
            total = max(0.0, total - 1.0) if carry else 0.0
    return anchors, total


def rescale(alpha: Tensor, n: float) -> Tensor:
    """Return the scores (T,) multiplied so that they sum to `n` (equation 9).

    Where one of them is then above 1, which would be two anchors in one frame, all are drawn
    half-way to their mean, at most ten times; the sum stays.
    """
    scaled = alpha * (n / alpha.sum().clamp(min=1e-8))
    for _ in range(SMOOTHING_ROUNDS):
        if not bool((scaled > 1.0).any()):
            break
        scaled = 0.5 * scaled + 0.5 * scaled.mean()
    return scaled


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
    """STAR: the encoder's output at the anchors, their raw scores injected (equations 2 to 5).

    segmenter: None takes every frame, with a segment each `stride` of them (section 4, fixed
    decision). carry: see `accumulate`.
    """

    def __init__(
        self, encoder: SemanticEncoder, segmenter: Segmenter | None, *, carry: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.segmenter = segmenter
        self.carry = carry
        self.stride = FRAMES_PER_TOKEN

    def compress(self, x: Tensor, n_tokens: float | None = None) -> Compressed:
        """Compress a whole window x (T, d), T >= 1: a segment ends with each anchor, or stride, and
        with the window.

        n_tokens: in training, the scores are scaled so that they make so many segments. Without it
        the result is what `push` gives.
        """
        if self.segmenter is None:
            h = self.encoder(x, _no_anchors(x))
            return self._every_frame(self.start(), h, last=True)
        # Detached as in the published code: features learn only from the encoder.
        scores = self.segmenter(x.detach())
        alpha = scores.float().sigmoid()
        scaled = alpha if n_tokens is None else rescale(alpha, n_tokens)
        anchors, _ = accumulate(scaled.detach().tolist(), carry=self.carry)
        if anchors[-1:] != [len(x) - 1]:
            anchors.append(len(x) - 1)  # the end of the audio closes a segment
        is_anchor = _no_anchors(x)
        is_anchor[anchors] = True
        h = self.encoder(x, is_anchor)
        error = None if n_tokens is None else (alpha.sum() - n_tokens).square()
        ends = [i + 1 for i in anchors]
        return Compressed(h[anchors], scores[anchors], list(range(1, len(ends) + 1)), ends, error)

    def start(self) -> CompressorState:
        """Return the state of a new window."""
        return CompressorState(self.encoder.start())

    def push(self, state: CompressorState, x: Tensor, *, last: bool) -> Compressed:
        """Take in the next frames x (n, d), n >= 0; return vectors and segments now complete.

        `last` may come with no frames, after the window's last ones.
        """
        if self.segmenter is None:
            h = self.encoder.append(state.cache, x, _no_anchors(x)) if len(x) else x
            return self._every_frame(state, h, last=last)
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
        if closes:
            anchors.append(n - 1)
        is_anchor = _no_anchors(x)
        is_anchor[anchors] = True
        h = self.encoder.append(state.cache, x, is_anchor) if n else x
        state.n_frames = n_before + n
        if n:
            state.open = anchors[-1:] != [n - 1]
            state.tail = (x[-1:], scores[-1:])
        ends = [n_before + i + 1 for i in anchors]
        ready = [state.n_vectors + i + 1 for i in range(len(anchors))]
        state.n_vectors += len(anchors)
        return Compressed(h[anchors], scores[anchors], ready, ends)

    def _every_frame(self, state: CompressorState, h: Tensor, *, last: bool) -> Compressed:
        """Return all encoded frames h (n, d); at the `last` ones an incomplete segment ends too."""
        before = state.n_frames
        state.n_frames += h.shape[0]
        ends = [end for end in range(before + 1, state.n_frames + 1) if end % self.stride == 0]
        if last and state.n_frames % self.stride:
            ends.append(state.n_frames)
        return Compressed(h, h.new_zeros(h.shape[0]), ends, ends)


def _no_anchors(x: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
