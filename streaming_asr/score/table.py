"""The headline columns as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import console, shown, wrapped

if TYPE_CHECKING:
    from rich.console import Group

# metrics.json's name, heading, digits; the headings' units are part of them.
HEADLINE = (
    ("wer", "WER\n%", 1),
    ("arwer_grid_ca", "ARWER\ngrid %", 1),
    ("word_latency_committed_p50_ca_s", "commit\np50 s", 2),
    ("word_latency_committed_p90_ca_s", "commit\np90 s", 2),
    ("word_latency_shown_p50_ca_s", "shown\np50 s", 2),
    ("word_latency_coverage", "coverage\n%", 0),
    ("rtf_total", "RTF", 3),
    ("rtf_cpu", "RTF\nCPU", 2),
    ("normalised_erasure", "erasure", 2),
)
# The columns of a table that fits into 80.
MAIN = (
    "wer",
    "word_latency_committed_p50_ca_s",
    "word_latency_committed_p90_ca_s",
    "word_latency_coverage",
    "rtf_total",
)
FEW = 20  # recordings, of which a WER says little
ROOM = 28  # which they leave of 80 columns for words


def heading_of(name: str) -> tuple[str, int] | None:
    """Return the heading of a headline metric on one line and its digits; None for the others."""
    for each, heading, digits in HEADLINE:
        if each == name:
            return heading.replace("\n", " "), digits
    return None


def table(folder: Path | str, *, wide: bool = False) -> Group:
    """Return the results under `folder`, one row per cell, and what must be known of them below.

    It has the columns of MAIN, which fit into 80 columns of a terminal; wide: all of HEADLINE.
    What all rows share stands in the title. Word latency is after the end of the word, with compute
    (the FIFO clock). Raises UserError where `folder` holds no result.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    results = read_results(folder)
    shared = shared_settings(results)
    splits = {result.split for result in results}
    # What no run has is no column: recordings without texts have no errors to count.
    columns = [
        each
        for each in HEADLINE
        if (wide or each[0] in MAIN)
        and any(result.metrics.get(each[0]) is not None or result.error for result in results)
    ]
    remarks: list[str] = []
    rows = []
    for result in results:
        notes = [*result.notes, *([f"failed: {result.error}"] if result.error else [])]
        if notes and (remark := "; ".join(notes)) not in remarks:
            remarks.append(remark)
        mark = [f"[{remarks.index('; '.join(notes)) + 1}]"] if notes else []
        name = " ".join(
            [result.method, *(w for w in result.variant.split() if w not in shared), *mark]
        )
        split = [result.split] if len(splits) > 1 else []
        numbers = [
            "failed" if result.error and at == 0 else shown(result.metrics.get(metric), digits)
            for at, (metric, _, digits) in enumerate(columns)
        ]
        rows.append([name, *split, result.chunk, *numbers])
    remarks = [f"[{at}] {text}" for at, text in enumerate(remarks, start=1)]
    title = [*(splits if len(splits) == 1 else ()), *model_of_all(results), *sorted(shared)]
    grid = Table(
        title=Text(" · ".join(filter(None, title))),
        title_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    # A column is as wide as its longest word at least, so that none is cut in two.
    headings = ("method", "data") if len(splits) > 1 else ("method",)
    longest = [
        max(len(word) for row in rows for word in [heading, *row[at].split()])
        for at, heading in enumerate(headings)
    ]
    spare = max(ROOM - sum(longest), 0)
    for heading, width in zip(headings, longest, strict=True):
        grid.add_column(heading, overflow="fold", min_width=width, max_width=width + spare)
    for heading in ("chunk", *(heading for _, heading, _ in columns)):
        grid.add_column(heading, justify="right", no_wrap=True)
    for result, row in zip(results, rows, strict=True):
        # Text, not str: a cell's name may hold what rich reads as markup.
        grid.add_row(*map(Text, row), style="red" if result.error else None)
    if not all(result.is_labelled for result in results):
        late = any(r.metrics.get(MAIN[1]) is not None for r in results if not r.is_labelled)
        of = ", and the latencies are of words that one method heard" if late else ""
        remarks.append(f"no reference: without texts beside the audio no errors can be counted{of}")
    n = max((result.document.get("n_utterances") or 0 for result in results), default=0)
    if 0 < n < FEW and any(result.metrics.get("wer") is not None for result in results):
        remarks.append(f"few recordings ({n}): chance decides much of such a WER; run more of them")
    # A path in a remark stays in one piece, to be copied.
    told = map(wrapped, remarks)
    return Group(grid, *(Text(text, no_wrap=True, overflow="ignore") for text in told))


def print_table(folder: Path | str, *, wide: bool = False) -> None:
    """Print the results under `folder` as `table` makes them. Raises UserError as it does."""
    screen = console()
    if wide:  # a narrow terminal breaks its lines, rather than this its numbers
        screen.width = max(screen.width, 110)
    screen.print(table(folder, wide=wide), crop=False)


def shared_settings(results: Sequence[Result]) -> set[str]:
    """Return the settings that all of several rows share, which no row need repeat."""
    return (
        set.intersection(*(set(r.variant.split()) for r in results)) if len(results) > 1 else set()
    )


def model_of_all(results: Sequence[Result]) -> set[str]:
    """Return the model where all rows are of one and none names it."""
    models = {result.model for result in results} - {""}
    named = any(word.startswith("model=") for result in results for word in result.variant.split())
    return {f"model={name}" for name in models} if len(models) == 1 and not named else set()
