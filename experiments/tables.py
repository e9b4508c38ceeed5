"""The tables of all experiments: finished cells become rows, rows become tables.

    python -m experiments.tables NAME [--output outputs] [--show TABLE]

NAME is a folder with a module `tables`, whose `PAGE` names the cells of each row. The measured
rows are `results.jsonl` in the folder, a line for each row of a table; a cell that ran again takes
its row's place. The site has the tables where the folder's page has `<!-- table: NAME -->`; README
and docs/choosing.md have theirs between `<!-- NAME:begin -->` and `<!-- NAME:end -->`. --show
prints all figures of a table and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments import papers
from streaming_asr.errors import UserError
from streaming_asr.score.compare import compare, read_runs
from streaming_asr.score.compare import table as differences
from streaming_asr.score.results import Result, is_busy, read_results
from streaming_asr.terminal import exit_status

NOTHING_RUN = "Not run yet."
NONE = "–"
"""The text of a cell with nothing to show."""
COMPUTE_TIME = re.compile(r"^rtf|_ca(_s)?$")  # metrics that the time of the steps changes
DATA = "results.jsonl"
"""The rows of a page, in its folder."""


# -- finished cells -------------------------------------------------------------------------


def read(*folders: Path) -> list[Result]:
    """The finished cells of these sweeps, in their order; none where nothing has run."""
    results = [each for each in folders if each.is_dir() and any(each.glob("*/metrics.json"))]
    return [cell for folder in results for cell in read_results(folder) if cell.metrics]


def read_json(path: Path) -> dict[str, Any]:
    """What a program wrote; empty where it has not been run."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content


def method_name(cell: Result) -> str:
    """The method's name in the configuration, or that of the cell where it has none."""
    return str(cell.document["config"]["method"].get("name") or cell.method)


def weights_name(cell: Result) -> str:
    """The name of the folder of a method's weights (`any_chunk`, `300ms`), or `none`."""
    weights = cell.document["config"]["method"].get("weights")
    return "none" if weights in (None, "none") else Path(str(weights)).name


def chunk_ms(cell: Result) -> int | None:
    return None if cell.chunk_s is None else round(1000 * cell.chunk_s)


def find(cells: Iterable[Result], **values: Any) -> Result | None:
    """The first cell with these values; None where there is none.

    `method`, `model`, `weights` (the name of their folder), `chunk_ms`, `batch`, `gate_silence`,
    `path` (the stem of a manifest) and `data.KEY` are the cell's; any other name is a setting of
    its method.
    """
    readers: dict[str, Callable[[Result], Any]] = {
        "method": method_name,
        "model": lambda cell: cell.model,
        "weights": weights_name,
        "chunk_ms": chunk_ms,
        "batch": lambda cell: cell.document["config"].get("batch"),
        "path": lambda cell: Path(str(cell.document["config"]["data"].get("path"))).stem,
        "gate_silence": lambda cell: cell.document["config"].get("gate_silence"),
        **{
            f"data.{key}": lambda cell, key=key: cell.document["config"]["data"].get(key)
            for key in ("split", "join_s", "language", "name")
        },
    }
    for cell in cells:
        settings = cell.document["config"]["method"]
        if all(
            (readers[name](cell) if name in readers else settings.get(name)) == value
            for name, value in values.items()
        ):
            return cell
    return None


def paired(baseline: Result, cell: Result) -> Mapping[str, Any]:
    """The row of `score compare` for a cell's WER minus the baseline's, of the same recordings."""
    comparisons = compare(read_runs([str(baseline.folder), str(cell.folder)]))
    (row,) = (each for each in differences(comparisons) if each["metric"] == "wer")
    return row


# -- rows -----------------------------------------------------------------------------------

Figure = float | str | Sequence[float]
"""A number; or a number and the two ends of its interval of 95 %; or a text, as a paper has it."""


