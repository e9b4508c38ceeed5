"""score retime: the same run with other compute times, so on another machine.

With the feed `fixed` the text does not depend on how long computing took. So both clocks can be
computed again with compute times a factor higher or lower, as on a slower or faster machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import Log, read_log
from streaming_asr.files import give_json
from streaming_asr.metrics import METRICS, Trace, compute, queued, traces
from streaming_asr.metrics.clocks import QUEUE_BUDGET_S, headroom, queue_growth, queue_wait
from streaming_asr.metrics.table import CA, STEPS, known_of
from streaming_asr.metrics.trace import arrays
from streaming_asr.score import streams
from streaming_asr.score.folder import EVENTS, one_cell
from streaming_asr.score.results import BUSY, is_busy
from streaming_asr.terminal import add_json, command_parser, format_number, show_table, wrapped

SHOWN = (
    "arwer_grid_ca",
    "word_latency_committed_p50_ca_s",
    "word_latency_committed_p90_ca_s",
    "word_latency_queue_mean_ca_s",
    "word_latency_compute_mean_ca_s",
    "finalise_tail_s",
    "rtf_total",
    "step_p90_ms",
    "queue_max_s",
    "queue_growth",
    "headroom",
    "turns_cut_off",
    "turns_missed",
    "turn_end_delay_p50_ca_s",
    "turn_end_delay_p90_ca_s",
)
EPILOG = """\
columns
  measured   FOLDER as it ran
  retimed    all compute times --slowdown
  headroom is how many times slower still the machine may be with every queue bounded

example
  streaming-asr score retime outputs/default/CELL --slowdown 2
"""


@dataclass(frozen=True)
class Retimed:
    """Metrics by name, as measured and retimed."""

    slowdown: float
    measured: Mapping[str, float | None]
    retimed: Mapping[str, float | None]
    notes: list[str]  # what decides where the machine does not keep up, and a busy machine


def main(argv: Sequence[str]) -> int:
    """Run the command line. Raises UserError for logs that cannot be retimed."""
    about = "Both clocks again, from other compute times."
    parser = command_parser("streaming-asr score retime", about, EPILOG)
    parser.add_argument("folder", help="the cell to retime")
    parser.add_argument("--slowdown", type=float, default=1.0, help="times all compute")
    add_json(parser)
    arguments = parser.parse_args(argv)
    retimed = retime(arguments.folder, slowdown=arguments.slowdown)
    if arguments.json is not None:
        give_json(asdict(retimed), arguments.json)
    if arguments.json != "-":
        _print(retimed)
    return 0


def recordings_of(folder: str | Path) -> list[streams.RecordingSteps]:
    """Return the recordings of one cell. Raises UserError as `retime` does."""
    return streams.recordings(own_times(Path(folder))[0])


def retime(folder: str | Path, *, slowdown: float = 1.0) -> Retimed:
    """Return the metrics of the cell in `folder` with all compute times `slowdown`.

    Raises UserError if streams shared their steps (the time of a step is then not of one stream),
    if the text depended on the time (feed best_effort), and if a log was imported from a file
    without the time of every step.
    """
    check_range(0, 1e9, above=True, slowdown=slowdown)
    log, names = own_times(Path(folder))
    unmeasured = dict.fromkeys(names)
    measured = traces(log)
    slower = [_slowed(trace, slowdown) for trace in measured]
    figures, retimed = compute(measured), compute(slower)
    notes = _not_keeping_up(slower, retimed["headroom"])
    if is_busy(log.header.get("config") or {}, figures):
        notes.append(BUSY)
    return Retimed(slowdown, figures | unmeasured, retimed | unmeasured, notes)


def _not_keeping_up(traces: Sequence[Trace], room: float | None) -> list[str]:
    """Return why a machine with less than 1 of headroom does not keep up: the recording whose queue
    decides; [] for another machine."""
    if room is None or room >= 1:
        return []
    utts_of = {trace.utt: arrays(trace.steps) for trace in traces if trace.steps}
    worst = min(utts_of, key=lambda utt: headroom([utts_of[utt]]))
    wait_s, growth = queue_wait(*utts_of[worst]).max(), queue_growth(*utts_of[worst])
    return [
        f"this machine does not keep up: it would have to be {1 / room:.1f} times faster. "
        f"{worst} decides: its audio waits up to {wait_s:.1f} s, of {QUEUE_BUDGET_S:g} s that are "
        f"allowed, and the wait grows by {growth:.2f} s a second"
    ]


def own_times(folder: Path) -> tuple[Log, list[str]]:
    """Return the log of a cell, in which each step has a compute time of its own, and the metrics
    that the log of another tool does not measure. Raises UserError as `retime` does."""
    cell = one_cell(folder)
    log = read_log(cell / EVENTS)
    for utterance in log.utterances:
        if utterance.feed != "fixed":
            raise UserError(
                f"{cell}: fed {utterance.feed}, so its text depends on the time computing took; "
                "only runs with feed=fixed can be replayed or retimed"
            )
        if utterance.batch > 1:
            raise UserError(
                f"{cell}: ran {utterance.batch} streams together, so no step's time is its own; "
                "run it again with batch=1"
            )
    if missing := {CA, STEPS} - known_of(log.header):
        raise UserError(
            f"{cell}: imported from a file without {' and '.join(sorted(missing))}, so no step's "
            "time is known; only a log of every step and its compute can be replayed or retimed"
        )
    unmeasured = [name for name in log.header.get("unmeasured") or () if name in METRICS]
    return log, unmeasured


def _slowed(trace: Trace, slowdown: float) -> Trace:
    """Return the trace with all compute times `slowdown`, and with the queue computed again."""
    steps = [replace(step, compute_s=step.compute_s * slowdown) for step in trace.steps]
    return replace(trace, steps=queued(steps))


def _print(retimed: Retimed) -> None:
    """Print a row for each metric of SHOWN: measured and retimed."""
    heads = ["metric", "measured", f"retimed x {retimed.slowdown:g}"]
    both = (retimed.measured, retimed.retimed)
    show_table(heads, [[name, *(format_number(each[name]) for each in both)] for name in SHOWN])
    for note in retimed.notes:
        print(wrapped(note))
