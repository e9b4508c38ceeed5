"""score latencies: the runs of a folder under every published definition of latency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.cells.folder import EVENTS, short_names
from streaming_asr.events.log import read_log
from streaming_asr.files import give_json
from streaming_asr.metrics import compute, traces
from streaming_asr.metrics.published import DEFINITIONS, value
from streaming_asr.score.folder import find_cells
from streaming_asr.terminal import add_json, command_parser, format_number, show_table

# Those of metrics.json, in seconds or ms.
OURS = (
    "word_latency_shown_p50_ca_s",
    "word_latency_committed_p50_ca_s",
    *(f"{name}_{clock}_ms" for name in ("al", "laal", "yaal", "dal") for clock in ("ca", "cu")),
)


def main(argv: Sequence[str]) -> int:
    """Run the command line. Raises UserError for a folder without logs."""
    about = "Rank runs under every published definition of latency, each computed from the logs."
    parser = command_parser("streaming-asr score latencies", about)
    parser.add_argument("folder", help="a folder of cells")
    add_json(parser)
    arguments = parser.parse_args(argv)
    cells = find_cells(arguments.folder)
    names = short_names([str(cell) for cell in cells])
    table = {names[str(cell)]: _latencies(cell) for cell in cells}
    rows = []
    for name in next(iter(table.values())):
        values = [of_run[name] for of_run in table.values()]
        rows.append([name, *(_with_rank(each, values) for each in values)])
    if arguments.json is not None:
        definitions = {name: each._asdict() | {"of": ""} for name, each in DEFINITIONS.items()}
        give_json({"runs": table, "definitions": definitions}, arguments.json)
    if arguments.json != "-":
        numbers = [str(i) for i in range(1, len(table) + 1)]  # names would leave room for no figure
        for number, name in zip(numbers, table, strict=True):
            print(f"{number:>2}  {name}")
        show_table(["latency, s (rank)", *numbers], rows)
        for name, each in DEFINITIONS.items():
            print(f"{name}: {each.figure}; {each.formula} ({each.source})")
    return 0


def _latencies(cell: Path) -> dict[str, float | None]:
    """Return every latency of a cell in seconds, by name."""
    of_cell = traces(read_log(cell / EVENTS))
    metrics = compute(of_cell)
    ours: dict[str, float | None] = {}
    for name in OURS:
        unit_s = 0.001 if name.endswith("_ms") else 1.0
        latency = metrics[name]
        short = name.removesuffix("_ms").removesuffix("_s")  # all are in seconds here
        ours[short] = None if latency is None else latency * unit_s
    return {name: value(name, of_cell) for name in DEFINITIONS} | ours


def _with_rank(latency_s: float | None, values: Sequence[float | None]) -> str:
    """Return a latency with its rank among those of all runs, 1 for the lowest."""
    if latency_s is None:
        return "-"
    rank = 1 + sum(each is not None and each < latency_s for each in values)
    return f"{format_number(latency_s, 2)} ({rank})"
