"""A paper's tables and our results: paper, ours, difference, interval, or why there is none.

    python -m experiments.papers                       the papers there are
    python -m experiments.papers whisperrt outputs/table1 --table I

A row is compared with every cell whose configuration agrees with all of the row's labels. The
weights that lie in the package are no paper's: their cells agree in form only.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.papers import NONE, Metric, PaperRow, Selector, Table, papers, read_paper
from streaming_asr.errors import UserError
from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import console, exit_status

if TYPE_CHECKING:
    from rich.table import Table as Grid

# What --form leaves out of a match: what mini has others of. data.split stays: both have clean
# and other; so do weights that a row's own label asks for (an aligner's, a compressor's).
WORLD = frozenset(
    {"model", "data", "data.form", "data.language", "first_chunk", "method.weights"}
    | {"guard", "device", "data.join_s"}
)
PACKAGED = "streaming_asr/data/"  # in the path of weights that lie in the package


@dataclass(frozen=True)
class Line:
    """One comparison. difference: ours minus paper, interval: of ours; both in the paper's unit.

    ours is None where `why` gives the reason in words.
    """

    row: PaperRow
    metric: str
    paper: str
    ours: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    why: str | None = None
    cell: Result | None = None


# -- matching -------------------------------------------------------------------------------


def compare(table: Table, cells: Sequence[Result], *, form: bool = False) -> Iterator[Line]:
    """Yield every number of the table with what our cells hold for it: a line for each that agrees.

    form: model and data are left out of the match (a row in form, on other data than the paper's);
    then there is no difference to state.
    """
    for row in table.rows:
        settings = {"method.weights"} & set(row.named)
        select = {k: v for k, v in row.select.items() if not (form and k in WORLD - settings)}
        # without a method every cell would agree
        agreeing = [
            cell
            for cell in cells
            if not row.missing
            and (form or not table.missing)
            and "method" in select
            and agrees(cell, select)
        ]
        for name, printed in row.values.items():
            metric = table.metrics[name]
            if printed == NONE:
                continue
            if not table.comparable:
                yield Line(row, name, printed, why="a setting")
            elif row.missing:
                yield Line(row, name, printed, why=f"not run: no {row.missing} in this project")
            elif table.missing and not form:
                yield Line(row, name, printed, why=f"not run: {table.missing}")
            elif metric.ours is None:
                yield Line(row, name, printed, why=f"not run: run does not measure {name}")
            elif not agreeing:
                yield Line(row, name, printed, why="not run")
            for cell in agreeing if table.comparable and metric.ours else ():
                if not form and PACKAGED in _held(cell, "method.weights")[0]:
                    why = "ran with the package's weights, which are not the paper's: see --form"
                    yield Line(row, name, printed, why=why, cell=cell)
                else:
                    yield _line(row, name, metric, printed, cell, form)


def _line(row: PaperRow, name: str, metric: Metric, printed: str, cell: Result, form: bool) -> Line:
    assert metric.ours is not None
    value = cell.metrics.get(metric.ours)
    if cell.error:
        return Line(row, name, printed, why=f"failed: {cell.error}", cell=cell)
    if value is None:
        return Line(row, name, printed, why="ran, but this was not measured", cell=cell)
    ours = value * metric.scale
    bounds = cell.intervals.get(metric.ours)
    number = _number(printed)
    return Line(
        row,
        name,
        printed,
        ours=ours,
        difference=None if form or number is None else ours - number,
        interval=(bounds[0] * metric.scale, bounds[1] * metric.scale) if bounds else None,
        cell=cell,
    )


def agrees(cell: Result, select: Selector) -> bool:
    """Return whether the cell's configuration holds one of the accepted values of every key."""
    for key, accepted in select.items():
        values = accepted if isinstance(accepted, list) else [accepted]
        held = _held(cell, key)
        if not any(_agrees(held, each) for each in values):
            return False
    return True


def _agrees(held: Sequence[str], pattern: str) -> bool:
    """Return whether one of the names is the wanted value, or, for !value, none of them."""
    if pattern.startswith("!"):
        return not any(_same(value, pattern[1:]) for value in held)
    return any(_same(value, pattern) for value in held)


def _held(cell: Result, key: str) -> list[str]:
    """Return the names under which the cell's configuration holds `key`."""
    config = cell.config
    if key == "method":
        return [cell.method, *str((config.get("method") or {}).get("_target_", "")).split(".")]
    if key == "model":
        model = config.get("model") or {}
        names = [str(model.get("name", "")), str(model.get("path", "")).rpartition("/")[2]]
        return [*names, *(name.removeprefix("whisper-") for name in names)]
    if key == "data":
        data = config.get("data") or {}
        names = [str(data.get("name", "")), str(data.get("_target_", "")).rpartition(".")[2]]
        return [name.lower().replace("_", "") for name in names]
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return [str(value).lower()]  # as YAML writes it
    return ["none" if value is None else str(value)]


def _same(held: str, value: str) -> bool:
    numbers = _number(held), _number(value)
    if None not in numbers:
        return numbers[0] == numbers[1]
    return fnmatch.fnmatchcase(held, value) or held == value.replace("_", "")


def _number(text: str) -> float | None:
    """Return the number of a text (`0.5`), of a duration (`300ms`) the seconds."""
    match = re.fullmatch(r"(-?\d+\.?\d*)\s*(ms|s)?", text.strip())
    return float(match[1]) / (1000 if match[2] == "ms" else 1) if match else None


# -- showing --------------------------------------------------------------------------------


def grid(table: Table, lines: Sequence[Line], *, form: bool = False) -> Grid:
    """Return the lines as a table for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid
    from rich.text import Text

    notes: dict[str, int] = {}
    result = Grid(
        title=Text(f"Table {table.name}, {table.where}: {table.about}"),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for label in table.labels:
        result.add_column(label, overflow="fold")
    for heading in ("", "paper", "ours", "difference", "95 %"):
        result.add_column(heading, justify="left" if heading in ("", "ours") else "right")
    before = None
    for line in lines:
        labels = ["–" if value == NONE else value for value in line.row.labels.values()]
        remarks = [line.row.slip] if line.row.slip else []
        if line.cell is not None:
            limit = line.cell.config.get("limit")
            remarks += [f"first {limit} utterances"] if limit else []
            remarks += list(line.cell.notes)
            remarks += [line.cell.name] if form else []
            open_to = (f"{key}={_held(line.cell, key)[0]}" for key in table.show)
            remarks += [" ".join(open_to)] if table.show else []
        marks = "".join(f" [{notes.setdefault(text, len(notes) + 1)}]" for text in remarks)
        digits = len(line.paper.partition(".")[2])
        metric = table.metrics[line.metric]
        figures = [
            f"{line.metric} {metric.unit}".strip(),
            line.paper,
            (line.why if line.ours is None else f"{line.ours:.{digits}f}") or "",
            "–" if line.difference is None else f"{line.difference:+.{digits}f}",
            "–"
            if line.interval is None
            else "[{:.{d}f}, {:.{d}f}]".format(*line.interval, d=digits),
        ]
        figures[2] += marks
        result.add_row(
            *map(Text, [*(labels if line.row is not before else [""] * len(labels)), *figures])
        )
        before = line.row
    if notes:
        result.caption = Text("\n".join(f"[{at}] {text}" for text, at in notes.items()))
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.papers",
        description="Show a paper's tables and our results.",
    )
    parser.add_argument("paper", nargs="?", help=f"one of {', '.join(papers())}, or a YAML file")
    about = "folders that run wrote; with --commands settings for all rows, as device=cuda"
    parser.add_argument("folders", nargs="*", type=Path, help=about)
    parser.add_argument("--table", help="only this table, e.g. I")
    parser.add_argument("--ran", action="store_true", help="leave out what was not run")
    parser.add_argument(
        "--form",
        action="store_true",
        help="compare in form: the same method and settings, whatever model and data were run",
    )
    parser.add_argument(
        "--commands",
        action="store_true",
        help="print the command of each row instead",
    )
    arguments = parser.parse_intermixed_args(argv)
    return exit_status(lambda: _show(arguments))


def _show(arguments: argparse.Namespace) -> None:
    if arguments.paper is None:
        for name in papers():
            content = read_paper(name)
            print(
                f"{name:12} tables {', '.join(t.name for t in content.tables):20} {content.source}"
            )
        return
    paper = read_paper(arguments.paper)
    names = [table.name for table in paper.tables]
    if arguments.table and arguments.table not in names:
        raise UserError(f"--table {arguments.table}: {paper.name} has {', '.join(names)}")
    tables = [t for t in paper.tables if arguments.table in (None, t.name)]
    if arguments.commands:
        settings = [str(each) for each in arguments.folders]
        if no_setting := [each for each in settings if "=" not in each]:
            raise UserError(f"{no_setting[0]}: --commands takes settings, as device=cuda")
        _print_commands(tables, settings)
        return
    cells = [cell for folder in arguments.folders for cell in read_results(folder)]
    print(paper.source)
    for key, value in paper.protocol.items():
        print(f"  {key}: {value}")
    if arguments.form:
        print("In form: ours ran on other models or data than the paper; no difference is stated.")
    for table in tables:
        lines = list(compare(table, cells, form=arguments.form))
        ran = sum(line.ours is not None for line in lines)
        count = f"{ran} numbers of ours, {len(lines) - ran} not run"
        if arguments.ran:
            lines = [line for line in lines if line.cell is not None]
        print()
        console(110).print(grid(table, lines, form=arguments.form))
        if table.comparable:
            print(f"table {table.name}: {count}")
    for note in paper.text if arguments.table is None else ():
        print(f"{note['where']}: {note['text']}")


def commands(table: Table) -> Iterator[tuple[PaperRow, str]]:
    """Yield the rows that a run fills with their commands."""
    if not table.comparable or table.missing:
        return
    if not any(metric.ours for metric in table.metrics.values()):
        return
    for row in table.rows:
        command = row.command()
        if command is not None:
            yield row, command


def _print_commands(tables: Sequence[Table], settings: Sequence[str]) -> None:
    for table in tables:
        print(f"# Table {table.name}: {table.about}")
        runnable = dict.fromkeys(command for _, command in commands(table))
        for command in runnable:
            # A row's own setting of the same name stays.
            keys = {word.partition("=")[0] for word in command.split()}
            print(command, *(each for each in settings if each.partition("=")[0] not in keys))
        if not runnable:
            names = ", ".join(table.metrics)
            print(f"# not run: {table.missing or f'run does not measure {names}'}")
        lacking = dict.fromkeys(row.missing for row in table.rows if row.missing)
        for label in lacking if runnable else ():
            print(f"# not run: no {label} in this project")
