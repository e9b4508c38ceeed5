"""report --budget: the run with the lowest WER within limits on latency and cost, its runner-up,
and whether the two differ significantly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from streaming_asr.errors import UserError
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST, LEVEL
from streaming_asr.score.compare import compare, read_runs
from streaming_asr.score.limits import COMMIT, SHORT, Limit, parse_limits, with_unit
from streaming_asr.score.results import Result
from streaming_asr.score.table import heading_of
from streaming_asr.terminal import format_number


def parse_budget(texts: Iterable[str]) -> list[Limit]:
    """Return the limits of `commit_p90=1s rtf=0.3 wer=10%`. Raises UserError; see limits.py."""
    return parse_limits("--budget", texts)


def is_met(results: Sequence[Result], limits: Sequence[Limit]) -> bool:
    """Return whether, of each data, a run is within the limits."""
    return all(
        any(_miss(each, limits) <= 0 for each in _candidates(results) if each.split == split)
        for split in {result.split for result in results}
    )


def verdict(results: Sequence[Result], limits: Sequence[Limit]) -> list[str]:
    """Return the answer in lines, for each data: the best run within the limits, the runner-up and
    whether they differ significantly; else the nearest run and by what it misses."""
    names = [limit.name for limit in limits if limit.metric != "wer"]
    lines = [f"budget: {', '.join(map(str, limits))}"]
    for split in dict.fromkeys(result.split for result in results):
        here = [result for result in results if result.split == split]
        runs = _candidates(here)
        judged = [result for result in runs if _miss(result, limits) < math.inf]
        within = [result for result in judged if _miss(result, limits) <= 0]
        start = f"{split or 'unnamed data'}: "
        if within:
            best = within[0]
            lines.append(f"{start}{len(within)} of {len(judged)} runs are within it")
            lines.append(f"  best: {_described(best, names)}")
            lines += [f"  {text}" for text in _doubts(best, limits)]
            lines.append(f"  {_second(within, names)}")
        elif judged:
            nearest = min(judged, key=lambda result: _miss(result, limits))
            lines.append(f"{start}none of {len(judged)} runs reaches it")
            lines.append(f"  nearest: {_described(nearest, names)}")
            lines.append(f"  it misses {', '.join(_missed(nearest, limits))}")
        else:
            lines.append(f"{start}no run can be judged by it")
        n_out = len(here) - len(judged)
        if n_out:
            lines.append(f"  {n_out} left out: failed, without these metrics, or unlike the others")
    return lines


def _candidates(results: Sequence[Result]) -> list[Result]:
    """Return the runs that a budget chooses from, the lowest WER first, then the lowest latency."""
    latency = COMMIT.format("p50")
    judged = [r for r in results if not r.error and not r.is_odd and r.or_last("wer") < math.inf]
    return sorted(judged, key=lambda result: (result.or_last("wer"), result.or_last(latency)))


def _miss(result: Result, limits: Sequence[Limit]) -> float:
    """Return by which share of a limit a run misses it at most; 0 or less within all limits."""
    return max(limit.excess(result.metrics) for limit in limits)


def _missed(result: Result, limits: Sequence[Limit]) -> list[str]:
    """Return each limit that a run misses, with by how much, as `wer by 1.2 %`."""
    misses = []
    for limit in limits:
        if limit.excess(result.metrics) > 0:
            over = abs(result.metrics[limit.metric] - limit.value)  # type: ignore[operator]
            misses.append(f"{limit.name} by {_shown(limit.metric, over)}")
    return misses


def _doubts(result: Result, limits: Sequence[Limit]) -> list[str]:
    """Return which limits an interval of the run crosses."""
    doubts = []
    for limit in limits:
        bounds = result.intervals.get(limit.metric)
        if bounds and bounds[0] <= limit.value <= bounds[1] and limit.value not in bounds:
            low, high = (_shown(limit.metric, bound) for bound in bounds)
            doubts.append(f"its 95 % interval of {limit.name}, {low} to {high}, crosses the limit")
    return doubts


def _described(result: Result, names: Sequence[str]) -> str:
    """Return a run with its WER, the interval of that, and the metrics of these short names."""
    text = (
        f"{result.label} {result.chunk}".strip() + f": WER {_shown('wer', result.metrics['wer'])}"
    )
    if bounds := result.intervals.get("wer"):
        low, high = (format_number(bound, 1) for bound in bounds)
        text += f" (95 % interval {low} to {high})"
    for name in names:
        metric = SHORT.get(name, name)
        text += f", {name} {_shown(metric, result.metrics.get(metric))}"
    return text


def _second(within: Sequence[Result], names: Sequence[str]) -> str:
    """Return the runner-up of the runs within a budget, and whether it differs from the best."""
    if len(within) < 2:
        return "no runner-up: no other run is within it"
    return f"runner-up: {_described(within[1], names)}; {_told_apart(within[0], within[1])}"


def _told_apart(best: Result, other: Result) -> str:
    """Return the verdict of `score compare` on the two by WER."""
    try:
        (paired,) = compare(read_runs([str(best.folder), str(other.folder)]))
    except UserError:
        return "they cannot be compared: their utterances differ or their logs are not there"
    estimate = paired.differences["wer"]
    if estimate is None:
        return "they cannot be compared: too few utterances"
    if estimate.p_value is None:
        return (
            f"no significant difference: {estimate.value:+.2f} points, they differ in "
            f"{estimate.n_differ}, fewer than {LEAST}, of {paired.clusters}"
        )
    sure = estimate.p_value < 1 - LEVEL
    return (
        f"{'a' if sure else 'no'} significant difference: {estimate.value:+.2f} points, "
        f"95 % interval {estimate.low:+.2f} to {estimate.high:+.2f}, p {estimate.p_value:.4f}, "
        f"paired over {paired.clusters}"
    )


def _digits(metric: str) -> int:
    return (heading_of(metric) or ("", 2 if METRICS[metric].unit == "s" else 3))[1]


def _shown(metric: str, value: float | None) -> str:
    return with_unit(metric, format_number(value, _digits(metric)))
