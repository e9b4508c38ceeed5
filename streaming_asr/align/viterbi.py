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
    """Return the frames [first, last) of each token on the most probable path.

    log_probs: (frames, classes), natural logarithms. The path visits every token in order, blanks
    where it likes, and a blank between two equal tokens. `ANYTHING` is nearly as probable in a
    frame as the likeliest class, blank or not: it takes all between its neighbours but the blanks
    at its edges. None where there are fewer frames than the tokens need.
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
    may_skip = np.zeros(len(states), bool)  # the blank before a token, where tokens differ
    may_skip[3::2] = (states[3::2] != states[1:-2:2]) | (states[3::2] == ANYTHING)
    score = np.full(len(states), -np.inf)
    score[:2] = emissions[0, :2]
    steps = np.zeros((n_frames, len(states)), np.int8)  # states moved on when entering the frame
    for t in range(1, n_frames):
        one = np.concatenate([[-np.inf], score[:-1]])
        two = np.where(may_skip, np.concatenate([[-np.inf, -np.inf], score[:-2]]), -np.inf)
        choices = np.stack([score, one, two])
        steps[t] = choices.argmax(0)
        score = choices.max(0) + emissions[t]
    state = len(states) - 1 if score[-1] >= score[-2] else len(states) - 2
    first, last = [0] * n_tokens, [0] * n_tokens
    for t in range(n_frames - 1, -1, -1):
        if state % 2:
            token = state // 2
            first[token] = t
            last[token] = last[token] or t + 1
        state -= int(steps[t, state])
    return list(zip(first, last, strict=True))
