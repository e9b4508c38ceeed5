"""From a log to the time at which each word was seen, in every clock.

Step k of a stream has received a_k seconds of audio and took c_k seconds of compute. The
computation-unaware clock (CU) has its output at a_k, the computation-aware one (CA) at

    f_k = max(a_k, f_{k-1}) + c_k,

a queue that serves chunks in their order. With the feed `best_effort` the next chunk is cut when
the last is done, so a_k >= f_{k-1} and f_k = a_k + c_k follows, except after the end of the audio,
where the queue still holds.

All times are float64 seconds in arrays of shape (K,), K steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.float64]

QUEUE_BUDGET_S = 1.0  # the longest wait of a chunk that still counts as keeping up
GROWTH_TOLERANCE = 1e-3  # seconds of wait per second of audio taken as no growth


def fifo(a: Times, c: Times) -> Times:
    """Return f_k = max(a_k, f_{k-1}) + c_k with f_0 = 0 (CA), (K,) in seconds.

    In closed form f_k = C_k + max over j <= k of (a_j - C_{j-1}), where C is the running sum of c:
    the queue was last empty at the j that attains the maximum.
    """
    total = np.cumsum(c)
    return total + np.maximum.accumulate(a - (total - c))


def queue_wait(a: Times, c: Times) -> Times:
    """Return how long each step's audio waits for its turn, max(a_k, f_{k-1}) - a_k, (K,)."""
    f = fifo(a, c)
    return np.maximum(np.concatenate([[0.0], f[:-1]])[: len(a)] - a, 0.0)


def whole_steps(a: Times) -> int:
    """Return how many steps come before the pieces at the end of a recording that are shorter than
    the others: whatever audio is left, or none at all in a flush."""
    pieces = np.diff(a)  # without the first, which has a length of its own
    least = 0.999 * np.median(pieces) if len(pieces) else 0.0  # a_k is of whole samples
    long_enough = np.flatnonzero(pieces >= least)
    return int(long_enough[-1]) + 2 if len(long_enough) else len(a)


def queue_growth(a: Times, c: Times) -> float:
    """Return the growth of the wait over the second half of the whole steps, in seconds per second
    of audio.

    It is the median wait of the last quarter of these steps minus that of the third quarter, over
    the audio between the two; medians, since one late chunk is not growth. A shorter last piece has
    a wait, but arrives sooner after the step before it than any other, so it is no sign of growth.
    0 with fewer than four whole steps.
    """
    n = whole_steps(a)
    if n < 4:
        return 0.0
    wait = queue_wait(a, c)
    third, last = slice(n // 2, n - n // 4), slice(n - n // 4, n)
    audio_s = float(np.median(a[last]) - np.median(a[third]))
    rise_s = float(np.median(wait[last]) - np.median(wait[third]))
    return rise_s / audio_s if audio_s > 0 else 0.0


def keeps_up(a: Times, c: Times, budget_s: float = QUEUE_BUDGET_S) -> bool:
    """Return whether no wait of a stream is longer than `budget_s` and its wait does not grow."""
    longest_s = float(np.max(queue_wait(a, c), initial=0.0))
    return longest_s <= budget_s and queue_growth(a, c) <= GROWTH_TOLERANCE


def headroom(traces: Iterable[tuple[Times, Times]], budget_s: float = QUEUE_BUDGET_S) -> float:
    """Return how many times slower the machine may be: the largest factor s such that every trace
    (a, c) keeps up with compute times s * c_k (`keeps_up`).

    Below 1 this machine does not keep up. Infinite if no step takes any time.
    """
    pairs = list(traces)

    def bounded(s: float) -> bool:
        return all(keeps_up(a, s * c, budget_s) for a, c in pairs)

    low, high = 0.0, 1.0
    # A slower machine never shortens a queue: the factors below a good one are good too, so the
    # limit can be bracketed by doubling and then halved.
    while bounded(high):
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if bounded(middle) else (low, middle)
    return low
