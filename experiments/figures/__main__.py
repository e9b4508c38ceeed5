"""The report's figures and table as files for a paper.

python -m experiments.figures outputs/grid --figure pareto.svg --table results.tex
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.figures.draw import draw
from experiments.figures.tables import write_table
from streaming_asr.terminal import exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figures",
        description="Write the results under a folder as figures and tables for a paper.",
    )
    parser.add_argument("folder", type=Path, help="a folder that run wrote, e.g. outputs/default")
    for name, what in (
        ("--figure", "draw WER against latency into a .svg, .png or .pdf"),
        ("--table", "write the table, .tex, .md or .tsv"),
    ):
        what += "; may be given several times"
        parser.add_argument(name, action="append", default=[], type=Path, metavar="FILE", help=what)
    parser.add_argument("--metrics", metavar="NAMES", help="columns of --table, comma-separated")
    arguments = parser.parse_args(argv)
    if not (arguments.figure or arguments.table):
        parser.error("nothing to write; give --figure or --table")
    return exit_status(lambda: _write(arguments))


def _write(arguments: argparse.Namespace) -> None:
    for path in arguments.figure:
        print(f"figure: {draw(arguments.folder, path)}")
    for path in arguments.table:
        names = [name.strip() for name in (arguments.metrics or "").split(",") if name.strip()]
        print(f"table: {write_table(arguments.folder, path, names or None)}")


if __name__ == "__main__":
    sys.exit(main())
