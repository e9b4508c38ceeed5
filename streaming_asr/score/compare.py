"""score compare: what one run has over another, with an interval over speakers.

Both runs must be of the same utterances; the draws are the same for both (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import short_names
from streaming_asr.errors import UserError
from streaming_asr.events.invariants import TOLERANCE
from streaming_asr.events.log import UtteranceLog, read_log
from streaming_asr.files import give_json
from streaming_asr.machine import one_collection
from streaming_asr.metrics import METRICS, compute, traces
from streaming_asr.metrics.intervals import (
    LEAST,
    LEVEL,
    N_RESAMPLES,
    Clusters,
    Estimate,
    holm,
)
from streaming_asr.score.columns import HEADLINE, column_of
from streaming_asr.score.folder import EVENTS, find_cells
from streaming_asr.score.judge import (
    Figure,
    Verdict,
    judge,
    lacking,
    parse_limits,
    with_unit,
)
from streaming_asr.score.results import lost
from streaming_asr.score.sample import LATENCY, RATES, Sample, difference
from streaming_asr.score.task import differing, task_of_log, title
from streaming_asr.terminal import add_json, command_parser, show_table
from streaming_asr.text.normalise import NORMALISERS

EPILOG = f"""\
how to read it
  difference  run minus baseline with its 95 % interval; below 0 the run is better
  differ      speakers, recordings or utterances in which the two differ; where fewer than
              {LEAST} do, chance explains any difference, and there is neither interval nor p
  p           that the truth is 0, two-sided, corrected by Holm for all runs of the table

examples
  streaming-asr score compare outputs/a/method=offline,... outputs/a/method=whisperrt,...
  streaming-asr score compare outputs/mini --against method=offline
      streaming minus offline, for each corpus of a sweep
  streaming-asr score compare outputs/mini --against method=reencode
      each run minus reencode at its own chunk
  streaming-asr score compare accepted outputs/today --worse wer=0.5
      a gate: status 1 where today is surely worse by more than half a point
