"""The columns of results: what tables, pages, options and budgets call a metric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.metrics import METRICS, Metric

COMMIT, SHOWN = "word_latency_committed_{}_{}_s", "word_latency_shown_{}_{}_s"
LATENCY = COMMIT.format("p50", "{}")  # on the clock "ca" or "cu"
POINTS = ("mean", "p50", "p90", "p95", "p99")


class Column(NamedTuple):
    """A column of the table of results."""

    metric: str  # its name in metrics.json
    heading: str  # on several lines, with the unit
    digits: int  # after the point
    meaning: str = ""

    @property
    def title(self) -> str:
        """The heading on one line."""
        return self.heading.replace("\n", " ")


HEADLINE = (
    Column("wer", "WER\n%", 1, "WER: word errors per 100 words spoken"),
    Column(
        "arwer_grid_ca",
        "errors\nvisible while\nspeaking %",
        1,
        "errors visible while speaking: WER of the screen every 100 ms",
    ),
    Column(
        LATENCY.format("ca"),
        "final\nafter\np50 s",
        2,
        "final after p50, p90: from a word's end until it is final, computing included, for 50 and "
        "90 % of the right words",
    ),
    Column(COMMIT.format("p90", "ca"), "final\nafter\np90 s", 2),
    Column(
        SHOWN.format("p50", "ca"),
        "visible\nafter\np50 s",
        2,
        "visible after: until it is first on the screen",
    ),
    Column("word_latency_coverage", "words\nright %", 0, "words right: they have a latency"),
    Column("rtf_total", "RTF", 3, "RTF: computing per second of audio"),
    Column("rtf_cpu", "RTF\nCPU", 2, "RTF CPU: processor time per second of audio"),
    Column("normalised_erasure", "words\nrewritten\nper word", 2),
)
# The order in which a table leaves columns out until it fits the screen.
SPARE = ("rtf_cpu", "normalised_erasure", "arwer_grid_ca", SHOWN.format("p50", "ca"))
# What options take in addition to the names of metrics.json; {} is the clock.
SHORT = {
    **{f"{name}_{p}": COMMIT.format(p, "{}") for name in ("commit", "final_after") for p in POINTS},
    **{f"{name}_{p}": SHOWN.format(p, "{}") for name in ("shown", "visible_after") for p in POINTS},
    **dict.fromkeys(("arwer", "errors_visible_while_speaking"), "arwer_grid_{}"),
    **dict.fromkeys(("coverage", "words_right"), "word_latency_coverage"),
    **dict.fromkeys(("erasure", "words_rewritten_per_word"), "normalised_erasure"),
    "words_lost_per_word": "unstable_words_per_word",
    "first_text": "first_token_start_{}_s",
    "rtf": "rtf_total",
    "memory": "memory_peak_mib",
}
ENDINGS = ("_{}", "_{}_s", "_{}_ms", "_s", "_ms")
"""What headings leave out of the names of metrics.json: clock and unit."""


def on_clock(columns: Sequence[Column], clock: str) -> list[Column]:
    """Return columns on the clock "ca" or "cu", which leaves computing out."""
    if clock == "ca":
        return list(columns)
    words = ("computing included", "computing left out")
    return [
        each._replace(
            metric=each.metric.replace("_ca", "_cu"), meaning=each.meaning.replace(*words)
        )
        for each in columns
    ]


def metric_named(name: str, context: str = "", clock: str = "ca") -> str:
    """Return the metric of metrics.json that a user calls `name`: its short name, its heading in a
    table, with or without the unit, or the whole name; on the clock `ca` or `cu` where the name has
    none. context: the option, for messages. Raises UserError for another name."""
    key = "_".join(re.sub(r" (s|ms|%)$", "", name.strip().lower()).split())
    names = (SHORT.get(key, key), *(key + ending for ending in ENDINGS))
    on_this = (each.replace("{}", clock) for each in names)
    metric = next((each for each in on_this if each in METRICS), None)
    if metric is None:
        near = did_you_mean(key, [*SHORT, *METRICS]) or "; score --list shows them all"
        raise UserError(f"{f'{context} {name}'.strip()}: no such metric{near}")
    return metric


def short_names_of(metric: str) -> list[str]:
    """Return the short names of a metric on the compute clock; [] if it has none."""
    return [short for short, name in SHORT.items() if name.format("ca") == metric]


def column_of(metric: str | Metric) -> Column:
    """Return the column of a metric: of HEADLINE, or one of its name and unit."""
    name = metric if isinstance(metric, str) else metric.name
    for column in HEADLINE:
        if column.metric == name:
            return column
    unit = (METRICS[metric] if isinstance(metric, str) else metric).unit
    # "ca" is the clock of every other column.
    words = " ".join(part for part in parts_of(name, unit) if part != "ca")
    return Column(name, f"{words}\n{unit}".strip(), {"s": 2, "%": 1}.get(unit, 3))


def parts_of(name: str, unit: str) -> list[str]:
    """Return the words of a metric's name without its unit, which s and ms end with."""
    parts = name.split("_")
    return parts[:-1] if parts[-1] == unit else parts
