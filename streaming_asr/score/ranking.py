"""Which results are best: in order, on the Pareto front, within a budget."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from streaming_asr.metrics import METRICS
from streaming_asr.score.columns import LATENCY, column_of
from streaming_asr.score.judge import Limit, Verdict, judge, with_unit
from streaming_asr.score.results import BATCH, BUSY, Result
from streaming_asr.terminal import format_number

WER = "wer"
FRONT = (LATENCY.format("ca"), WER)  # the axes of the Pareto front
FEW = 20  # recordings: of fewer, a WER tells little and no winner is named
UNJUDGED = "No reference: the texts and when they came, no errors."


def comparable(results: Sequence[Result], metric: str | None = None) -> list[Result]:
    """Return the results that have numbers, and `metric`, and are like the others of their data."""
    usable = [r for r in results if r.metrics and not r.error and not r.is_odd]
    return [r for r in usable if metric is None or r.metrics.get(metric) is not None]


def ranked(results: Sequence[Result], metric: str = WER) -> list[Result]:
    """Return the cells sorted by corpus and, of one corpus, the best by `metric` first and those
    without the metric last; failed cells are at the end."""

    def rank(result: Result) -> tuple[bool, str, bool, float, float]:
        value = result.metrics.get(metric)
        return result.error is not None, result.split, value is None, *_merit(result, metric)

    return sorted(results, key=rank)


def _merit(result: Result, metric: str) -> tuple[float, float]:
    """Return the sort key of a cell by a metric: the best cell has the lowest; between equals the
    median commit latency decides."""
    sign = -1 if metric in METRICS and METRICS[metric].better == "higher" else 1
    return sign * (result.metrics.get(metric) or 0.0), result.or_last(FRONT[0])


def n_recordings(results: Sequence[Result]) -> int:
    """Return the most recordings that a run with a WER has."""
    judged = [result for result in results if result.metrics.get(WER) is not None]
    return max((result.document.get("n_utterances") or 0 for result in judged), default=0)


def streaming(results: Sequence[Result], metric: str = WER) -> list[Result]:
    """Return the comparable cells that stream, sorted by corpus, the best by `metric` first."""
    usable = ranked(comparable(results, metric), metric)
    return [result for result in usable if not result.is_whole and BATCH not in result.notes]


def best_of(results: Sequence[Result], metric: str = WER) -> list[Result]:
    """Return for each corpus the streaming cell that is best by `metric`; none for a corpus of
    fewer than FEW recordings or with one comparable cell, or where all are equal."""
    usable = streaming(results, metric)
    best = []
    for split in dict.fromkeys(result.split for result in usable):
        here = [result for result in usable if result.split == split]
        if len({_merit(result, metric) for result in here}) > 1 and n_recordings(here) >= FEW:
            best.append(here[0])
    return best


def best_values(results: Sequence[Result], metrics: Sequence[str]) -> set[tuple[Path, str]]:
    """Return (folder, metric) of each value that is the best of its corpus, where at least FEW
    recordings count and the comparable cells differ in it."""
    best = set()
    for split in {result.split for result in results}:
        here = comparable([result for result in results if result.split == split])
        for metric in metrics if n_recordings(here) >= FEW else ():
            better = METRICS[metric].better if metric in METRICS else None
            values = {r.folder: v for r in here if (v := r.metrics.get(metric)) is not None}
            if better and len(set(values.values())) > 1:
                first = (min if better == "lower" else max)(values.values())
                best |= {(folder, metric) for folder, value in values.items() if value == first}
    return best


def named(result: Result) -> str:
    """Return the method and its chunk in words."""
    return result.label if result.is_whole else f"{result.label} at {result.chunk}".strip()


# -- the Pareto front -----------------------------------------------------------------------------


def clock_of(results: Sequence[Result]) -> str:
    """Return the clock on which these runs have latencies: "ca", with compute; or "cu", audio only,
    if no log has compute times, or a busy machine made them too long."""
    has = {
        clock: any(r.metrics.get(LATENCY.format(clock)) is not None for r in results)
        for clock in ("ca", "cu")
    }
    is_lost = not has["ca"] or any(BUSY in result.notes for result in results)
    return "cu" if has["cu"] and is_lost else "ca"


def place(result: Result, clock: str = "ca") -> tuple[float, float] | None:
    """Return (latency in s, WER in %) of a run; None if it lacks one of them."""
    latency, wer = result.metrics.get(LATENCY.format(clock)), result.metrics.get(WER)
    return None if latency is None or wer is None else (latency, wer)


def front(results: Sequence[Result], clock: str = "ca") -> dict[Path, bool]:
    """Return, by folder, whether a run is on the Pareto front of WER and latency: no other run of
    the same data is lower in one and no higher in the other. Runs without WER or latency and odd
    ones are left out."""
    points = {r.folder: (r.split, at) for r in comparable(results) if (at := place(r, clock))}
    return {
        folder: not any(
            other != at and other[0] <= at[0] and other[1] <= at[1]
            for other_split, other in points.values()
            if other_split == split
        )
        for folder, (split, at) in points.items()
    }


def ceiling(results: Sequence[Result], axis: int = 1, clock: str = "ca") -> float | None:
    """Return the end of an axis of the figure, so that a few runs far above the rest do not stretch
    it: these are drawn at its edge, with their number. None: draw all runs in place.

    axis: 1 for WER (%), 0 for latency (s), which a busy machine makes long.
    """
    points = [place(result, clock) for result in results]
    values = sorted(point[axis] for point in points if point is not None)
    if len(values) < 4:  # of three runs none is clearly apart from the rest
        return None
    # The third quartile, which a few high runs do not raise.
    end = 1.5 * values[(3 * len(values) - 1) // 4]
    return end if values[-1] > 1.5 * end > 0 else None


# -- the first sentence of a page -----------------------------------------------------------------


def extremes(results: Sequence[Result], clock: str = "ca") -> tuple[Result, ...]:
    """Return at most two runs that the page shows first: the streaming run with the lowest WER and
    the one with the lowest latency, of another method if there is one and among the half with fewer
    errors. Failed and odd runs are left out; offline counts only if there is no other."""
    usable = comparable(results)
    candidates = [result for result in usable if not result.is_whole] or usable
    if not candidates:
        return ()
    latency = LATENCY.format(clock)
    best = min(candidates, key=lambda result: (result.or_last(WER), result.or_last(latency)))
    others = [result for result in candidates if result.method != best.method]
    others = others or [result for result in usable if result is not best]
    # A run that outputs other words than were spoken is early without use.
    median_wer = median(result.or_last(WER) for result in candidates)
    others = [result for result in others if result.or_last(WER) <= median_wer] or others
    return best, *sorted(others, key=lambda result: result.or_last(latency))[:1]


def sentence(results: Sequence[Result], clock: str = "ca") -> str | None:
    """Return one sentence on the runs of one data: what the streaming run with the least WER has,
    or both where there are two, and offline's WER. It states numbers, and claims no difference:
    `score compare` tests one. WER has no interval, since that of the least of many would be too
    low. Of fewer than FEW recordings and three streams or more none is named.

    None where no run has a number.
    """
    best, *_ = extremes(results, clock) or (None,)
    if best is None:
        return None
    usable = comparable(results)
    others = [result for result in usable if not result.is_whole and result is not best]
    # Of two runs both are named, the one with fewer errors first.
    pair = [best, *others] if len(others) == 1 and not best.is_whole else [best]
    if not best.is_labelled:
        sentences = [text for each in pair if (text := _numbers(each, clock, "of its words"))]
        return f"{'; '.join(sentences)}. {UNJUDGED}" if sentences else UNJUDGED
    offline = [result for result in comparable(usable, WER) if result.is_whole]
    wers = [result.metrics[WER] for result in comparable(others, WER)]
    n_as_good = wers.count(best.metrics.get(WER))
    has_winner = len(wers) > 1 and n_recordings(results) >= FEW
    least = f", the least of {len(wers) + 1} streaming runs" if has_winner else ""
    if least and n_as_good:
        least += f" (shared by {n_as_good} other{'s' * (n_as_good > 1)})"
    parts = [text for each in pair if (text := _numbers(each, clock, "of the right words", least))]
    if len(wers) > 1 and not has_winner:
        parts = [f"{n_recordings(results)} recordings, too few to name the best of {len(wers) + 1}"]
    if offline and not best.is_whole:
        lowest = min(offline, key=lambda result: result.or_last(WER))
        parts.append(f"{lowest.label}: WER {format_number(lowest.metrics[WER], 1)} %")
    return f"{'; '.join(parts)}."


def conclusions(results: Sequence[Result]) -> list[str]:
    """Return what a table of enough recordings says: a sentence for each corpus, and the command
    that tests whether the two best runs of one differ."""
    lines: list[str] = []
    pair: list[Result] = []
    splits = dict.fromkeys(result.split for result in results)
    for split in splits:
        here = [result for result in results if result.split == split]
        if n_recordings(here) >= FEW and (text := sentence(here, clock_of(results))):
            lines.append(f"{split}: {text}" if len(splits) > 1 and split else text)
            pair = pair or streaming(here)[:2]
    if len(pair) == 2:
        cells = " ".join(shlex.quote(str(result.folder)) for result in pair)
        lines += ["do the first two differ?", f"  streaming-asr score compare {cells}"]
    return lines


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


# -- a budget -------------------------------------------------------------------------------------


def within_budget(results: Sequence[Result], limits: Sequence[Limit]) -> tuple[list[str], bool]:
    """Return the answer to a budget in lines, and whether a run of each data is within it.

    The lines are, for each data: the run with the lowest WER within the limits; else the nearest
    run and by what it misses.
    """
    limited = [limit for limit in limits if limit.metric != WER]
    lines = [f"budget: {', '.join(map(str, limits))}"]
    is_met = True
    for split in dict.fromkeys(result.split for result in results):
        here = [result for result in results if result.split == split]
        judged = [(run, judge(run.figure, limits)) for run in ranked(comparable(here, WER))]
        judged = [(run, of_run) for run, of_run in judged if _miss(of_run) < math.inf]
        within = [run for run, of_run in judged if all(v.state == "within" for v in of_run)]
        is_met = is_met and bool(within)
        start = f"{split or 'unnamed data'}: "
        if within:
            lines.append(f"{start}{len(within)} of {len(judged)} runs are within it")
            lines.append(f"  best: {_described(within[0], limited)}")
            lines += [f"  {text}" for text in _doubts(within[0], limits)]
        elif judged:
            nearest, of_run = min(judged, key=lambda each: _miss(each[1]))
            is_beyond = any(each.state == "beyond" for each in of_run)
            none = f"none of {len(judged)} runs reaches it"
            lines.append(f"{start}{none if is_beyond else 'no run can be judged by it'}")
            lines.append(f"  nearest: {_described(nearest, limited)}")
            lines += [f"  {text}" for text in _missed(of_run)]
        else:
            lines.append(f"{start}no run can be judged by it")
        if n_out := len(here) - len(judged):
            lines.append(f"  {n_out} left out: failed, without these metrics, or unlike the others")
    return lines, is_met


def _miss(verdicts: Sequence[Verdict]) -> float:
    """Return by which share of a limit a run misses it at most; 0 or less within all limits,
    infinite without a metric."""
    values = [(each.limit, each.figure.value) for each in verdicts]
    return max(
        math.inf if value is None else limit.excess(value) / limit.value for limit, value in values
    )


def _missed(verdicts: Sequence[Verdict]) -> list[str]:
    """Return by how much a run misses limits, as `it misses wer by 1.2 %`, and which cannot be
    judged."""
    misses = [
        f"{each.limit.name} by {_shown(each.limit.metric, each.limit.excess(each.figure.value))}"
        for each in verdicts
        if each.state == "beyond" and each.figure.value is not None
    ]
    lines = [f"it misses {', '.join(misses)}"] if misses else []
    unknown = [each for each in verdicts if each.state == "unknown"]
    return lines + [f"{each.limit.name} cannot be judged: {each.reason}" for each in unknown]


def _doubts(result: Result, limits: Sequence[Limit]) -> list[str]:
    """Return which limits an interval of the run crosses."""
    doubts = []
    for limit in limits:
        bounds = result.intervals.get(limit.metric)
        if bounds and bounds[0] < limit.value < bounds[1]:
            low, high = (_shown(limit.metric, bound) for bound in bounds)
            doubts.append(f"its 95 % interval of {limit.name}, {low} to {high}, crosses the limit")
    return doubts


def _described(result: Result, limited: Sequence[Limit]) -> str:
    """Return a run with its WER, the interval of that, and the metrics of these limits."""
    text = f"{result.label} {result.chunk}".strip() + f": WER {_shown(WER, result.metrics[WER])}"
    if bounds := result.intervals.get(WER):
        text += " (95 % interval {:.1f} to {:.1f})".format(*bounds)
    for limit in limited:
        text += f", {limit.name} {_shown(limit.metric, result.metrics.get(limit.metric))}"
    return text


def _shown(metric: str, value: float | None) -> str:
    return with_unit(metric, format_number(value, column_of(metric).digits))