"""


@dataclass(frozen=True)
class Run:
    """A cell as far as comparing needs it."""

    folder: Path
    name: str
    utterances: dict[str, UtteranceLog]  # without their steps
    sample: Sample
    n_failed: int
    n_silent: int
    cpu: str
    chunk: Any
    is_best_effort: bool
    task: dict[str, Any]  # see score/task.py
    n_expected: int  # recordings that the log's header promises
    metrics: Mapping[str, float | None]  # those of `--worse` that no draw gives


@dataclass(frozen=True)
class Comparison:
    """One run next to its baseline: differences by metric name."""

    run: Run
    baseline: Run
    clusters: Clusters
    differences: dict[str, Estimate | None]

    def figure(self, metric: str) -> Figure:
        """Return the difference in a metric, to be judged (`score.judge`)."""
        estimate = self.differences.get(metric)
        if estimate is None:
            return Figure(None)
        if estimate.low is not None:
            return Figure(estimate.value, estimate.low, estimate.high)
        n_differ = estimate.n_differ
        if n_differ is None or (n_differ == 0 and self.clusters.n >= LEAST):  # nothing to draw
            return Figure(estimate.value)
        kind = self.clusters.kind
        if self.clusters.n < LEAST:
            return Figure(estimate.value, lacking=lacking(self.clusters.n, str(self.clusters)))
        return Figure(estimate.value, lacking=lacking(n_differ, f"{n_differ} {kind}s differ"))


def main(argv: Sequence[str]) -> int:
    """Run the command line. Raises UserError for runs that cannot be compared."""
    about = "Differences of runs in WER and word latency, with intervals over speakers."
    parser = command_parser("streaming-asr score compare", about, EPILOG)
    parser.add_argument("runs", nargs="+", help="cells or folders of cells; the first is baseline")
    parser.add_argument(
        "--against",
        metavar="TEXT",
        help="the baseline of a run is the cell of its corpus whose name contains TEXT; of several "
        "the one of its chunk",
    )
    parser.add_argument("--clock", choices=("ca", "cu"), default="ca", help="of the latency")
    parser.add_argument("--normaliser", choices=NORMALISERS, help="of WER; default: each run's own")
    parser.add_argument(
        "--other-task",
        action="store_true",
        help="compare runs of the same utterances though their audio, references, word times or "
        "protocol differ",
    )
    parser.add_argument(
        "--worse",
        nargs="+",
        metavar="METRIC=VALUE",
        help="end with status 1 where a run's whole interval is worse than the baseline by more: "
        "wer=0.5 (points) final_after_p90=200ms",
    )
    add_json(parser)
    arguments = parser.parse_args(argv)
    margins = parse_limits(
        "--worse", arguments.worse or (), clock=arguments.clock, differences=True
    )
    runs = read_runs(
        arguments.runs,
        clock=arguments.clock,
        normaliser=arguments.normaliser,
        metrics=[margin.metric for margin in margins],
    )
    comparisons = compare(runs, against=arguments.against, other_task=arguments.other_task)
    rows = table(comparisons)
    short = short_names([run.name for each in comparisons for run in (each.run, each.baseline)])
    remarks = list(dict.fromkeys(text for each in comparisons for text in _remarks(each, short)))
    if arguments.json is not None:
        content = {"level": LEVEL, "n_draws": N_RESAMPLES, "rows": rows}
        give_json(content | {"remarks": remarks}, arguments.json)
    verdicts = [(each, judge(each.figure, margins, by_interval=True)) for each in comparisons]
    if arguments.json != "-":
        _print(comparisons, rows, short)
        print(*remarks, sep="\n")
        for comparison, of_run in verdicts:
            for verdict in of_run:
                print(f"{comparison.run.name}: {_sentence(verdict)}")
    return int(any(each.state != "within" for _, of_run in verdicts for each in of_run))


def _sentence(verdict: Verdict) -> str:
    """Return what the gate found of one margin."""
    margin, figure = verdict.limit, verdict.figure
    by_margin = f"by more than {with_unit(margin.metric, f'{margin.value:g}')}"
    if verdict.state == "unknown":
        return f"{margin.name}: cannot be judged: {verdict.reason}"
    surely = "" if figure.low is None else "surely "
    what = "WORSE" if verdict.state == "beyond" else f"not {surely}worse"
    return f"{margin.name}: {what} {by_margin}"


def read_runs(
    paths: Sequence[str],
    *,
    clock: str = "ca",
    normaliser: str | None = None,
    metrics: Sequence[str] = (),
) -> list[Run]:
    """Read every cell at or below each path, in order. Raises UserError for one cell twice.

    clock: `ca` or `cu`, of the latency. normaliser: of the WER; None for that of each run. metrics:
    to be compared in addition to WER and the latency.
    """
    folders = [folder for path in paths for folder in find_cells(path)]
    resolved: set[Path] = set()
    for folder in folders:
        if folder.resolve() in resolved:
            raise UserError(f"{folder}: given twice; a run is compared with another run")
        resolved.add(folder.resolve())
    names = [folder.resolve().name for folder in folders]
    return [
        _read(folder, str(folder) if names.count(name) > 1 else name, clock, normaliser, metrics)
        for folder, name in zip(folders, names, strict=True)
    ]


@one_collection()
def _read(
    folder: Path, name: str, clock: str, normaliser: str | None, metrics: Sequence[str]
) -> Run:
    """Return the run of one cell, called `name`. Raises UserError if no utterance is finished."""
    log = read_log(folder / EVENTS)
    if not log.utterances:
        raise UserError(f"{folder}: no utterance is finished; run it before comparing it")
    utterances = traces(log, normaliser)
    rates = {name: rate for name, rate in RATES.items() if name in metrics}
    sample = Sample.of(utterances, log=log, clock=clock, rates=rates)
    # An imported log names the metrics that its source does not give.
    unmeasured = log.header.get("unmeasured") or ()
    if any(metric.format(clock=clock) in unmeasured for metric in LATENCY.values()):
        sample = replace(sample, latencies=None)
    drawn = {"wer", *(each.format(clock=clock) for each in LATENCY.values()), *rates}
    others = [name for name in metrics if name not in drawn]
    computed = compute(utterances) | dict.fromkeys(unmeasured) if others else {}
    for utterance in log.utterances:  # the steps of a whole sweep take much memory
        utterance.steps = []
    return Run(
        folder=folder,
        name=name,
        utterances={utterance.utt: utterance for utterance in log.utterances},
        sample=sample,
        n_failed=sum(trace.error is not None for trace in utterances),
        n_silent=sum(not trace.hypothesis for trace in utterances),
        cpu=str((log.header.get("machine") or {}).get("cpu")),
        chunk=(log.header.get("config") or {}).get("chunk"),
        is_best_effort=any(utterance.feed != "fixed" for utterance in log.utterances),
        task=task_of_log(log, utterances),
        n_expected=number if isinstance(number := log.header.get("n_utterances"), int) else 0,
        metrics={name: computed[name] for name in others},
    )


def compare(
    runs: Sequence[Run], against: str | None = None, *, other_task: bool = False
) -> list[Comparison]:
    """Compare each run with its baseline: the first run, or with `against` the run of the same
    corpus whose folder's name contains that text. A run that is its own baseline is left out.

    Raises UserError for runs of different utterances, and for those of different tasks unless
    `other_task` allows it.
    """
    if against is None:
        baselines = [runs[0]] * len(runs)
    else:
        baselines = [_baseline(run, runs, against) for run in runs]
    pairs = [(run, base) for run, base in zip(runs, baselines, strict=True) if run is not base]
    if not pairs:
        raise UserError(
            f"{runs[0].folder}: nothing to compare it with; give two runs or more of one corpus"
        )
    return [_compare(run, base, other_task) for run, base in pairs]


def _baseline(run: Run, runs: Sequence[Run], against: str) -> Run:
    """Return the baseline of `run`: the one of `runs` whose name contains `against`, on the same
    utterances; of several the one at the same chunk. Raises UserError for none or several."""
    named = [each for each in runs if against in each.folder.resolve().name]
    if not named:
        raise UserError(
            f"--against {against}: no cell is named so; there are "
            f"{', '.join(each.name for each in runs[:8])}"
        )
    if run in named:  # a baseline is not compared with another baseline
        return run
    candidates = [each for each in named if each.utterances.keys() == run.utterances.keys()]
    if len(candidates) > 1:
        candidates = [each for each in candidates if each.chunk == run.chunk] or candidates
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UserError(
            f"{run.name}: no cell named {against} has its {len(run.utterances)} utterances; run "
            "the baseline on the same corpus with the same limit"
        )
    raise UserError(
        f"--against {against}: {' and '.join(each.name for each in candidates)} are both named "
        f"so and of the corpus of {run.name}; give more of the name"
    )


def _compare(run: Run, baseline: Run, other_task: bool) -> Comparison:
    check_same(run, baseline, other_task)
    ordered = run.sample.in_order_of(baseline.sample.utts)
    clusters = baseline.sample.clusters
    differences = difference(clusters, ordered, baseline.sample)
    for name, value in run.metrics.items():
        other = baseline.metrics[name]
        differences[name] = None if value is None or other is None else Estimate(value - other)
    return Comparison(run, baseline, clusters, differences)


def check_same(run: Run, baseline: Run, other_task: bool = False) -> None:
    """Raise UserError for runs of different utterances, and of different tasks unless allowed."""
    ours, theirs = run.utterances, baseline.utterances
    if ours.keys() != theirs.keys():
        common = len(ours.keys() & theirs.keys())
        raise UserError(
            f"{run.name} and {baseline.name} are of different utterances: {len(ours)} and "
            f"{len(theirs)}, of which both have {common}; run both on the same corpus, split and "
            "limit, or finish the run that was broken off"
        )
    if not other_task:
        _check_same_task(run, baseline)


def check_lengths(one: UtteranceLog, other: UtteranceLog, names: tuple[str, str]) -> None:
    """Raise UserError for logs of one recording that last for different times."""
    if abs(one.duration_samples - other.duration_samples) > TOLERANCE:
        raise UserError(
            f"{one.utt}: lasts {one.duration_s:g} s in the {names[0]} and "
            f"{other.duration_s:g} s in the {names[1]}; give logs of the same audio"
        )


def _check_same_task(run: Run, baseline: Run) -> None:
    """Raise UserError if an utterance has different audio or another reference in the two runs, or
    if they were scored in different ways."""
    for utt, utterance in run.utterances.items():
        other = baseline.utterances[utt]
        properties = {
            "reference": (utterance.text, other.text),
            "audio": (utterance.audio_hash, other.audio_hash),
            "speaker": (utterance.speaker, other.speaker),
        }
        for what, (value, other_value) in properties.items():
            # None: an imported log has no hash of the audio, and may name no speaker.
            if None not in (value, other_value) and value != other_value:
                raise UserError(
                    f"{run.name} and {baseline.name} have another {what} for utterance {utt}; they "
                    "are of different versions of a corpus: run one of them again, or compare them "
                    "all the same with --other-task"
                )
    if parts := differing(run.task, baseline.task):
        raise UserError(
            f"{run.name} and {baseline.name} are of different tasks, {title(run.task)} and "
            f"{title(baseline.task)}: they differ in {' and '.join(parts)}; score both alike, or "
            "compare them all the same with --other-task"
        )


def table(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return one row per metric and run; p-values are corrected within a metric."""
    names = [name for name in METRICS if any(name in each.differences for each in comparisons)]
    rows = []
    for name in names:
        estimates = [(each, each.differences.get(name)) for each in comparisons]
        adjusted = iter(holm([estimate.p_value for _, estimate in estimates if estimate]))
        for each, estimate in estimates:
            row: dict[str, Any] = {
                "metric": name,
                "run": each.run.name,
                "baseline": each.baseline.name,
                "drawn": str(each.clusters),
                "n_drawn": each.clusters.n,
            }
            if estimate is not None:
                row |= {
                    "difference": estimate.value,
                    "n_differ": estimate.n_differ,
                    "interval": None if estimate.low is None else [estimate.low, estimate.high],
                    "p_value": estimate.p_value,
                    "p_holm": next(adjusted),
                }
            rows.append(row)
    return rows


