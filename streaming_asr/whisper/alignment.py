"""Word times by cross-attention: dynamic time warping over the alignment heads.

As Whisper finds word times: attention of the alignment heads, standardised over tokens, smoothed
by a median over 7 frames, averaged over heads; the cheapest monotone path gives each token its
frames. A pass of the decoder over prompt and tokens; nothing is left in its cache that was not
there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from streaming_asr.method import FRAME_S
from streaming_asr.whisper.decoder import Decoder, DecoderCache

MEDIAN_FRAMES = 7


def median_filter(x: torch.Tensor) -> torch.Tensor:
    """Return the running median of 7 over the last axis of (..., frames), mirrored at the edges."""
    half = MEDIAN_FRAMES // 2
    if x.shape[-1] <= half:
        return x
    shape = x.shape
    padded = F.pad(x.reshape(1, -1, shape[-1]), (half, half), mode="reflect")
    return padded.unfold(-1, MEDIAN_FRAMES, 1).median(-1).values.reshape(shape)


def warp(cost: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return each token's first frame on the cheapest monotone path through cost (tokens, frames).

    From one cell the path goes to the next frame, the next token, or both (dynamic time warping).
    """
    n_tokens, n_frames = cost.shape
    best = np.empty((n_tokens, n_frames))
    best[0] = np.cumsum(cost[0])
    for i in range(1, n_tokens):
        # enter[j]: the cheapest way into (i, j) from the token before, straight or diagonally.
        # best[i, j] = cost[i, j] + min(best[i, j - 1], enter[j]). Written with cumulative costs it
        # is a running minimum, which numpy computes without a loop over frames.
        enter = best[i - 1].copy()
        enter[1:] = np.minimum(enter[1:], best[i - 1, :-1])
        sums = np.cumsum(cost[i])
        best[i] = sums + np.minimum.accumulate(enter - (sums - cost[i]))
    first = np.zeros(n_tokens, dtype=np.int64)
    i, j = n_tokens - 1, n_frames - 1
    while i > 0:  # backwards from the end, along the cells that the cheapest path came from
        stay = best[i, j - 1] if j > 0 else np.inf
        diagonal = best[i - 1, j - 1] if j > 0 else np.inf
        above = best[i - 1, j]
        if stay < min(diagonal, above):
            j -= 1
            continue
        first[i] = j
        i -= 1
        if diagonal <= above:
            j -= 1
    return first


class HeadRows:
    """Attention rows of the alignment heads, from the queries of a decoder pass.

    Hand an instance to `Decoder.run` as `on_cross`, then ask for `rows`. The softmax is over the
    first `n_keys` frames of the stream's context, padding included.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: DecoderCache,
        heads: Sequence[tuple[int, int]],
        n_keys: int,
    ) -> None:
        """heads: (layer, head) pairs."""
        self._cache, self._n_keys = cache, n_keys
        self._scale = decoder.head_size**-0.5
        self._by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            self._by_layer.setdefault(layer, []).append(head)
        self._queries: dict[int, torch.Tensor] = {}

    def __call__(self, layer: int, queries: torch.Tensor) -> None:
        """Keep (hypotheses, heads, queries, d / heads) of one layer's alignment heads."""
        if layer in self._by_layer:
            self._queries[layer] = queries[:, self._by_layer[layer]]

    def rows(self) -> torch.Tensor:
        """Return (hypotheses, alignment heads, queries, n_keys) float32 of the last pass."""
        weights = []
        for layer, queries in self._queries.items():
            keys = self._cache.cross_keys[layer][0, self._by_layer[layer]]
            scores = queries.float() @ keys[:, : self._n_keys].float().transpose(-1, -2)
            weights.append((scores * self._scale).softmax(-1))
        return torch.cat(weights, dim=1)


def standardised(weights: torch.Tensor) -> torch.Tensor:
    """Return attention (heads, rows, frames) as z-scores over the rows, smoothed over frames."""
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    return median_filter((weights - mean) / deviation.clamp(min=1e-8))


def head_maps(
    decoder: Decoder,
    cache: DecoderCache,
    heads: Sequence[tuple[int, int]],
    prompt: Sequence[int],
    tokens: Sequence[int],
    n_frames: int,
) -> torch.Tensor:
    """Return the standardised attention of `heads`: (heads, tokens + 1, n_frames) float32.

    Heads are in the order of their layers. Row i belongs to the query that predicts token i, which
    is the position before it; the last one predicts what follows. Overwrites the self-attention
    cache of row 0 with these tokens.
    """
    head_rows = HeadRows(decoder, cache, heads, n_frames)
    sequence = [*prompt, *tokens]
    all_positions = [range(len(sequence))]  # else the last layer has only the last query
    decoder.run(cache, [sequence], [0], n_frames, on_cross=head_rows, take=all_positions)
    return standardised(head_rows.rows()[0, :, len(prompt) - 1 :])


def alignment_times(
    decoder: Decoder,
    cache: DecoderCache,
    heads: Sequence[tuple[int, int]],
    prompt: Sequence[int],
    tokens: Sequence[int],
    n_frames: int,
) -> list[tuple[float, float]]:
    """Return (start, end) of each token in seconds of the window, monotone."""
    if not tokens or n_frames == 0:
        return [(0.0, 0.0)] * len(tokens)
    weights = head_maps(decoder, cache, heads, prompt, tokens, n_frames).mean(0)
    # A token ends where the next one begins; the last of the rows is what follows the text.
    start_s = warp(-weights.double().cpu().numpy()) * FRAME_S
    return [(float(start_s[i]), float(start_s[i + 1])) for i in range(len(tokens))]
