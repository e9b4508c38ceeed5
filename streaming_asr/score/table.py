"""The headline columns as a table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.score.results import read_results
from streaming_asr.terminal import shown

if TYPE_CHECKING:
    from rich.table import Table

# metrics.json's name, heading, digits; the headings' units are part of them.
HEADLINE = (
    ("wer", "WER\n%", 1),
    ("arwer_grid_ca", "ARWER\ngrid %", 1),
    ("word_latency_committed_p50_ca_s", "commit\np50 s", 2),
    ("word_latency_committed_p90_ca_s", "commit\np90 s", 2),
    ("word_latency_shown_p50_ca_s", "shown\np50 s", 2),
    ("word_latency_coverage", "cover-\nage %", 0),
    ("rtf_total", "RTF", 3),
    ("rtf_cpu", "RTF\nCPU", 2),
    ("normalised_erasure", "era-\nsure", 2),
)


def heading_of(name: str) -> tuple[str, int] | None:
    """Return the heading of a headline metric on one line and its digits; None for the others."""
    for each, heading, digits in HEADLINE:
        if each == name:
            return heading.replace("-\n", "").replace("\n", " "), digits
    return None


def table(folder: Path | str) -> Table:
    """Return the results under `folder`, one row per cell, at most 100 columns wide.

    Word latency is after the end of the word, with compute (the FIFO clock). Raises UserError
    where `folder` holds no result.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    results = read_results(folder)
    grid = Table(
        title=Text(str(folder)),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        min_width=60,  # for the remarks below it
    )
    grid.add_column("method", overflow="fold", max_width=24)
    grid.add_column("chunk", justify="right", no_wrap=True)
    grid.add_column("split", overflow="fold", max_width=11)
    # What no run has is no column: recordings without texts have no errors to count.
    columns = [
        each
        for each in HEADLINE
        if any(result.metrics.get(each[0]) is not None or result.error for result in results)
    ]
    for _, heading, _ in columns:
        grid.add_column(heading, justify="right", no_wrap=True)
    remarks = []
    for result in results:
        notes = [*result.notes, *([f"failed: {result.error}"] if result.error else [])]
        mark = ""
        if notes:
            remarks.append("; ".join(notes))
            mark = f" [{len(remarks)}]"
        numbers = [
            "failed" if result.error and at == 0 else shown(result.metrics.get(name), digits)
            for at, (name, _, digits) in enumerate(columns)
        ]
        # Text, not str: a cell's name may hold what rich reads as markup.
        row = [result.label + mark, result.chunk, result.split, *numbers]
        grid.add_row(*map(Text, row), style="red" if result.error else None)
    if not all(result.is_labelled for result in results):
        remarks.append("no reference: without texts beside the audio no errors can be counted")
    if remarks:
        grid.caption = Text("\n".join(f"[{at}] {text}" for at, text in enumerate(remarks, 1)))
    return grid
