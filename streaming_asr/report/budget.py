"""report --budget: the run with the lowest WER within limits on latency and cost, its runner-up,
and whether the two can be told apart."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.metrics import METRICS
from streaming_asr.metrics import intervals as statistics
from streaming_asr.metrics.intervals import LEVEL, Clusters, Counts, Estimate, Values
from streaming_asr.score.results import Cell
from streaming_asr.terminal import shown

COMMIT, SHOWN = "word_latency_committed_{}_ca_s", "word_latency_shown_{}_ca_s"
SHORT = {  # names in a budget beside those of metrics.json
    **{f"commit_{p}": COMMIT.format(p) for p in ("mean", "p50", "p90", "p95", "p99")},
    **{f"shown_{p}": SHOWN.format(p) for p in ("mean", "p50", "p90", "p95", "p99")},
    "arwer": "arwer_grid_ca",
    "rtf": "rtf_total",
    "erasure": "normalised_erasure",
}
SLIDERS = ("commit_p50", "commit_p90", "rtf")  # of the page
FACTORS = {"s": {"s": 1.0, "ms": 1e-3}, "ms": {"ms": 1.0, "s": 1e3}}  # other units stand alone


@dataclass(frozen=True)
class Limit:
    """The worst value of a metric that a budget allows, in the metric's unit."""

    name: str  # as given
    metric: str
    value: float

    def excess(self, cell: Cell) -> float:
        """Return by how much of the limit the run misses it, 0 or less within it; infinite for a
        run without the metric."""
        value = cell.metrics.get(self.metric)
        if value is None:
            return math.inf
        sign = -1 if METRICS[self.metric].better == "higher" else 1
        return sign * (value - self.value) / self.value

    def __str__(self) -> str:
        word = "at least" if METRICS[self.metric].better == "higher" else "at most"
        return f"{self.name} {word} {_with_unit(self.metric, f'{self.value:g}')}"


def parse_budget(texts: Iterable[str]) -> list[Limit]:
    """Return the limits of `commit_p90=1s rtf=0.3 wer=10%`, times with s or ms, rates with %.

    Raises UserError for an unknown metric, one that is neither better high nor low, a value that is
    not above 0, a unit that is missing or another, and a metric given twice.
    """
    limits: list[Limit] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--budget {text}: not metric=value, as in commit_p90=1s rtf=0.3")
        metric = SHORT.get(name, name)
        if metric not in METRICS:
            near = did_you_mean(name, [*SHORT, *METRICS])
            raise UserError(
                f"--budget {text}: no such metric{near or '; score --list shows them all'}"
            )
        if METRICS[metric].better is None:
            raise UserError(f"--budget {text}: {metric} is not better high or low; limit another")
        if metric in {limit.metric for limit in limits}:
            raise UserError(f"--budget {text}: {metric} is limited twice; give one limit")
        limits.append(Limit(name, metric, _number(text, metric, value)))
    return limits


def _number(text: str, metric: str, value: str) -> float:
    found = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))\s*(\S*)", value.strip())
    if found is None:
        raise UserError(f"--budget {text}: the value is a number and its unit")
    number, given = float(found[1]), found[2]
    unit = METRICS[metric].unit
    factors = FACTORS.get(unit, {"": 1.0, "x": 1.0} if unit in ("", "x") else {unit: 1.0})
    if given not in factors:
        said = f"in {' or '.join(filter(None, factors))}" if unit not in ("", "x") else "a number"
        raise UserError(f"--budget {text}: {metric} is {said}; write {found[1]}{unit.strip('x')}")
    if not number > 0:
        raise UserError(f"--budget {text}: must be above 0")
    return number * factors[given]


