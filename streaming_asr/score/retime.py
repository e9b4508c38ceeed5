"""score retime: the same run with other compute times, so on another machine.

With the feed `fixed` the text does not depend on how long computing took. So both clocks can be
had again from any compute trace: from several runs of one cell, their per-step median, and that
times a factor for a slower or faster machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import Log, UtteranceLog, read_log
from streaming_asr.files import give_json
from streaming_asr.metrics import METRICS, Trace, compute, queued
from streaming_asr.metrics import traces as traces_of
from streaming_asr.metrics.clocks import (
    QUEUE_BUDGET_S,
    Times,
    compute_times,
    headroom,
    median_trace,
    queue_growth,
    queue_wait,
)
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
  retimed    the per-step median of all traces, times --slowdown
  traces     the lowest and highest of the single traces, times --slowdown
  headroom is how many times slower still the machine may be with every queue bounded

examples
  streaming-asr score retime outputs/default/CELL --slowdown 2
  streaming-asr score retime outputs/a/CELL --traces outputs/b/CELL outputs/c/CELL
"""


@dataclass(frozen=True)
class Retimed:
    """Metrics by name: as measured, retimed, and of each single trace, scaled alike."""

    n_traces: int
    slowdown: float
    measured: Mapping[str, float | None]
    retimed: Mapping[str, float | None]
    traces: list[Mapping[str, float | None]]
    notes: list[str]  # what decides where the machine does not keep up, and a busy machine

    def range(self, name: str) -> tuple[float, float] | None:
        """Return the lowest and highest over the traces; None where one of them has no value."""
        values = [each[name] for each in self.traces]
        numbers = [value for value in values if value is not None]
        return (min(numbers), max(numbers)) if numbers and len(numbers) == len(values) else None


def main(argv: Sequence[str]) -> int:
    """Run the command line. Raises UserError for logs that cannot be retimed."""
    about = "Both clocks again, from other compute times."
    parser = command_parser("streaming-asr score retime", about, EPILOG)
    parser.add_argument("folder", help="the cell to retime")
    parser.add_argument("--slowdown", type=float, default=1.0, help="times all compute")
    parser.add_argument("--traces", nargs="+", default=[], help="further runs of the same cell")
    add_json(parser)
    arguments = parser.parse_args(argv)
    retimed = retime(arguments.folder, arguments.traces, slowdown=arguments.slowdown)
    if arguments.json is not None:
        give_json(asdict(retimed), arguments.json)
    if arguments.json != "-":
        _print(retimed)
    return 0


def recordings_of(folder: str | Path) -> list[streams.RecordingSteps]:
    """Return the recordings of one cell. Raises UserError as `retime` does."""
    return streams.recordings(own_times(Path(folder))[0])


def retime(
    folder: str | Path, traces: Sequence[str | Path] = (), *, slowdown: float = 1.0
) -> Retimed:
    """Return the metrics of one cell with the compute times of several runs of it.

    folder: the cell. traces: folders of further runs of the same cell. slowdown: a factor on all
    compute times. Raises UserError if the runs do not have the same steps, if streams shared their
    steps (the time of a step is then not of one stream), if the text depended on the time (feed
    best_effort), and if a log was imported from a file without the time of every step.
    """
    check_range(0, 1e9, above=True, slowdown=slowdown)
    logs_and_gaps = [own_times(Path(path)) for path in (folder, *traces)]
    runs = [{each.utt: each for each in log.utterances} for log, _ in logs_and_gaps]
    # None for every metric that one of the logs does not measure.
    unmeasured = dict.fromkeys(name for _, names in logs_and_gaps for name in names)
    for path, run in zip(traces, runs[1:], strict=True):
        _check_same_steps(runs[0], run, Path(folder), Path(path))
    measured = traces_of(logs_and_gaps[0][0])
    # Compute times of the steps, by run and utterance; the median is over the runs.
    times = [[compute_times(run[trace.utt].steps) for trace in measured] for run in runs]
    medians = [median_trace(of_runs) for of_runs in zip(*times, strict=True)]
    slower = _with_times(measured, medians, slowdown)
    figures, retimed = compute(measured), compute(slower)
    notes = _not_keeping_up(slower, retimed["headroom"])
    if is_busy(logs_and_gaps[0][0].header.get("config") or {}, figures):
        notes.append(BUSY)
    return Retimed(
        n_traces=len(runs),
        slowdown=slowdown,
        measured=figures | unmeasured,
        retimed=retimed | unmeasured,
        notes=notes,
        traces=[compute(_with_times(measured, of_run, slowdown)) | unmeasured for of_run in times],
    )


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


def _check_same_steps(
    run: dict[str, UtteranceLog], other_run: dict[str, UtteranceLog], folder: Path, other: Path
) -> None:
    """Raise UserError unless two runs have the same utterances and the same steps in each: with
    another text a step does other work, so its time does not apply.

    run, other_run: logs by utterance, from `folder` and `other`.
    """
    if run.keys() != other_run.keys():
        raise UserError(
            f"{other}: of other utterances than {folder} ({len(other_run)} and {len(run)}); a "
            "trace is another run of the same cell"
        )
    for utt, utterance in run.items():
        for what in ("audio_samples", "committed", "partial"):
            values = [getattr(step, what) for step in utterance.steps]
            if values != [getattr(step, what) for step in other_run[utt].steps]:
                raise UserError(
                    f"{other}: another {what} than {folder} in utterance {utt}; a trace is another "
                    "run of the same cell, with the same text"
                )


def _with_times(traces: Sequence[Trace], times: Sequence[Times], slowdown: float) -> list[Trace]:
    """Return the traces with other compute times of their steps, times `slowdown`, and with the
    queue computed again.

    times: of each trace, the seconds of each step, (n_steps,).
    """
    retimed = []
    for trace, compute_s in zip(traces, times, strict=True):
        steps = [
            replace(step, compute_s=float(step_s) * slowdown)
            for step, step_s in zip(trace.steps, compute_s, strict=False)
        ]
        retimed.append(replace(trace, steps=queued(steps)))
    return retimed


def _print(retimed: Retimed) -> None:
    """Print a row for each metric of SHOWN: measured, retimed and, of several traces, the range."""
    heads = ["metric", "measured", f"retimed x {retimed.slowdown:g}"]
    if retimed.n_traces > 1:
        heads.append(f"{retimed.n_traces} traces")
    rows = []
    for name in SHOWN:
        row = [name, format_number(retimed.measured[name]), format_number(retimed.retimed[name])]
        if retimed.n_traces > 1:
            span = retimed.range(name)
            row.append("–" if span is None else f"{span[0]:.3f} to {span[1]:.3f}")
        rows.append(row)
    show_table(heads, rows)
    for note in retimed.notes:
        print(wrapped(note))
