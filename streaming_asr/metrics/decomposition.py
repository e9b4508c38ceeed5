"""Where a word's latency comes from: five parts that sum to it.

Word i ended at e_i and was committed by step k, on the compute clock at f_k. With k_e the first
step that had received audio up to e_i, and k_l the first that had received the method's
look-ahead past it,

    fill       a_{k_e} - e_i               the chunk was not full yet
    lookahead  a_{k_l} - a_{k_e}           the method waits for audio past the word
    policy     a_k - a_{k_l}               the method had the audio of the word and held it back
    queue      max(a_k, f_{k-1}) - a_k     the step waited for the one before it
    compute    c_k                         the step itself

Every part but fill is 0 or more; fill is negative where a word was committed before it ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from streaming_asr.metrics.latency import WordLatency
from streaming_asr.metrics.trace import Trace, mean

# Sums of decimal seconds miss a chunk's end by a rounding error; a sample is 62,500 ns.
TOLERANCE_S = 1e-9


class Parts(NamedTuple):
    """Seconds of one word's latency, by cause."""

    fill: float
    lookahead: float
    policy: float
    queue: float
    compute: float


def word_parts(trace: Trace, words: WordLatency) -> list[Parts]:
    """Return the parts of every hit of `words`, which are `trace`'s, in their order."""
    committed = words.steps.committed
    return [decompose(trace, hit.end_s, committed[hit.word]) for hit in words.hits]


def means(parts: Sequence[Parts]) -> dict[str, float | None]:
    """Return the mean of each part, None where there are no words."""
    return {name: mean([getattr(each, name) for each in parts]) for name in Parts._fields}


def decompose(trace: Trace, end_s: float, k: int) -> Parts:
    """Return the parts of a word that ended at `end_s` and was committed by step `k`."""
    a, step = trace.audio_times, trace.steps[k]
    # No step has the end of a word that outlasts the audio: then it was committed before it ended.
    k_end = bisect_left(a, end_s - TOLERANCE_S)
    k_ahead = min(bisect_left(a, end_s + trace.lookahead_s - TOLERANCE_S), len(a) - 1)
    if k < k_end:
        fill, ahead, policy = a[k] - end_s, 0.0, 0.0
    else:
        heard = min(k, k_ahead)  # committed within the look-ahead: nothing was held back
        fill, ahead, policy = a[k_end] - end_s, a[heard] - a[k_end], a[k] - a[heard]
    return Parts(fill, ahead, policy, step.wait_s, step.compute_s)