def verdict(cells: Sequence[Cell], limits: Sequence[Limit]) -> list[str]:
    """Return the answer in lines, for each data: the best run within the limits, the runner-up and
    whether they can be told apart; else the nearest run and by what it misses."""
    names = [limit.name for limit in limits if limit.metric != "wer"]
    lines = [f"budget: {', '.join(map(str, limits))}"]
    for split in dict.fromkeys(cell.split for cell in cells):
        here = [cell for cell in cells if cell.split == split]
        runs = candidates(here)
        judged = [cell for cell in runs if _miss(cell, limits) < math.inf]
        within = [cell for cell in judged if _miss(cell, limits) <= 0]
        start = f"{split or 'unnamed data'}: "
        if within:
            best = within[0]
            lines.append(f"{start}{len(within)} of {len(judged)} runs are within it")
            lines.append(f"  best: {describe(best, names)}")
            lines += [f"  {text}" for text in _doubts(best, limits)]
            lines.append(f"  {second(within, names)}")
        elif judged:
            nearest = min(judged, key=lambda cell: _miss(cell, limits))
            lines.append(f"{start}none of {len(judged)} runs reaches it")
            lines.append(f"  nearest: {describe(nearest, names)}")
            lines.append(f"  it misses {', '.join(_missed(nearest, limits))}")
        else:
            lines.append(f"{start}no run can be judged by it")
        left = len(here) - len(judged)
        if left:
            lines.append(f"  {left} left out: failed, without these metrics, or unlike the others")
    return lines


def candidates(cells: Sequence[Cell]) -> list[Cell]:
    """Return the runs that a budget chooses from, the lowest WER first, then the lowest latency."""
    late = COMMIT.format("p50")
    return sorted(
        (c for c in cells if not c.error and not c.is_odd and c.metrics.get("wer") is not None),
        key=lambda cell: [math.inf if (v := cell.metrics.get(n)) is None else v
                          for n in ("wer", late)],
    )  # fmt: skip


def _miss(cell: Cell, limits: Sequence[Limit]) -> float:
    return max(limit.excess(cell) for limit in limits)


def _missed(cell: Cell, limits: Sequence[Limit]) -> list[str]:
    found = []
    for limit in limits:
        if limit.excess(cell) > 0:
            over = abs(cell.metrics[limit.metric] - limit.value)  # type: ignore[operator]
            found.append(f"{limit.name} by {_shown(limit.metric, over)}")
    return found


def _doubts(cell: Cell, limits: Sequence[Limit]) -> list[str]:
    """Return which limits an interval of the run crosses."""
    found = []
    for limit in limits:
        bounds = cell.interval(limit.metric)
        if bounds and bounds[0] <= limit.value <= bounds[1] and limit.value not in bounds:
            low, high = (_shown(limit.metric, bound) for bound in bounds)
            found.append(f"its 95 % interval of {limit.name}, {low} to {high}, crosses the limit")
    return found


def describe(cell: Cell, names: Sequence[str]) -> str:
    """Return a run with its WER, the interval of that, and the metrics of these short names."""
    told = f"{cell.label} {cell.chunk}".strip() + f": WER {_shown('wer', cell.metrics['wer'])}"
    if bounds := cell.interval("wer"):
        low, high = (shown(bound, 1) for bound in bounds)
        told += f" (95 % interval {low} to {high})"
    for name in names:
        metric = SHORT.get(name, name)
        told += f", {name} {_shown(metric, cell.metrics.get(metric))}"
    return told


def second(within: Sequence[Cell], names: Sequence[str]) -> str:
    """Return the runner-up of the runs within a budget, and whether it differs from the best."""
    if len(within) < 2:
        return "no runner-up: no other run is within it"
    tested = apart(within[:2], [(0, 1)])[0, 1]
    return f"runner-up: {describe(within[1], names)}; {tested}"