def _print(
    comparisons: Sequence[Comparison], rows: Sequence[dict[str, Any]], short: Mapping[str, str]
) -> None:
    """Print a table for each metric, and below them what they share.

    rows: of `table`. short: short names of the runs by name. A column names the baseline of each
    row if there is more than one.
    """
    baselines = {each.baseline.name for each in comparisons}
    has_several = len(baselines) > 1
    heads = ["run", "minus"] if has_several else ["run"]
    text_columns = range(len(heads))
    heads += ["difference", "95 % interval", "p (Holm)", "differ"]
    for name in dict.fromkeys(row["metric"] for row in rows):
        lines = []
        for row in rows:
            if row["metric"] == name:
                names = [short[row["run"]]]
                if has_several:
                    names.append(short[row["baseline"]])
                lines.append([*names, *_numbers_of(row)])
        column = column_of(name)
        title_of_metric = f"{name} ({METRICS[name].unit})"
        if column in HEADLINE:
            title_of_metric = f"{column.title} ({name})"
        show_table(heads, lines, text_columns=text_columns, title=title_of_metric)
    if not has_several:
        print(f"baseline: {short[baselines.pop()]}")
    for task in dict.fromkeys(title(each.run.task) for each in comparisons):
        print(f"task: {task}")
    for drawn in dict.fromkeys(str(each.clusters) for each in comparisons):
        print(f"drawn: {drawn}, {N_RESAMPLES} times, paired")
    if any(row.get("interval", ()) is None and row["n_differ"] is not None for row in rows):
        print(f"no interval, no p: fewer than {LEAST} differ, or all draws are equal")


