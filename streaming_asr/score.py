"""Turn event logs into metrics; needs neither the model nor the audio.

    python -m streaming_asr.score outputs/default

A log can be scored again whenever a metric changes: the run is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events import is_set_aside, read_log
from streaming_asr.metrics import METRICS, METRICS_VERSION, compute, trace, utterance_line
from streaming_asr.text import normaliser

SCHEMA = 1  # of metrics.json
EVENTS, RESULT, UTTERANCES = "events.jsonl", "metrics.json", "utterances.jsonl"
# Columns of the table, where no others are asked for: accuracy, latency, cost, stability.
HEADLINE = (
    "wer",
    "arwer_grid_ca",
    "word_latency_committed_p50_ca_s",
    "word_latency_committed_p90_ca_s",
    "word_latency_coverage",
    "rtf_total",
    "normalised_erasure",
)

HELP_EPILOG = """\
what it reads and writes
  FOLDER is one cell of results, or any folder above: every events.jsonl below it is scored.
  Beside each it writes metrics.json (all metrics) and utterances.jsonl (one line each), whole or
  not at all. A run that was killed is scored on the utterances it finished.

clocks
  _cu  a step happens when its audio has arrived
  _ca  a step happens when its computation is done: what a listener sees

examples
  python -m streaming_asr.score outputs/default
  python -m streaming_asr.score outputs/default --metrics wer,al_ca_ms,rtf_chunk
  python -m streaming_asr.score outputs/default --all
  python -m streaming_asr.score --list            what each metric means
"""


def score_folder(
    folder: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    hashes: Mapping[str, Any] | None = None,
    experiment: str | None = None,
    cell: str | None = None,
) -> dict[str, Any]:
    """Score folder/events.jsonl, write metrics.json and utterances.jsonl beside it, return the
    content of metrics.json.

    What is not given is taken from the log's header (`config`), from an earlier metrics.json
    (`hashes`, `experiment`, `cell`), else from the folder's name. Raises UserError where the log is
    missing or damaged or the folder cannot be written.
    """
    folder = Path(folder)
    log = read_log(folder / EVENTS)
    earlier = _read_result(folder)
    traces = [trace(utterance) for utterance in log.utterances]
    normalisers = [normaliser(language) for language in sorted({t.language or "" for t in traces})]
    place = folder.resolve()
    result = {
        "schema": SCHEMA,
        "metrics_version": METRICS_VERSION,
        "experiment": experiment or earlier.get("experiment") or place.parent.name,
        "cell": cell or earlier.get("cell") or place.name,
        "config": dict(config if config is not None else log.header.get("config") or {}),
        "hashes": dict(hashes if hashes is not None else earlier.get("hashes") or {}),
        "versions": log.header.get("versions") or {},
        "machine": log.header.get("machine") or {},
        "normaliser": sorted({f"{each.name} {each.version}" for each in normalisers}),
        "n_utterances": len(traces),
        "n_failed": sum(t.error is not None for t in traces),
        # Lagging (AL, LAAL, DAL, AP) is a mean over the others, as in SimulEval.
        "n_silent": sum(not t.hypothesis for t in traces),
        "failed": [{"utt": t.utt, "error": t.error} for t in traces if t.error is not None],
        "metrics": compute(traces),
    }
    lines = "".join(_json(utterance_line(t)) + "\n" for t in traces)
    _write(folder / UTTERANCES, lines)
    _write(folder / RESULT, _json(result, indent=1) + "\n")
    return result


def find_cells(root: str | Path) -> list[Path]:
    """Every folder at or below `root` that holds an events.jsonl, those set aside left out.

    Raises UserError for none."""
    root = Path(root)
    if not root.is_dir():
        raise UserError(
            f"{root}: no such folder; give a folder of results, such as outputs/default"
        )
    cells = sorted(
        path.parent for path in root.rglob(EVENTS) if not is_set_aside(path.relative_to(root))
    )
    if not cells:
        raise UserError(
            f"{root}: holds no {EVENTS}; give a folder that `python -m streaming_asr.run` wrote"
        )
    return cells


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m streaming_asr.score",
        description="Compute every metric from the event logs of a folder of results.",
        epilog=HELP_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", help="a cell of results or a folder of cells")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--metrics", metavar="NAMES", help="columns of the table, comma-separated")
    shown.add_argument("--all", action="store_true", help="show every metric")
    shown.add_argument("--list", action="store_true", help="list the metrics and stop")
    arguments = parser.parse_args(argv)
    try:
        if arguments.list:
            _print_definitions()
            return 0
        if arguments.folder is None:
            raise UserError("no folder given; give a folder of results, such as outputs/default")
        names = tuple(METRICS) if arguments.all else _names(arguments.metrics)
        _print_results([score_folder(cell) for cell in find_cells(arguments.folder)], names)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return HEADLINE
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in METRICS:
            import difflib

            near = difflib.get_close_matches(name, METRICS, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "--list shows them all"
            raise UserError(f"{name}: no such metric; {hint}")
    return names


def _print_results(results: Iterable[dict[str, Any]], names: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    results = list(results)
    console = Console()
    table = Table()
    if len(names) > len(HEADLINE) and len(results) <= 4:  # too wide: one metric per row
        table.add_column("metric")
        for result in results:
            table.add_column(_title(result), justify="right")
        for name in names:
            table.add_row(name, *(_number(result["metrics"][name]) for result in results))
    else:
        table.add_column("cell")
        table.add_column("n", justify="right")
        for name in names:
            table.add_column(_header(name), justify="right")
        for result in results:
            values = (_number(result["metrics"][name]) for name in names)
            table.add_row(_title(result), str(result["n_utterances"]), *values)
    console.print(table)
    for result in results:
        if result["n_failed"] or result["n_silent"]:
            console.print(
                f"{_title(result)}: {result['n_failed']} failed, {result['n_silent']} silent of "
                f"{result['n_utterances']}; they count in WER with an empty hypothesis"
            )


def _print_definitions() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title in ("metric", "unit", "better", "definition", "source"):
        table.add_column(title, overflow="fold")
    for metric in METRICS.values():
        table.add_row(
            metric.name, metric.unit, metric.better or "", metric.definition, metric.source
        )
    Console().print(table)


def _title(result: Mapping[str, Any]) -> str:
    return f"{result['experiment']}/{result['cell']}"


def _header(name: str) -> str:
    unit = METRICS[name].unit
    return f"{name}\n[{unit}]".replace("[", r"\[") if unit else name


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return (
        str(value)
        if isinstance(value, int)
        else f"{value:.4g}"
        if abs(value) < 1
        else f"{value:.2f}"
    )


def _read_result(folder: Path) -> dict[str, Any]:
    try:
        earlier = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return earlier if isinstance(earlier, dict) else {}


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)


def _write(path: Path, text: str) -> None:
    """All of `text` or nothing: a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); make room or change its permissions"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
