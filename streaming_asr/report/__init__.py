"""A folder of results -> a table in the terminal, and one self-contained HTML page.

    python -m streaming_asr.report outputs/grid [--out page.html]
    python -m streaming_asr.report outputs/grid --figure pareto.svg --table results.tex

Reads what `score` left (metrics.json, utterances.jsonl) and the event logs; no model, no torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.report.page import build
from streaming_asr.report.terminal import table
from streaming_asr.terminal import BAD_INPUT, console, exit_status

__all__ = ["build", "main", "table"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["paper"] and not Path("paper").is_dir():
        moved = "`python -m experiments.papers` in a checkout of the project"
        print(f"error: report paper: this is now {moved}", file=sys.stderr)
        return BAD_INPUT
    parser = argparse.ArgumentParser(
        prog="streaming-asr report",
        description="Show the results under a folder: a table here, and one HTML page.",
    )
    parser.add_argument("folder", type=Path, help="a folder that run wrote, e.g. outputs/default")
    parser.add_argument("--out", type=Path, help="the page; default FOLDER/report.html")
    parser.add_argument(
        "--figure",
        action="append",
        default=[],
        metavar="[KIND=]FILE",
        help="also draw pareto (the default), arwer, rtf or parts into a .svg, .png or .pdf; "
        "may be given several times",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="also write the table, .tex or .md; may be given several times",
    )
    parser.add_argument("--metrics", metavar="NAMES", help="columns of --table, comma-separated")
    parser.add_argument(
        "--marks",
        type=Path,
        metavar="FILE",
        help="published numbers as hollow marks in the figures; default FOLDER/marks.yaml, if any",
    )
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _report(arguments))


def _report(arguments: argparse.Namespace) -> None:
    """Show the table; write the page, the figures and the tables that were asked for."""
    console().print(table(arguments.folder))
    # print, not rich: rich would break a long path over lines
    print(f"report: {build(arguments.folder, arguments.out, marks=arguments.marks)}")
    for asked in arguments.figure:
        from streaming_asr.report.figures import draw

        kind, _, file = asked.partition("=")
        if not (file and kind.isalpha()):  # the path may hold a = as well
            kind, file = "pareto", asked
        print(f"figure: {draw(arguments.folder, Path(file), kind, arguments.marks)}")
    for path in arguments.table:
        from streaming_asr.report.tables import write_table

        names = [name.strip() for name in (arguments.metrics or "").split(",") if name.strip()]
        print(f"table: {write_table(arguments.folder, path, names or None)}")
