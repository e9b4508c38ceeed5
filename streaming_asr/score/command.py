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
from streaming_asr.metrics import METRICS, Metric, live
from streaming_asr.metrics.table import next_to_wer, with_wer
from streaming_asr.score import compare, exchange, latencies, longform, replay, retime
from streaming_asr.score.folder import find_cells, score_folder
from streaming_asr.score.judge import metric_named, short_names_of
from streaming_asr.score.own import Own, add, is_own, own_metric
from streaming_asr.score.results import drawn_over, lost, read_results
from streaming_asr.score.table import SORT_HELP, WIDE_HELP, print_table
from streaming_asr.terminal import add_json, command_parser, exit_status, show_table, wrapped
from streaming_asr.text.normalise import NORMALISERS

# `score NAME ...`: its `main(arguments) -> exit status`, and what it does. What it raises as
# UserError is printed here, and the status is 2.
COMMANDS = {
    "compare": (compare.main, "differences of runs, with intervals"),
    "retime": (retime.main, "both clocks again, on another machine"),
    "join": (replay.join_command, "a draft and a final log as one stream"),
    "show": (replay.show_command, "a log with its guesses held back"),
    "import": (exchange.import_command, "score another tool's log"),
    "export": (exchange.export_command, "write logs in another's format"),
    "latencies": (latencies.main, "ranks under every published definition of latency"),
    "longform": (longform.main, "figures for recordings of minutes, hours"),
}
SETS = {"live": live.COLUMNS}  # names of several columns
METRICS_HELP = (
    "columns of the table, comma-separated; live: what live systems get wrong; mine.py:pauses: the "
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
  streaming-asr score outputs/default --metrics wer,commit_p90,al_ca_ms --sort commit_p90
  streaming-asr score outputs/default --metrics live
  streaming-asr score outputs/default --all
  streaming-asr score outputs/default --json > runs.json
  streaming-asr score --list            what each metric means

commands (streaming-asr score NAME --help says more; a folder of that name: ./NAME)
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
    names, owns = _columns(arguments.metrics or "")
    definitions = METRICS | {each.metric.name: each.metric for each in owns}
    sort = arguments.sort
    if sort and sort not in definitions:
        sort = metric_named(sort, "--sort")
    names = list(METRICS) if arguments.all else list(next_to_wer(names))
    results: dict[Path, dict[str, Any]] = {}
    refused = []
    for cell in find_cells(arguments.folder):
        try:
            result = score_folder(cell, normaliser=arguments.normaliser)
            if owns:
                result = add(result, cell, owns, arguments.normaliser)
            results[cell] = result | {"metrics": with_wer(result["metrics"])}
        except UserError as error:  # one damaged log does not keep the others from their numbers
            refused.append(error)
    if arguments.json is not None:
        runs = []
        for each in read_results(arguments.folder) if results else ():
            runs.append(each.row())
            for metric in [one.metric for one in owns] if each.folder in results else ():
                name, result = metric.name, results[each.folder]
                runs[-1]["metrics"][name] = result["metrics"][name]
                runs[-1]["intervals"][name] = result["intervals"]["metrics"].get(name)
        give_json({"runs": runs}, arguments.json)
    if results and arguments.json != "-":
        if names:
            _print_results(results, names, sort or names[0], definitions)
        else:  # the table of `report`
            print_table(arguments.folder, wide=arguments.wide, sort=arguments.sort)
            _print_remarks(results)
    for reason in refused:
        print(f"error: {reason}", file=sys.stderr)
    return 2 if refused else 0


def _columns(text: str) -> tuple[list[str], list[Own]]:
    """Return the metrics that --metrics names, each once, and those of one's own among them."""
    names: list[str] = []
    owns = []
    for name in filter(None, map(str.strip, text.split(","))):
        if is_own(name):
            owns.append(own_metric(name, "--metrics"))
            names.append(owns[-1].metric.name)
        else:
            names += SETS.get(name) or [metric_named(name, "--metrics")]
    if len(set(each.metric.name for each in owns)) < len(owns):
        raise UserError(f"--metrics {text}: two functions have one name; rename one")
    return list(dict.fromkeys(names)), owns


def _print_results(
    results: Mapping[Path, dict[str, Any]],
    names: Sequence[str],
    sort: str,
    definitions: Mapping[str, Metric],
) -> None:
    """Print a table of these metrics, a row for each cell, the best by the metric `sort` on top.

    definitions: of all of them, by name.
    """
    sign = -1 if definitions[sort].better == "higher" else 1
    names = [*names, *({sort} - set(names))]

    def rank(folder: Path) -> tuple[bool, float]:
        value = results[folder]["metrics"][sort]
        return value is None, sign * (value or 0)

    rows = [["cell", "n", *(_header(definitions[name]) for name in names)]]
    short = short_names(list(map(str, results)))
    for folder in sorted(results, key=rank):
        values = [_with_interval(results[folder], name) for name in names]
        rows.append([short[str(folder)], str(results[folder]["n_utterances"]), *values])
    if len(names) > 8 and len(results) <= 4:  # too wide for a screen: a row for each metric
        rows = [list(column) for column in zip(*rows, strict=True)]
    show_table(rows[0], rows[1:])
    directions = {definitions[name].better for name in names} - {None}
    if len(directions) == 1:
        print(f"{directions.pop()} is better; score --list describes each")
    elif directions:
        higher = [name for name in names if definitions[name].better == "higher"]
        print(
            wrapped(f"lower is better, except for {', '.join(higher)}; score --list describes each")
        )
    _print_remarks(results)


def _print_remarks(results: Mapping[Path, dict[str, Any]]) -> None:
    """Print what the intervals were drawn over, and how many recordings failed or got no word."""
    for drawn in dict.fromkeys(drawn_over(result) for result in results.values()):
        print(f"intervals: 95 %, over {drawn}")
    short = short_names(list(map(str, results)))
    for folder, result in results.items():
        counts = result["n_failed"], result["n_silent"], result["n_utterances"]
        for remark in lost(short[str(folder)], *counts):
            print(remark)


def _with_interval(result: Mapping[str, Any], name: str) -> str:
    """Return a metric of a run and, on a second line, its 95 % interval if it has one."""
    value = _number(result["metrics"][name])
    bounds = result["intervals"]["metrics"].get(name)
    return f"{value}\n{_number(bounds[0])}–{_number(bounds[1])}" if bounds else value


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


def _header(metric: Metric) -> str:
    words = metric.name.replace("_", " ")  # a heading breaks between words
    return f"{words}\n{metric.unit}" if metric.unit else words


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1 else f"{value:.2f}"