@dataclass(frozen=True)
class Row:
    """A measured row.

    table: the name of its table. labels: what the row is of, by heading. figures: by heading; what
    was not measured is missing. dates, machines: a row from the first pages has those of its whole
    table. n: recordings. drawn: what its intervals are over. cell, hashes: the run's folder and
    the hashes of its code, model and data.
    """

    table: str
    labels: Mapping[str, str]
    figures: Mapping[str, Figure]
    dates: Sequence[str] = ()
    machines: Sequence[str] = ()
    n: int | None = None
    drawn: str = ""
    n_failed: int = 0
    cell: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.table, *self.labels.values())

    def value(self, heading: str) -> float | None:
        """The number of a figure without its interval."""
        figure = self.figures.get(heading)
        if figure is None or isinstance(figure, str):
            return None
        return figure if isinstance(figure, int | float) else figure[0]


def row_of(
    table: str,
    labels: Mapping[str, str],
    cell: Result,
    columns: Mapping[str, str],
    more: Mapping[str, Figure | None] = MappingProxyType({}),
) -> Row:
    """The row of a finished cell, without times where the machine was busy.

    columns: the metric of each heading; more: further figures."""
    document = cell.document
    if is_busy(document.get("config") or {}, cell.metrics):
        columns = {name: key for name, key in columns.items() if not COMPUTE_TIME.search(key)}
    drawn = document.get("intervals") or {}
    figures: dict[str, Figure | None] = {}
    for heading, metric in columns.items():
        value, bounds = cell.metrics.get(metric), (drawn.get("metrics") or {}).get(metric)
        figures[heading] = [value, *bounds] if value is not None and bounds else value
    machine = document.get("machine") or {}
    return Row(
        table,
        labels,
        {name: figure for name, figure in (figures | dict(more)).items() if figure is not None},
        dates=[str(date.fromtimestamp((cell.folder / "metrics.json").stat().st_mtime))],
        machines=[str(machine.get("gpu") or machine.get("cpu") or "an unnamed machine")],
        n=int(document["n_utterances"]),
        drawn=f"{drawn['n_drawn']} {drawn['drawn']}s" if drawn.get("drawn") else "",
        n_failed=int(document.get("n_failed") or 0),
        cell=cell.name,
        hashes=document.get("hashes") or {},
    )


@dataclass(frozen=True)
class Cells:
    """Which finished cells make the rows of a table.

    folders: below the output. choices: the labels of each row, and what `find` looks for; of
    several the first that there is. columns: the metric of each heading. more: further figures of a
    cell, which gets all cells too.
    """

    table: str
    folders: Sequence[str]
    choices: Sequence[tuple[Mapping[str, str], Sequence[Mapping[str, Any]]]]
    columns: Mapping[str, str]
    more: Callable[[Result, Sequence[Result]], Mapping[str, Figure | None]] = lambda *_: {}

    def rows(self, output: Path) -> list[Row]:
        """The rows of the cells that have run."""
        cells = read(*(output / name for name in self.folders))
        matches = (
            (labels, next(filter(None, (find(cells, **each) for each in settings)), None))
            for labels, settings in self.choices
        )
        return [
            row_of(self.table, labels, cell, self.columns, self.more(cell, cells))
            for labels, cell in matches
            if cell is not None
        ]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none where there is no such file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Row(**json.loads(line)) for line in lines]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes a line for each row, without what is empty."""
    lines = (
        json.dumps({name: each for name, each in asdict(row).items() if each}, ensure_ascii=False)
        for row in rows
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def merged(rows: Iterable[Row], measured: Iterable[Row]) -> list[Row]:
    """The rows with those that were measured again in their places, and new ones after the row
    that was measured before them, or after their table's last."""
    result = list(rows)
    place = -1
    for row in measured:
        keys = [each.key for each in result]
        if row.key in keys:
            place = keys.index(row.key)
            result[place] = row
            continue
        if not (0 <= place < len(result) and result[place].table == row.table):
            of_table = [at for at, each in enumerate(result) if each.table == row.table]
            place = max(of_table, default=len(result) - 1)
        place += 1
        result.insert(place, row)
    return result


