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


def median_filter(x: torch.Tensor, width: int = MEDIAN_FRAMES) -> torch.Tensor:
    """Return the running median over the last axis, mirrored at the edges."""
    half = width // 2
    if x.shape[-1] <= half:
        return x
    shape = x.shape
    padded = F.pad(x.reshape(1, -1, shape[-1]), (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).median(-1).values.reshape(shape)


def warp(cost: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return each token's first frame on the cheapest monotone path through cost (tokens, frames).

    From one cell the path goes to the next frame, the next token, or both.
    """
    n_tokens, n_frames = cost.shape
    best = np.empty((n_tokens, n_frames))
    best[0] = np.cumsum(cost[0])
    for i in range(1, n_tokens):
        # best[i, j] = cost + min(best[i, j-1], enter[j]): a running minimum of enter - sums.
        enter = best[i - 1].copy()
        enter[1:] = np.minimum(enter[1:], best[i - 1, :-1])
        sums = np.cumsum(cost[i])
        best[i] = sums + np.minimum.accumulate(enter - (sums - cost[i]))
    first = np.zeros(n_tokens, dtype=np.int64)
    i, j = n_tokens - 1, n_frames - 1
    while i > 0:
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


def alignment_map(
    decoder: Decoder,
    cache: DecoderCache,
    heads: Sequence[tuple[int, int]],
    prompt: Sequence[int],
    tokens: Sequence[int],
    n_frames: int,
    row: int = 0,
    stream: int | None = None,
) -> torch.Tensor:
    """Return the mean attention of `heads`, standardised, smoothed: (tokens + 1, n_frames) float32.

    Line i belongs to the query that predicts token i; the last one predicts what follows.
    Overwrites the row's self-attention cache with the same tokens.
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    maps: list[torch.Tensor] = []

    def keep(layer: int, q: torch.Tensor) -> None:
        if layer in by_layer:
            own = row if stream is None else stream
            keys = cache.cross_keys[layer][own, by_layer[layer], :n_frames].float()
            scores = q[0, by_layer[layer]].float() @ keys.transpose(-1, -2)
            maps.append((scores * decoder.head_size**-0.5).softmax(-1))

    sequence = [*prompt, *tokens]
    everything = range(len(sequence))
    decoder.run(
        cache,
        [sequence],
        [0],
        n_frames,
        rows=[row],
        stream=stream,
        take=[everything],
        on_cross=keep,
    )
    weights = torch.cat(maps)[:, len(prompt) - 1 :]
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    return median_filter((weights - mean) / deviation.clamp(min=1e-8)).mean(0)


def alignment_times(
    decoder: Decoder,
    cache: DecoderCache,
    heads: Sequence[tuple[int, int]],
    prompt: Sequence[int],
    tokens: Sequence[int],
    n_frames: int,
    row: int = 0,
    stream: int | None = None,
) -> list[tuple[float, float]]:
    """Return (start, end) of each token in seconds of the window, monotone."""
    if not tokens or n_frames == 0:
        return [(0.0, 0.0)] * len(tokens)
    weights = alignment_map(decoder, cache, heads, prompt, tokens, n_frames, row, stream)
    first = warp(-weights.double().cpu().numpy()) * FRAME_S
    return [(float(first[i]), float(first[i + 1])) for i in range(len(tokens))]
