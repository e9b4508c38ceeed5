"""The one table of metrics, metrics.tsv: a line per metric, or per metric on each of two clocks.

Its columns: `name` as in metrics.json, `unit`, the direction that is `better`, what a log must
know for it (`needs`, of EVERYTHING, in addition to the final text and the references),
`alone` (yes where it means nothing once streams share a step), `definition` and `source`. A name
with `{clock}` is a metric on each clock, and `{at}` in its definition names the clock.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

# Raised whenever a change can alter any score of an existing log.
METRICS_VERSION = 7

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
# What a log may know, and so what can be computed from it.
CU = "audio clock"  # a_k
CA = "compute clock"  # f_k
STEPS = "steps"  # every step, also those without text
DISPLAY = "display"  # what was on the screen, committed or not
COMMITS = "commits"  # when each word became final
INSIDE = "method"  # what a method counts and declares, which no other tool's format carries
EVERYTHING = frozenset({CU, CA, STEPS, DISPLAY, COMMITS, INSIDE})


class Clock(NamedTuple):
    """A clock: what a log must know for it, its name in definitions and in the report."""

    needs: str
    at: str
    label: str


CLOCKS = {
    "cu": Clock(CU, "on the audio clock a_k", "audio only"),
    "ca": Clock(CA, "on the compute clock f_k", "with compute"),
}


def _metrics() -> Iterator[Metric]:
    """Yield the metrics of the table's file; a row with `{clock}` in its name is one per clock."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        on_clocks = "{clock}" in row["name"]
        for name, clock in CLOCKS.items() if on_clocks else [("", Clock("", "", ""))]:
            yield Metric(
                row["name"].format(clock=name),
                row["unit"],
                cast(Better, row["better"] or None),
                row["definition"].format(at=clock.at) if on_clocks else row["definition"],
                row["source"],
                frozenset(filter(None, (*row["needs"].split(", "), clock.needs))),
                row["alone"] == "yes" or name == "ca",
            )


METRICS: dict[str, Metric] = {metric.name: metric for metric in _metrics()}


def unmeasured(inputs: Iterable[str]) -> dict[str, str]:
    """Return the metrics that a log of `inputs` (of EVERYTHING) lacks, and what is missing."""
    lacks = EVERYTHING - set(inputs)
    return {
        name: ", ".join(sorted(missing))
        for name, metric in METRICS.items()
        if (missing := metric.needs & lacks)
    }


def known_of(header: Mapping[str, Any]) -> frozenset[str]:
    """Return what a log knows: everything, unless it was itself imported."""
    knows = header.get("knows", () if "unmeasured" in header else EVERYTHING)
    return EVERYTHING.intersection(knows)


STABILITY = ("normalised_erasure", "light_erasure", "unstable_words_per_word")


def next_to_wer(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, with WER first if they have stability and not WER: a method
    that outputs nothing is perfectly stable."""
    lacks_wer = "wer" not in names and any(name in STABILITY for name in names)
    return ("wer", *names) if lacks_wer else tuple(names)


def with_wer(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return a run's metrics, with None for stability if there is no WER to read it with."""
    hidden = STABILITY if metrics.get("wer") is None else ()
    return {name: None if name in hidden else value for name, value in metrics.items()}
