"""What a page says first: how the best streaming run of each data stands to its baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streaming_asr.metrics.intervals import Estimate
from streaming_asr.score.front import FRONT
from streaming_asr.score.results import Result
from streaming_asr.score.sample import wer_differences
from streaming_asr.terminal import shown

LATENCY, WER = FRONT


def named(result: Result) -> str:
    """Return the method and its chunk in words."""
    return (
        result.label if result.method == "offline" else f"{result.label} at {result.chunk}".strip()
    )


def extremes(results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the streaming run with the least WER and, of another method where there is one, that
    with the least latency; the first two runs where neither is known. Runs that cannot be compared
    are left out."""
    usable = [
        result for result in results if result.metrics and not result.error and not result.is_odd
    ]
    able = [result for result in usable if result.method != "offline"] or usable
    if not able:
        return ()
    best = min(able, key=lambda result: (_or_last(result, WER), _or_last(result, LATENCY)))
    rest = [result for result in able if result.method != best.method] or [
        result for result in usable if result is not best
    ]
    return best, *sorted(rest, key=lambda result: _or_last(result, LATENCY))[:1]


def _or_last(result: Result, name: str) -> float:
    value = result.metrics.get(name)
    return math.inf if value is None else value


def verdict(results: Sequence[Result]) -> str | None:
    """Return one sentence on the runs of one data: the best in WER against offline, else against
    the fastest. None where no run has a number."""
    pair = extremes(results)
    if not pair:
        return None
    if not all(result.is_labelled for result in pair):
        return "No reference: the texts and when they came, no errors."
    best = pair[0]
    offline = [c for c in results if c.method == "offline" and c.metrics and not c.is_odd]
    other = min(offline, key=lambda c: c.metrics.get(WER) or 0.0, default=None)
    other = other if other is not None and other.folder != best.folder else (*pair[1:], None)[0]
    if other is None:
        return _alone(best)
    found = wer_differences([best, other], [(0, 1)]).get((0, 1))
    if found is None:  # of other utterances
        return _alone(best)
    _, difference = found
    ours, theirs = best.metrics.get(LATENCY), other.metrics.get(LATENCY)
    later = ""
    if ours is not None and theirs is not None:
        later = f", {abs(ours - theirs):.1f} s {'later' if ours > theirs else 'earlier'}"
    return f"{named(best)}: {_worse(difference, named(other))}{later}."


def _worse(difference: Estimate, other: str) -> str:
    """Return the difference in WER in words: whole, with its interval, and whether it is one."""
    interval = f"[{shown(difference.low, 1)}, {shown(difference.high, 1)}]"
    if difference.low <= 0 <= difference.high:
        return f"not told apart from {other} in WER ({difference.value:+.1f} points {interval})"
    if difference.value > 0:
        return f"{difference.value:.1f} points worse than {other} {interval}"
    turned = f"[{shown(-difference.high, 1)}, {shown(-difference.low, 1)}]"
    return f"{-difference.value:.1f} points better than {other} {turned}"


def _alone(result: Result) -> str:
    interval = result.interval(WER)
    span = f" [{shown(interval[0], 1)}, {shown(interval[1], 1)}]" if interval else ""
    wer, late = result.metrics.get(WER), result.metrics.get(LATENCY)
    parts = [f"WER {shown(wer, 1)} %{span}"] if wer is not None else []
    parts += [f"half of the words final within {shown(late, 1)} s"] if late is not None else []
    return f"{named(result)}: {', '.join(parts) or 'no numbers'}."
