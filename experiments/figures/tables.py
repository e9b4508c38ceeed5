"""The results as a table for a paper: LaTeX (booktabs), Markdown or tab-separated data."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.score.columns import HEADLINE, column_of, metric_named
from streaming_asr.score.results import Result, read_results
from streaming_asr.score.table import numbered_notes, remarks_of
from streaming_asr.terminal import format_number

Notes = Sequence[tuple[str, str]]  # (number in the rows or "", text)
SUFFIXES = (".md", ".tex", ".tsv")
_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def write_table(folder: Path | str, out: Path, metrics: Sequence[str] | None = None) -> Path:
    """Write the cells under `folder` to `out`, .tex, .md or .tsv: a row each, the best of each data
    bold but in .tsv, 95 % intervals where there are any, failed cells as rows.

    metrics: the columns by their names in metrics.json; default the report's. Raises UserError
    for another suffix, an unknown metric, and a folder without results.
    """
    from streaming_asr.metrics.table import next_to_wer

    if out.suffix not in SUFFIXES:
        raise UserError(f"--table {out}: the suffix is {' or '.join(SUFFIXES)}")
    names = metrics or [column.metric for column in HEADLINE]
    columns = list(next_to_wer([metric_named(name, "--metrics") for name in names]))
    cells = read_results(folder)
    is_tex, is_data = out.suffix == ".tex", out.suffix == ".tsv"
    best = {} if is_data else _best(cells, columns)
    escape: Callable[[str], str] = _tex if is_tex else _plain if is_data else _markdown

    def number(cell: Result, name: str) -> str:
        if cell.error:
            return "failed" if name == columns[0] else ""
        value = cell.metrics.get(name)
        digits = column_of(name).digits
        text = format_number(value, digits)
        if value is not None and (cell.split, name) in best and best[cell.split, name] == value:
            text = rf"\textbf{{{text}}}" if is_tex else f"**{text}**"
        bounds = cell.intervals.get(name)
        if value is not None and bounds:
            span = f"[{format_number(bounds[0], digits)}, {format_number(bounds[1], digits)}]"
            text += rf" {{\scriptsize {span}}}" if is_tex else f" {span}"
        return text

    notes, numbers_of = numbered_notes(cells)

    def label(cell: Result) -> str:
        if not (numbers := numbers_of[cell.folder]) or is_data:
            return escape(cell.label)
        return escape(cell.label) + (f"$^{{{numbers}}}$" if is_tex else f"<sup>{numbers}</sup>")

    heads = ["Method", "Chunk", "Data"]
    heads += [column_of(name).title for name in columns]
    rows = [
        [
            label(cell),
            cell.chunk,
            escape(cell.split),
            *(number(cell, name) for name in columns),
        ]
        for cell in cells
    ]
    footnotes = [(str(number), escape(note)) for number, note in enumerate(notes, start=1)]
    footnotes += [("", escape(remark)) for remark in remarks_of(cells)]
    if is_data:
        lines = ["\t".join(row) for row in (heads, *rows)]
    else:
        lines = _latex(heads, rows, footnotes) if is_tex else _piped(heads, rows, footnotes)
    return write_text(out, "\n".join(lines) + "\n")


def _best(cells: Sequence[Result], columns: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the best value by (data, metric), where the runs that can be compared differ in it."""
    from streaming_asr.metrics import METRICS

    best = {}
    for split in {cell.split for cell in cells}:
        for name in columns:
            values = [
                value
                for cell in cells
                if cell.split == split
                and not cell.is_odd
                and (value := cell.metrics.get(name)) is not None
            ]
            better = METRICS[name].better
            if better and len(set(values)) > 1:
                best[split, name] = (min if better == "lower" else max)(values)
    return best


def _latex(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Notes) -> list[str]:
    marks = [(rf"$^{{{number}}}$" if number else "", note) for number, note in notes]
    return [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{tabular}}{{lrl{'r' * (len(heads) - 3)}}}",
        r"\toprule",
        " & ".join(map(_tex, heads)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par{{\footnotesize {mark}{note}\par}}" for mark, note in marks),
    ]


def _piped(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Notes) -> list[str]:
    aligned = ["---", "---:", "---", *["---:"] * (len(heads) - 3)]
    lines = [f"| {' | '.join(row)} |" for row in (heads, aligned, *rows)]
    for number, note in notes:
        lines += ["", f"<sup>{number}</sup> {note}" if number else note]
    return lines


def _tex(text: str) -> str:
    return text.translate(_TEX).replace("–", "--")


def _plain(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    """Return the text as it is to show, where readers of Markdown see HTML, bars and links."""
    text = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|\[\]\\`])", r"\\\1", text)