# -- tables ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """How rows are shown.

    name: of its block, and of the rows unless `sources` names other tables, by what a reader calls
    them. columns: the format of each figure by heading. plain: headings without intervals. across:
    the label whose values become columns ("table": the table of the row), each of which has the
    figures of `columns`. takes: which rows are shown.
    """

    name: str
    columns: Mapping[str, str]
    plain: Sequence[str] = ()
    across: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    takes: Callable[[Row], bool] = lambda row: True
    with_caption: bool = True

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the table shows."""
        sources = self.sources or {self.name: self.name}
        return [row for row in rows if row.table in sources and self.takes(row)]


def render(table: Table, rows: Iterable[Row]) -> str:
    """The table as Markdown, under where and when it was measured."""
    selection = table.of(rows)
    if not selection:
        return NOTHING_RUN
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    headings = dict.fromkeys(table.sources.values() if table.across == "table" else ())
    for row in selection:
        labels = tuple(text for name, text in row.labels.items() if name != table.across)
        cells = {name: text_of(row, name, table) for name in table.columns}
        if table.across is not None:
            name = table.sources[row.table] if table.across == "table" else row.labels[table.across]
            cells = {name: " / ".join(cells.values())}
        headings |= dict.fromkeys(cells)
        lines.setdefault(labels, {}).update(cells)
    header = [name for name in selection[0].labels if name != table.across]
    body = [
        [*labels, *(cells.get(name, NONE) for name in headings)] for labels, cells in lines.items()
    ]
    text = markdown([*header, *headings], body, len(header))
    return f"{caption(selection)}\n\n{text}" if table.with_caption else text


def text_of(row: Row, heading: str, table: Table) -> str:
    """A figure as the table shows it."""
    figure = row.figures.get(heading)
    if figure is None or isinstance(figure, str):
        return figure or NONE
    form = table.columns[heading]
    numbers = [figure] if isinstance(figure, int | float) else list(figure)
    value, *bounds = (f"{each:{form}}" for each in numbers)
    if not bounds or heading in table.plain:
        return value
    return f"{value} [{', '.join(bound.lstrip('+') for bound in bounds)}]"


def caption(rows: Sequence[Row]) -> str:
    """When, where and on how much it was measured, over what intervals are, and what failed."""
    days = sorted({day for row in rows for day in row.dates})
    machines = sorted({machine for row in rows for machine in row.machines})
    counts = sorted({row.n for row in rows if row.n is not None})
    drawn = sorted({row.drawn for row in rows if row.drawn})
    text = "Measured" + (f" {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else "")
    text += f" on {', '.join(machines)}, one thread" if machines else ""
    text += f", {' or '.join(map(str, counts))} recordings in a cell" if counts else ""
    text += f"; intervals over {' or '.join(drawn)}." if drawn else "."
    n_failed = sum(row.n_failed for row in rows)
    return text + (f" {n_failed} recordings failed; they count as empty." if n_failed else "")


def duration(chunk_ms: int | None) -> str:
    return "whole" if chunk_ms is None else f"{chunk_ms} ms"


# -- pages ------------------------------------------------------------------------------------


def paper_rows(paper: str, table: str) -> Sequence[papers.PaperRow]:
    """The rows of one of a paper's tables, as printed."""
    (match,) = (t for t in papers.read_paper(paper).tables if t.name == table)
    return match.rows


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], n_text: int = 1) -> str:
    """A Markdown table; the first `n_text` columns are flush left, the others right."""
    rule = ["---"] * n_text + ["---:"] * (len(header) - n_text)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def rewrite(path: Path, blocks: Mapping[str, str]) -> None:
    """Puts each block into `path`. Raises UserError where a block has no place, or several."""
    text = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise UserError(
                f"{path}: the table {name} has one place in a file; write the lines "
                f"{begin} and {end} once, where it belongs"
            )
        text = pattern.sub(lambda _: f"{begin}\n{block}\n{end}", text)  # noqa: B023
    path.write_text(text, encoding="utf-8")