def _numbers_of(row: Mapping[str, Any]) -> list[str]:
    """Return the difference, its interval, its p and how many differ, as texts of a table."""
    if "difference" not in row:
        return ["–", "–", "–", "–"]
    bounds, p_value = row["interval"], row["p_holm"]
    return [
        f"{row['difference']:+.3f}",
        "–" if bounds is None else f"{bounds[0]:+.3f} to {bounds[1]:+.3f}",
        "–" if p_value is None else f"{p_value:.4f}",
        "–" if row["n_differ"] is None else f"{row['n_differ']} of {row['n_drawn']}",
    ]


def _remarks(comparison: Comparison, short: Mapping[str, str]) -> list[str]:
    """Return what a reader must know before believing a difference: failed and silent utterances,
    missing latencies, different machines. short: short names of the runs by name."""
    remarks = []
    run, baseline = short[comparison.run.name], short[comparison.baseline.name]
    for each, name in ((comparison.baseline, baseline), (comparison.run, run)):
        if (n := len(each.utterances)) < each.n_expected:
            remarks.append(f"{name}: broken off after {n} of {each.n_expected} recordings")
        remarks += lost(name, each.n_failed, each.n_silent, n)
        if each.is_best_effort:
            remarks.append(f"{name}: no fixed feed, so its text depends on the machine")
        if each.sample.latencies is None:
            why = "batched, words without times, or a file that does not tell it"
            remarks.append(f"{name}: no latency ({why})")
        elif each.sample.coverage is not None:
            share = f"{100 * each.sample.coverage:.0f} %"
            remarks.append(f"{name}: latency of {share} of the spoken words, the right ones")
    if _speakers(comparison.run) != _speakers(comparison.baseline):
        remarks.append(f"{run} has other speakers than {baseline}, whose are drawn")
    if comparison.run.cpu != comparison.baseline.cpu:
        remarks.append(
            f"{run} was measured on another machine ({comparison.run.cpu}) than "
            f"{baseline} ({comparison.baseline.cpu}): latency is not comparable"
        )
    return remarks


def _speakers(run: Run) -> dict[str, str | None]:
    """Return the speaker of each utterance."""
    return {utt: utterance.speaker for utt, utterance in run.utterances.items()}
