"""The best alignment of a text with the frames of a CTC model (Graves et al. 2006, by Viterbi)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

ANYTHING = -1
"""A token that matches any sound: what the model has no letters for, as digits."""
ANYTHING_COST = 0.05  # per frame, in nats: less than any other token pays in foreign sound


def align(
    log_probs: NDArray[np.float32], tokens: Sequence[int], blank: int
) -> list[tuple[int, int]] | None:
    """Return the frames [first, stop) of each token on the most probable path; None where there are
    fewer frames than the tokens need.

    log_probs: (frames, classes), natural logarithms. The path visits every token in order, with or
    without blanks between them, but always with one between two equal tokens. `ANYTHING` is nearly
    as probable in a frame as the likeliest class, blank or not: it takes all frames between its
    neighbours except blanks at its edges.
    """
    n_frames, n_tokens = len(log_probs), len(tokens)
    if n_tokens == 0:
        return []
    repeats = sum(a == b != ANYTHING for a, b in pairwise(tokens))
    if n_frames < n_tokens + repeats:
        return None
    # States: blank, token 0, blank, token 1, ..., blank.
    states = np.full(2 * n_tokens + 1, blank)
    states[1::2] = tokens
    emissions = log_probs[:, np.where(states == ANYTHING, blank, states)].astype(np.float64)
    emissions[:, states == ANYTHING] = log_probs.max(1, keepdims=True) - ANYTHING_COST
    # A token may be entered from the one before, without the blank between, where they differ.
    may_skip_blank = np.zeros(len(states), bool)
    may_skip_blank[3::2] = (states[3::2] != states[1:-2:2]) | (states[3::2] == ANYTHING)
    scores = np.full(len(states), -np.inf)  # of the best path that is in each state now
    scores[:2] = emissions[0, :2]
    n_moved = np.zeros((n_frames, len(states)), np.int8)  # states moved on when entering the frame
    for t in range(1, n_frames):
        from_last = np.concatenate([[-np.inf], scores[:-1]])
        from_last_but_one = np.concatenate([[-np.inf, -np.inf], scores[:-2]])
        from_last_but_one[~may_skip_blank] = -np.inf
        choices = np.stack([scores, from_last, from_last_but_one])
        n_moved[t] = choices.argmax(0)
        scores = choices.max(0) + emissions[t]
    # The path ends with the last token or the blank after it. From there it is followed back.
    state = len(states) - 1 if scores[-1] >= scores[-2] else len(states) - 2
    first, stop = [0] * n_tokens, [0] * n_tokens
    for t in range(n_frames - 1, -1, -1):
        if state % 2:
            token = state // 2
            first[token] = t
            stop[token] = stop[token] or t + 1
        state -= int(n_moved[t, state])
    return list(zip(first, stop, strict=True))
