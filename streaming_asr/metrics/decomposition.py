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
    k_end = bisect_left(a, end_s - TOLERANCE_S)  # first step that had the word's end
    if k < k_end:  # committed before it ended, as is a word that ends after the audio
        return Parts(a[k] - end_s, 0.0, 0.0, step.wait_s, step.compute_s)
    k_ahead = bisect_left(a, end_s + trace.lookahead_s - TOLERANCE_S)
    k_ahead = min(k_ahead, k)  # committed within the look-ahead: nothing was held back
    return Parts(
        fill=a[k_end] - end_s,
        lookahead=a[k_ahead] - a[k_end],
        policy=a[k] - a[k_ahead],
        queue=step.wait_s,
        compute=step.compute_s,
    )
