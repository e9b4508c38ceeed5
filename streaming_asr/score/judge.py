"""The one judge of results.

A budget is a list of limits, as `wer=8 commit_p90=2s`. `report --budget` and `advise` hold the
metrics of a run against it, `score compare --worse` the differences of two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST
from streaming_asr.score.columns import metric_named

STREAMS = "streams"  # that one device carries, which `advise` limits
FACTORS = {"s": {"s": 1.0, "ms": 1e-3}, "ms": {"ms": 1.0, "s": 1e3}}  # other units have no factor


@dataclass(frozen=True)
class Limit:
    """The worst value of a metric that is allowed, in the metric's unit; of a difference, by how
    much it may be worse."""

    name: str  # as given
    metric: str
    value: float
    of_difference: bool = False

    @property
    def sign(self) -> int:
        """Return 1 where more is worse, -1 where less is."""
        return -1 if self.metric == STREAMS or METRICS[self.metric].better == "higher" else 1

    def excess(self, value: float) -> float:
        """Return by how much a value is worse than the limit, in its unit; 0 or less within it."""
        bound = self.value if self.of_difference else self.sign * self.value
        return self.sign * value - bound

    def __str__(self) -> str:
        word = "at least" if self.sign < 0 else "at most"
        return f"{self.name} {word} {with_unit(self.metric, f'{self.value:g}')}"


def parse_limits(
    option: str, texts: Iterable[str], *, clock: str = "ca", differences: bool = False
) -> list[Limit]:
    """Return the limits of texts as `commit_p90=1s`, `rtf=0.3` or `wer=10%`.

    Times need s or ms. Rates may have a %; below 1 they must, since 0.1 may mean 10 %. option: the
    option's name, for messages. clock: of names without one. differences: the limits are of
    differences, in points or the metric's unit, and may be 0. Raises UserError for an unknown
    metric, for one of which neither high nor low is better, for a value that is no such number, and
    for a wrong or missing unit.
    """
    return [_limit(option, text, clock, differences) for text in texts]


def _limit(option: str, text: str, clock: str, differences: bool) -> Limit:
    """Return the limit of one text (`parse_limits`)."""
    name, _, bound = text.partition("=")
    metric = metric_named(name, option, clock)
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
    return Limit(name, metric, value * factors[number[2]], differences)


def with_unit(metric: str, number: str) -> str:
    """Return a number with the metric's unit."""
    return f"{number} {METRICS[metric].unit.strip('x')}".strip()


class Figure(NamedTuple):
    """A number to judge: a metric of a run, or its difference from another run's.

    value: None if it was not measured. low, high: of its 95 % interval, None without one.
    lacking: why it has none though its metric has intervals; "" if its value may be judged.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    lacking: str = ""


class Verdict(NamedTuple):
    """Whether a figure is within a limit; `unknown` if that cannot be judged, with the reason."""

    limit: Limit
    figure: Figure
    state: Literal["within", "beyond", "unknown"]
    reason: str = ""


def lacking(n: int, what: str) -> str:
    """Return why `n` speakers, recordings or utterances, whose number and kind `what` has, give no
    interval; "" if they are enough."""
    if n >= LEAST:
        return ""
    more = LEAST - n
    return f"{what}, and an interval needs {LEAST}: {more} {'is' if more == 1 else 'are'} missing"


def judge(
    figure_of: Callable[[str], Figure], limits: Sequence[Limit], *, by_interval: bool = False
) -> list[Verdict]:
    """Return the verdict on each limit.

    figure_of: returns the figure of a metric. by_interval: a figure is beyond a limit only if its
    whole interval is, so that the end nearer to the good side decides; else its value decides. A
    figure that lacks the interval it needs is beyond a limit by its value or cannot be judged, and
    with `by_interval` cannot be judged.
    """
    verdicts = []
    for limit in limits:
        figure = figure_of(limit.metric)
        decides = figure.value
        if by_interval:
            end = figure.low if limit.sign > 0 else figure.high
            decides = None if figure.lacking else figure.value if end is None else end
        if decides is not None and limit.excess(decides) > 0:
            verdicts.append(Verdict(limit, figure, "beyond"))
        elif decides is None or figure.lacking:
            reason = figure.lacking if figure.value is not None else "it was not measured"
            verdicts.append(Verdict(limit, figure, "unknown", reason))
        else:
            verdicts.append(Verdict(limit, figure, "within"))
    return verdicts
