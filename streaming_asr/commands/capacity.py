"""Says how many streams one device carries, for each method and model, from logs of single streams.

    python -m streaming_asr capacity outputs/one outputs/again [--table FILE]

The most streams whose 95th percentile of lag stays below one chunk and below 1 s, served one by one
(score/streams.py). Rows of the same settings in several folders are measurements of one thing: the
table gives their least and most. No model is loaded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.score.results import Result, read_results
from streaming_asr.score.retime import recordings_of
from streaming_asr.score.streams import Served, capacity, serve
from streaming_asr.terminal import command_parser, exit_status, show_table

EXAMPLE = """\
Measure twice on a quiet machine, then ask; the table gives the least and most of the two:
  python -m streaming_asr.run -m method=whisperrt,hush_word chunk=1s threads=1 name=one
  python -m streaming_asr.run -m method=whisperrt,hush_word chunk=1s threads=1 name=again
  python -m streaming_asr capacity outputs/one outputs/again --table capacity.md"""

HEADS = ("method", "model", "chunk", "data", "streams", "load", "lag p95 s", "RTF", "runs")


class Place(NamedTuple):
    """What two cells share that are measurements of one thing."""

    label: str
    model: str
    chunk: str
    split: str
    machine: str


class Row(NamedTuple):
    """What the runs of one place carry, the fewest first; None where not even one stream keeps up.
    alone: the load of a single stream, its real-time factor."""

    place: Place
    runs: list[Served | None]
    alone: float

    @property
    def least(self) -> int:
        """Return the streams of the run that carried fewest."""
        return self.runs[0].n if self.runs[0] else 0

    @property
    def most(self) -> int:
        """Return the streams of the run that carried most."""
        return self.runs[-1].n if self.runs[-1] else 0

    @property
    def streams(self) -> str:
        """Return both, as the table shows them."""
        return f"{self.least} to {self.most}" if self.most != self.least else f"{self.least}"

    def texts(self) -> list[str]:
        """Return the row as the table shows it, in the order of `HEADS`."""
        fewest = self.runs[0]
        load, lag = (f"{fewest.load:.2f}", f"{fewest.p95:.2f}") if fewest else ("–", "–")
        return [*self.place[:4], self.streams, load, lag, f"{self.alone:.3f}", str(len(self.runs))]


def measure(folders: Sequence[str | Path]) -> tuple[list[Row], list[str]]:
    """Return a row for each method, model, chunk, data and machine of the cells under `folders`,
    the most streams first, and why other cells have none.

    Raises UserError for a folder without results, and where no cell can be measured.
    """
    measured: dict[Place, list[tuple[Served | None, float]]] = defaultdict(list)
    refused = []
    for cell in (cell for folder in folders for cell in read_results(folder)):
        try:
            measured[_place(cell)].append(_of_cell(cell))
        except UserError as error:
            refused.append(f"{cell.label} {cell.chunk}: {error}".replace("  ", " "))
    rows = []
    for place, runs in measured.items():
        if runs:
            runs.sort(key=lambda run: run[0].n if run[0] else 0)
            alone = sorted(load for _, load in runs)[len(runs) // 2]
            rows.append(Row(place, [served for served, _ in runs], alone))
    if not rows:
        raise UserError(f"{folders[0]}: no cell can be measured: {'; '.join(refused[:3])}")
    return sorted(rows, key=lambda row: (-row.least, row.place)), refused


def _of_cell(cell: Result) -> tuple[Served | None, float]:
    if cell.error:
        raise UserError(cell.error)
    if cell.method == "offline":
        raise UserError("waits for the whole recording, so no chunk bounds its lag")
    if cell.chunk_s is None:
        raise UserError("its chunk is not known")
    heard = recordings_of(cell.folder, 1.0)
    return capacity(heard, cell.chunk_s), serve(heard, 1).load


def _place(cell: Result) -> Place:
    model = cell.config.get("model") or {}
    machine = cell.document.get("machine")
    machine = machine if isinstance(machine, dict) else {}
    device = str(machine.get("gpu") or machine.get("cpu"))
    if "gpu" not in machine and machine.get("threads"):
        device += f", threads: {machine['threads']}"
    name = str(model.get("name") or "") if isinstance(model, dict) else ""
    variant = " ".join(part for part in cell.label.split() if not part.startswith("model="))
    return Place(variant, name, cell.chunk, cell.split, device)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "The most streams that one device carries with the 95th percentile of lag\n"
    about += "below one chunk and below 1 s, from logs of single streams."
    parser = command_parser("streaming-asr capacity", about, EXAMPLE)
    parser.add_argument("folders", nargs="+", help="folders that run wrote, with batch=1")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write it as Markdown")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _capacity(arguments))


def _capacity(arguments: argparse.Namespace) -> None:
    rows, refused = measure(arguments.folders)
    show_table(HEADS, [row.texts() for row in rows], left=(0, 1, 3))
    for machine in dict.fromkeys(row.place.machine for row in rows):
        print(f"measured on {machine}; streams served one by one, lag p95 of the fewest")
    for reason in refused:
        print(f"left out: {reason}")
    write_table(HEADS, [row.texts() for row in rows], arguments.table)


def write_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], path: str | Path | None
) -> None:
    """Write a table as Markdown where there is a path."""
    if path is not None:
        lines = [heads, ["---"] * len(heads), *rows]
        write_text(Path(path), "".join(f"| {' | '.join(line)} |\n" for line in lines))
        print(f"table: {path}")