PLACE = re.compile(r"<!-- table: ([\w./]+) -->")
"""Where a page of the site has a table of data."""


def with_tables(text: str, folder: Path) -> str:
    """Return the text of a page in `folder` with its tables: those of the folder's `tables` module,
    `claims` of claims.tsv, `counts` of all claims, and any other name of NAME.tsv. Raises KeyError
    for an unknown name."""
    from experiments.claims import block, counts, read_table

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name == "claims":
            return block(read_table(folder / "claims.tsv"))
        if name == "counts":
            return counts()
        if (path := folder / f"{name}.tsv").is_file():
            rows = read_table(path)
            lines = [[cell.replace("|", "\\|") for cell in row.values()] for row in rows]
            return markdown(list(rows[0]), lines, len(rows[0]))
        return page_of(folder).blocks(read_rows(folder / DATA))[name]

    return PLACE.sub(table, text)


def everything(rows: Sequence[Row]) -> str:
    """All figures of one table's rows, tab-separated; an interval follows its figure."""
    headings = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = [[*(rows[0].labels if rows else ()), *headings]]
    for row in rows:
        figures = (row.figures.get(name, "") for name in headings)
        texts = (
            str(figure) if isinstance(figure, str | int | float) else "{} [{}, {}]".format(*figure)
            for figure in figures
        )
        lines.append([*row.labels.values(), *texts])
    return "\n".join("\t".join(line) for line in lines)


Blocks = Callable[[Sequence[Row]], Mapping[str, str]]


@dataclass(frozen=True)
class Page:
    """The tables of a folder.

    cells: what makes its rows. tables: as they are shown. others: further rows, which a program
    measured into the output. also: tables made of all rows. rewritten: the blocks of other files.
    draw: the pictures of the rows into the folder.
    """

    cells: Sequence[Cells]
    tables: Sequence[Table]
    others: Callable[[Path], Iterable[Row]] = lambda output: ()
    also: Blocks = lambda rows: {}
    rewritten: Mapping[Path, Blocks] = field(default_factory=dict)
    draw: Callable[[Sequence[Row], Path], None] = lambda rows, folder: None
    corrected: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: rows

    def rows(self, output: Path) -> list[Row]:
        """The rows of all that ran."""
        return [*(row for each in self.cells for row in each.rows(output)), *self.others(output)]

    def blocks(self, rows: Sequence[Row]) -> dict[str, str]:
        """The tables of the page, by the names of their places."""
        rows = self.corrected(rows)
        return {each.name: render(each, rows) for each in self.tables} | dict(self.also(rows))


def page_of(folder: Path) -> Page:
    """The tables of a folder of experiments."""
    page: Page = import_module(f"experiments.{folder.name}.tables").PAGE
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/tables.py"))
    names = [name for name in names if name != "figures"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=names, help="the folder below experiments")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--data", type=Path, help="the rows; default: those of the folder")
    parser.add_argument("--show", metavar="TABLE", help="print all figures of a table; no change")
    arguments = parser.parse_args(argv)
    data = arguments.data or Path(__file__).parent / arguments.name / DATA
    page = page_of(Path(arguments.name))

    def job() -> None:
        stored = read_rows(data)
        if arguments.show is not None:
            tables = dict.fromkeys(row.table for row in stored)
            if arguments.show not in tables:
                raise UserError(f"--show {arguments.show}: no such table; give {', '.join(tables)}")
            print(everything([row for row in stored if row.table == arguments.show]))
            return
        rows = merged(stored, page.rows(arguments.output))
        if rows != stored:
            write_rows(data, rows)
        for name, block in page.blocks(rows).items():
            print(f"{name}\n\n{block}\n")
        page.draw(rows, data.parent)
        for path, blocks in page.rewritten.items():
            rewrite(path, blocks(rows))
        print("written: " + ", ".join(map(str, (data, *page.rewritten))))

    return exit_status(job)


if __name__ == "__main__":
    sys.exit(main())
