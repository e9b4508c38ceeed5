"""The one table of metrics, metrics.tsv: a line per metric, or per metric on each of two clocks.

Its columns: `name` as in metrics.json, `unit`, the direction that is `better`, what a log must
know for it (`needs`, of formats.stream.EVERYTHING, beside the final text and the references),
`alone` (yes where it means nothing once streams share a step), `definition` and `source`. A name
with `{clock}` is a metric on each clock, and `{at}` in its definition says which.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

# Raised whenever a change can alter any score of an existing log.
METRICS_VERSION = 2

Better = Literal["lower", "higher"] | None


@dataclass(frozen=True)
class Metric:
    """One reported number: `better` is None where neither direction is good in itself."""

    name: str
    unit: str
    better: Better
    definition: str
    source: str
    needs: frozenset[str]
    alone: bool


FILE = Path(__file__).with_name("metrics.tsv")
# What a log must know for a time on the clock, and how a definition names it.
CLOCKS = {
    "cu": ("audio clock", "on the audio clock a_k"),
    "ca": ("compute clock", "on the compute clock f_k"),
}


def _metrics() -> Iterator[Metric]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        on_clocks = "{clock}" in row["name"]
        for clock in CLOCKS if on_clocks else ("",):
            needed, at = CLOCKS.get(clock, ("", ""))
            yield Metric(
                row["name"].format(clock=clock),
                row["unit"],
                cast(Better, row["better"] or None),
                row["definition"].format(at=at) if on_clocks else row["definition"],
                row["source"],
                frozenset(filter(None, (*row["needs"].split(", "), needed))),
                row["alone"] == "yes" or clock == "ca",
            )


METRICS: dict[str, Metric] = {metric.name: metric for metric in _metrics()}


STABILITY = ("normalised_erasure", "light_erasure", "unstable_words_per_word")


def beside_wer(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, WER first where it is missing beside stability: a method that
    says nothing is perfectly stable."""
    alone = "wer" not in names and any(name in STABILITY for name in names)
    return (*(("wer",) if alone else ()), *names)


def with_wer(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return a run's metrics, stability None where there is no WER to read it beside."""
    lost = STABILITY if metrics.get("wer") is None else ()
    return {name: None if name in lost else value for name, value in metrics.items()}
