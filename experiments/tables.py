"""What the tables of all experiments share: finished cells, how they are found, how they are shown.

A page is the Markdown file next to a `tables` module. A block is the text of a page between
`<!-- NAME:begin -->` and `<!-- NAME:end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from experiments import papers
from streaming_asr.errors import UserError
from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import exit_status

NOT_RUN, NOTHING_RUN = "not run", "Not run yet."
NONE = "–"
"""The text of a cell with nothing to show."""


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

    `method`, `weights` (the name of their folder), `chunk_ms`, `split`, `join_s` and `path` (a
    manifest's name without its ending) are the cell's; any other name is a setting of its method.
    """
    readers: dict[str, Callable[[Result], Any]] = {
        "method": method_name,
        "weights": weights_name,
        "chunk_ms": chunk_ms,
        "split": lambda cell: cell.document["config"]["data"].get("split"),
        "join_s": lambda cell: cell.document["config"]["data"].get("join_s"),
        "path": lambda cell: Path(str(cell.document["config"]["data"].get("path"))).stem,
    }
    for cell in cells:
        settings = cell.document["config"]["method"]
        if all(
            (readers[name](cell) if name in readers else settings.get(name)) == value
            for name, value in values.items()
        ):
            return cell
    return None


def intervals(cell: Result) -> Mapping[str, Any]:
    """How the intervals of 95 % were drawn, and those of `metrics`; empty without any."""
    return cell.document.get("intervals") or {}


def caption(cells: Iterable[Result], *, with_intervals: bool = True) -> str:
    """When, where and on how much it was measured, over what intervals are, and what failed.

    with_intervals: whether the table shows them."""
    cells = list(cells)
    if not cells:
        return NOTHING_RUN
    times = [(cell.folder / "metrics.json").stat().st_mtime for cell in cells]
    days = dict.fromkeys(str(date.fromtimestamp(at)) for at in (min(times), max(times)))
    documents = [cell.document for cell in cells]
    machines = {_machine(document) for document in documents}
    counts = sorted({int(document["n_utterances"]) for document in documents})
    drawn = {f"{i['n_drawn']} {i['drawn']}s" for c in cells if (i := intervals(c)).get("drawn")}
    failed = sum(int(document.get("n_failed") or 0) for document in documents)
    text = _caption(days, machines, counts, drawn if with_intervals else ())
    return text + (f" {failed} recordings failed; they count as empty." if failed else "")


def _caption(
    days: Iterable[str], machines: Iterable[str], counts: Iterable[int], drawn: Iterable[str]
) -> str:
    over = f"; intervals over {' or '.join(sorted(drawn))}" if drawn else ""
    return (
        f"Measured {' to '.join(dict.fromkeys(days))} on {', '.join(sorted(machines))}, one "
        f"thread, {' or '.join(map(str, counts))} recordings in a cell{over}."
    )


def _machine(document: Mapping[str, Any]) -> str:
    machine = document.get("machine") or {}
    return str(machine.get("gpu") or machine.get("cpu") or "an unnamed machine")


# -- one cell's figures -----------------------------------------------------------------------


