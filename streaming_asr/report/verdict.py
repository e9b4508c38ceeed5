"""The first sentence of a page: the best streaming run of each data, and offline."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from streaming_asr.score.front import LATENCY
from streaming_asr.score.results import Result
from streaming_asr.terminal import format_number

WER = "wer"
UNJUDGED = "No reference: the texts and when they came, no errors."


def named(result: Result) -> str:
    """Return the method and its chunk in words."""
    return (
        result.label if result.method == "offline" else f"{result.label} at {result.chunk}".strip()
    )


def extremes(results: Sequence[Result], clock: str = "ca") -> tuple[Result, ...]:
    """Return at most two runs that the page shows first: the streaming run with the lowest WER and
    the one with the lowest latency, of another method if there is one and among the half with fewer
    errors. Failed and odd runs are left out; offline counts only if there is no other."""
    usable = [
        result for result in results if result.metrics and not result.error and not result.is_odd
    ]
    streaming = [result for result in usable if result.method != "offline"] or usable
    if not streaming:
        return ()
    latency = LATENCY.format(clock)
    best = min(streaming, key=lambda result: (result.or_last(WER), result.or_last(latency)))
    others = [result for result in streaming if result.method != best.method]
    others = others or [result for result in usable if result is not best]
    # A run that outputs other words than were spoken is early without use.
    median_wer = median(result.or_last(WER) for result in streaming)
    others = [result for result in others if result.or_last(WER) <= median_wer] or others
    return best, *sorted(others, key=lambda result: result.or_last(latency))[:1]


def verdict(results: Sequence[Result], clock: str = "ca") -> str | None:
    """Return one sentence on the runs of one data: what the streaming run with the least WER has,
    or both where there are two, and offline's WER. It states numbers, and claims no difference:
    `score compare` tests one. WER has no interval, since that of the least of many would be too
    low.

    None where no run has a number.
    """
    best, *_ = extremes(results, clock) or (None,)
    if best is None:
        return None
    streaming = [r for r in results if r.metrics and not r.is_odd and r.method != "offline"]
    # Of two runs both are named, the one with fewer errors first.
    pair = [best, *(r for r in streaming if r is not best)] if len(streaming) == 2 else [best]
    if not best.is_labelled:
        sentences = [text for each in pair if (text := _numbers(each, clock, "of its words"))]
        return f"{'; '.join(sentences)}. {UNJUDGED}" if sentences else UNJUDGED
    scored = [result for result in results if result.metrics.get(WER) is not None]
    offline = [result for result in scored if result.method == "offline" and not result.is_odd]
    wers = [result.metrics[WER] for result in scored if result.method != "offline"]
    n_as_good = wers.count(best.metrics.get(WER)) - 1
    least = f", the least of {len(wers)} streaming runs" if len(wers) > 2 else ""
    if least and n_as_good:
        others = "other" if n_as_good == 1 else "others"
        least += f" (shared by {n_as_good} {others})"
    parts = [text for each in pair if (text := _numbers(each, clock, "of the right words", least))]
    if offline and best.method != "offline":
        lowest = min(offline, key=lambda result: result.or_last(WER))
        parts.append(f"{lowest.label}: WER {format_number(lowest.metrics[WER], 1)} %")
    return f"{'; '.join(parts)}."


def _numbers(result: Result, clock: str, which: str, least: str = "") -> str:
    """Return what one run has: its errors, where they were counted, and its latency."""
    name = LATENCY.format(clock)
    wer, late = result.metrics.get(WER), result.metrics.get(name)
    parts = [] if wer is None else [f"WER {format_number(wer, 1)} %{least}"]
    if late is not None:
        bounds = " to ".join(format_number(bound, 1) for bound in result.intervals.get(name, ()))
        parts.append(
            f"half {which} final within {format_number(late, 1)} s"
            + (f" (95 % interval {bounds})" if bounds else "")
            + (", computing time not counted" if clock == "cu" else "")
        )
    return f"{named(result)}: {', '.join(parts)}" if parts else ""
