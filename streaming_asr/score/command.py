"""Turn event logs into metrics; needs neither the model nor the audio.

    streaming-asr score outputs/default

A log can be scored again whenever a metric changes: the run is not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import short_names
from streaming_asr.errors import UserError
from streaming_asr.files import give_json
from streaming_asr.metrics import METRICS
from streaming_asr.score import compare, imports, latencies, longform, retime
from streaming_asr.score.columns import column_of, metric_named, short_names_of
from streaming_asr.score.folder import find_cells, score_folder
from streaming_asr.score.own import chosen_columns, with_own
from streaming_asr.score.results import drawn_over, lost, read_results
from streaming_asr.score.table import SORT_HELP, WIDE_HELP, print_table
from streaming_asr.terminal import add_json, command_parser, exit_status, show_table
from streaming_asr.text.normalise import NORMALISERS

# `score NAME ...`: its `main(arguments) -> exit status`, and what it does. What it raises as
# UserError is printed here, and the status is 2.
COMMANDS = {
    "compare": (compare.main, "differences of runs, with intervals"),
    "retime": (retime.main, "both clocks again, on another machine"),
    "import": (imports.main, "score simulstream's log"),
    "latencies": (latencies.main, "ranks under every published definition of latency"),
    "longform": (longform.main, "figures for recordings of minutes, hours"),
}
METRICS_HELP = (
    "columns of the table, comma-separated; live: what live systems get wrong; biasing: errors "
    "of listed words; mine.py:pauses: the "
    "mean over the recordings of your function pauses, which gets a trace and returns a number"
)
HELP_EPILOG = """\
what it reads and writes
  FOLDER is one cell of results, or any folder above: every events.jsonl below it is scored.
  Next to each it writes metrics.json (all metrics) and utterances.jsonl (one line each), whole or
  not at all. A run that was killed is scored on the utterances it finished.

clocks
  _cu  a step happens when its audio has arrived
  _ca  a step happens when its computation is done: what a listener sees

examples
  streaming-asr score outputs/default
  streaming-asr score outputs/default --metrics wer,final_after_p90 --sort final_after_p90
  streaming-asr score outputs/default --metrics live
  streaming-asr score outputs/default --all
  streaming-asr score outputs/default --json > runs.json
  streaming-asr score --list            what each metric means

commands (streaming-asr score NAME --help has more; a folder of that name: ./NAME)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, 2 for bad input."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] not in COMMANDS:
        return exit_status(lambda: _score(argv))
    return exit_status(lambda: COMMANDS[argv[0]][0](argv[1:]))


def _score(argv: Sequence[str]) -> int:
    commands = "\n".join(f"  {name:9} {what}" for name, (_, what) in COMMANDS.items())
    about = "Compute every metric from the event logs of a folder of results."
    parser = command_parser("streaming-asr score", about, HELP_EPILOG + commands)
    parser.add_argument("folder", nargs="?", help="a cell of results or a folder of cells")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--metrics", metavar="NAMES", help=METRICS_HELP)
    group.add_argument("--all", action="store_true", help="show every metric")
    group.add_argument("--wide", action="store_true", help=WIDE_HELP)
    group.add_argument("--list", action="store_true", help="list the metrics and stop")
    parser.add_argument("--sort", metavar="METRIC", help=SORT_HELP)
    add_json(parser)
    parser.add_argument(
        "--normaliser", choices=NORMALISERS, help="of error rates; default: that of the run"
    )
    arguments = parser.parse_args(argv)
    if arguments.list:
        print_definitions()
        return 0
    if arguments.folder is None:
        raise UserError("no folder given; give a folder of results, such as outputs/default")
    # Before anything is written.
    chosen, owns = chosen_columns(arguments.metrics or "", "--metrics")
    sort = arguments.sort
    if sort and sort not in {each.metric.name for each in owns}:
        sort = metric_named(sort, "--sort")
    if arguments.all:
        chosen = list(map(column_of, METRICS))
    scored: dict[Path, dict[str, Any]] = {}
    refused = []
    for cell in find_cells(arguments.folder):
        try:
            scored[cell] = score_folder(cell, normaliser=arguments.normaliser)
        except UserError as error:  # one damaged log does not keep the others from their numbers
            refused.append(error)
    results = read_results(arguments.folder) if scored else []
    results = with_own(results, owns, arguments.normaliser)
    if arguments.json is not None:
        give_json({"runs": [result.row() for result in results]}, arguments.json)
    if results and arguments.json != "-":
        print_table(results, wide=arguments.wide, sort=sort, columns=chosen)
        _print_remarks(scored)
    for reason in refused:
        print(f"error: {reason}", file=sys.stderr)
    return 2 if refused else 0


def _print_remarks(scored: Mapping[Path, dict[str, Any]]) -> None:
    """Print what the intervals were drawn over, and how many recordings failed or got no word."""
    for drawn in dict.fromkeys(drawn_over(document) for document in scored.values()):
        print(f"intervals: 95 %, over {drawn}")
    short = short_names(list(map(str, scored)))
    for folder, document in scored.items():
        counts = document["n_failed"], document["n_silent"], document["n_utterances"]
        for remark in lost(short[str(folder)], *counts):
            print(remark)


def print_definitions() -> None:
    """Print every metric with unit, direction, definition and source."""
    heads = ("metric, short name", "unit", "better", "definition", "source")
    rows = [
        (
            " ".join([m.name, *short_names_of(m.name)]),
            m.unit,
            m.better or "",
            m.definition,
            m.source,
        )
        for m in METRICS.values()
    ]
    show_table(heads, rows, text_columns=range(len(heads)))
