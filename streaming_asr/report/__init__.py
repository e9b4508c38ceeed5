"""A folder of results -> a table in the terminal, and one self-contained HTML page.

    python -m streaming_asr.report outputs/grid [--out page.html]
    python -m streaming_asr.report outputs/grid --figure pareto.svg --table results.tex
    python -m streaming_asr.report outputs/grid --budget commit_p90=1s rtf=0.3
    python -m streaming_asr.report paper whisperrt outputs/grid    a paper's tables beside it

Reads what `score` left (metrics.json, utterances.jsonl) and the event logs; no model, no torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.report.cells import read_cells
from streaming_asr.report.page import build
from streaming_asr.report.paper import main as paper_view
from streaming_asr.report.terminal import table
from streaming_asr.terminal import console, exit_status

__all__ = ["build", "main", "table"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["paper"]:
        return exit_status(lambda: paper_view(argv[1:]))
    parser = argparse.ArgumentParser(
        prog="streaming-asr report",
        description="Show the results under a folder: a table here, and one HTML page.",
        epilog="`report paper` shows a paper's tables beside results; see report paper --help.",
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
    parser.add_argument(
        "--budget",
        nargs="+",
        metavar="METRIC=VALUE",
        help="also name the best run within it: commit_p90=1s rtf=0.3 wer=10%%",
    )
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _report(arguments))


def _report(arguments: argparse.Namespace) -> None:
    """Show the table; write the page, the figures and the tables that were asked for."""
    from streaming_asr.report.budget import parse_budget, verdict

    limits = parse_budget(arguments.budget or ())  # before anything is written
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
    if limits:
        print("\n".join(verdict(read_cells(arguments.folder), limits)))
