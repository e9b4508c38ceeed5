"""report --budget: the run with the lowest WER within limits on latency and cost, its runner-up,
and whether the two differ significantly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streaming_asr.errors import UserError
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST, LEVEL
from streaming_asr.score.compare import compare, read_runs
from streaming_asr.score.judge import COMMIT, Limit, Verdict, judge, with_unit
from streaming_asr.score.results import Result
from streaming_asr.score.table import heading_of
from streaming_asr.terminal import format_number

Judged = list[tuple[Result, list[Verdict]]]


def is_met(results: Sequence[Result], limits: Sequence[Limit]) -> bool:
    """Return whether, of each data, a run is within the limits."""
    splits = {result.split for result in results}
    return splits == {result.split for result, of_run in _judged(results, limits) if _holds(of_run)}


def verdict(results: Sequence[Result], limits: Sequence[Limit]) -> list[str]:
    """Return the answer in lines, for each data: the best run within the limits, the runner-up and
    whether they differ significantly; else the nearest run and by what it misses."""
    limited = [limit for limit in limits if limit.metric != "wer"]
    lines = [f"budget: {', '.join(map(str, limits))}"]
    for split in dict.fromkeys(result.split for result in results):
        here = [result for result in results if result.split == split]
        measured = [each for each in _judged(here, limits) if _miss(each[1]) < math.inf]
        within = [result for result, of_run in measured if _holds(of_run)]
        start = f"{split or 'unnamed data'}: "
        if within:
            best = within[0]
            lines.append(f"{start}{len(within)} of {len(measured)} runs are within it")
            lines.append(f"  best: {_described(best, limited)}")
            lines += [f"  {text}" for text in _doubts(best, limits)]
            lines.append(f"  {_second(within, limited)}")
        elif measured:
            nearest, of_run = min(measured, key=lambda each: _miss(each[1]))
            is_beyond = any(each.state == "beyond" for each in of_run)
            none = f"none of {len(measured)} runs reaches it"
            lines.append(f"{start}{none if is_beyond else 'no run can be judged by it'}")
            lines.append(f"  nearest: {_described(nearest, limited)}")
            lines += [f"  {text}" for text in _missed(of_run)]
        else:
            lines.append(f"{start}no run can be judged by it")
        n_out = len(here) - len(measured)
        if n_out:
            lines.append(f"  {n_out} left out: failed, without these metrics, or unlike the others")
    return lines


def _judged(results: Sequence[Result], limits: Sequence[Limit]) -> Judged:
    """Return the runs that a budget chooses from with their verdicts, the lowest WER first, then
    the lowest latency."""
    latency = COMMIT.format("p50", "ca")
    runs = [r for r in results if not r.error and not r.is_odd and r.or_last("wer") < math.inf]
    runs.sort(key=lambda result: (result.or_last("wer"), result.or_last(latency)))
    return [(run, judge(run.figure, limits)) for run in runs]


def _holds(verdicts: Sequence[Verdict]) -> bool:
    return all(each.state == "within" for each in verdicts)


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
        if bounds and bounds[0] <= limit.value <= bounds[1] and limit.value not in bounds:
            low, high = (_shown(limit.metric, bound) for bound in bounds)
            doubts.append(f"its 95 % interval of {limit.name}, {low} to {high}, crosses the limit")
    return doubts


def _described(result: Result, limited: Sequence[Limit]) -> str:
    """Return a run with its WER, the interval of that, and the metrics of these limits."""
    text = (
        f"{result.label} {result.chunk}".strip() + f": WER {_shown('wer', result.metrics['wer'])}"
    )
    if bounds := result.intervals.get("wer"):
        low, high = (format_number(bound, 1) for bound in bounds)
        text += f" (95 % interval {low} to {high})"
    for limit in limited:
        text += f", {limit.name} {_shown(limit.metric, result.metrics.get(limit.metric))}"
    return text


def _second(within: Sequence[Result], limited: Sequence[Limit]) -> str:
    """Return the runner-up of the runs within a budget, and whether it differs from the best."""
    if len(within) < 2:
        return "no runner-up: no other run is within it"
    return f"runner-up: {_described(within[1], limited)}; {_told_apart(within[0], within[1])}"


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


def _shown(metric: str, value: float | None) -> str:
    digits = (heading_of(metric) or ("", 2 if METRICS[metric].unit == "s" else 3))[1]
    return with_unit(metric, format_number(value, digits))
