"""Reads limits on metrics, as `commit_p90=1s`: of `report --budget` and `score compare --worse`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.metrics import METRICS

COMMIT, SHOWN = "word_latency_committed_{}_ca_s", "word_latency_shown_{}_ca_s"
SHORT = {  # names in a limit in addition to those of metrics.json
    **{f"commit_{p}": COMMIT.format(p) for p in ("mean", "p50", "p90", "p95", "p99")},
    **{f"shown_{p}": SHOWN.format(p) for p in ("mean", "p50", "p90", "p95", "p99")},
    "arwer": "arwer_grid_ca",
    "rtf": "rtf_total",
    "erasure": "normalised_erasure",
}
FACTORS = {"s": {"s": 1.0, "ms": 1e-3}, "ms": {"ms": 1.0, "s": 1e3}}  # other units stand alone


@dataclass(frozen=True)
class Limit:
    """The worst value of a metric that is allowed, in the metric's unit."""

    name: str  # as given
    metric: str
    value: float

    def excess(self, metrics: Mapping[str, float | None]) -> float:
        """Return by which share of the limit a run's metric is worse than it: 0 or less if the run
        is within the limit, infinite without the metric."""
        value = metrics.get(self.metric)
        return math.inf if value is None else self.sign * (value - self.value) / self.value

    @property
    def sign(self) -> int:
        """Return 1 where more is worse, -1 where less is."""
        return -1 if METRICS[self.metric].better == "higher" else 1

    def __str__(self) -> str:
        word = "at least" if self.sign < 0 else "at most"
        return f"{self.name} {word} {with_unit(self.metric, f'{self.value:g}')}"


def parse_limits(option: str, texts: Iterable[str], *, differences: bool = False) -> list[Limit]:
    """Return the limits of texts as `commit_p90=1s`, `rtf=0.3` or `wer=10%`.

    Times need s or ms. Rates may have a %; below 1 they must, since 0.1 may mean 10 %. option: the
    option's name, for messages. differences: the limits are of differences, in points or the
    metric's unit, and may be 0. Raises UserError for an unknown metric, for one of which neither
    high nor low is better, for a value that is no such number, and for a wrong or missing unit.
    """
    return [_limit(option, text, differences) for text in texts]


def _limit(option: str, text: str, differences: bool) -> Limit:
    """Return the limit of one text (`parse_limits`)."""
    name, _, bound = text.partition("=")
    metric = SHORT.get(name, name)
    if metric not in METRICS:
        near = did_you_mean(name, [*SHORT, *METRICS]) or "; score --list shows them all"
        raise UserError(f"{option} {text}: no such metric{near}")
    if METRICS[metric].better is None:
        raise UserError(f"{option} {text}: {metric} is not better high or low; limit another")
    unit = METRICS[metric].unit.strip("x")  # a number of times needs no sign
    factors = FACTORS.get(unit, {unit: 1.0})  # of the units that may be written
    number = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(\S*)", bound.strip())
    value = float(number[1]) if number else 0.0
    if unit == "%" and (differences or value >= 1):
        factors = {**factors, "": 1.0}
    is_in_range = value > 0 or differences
    if number is None or number[2] not in factors or not is_in_range:
        in_unit = f" in {' or '.join(filter(None, factors))}" if unit else ""
        least = "of 0 or more" if differences else "above 0"
        raise UserError(
            f"{option} {text}: {metric} takes a number {least}{in_unit}, as in {name}=1{unit}"
        )
    return Limit(name, metric, value * factors[number[2]])


def with_unit(metric: str, number: str) -> str:
    """Return a number with the metric's unit."""
    return f"{number} {METRICS[metric].unit.strip('x')}".strip()