def apart(cells: Sequence[Cell], pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Return, for pairs of `cells`, whether the paired test of `score compare` tells the second
    from the first by WER, in words."""
    rows = {at: _errors(cells[at]) for pair in pairs for at in pair}
    base = next((row for row in rows.values() if row is not None), None)
    known = [p for p in pairs if base is not None and all(_alike(rows[at], base) for at in p)]
    told = dict.fromkeys(pairs, "they cannot be compared: their utterances differ or are not there")
    if base is None or not known:
        return told
    clusters = base.clusters
    for pair, estimate in zip(known, _differences(rows, known, base, clusters), strict=True):
        if estimate is None:
            continue
        sure = estimate.p_value < 1 - LEVEL
        told[pair] = (
            f"the two {'can' if sure else 'cannot'} be told apart: {estimate.value:+.2f} points, "
            f"95 % interval {estimate.low:+.2f} to {estimate.high:+.2f}, p {estimate.p_value:.4f}, "
            f"paired over {clusters}"
        )
    return told


@dataclass(frozen=True)
class _Errors:
    """The word errors of a run: by utterance (errors, words), in the order of its log."""

    of: dict[str, tuple[float, float]]
    clusters: Clusters


def _alike(row: _Errors | None, base: _Errors) -> bool:
    return row is not None and {u: n for u, (_, n) in row.of.items()} == {
        u: n for u, (_, n) in base.of.items()
    }


def _differences(
    rows: Mapping[int, _Errors | None],
    pairs: Sequence[tuple[int, int]],
    base: _Errors,
    clusters: Clusters,
) -> list[Estimate | None]:
    sums = {}
    for at in {at for pair in pairs for at in pair}:
        row = rows[at]
        assert row is not None  # of a pair that is alike
        columns = zip(*(row.of[utt] for utt in base.of), strict=True)
        sums[at] = [statistics.sums(column, clusters) for column in columns]

    def of_draws(counts: Counts) -> dict[str, Values]:
        wer = {at: 100.0 * statistics.rate(counts, *each) for at, each in sums.items()}
        return {f"{i} {j}": wer[j] - wer[i] for i, j in pairs}

    found = statistics.bootstrap(of_draws, clusters.n)
    return [found[f"{i} {j}"] for i, j in pairs]


def _errors(cell: Cell) -> _Errors | None:
    """Return the errors that utterances.jsonl holds; None where it is not there or unreadable."""
    from streaming_asr.corpora.rows import text_lines

    try:
        lines = [json.loads(line) for line in text_lines(cell.folder / "utterances.jsonl")]
        of = {line["utt"]: (float(line["errors"]), float(line["n_words"])) for line in lines}
        speakers = [line["speaker"] for line in lines]
        recordings: list[str | None] = [None] * len(lines)
        if (cell.document.get("intervals") or {}).get("drawn") == "recording":
            from streaming_asr.events.log import read_log

            log = read_log(cell.folder / "events.jsonl")
            paths = {utterance.utt: utterance.audio_path for utterance in log.utterances}
            recordings = [paths.get(line["utt"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _Errors(of, statistics.clusters(speakers, recordings)) if of else None


def for_page(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return what the page's sliders need: their metrics, every run in words, the runs of each data
    in the order of their WER, and every pair that a budget can make best and runner-up."""
    names = [n for n in SLIDERS if any(c.metrics.get(SHORT[n]) is not None for c in cells)]
    at = {cell.folder: n for n, cell in enumerate(cells)}
    order: dict[str, list[int]] = {}
    pairs: dict[str, str] = {}
    for split in dict.fromkeys(cell.split for cell in cells):
        here = [cell for cell in cells if cell.split == split]
        runs = [
            cell
            for cell in candidates(here)
            if all(cell.metrics.get(SHORT[name]) is not None for name in names)
        ]
        order[split] = [at[cell.folder] for cell in runs]
        possible = _neighbours([[cell.metrics[SHORT[n]] for n in names] for cell in runs])
        for (i, j), told in apart(runs, possible).items():
            pairs[f"{order[split][i]},{order[split][j]}"] = told
    return {
        "sliders": [
            {
                "name": name,
                "metric": SHORT[name],
                "unit": METRICS[SHORT[name]].unit,
                "digits": _digits(SHORT[name]),
            }
            for name in names
        ],
        "told": {n: describe(cells[n], names) for each in order.values() for n in each},
        "order": order,
        "pairs": pairs,
    }  # fmt: skip


def _neighbours(values: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
    """Return the pairs (i, j), i before j, that some limits make first and second: the least limits
    that admit both admit no other before j."""
    rows = np.array(values, dtype=float)
    found = []
    for j in range(1, len(rows)):
        for i in range(j):
            admitted = (rows[:j] <= np.maximum(rows[i], rows[j])).all(axis=1)
            if admitted.sum() == 1:
                found.append((i, j))
    return found


def _digits(metric: str) -> int:
    from streaming_asr.score.table import heading_of

    return (heading_of(metric) or ("", 2 if METRICS[metric].unit == "s" else 3))[1]


def _shown(metric: str, value: float | None) -> str:
    return _with_unit(metric, shown(value, _digits(metric)))


def _with_unit(metric: str, number: str) -> str:
    return f"{number} {METRICS[metric].unit.strip('x')}".strip()