def number(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def measure(cell: Result | None, metric: str, digits: int = 1) -> str:
    """The figure of a cell, or `not run`."""
    return NOT_RUN if cell is None else number(cell.metrics.get(metric), digits)


def with_interval(cell: Result | None, metric: str, digits: int = 1) -> str:
    """The figure, and in brackets its interval of 95 % where there is one."""
    text = measure(cell, metric, digits)
    bounds = cell and intervals(cell).get("metrics", {}).get(metric)
    if not bounds:
        return text
    return f"{text} [{number(bounds[0], digits)}, {number(bounds[1], digits)}]"


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


def with_older_results(block: str, before: str) -> str:
    """The block whose rows that were not run come from the one before it: results come from
    several machines, and no folder of outputs holds them all.

    A cell is found by its table's title (a line that ends with a colon), its row's labels, which
    are the columns flush left, and its heading.
    """
    if block.startswith(NOTHING_RUN) and before:
        return before
    old = {key: dict(cells) for key, cells, _ in _rows(before) if key}
    lines, is_taken = [], False
    for key, cells, line in _rows(block):
        old_row = old.get(key, {}) if key and NOT_RUN in line else {}
        if old_row:
            texts = [
                old_row.get(name, cell) if cell.startswith(NOT_RUN) else cell
                for name, cell in cells
            ]
            is_taken |= texts != [cell for _, cell in cells]
            line = "| " + " | ".join(texts) + " |"
        lines.append(line)
    if is_taken:
        lines[0] = _of_both(lines[0], before.partition("\n")[0])
    return "\n".join(lines)


_CAPTION = re.compile(
    r"Measured (.+?) on (.+?), one thread, (.+?) recordings in a cell(?:; intervals over (.+?))?\."
)


def _of_both(caption: str, other: str) -> str:
    """The first of two captions, with the days, machines, recordings and draws of both."""
    here, older = _CAPTION.match(caption), _CAPTION.match(other)
    if here is None or older is None:
        return caption
    days, machines, counts, drawn = (
        {part for text in pair if text for part in re.split(rule, text)}
        for rule, *pair in zip(
            (" to ", ", ", " or ", " or "), here.groups(), older.groups(), strict=True
        )
    )
    text = _caption([min(days), max(days)], machines, sorted(map(int, counts)), drawn)
    return text + caption[here.end() :]


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _rows(block: str) -> list[tuple[tuple[str, ...], list[tuple[str, str]], str]]:
    """Every line behind its key and its cells by heading: the key of a table's row is its title,
    its labels' headings and its labels; other lines have neither."""
    result: list[tuple[tuple[str, ...], list[tuple[str, str]], str]] = []
    lines = block.splitlines()
    title, n_labels = "", 0
    header: list[str] = []
    for i, line in enumerate(lines):
        rule = lines[i + 1] if i + 1 < len(lines) else ""
        if not line.startswith("| "):
            header, title = [], (line if line.endswith(":") else title if not line else "")
        elif rule.startswith("| ---"):
            header, n_labels = _split(line), _split(rule).count("---")
        elif header and not line.startswith("| ---"):
            row = _split(line)
            key = (title, *header[:n_labels], *row[:n_labels])
            result.append((key, list(zip(header, row, strict=True)), line))
            continue
        result.append(((), [], line))
    return result


def block_of(page: str, name: str) -> str:
    """The text of a page's block of that name; empty where there is no such place."""
    return page.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0].strip()


def rows_of(block: str) -> list[dict[str, str]]:
    """The rows of a block's tables, the cells by their headings."""
    return [dict(cells) for key, cells, _ in _rows(block) if key]


def rewrite(path: Path, blocks: Mapping[str, str]) -> None:
    """Puts each block into `path`; what was not run stays as in the page (`with_older_results`).

    Raises UserError where a block has no place, or several.
    """
    text = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise UserError(
                f"{path}: the table {name} has one place in a file; write the lines "
                f"{begin} and {end} once, where it belongs"
            )
        here = pattern.findall(text)[0][len(begin) : -len(end)].strip()
        text = pattern.sub(lambda _: f"{begin}\n{with_older_results(block, here)}\n{end}", text)  # noqa: B023
    path.write_text(text, encoding="utf-8")


def write(
    argv: Sequence[str] | None = None,
    about: str | None = None,
    *,
    page: Path,
    blocks: Callable[[Path], Mapping[str, str]],
    shared: str | None = None,
    short: Callable[[Path], str] | None = None,
    derived: Callable[[str], Mapping[str, str]] = lambda page: {},
    draw: Callable[[Path, Path], bool] = lambda output, folder: False,
) -> int:
    """The command line of an experiment's tables; returns the exit status.

    blocks: makes the blocks of `page` from the folder where `run` wrote. shared: the block that
    `--readme` writes into another file too, there as `short` has it; None: there is no such option.
    derived: from the text of the page with these, the blocks that are made of other blocks.
    draw: from the same folder, the pictures into the page's; whether there was anything to draw.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--here", type=Path, default=page, help="this folder's page")
    parser.set_defaults(readme=None)
    if shared is not None:
        parser.add_argument("--readme", type=Path, help=f"also the block `{shared}` of this file")
    arguments = parser.parse_args(argv)

    def job() -> None:
        written = blocks(arguments.output)
        rewrite(arguments.here, written)
        rewrite(arguments.here, derived(arguments.here.read_text(encoding="utf-8")))
        pictures = " and its picture" if draw(arguments.output, arguments.here.parent) else ""
        print(f"written: {arguments.here}{pictures}")
        if shared is not None and arguments.readme is not None:
            block = written[shared] if short is None else short(arguments.output)
            rewrite(arguments.readme, {shared: block})
            print(f"written: {arguments.readme}")

    return exit_status(job)
