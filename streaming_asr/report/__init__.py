"""A folder of results -> a table in the terminal, and one self-contained HTML page.

    streaming-asr report outputs/grid [--out page.html]
    streaming-asr report outputs/grid --budget final_after_p90=1s rtf=0.3

Reads what `score` left (metrics.json, utterances.jsonl) and the event logs; no model, no torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.files import give_json
from streaming_asr.report.page import build
from streaming_asr.score.columns import metric_named
from streaming_asr.score.judge import parse_limits
from streaming_asr.score.own import chosen_columns, with_own
from streaming_asr.score.ranking import within_budget
from streaming_asr.score.results import read_results
from streaming_asr.score.table import SORT_HELP, WIDE_HELP, print_table, table
from streaming_asr.terminal import add_audio, add_json, command_parser, exit_status

__all__ = ["build", "main", "table"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    about = "Show the results under a folder: a table here, and one HTML page."
    parser = command_parser("streaming-asr report", about)
    parser.add_argument("folder", type=Path, help="a folder that run wrote, e.g. outputs/default")
    parser.add_argument("--out", type=Path, help="the page; default FOLDER/report.html")
    add_audio(parser)
    parser.add_argument(
        "--budget",
        nargs="+",
        metavar="METRIC=VALUE",
        help="also name the best run within it: final_after_p90=1s rtf=0.3 wer=10; where none is, "
        "the exit status is 1",
    )
    parser.add_argument("--metrics", metavar="NAMES", help="a table of these, as in `score`, too")
    parser.add_argument("--wide", action="store_true", help=WIDE_HELP)
    parser.add_argument("--sort", metavar="METRIC", help=SORT_HELP)
    add_json(parser)
    return exit_status(lambda: _report(parser, argv))


def _report(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """Show the table and write the page; return 1 where no run is within the budget."""
    arguments = parser.parse_args(argv)
    limits = parse_limits("--budget", arguments.budget or ())  # before anything is written
    columns, owns = chosen_columns(arguments.metrics or "", "--metrics")
    metric_named(arguments.sort or "wer", "--sort")
    results = read_results(arguments.folder)
    page = build(arguments.folder, arguments.out, arguments.audio)
    answer, is_met = within_budget(results, limits) if limits else ([], True)
    if arguments.json is not None:
        runs = [result.row() for result in results]
        give_json({"runs": runs, "budget": answer, "report": str(page)}, arguments.json)
    if arguments.json != "-":
        print_table(results, wide=arguments.wide, sort=arguments.sort)
        if columns:
            print_table(with_own(results, owns), columns=columns)
        # print, not rich: rich would break a long path over lines
        print(f"report: {page}", *answer, sep="\n")
    return 0 if is_met else 1
