"""A folder of results -> cells: what ran, its numbers, and what speaks against comparing them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming_asr.cells import folder as folders
from streaming_asr.cells.pieces import unfinished
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.files import check_name, json_of
from streaming_asr.metrics.table import with_wer
from streaming_asr.models.native import KINDS, of_type, type_of
from streaming_asr.score.document import document_of, lines_of, saved_config
from streaming_asr.score.judge import Figure, lacking
from streaming_asr.score.sample import DRAWN

BATCH = "batch: its text is offline's everywhere, and it commits nothing before the end"
BUSY = (
    "this machine was busy: steps took over 1.5 times their CPU time, so latency with compute and "
    "RTF are too high; run again when it is quiet"
)
BUSY_RATIO = 1.5
LITTLE_MIN = 600.0  # minutes of training, of which the authors' networks had days
# What lies next to a metrics.json of this program.
OURS = (folders.EVENTS, folders.UTTERANCES, folders.FAILED, folders.SAVED, folders.PIECES)
TEXT_OF = ", of the text of "  # in the source of word times: those of a run's text
SCHEMA = 1  # of metrics.json; another one is shown as a row without numbers

# Overrides that have a column of their own; the others of a cell's name are its variant.
_COLUMNS = frozenset(
    {"method", "chunk", "data", "data.ids", "data.split", "data.snr_db", "data.noise"}
)
# Overrides that name which recordings, where and on what: notes tell where runs differ in them.
_SETTING = frozenset(
    {"limit", "data.path", "data.name", "data.align", "data.alignments", "device", "threads"}
)
_SHARED = frozenset({"model", "model.path", "language"})  # named only where runs differ in them


@dataclass(frozen=True)
class Result:
    """One run of one method over one corpus, or what is left of it.

    chunk_s: seconds, None where unknown. metrics: empty when `error` has the cause.
    notes: what a reader must know before comparing this row with the others.
    is_odd: scored or measured unlike the others of its data, so neither best nor on a front.
    """

    folder: Path
    name: str
    method: str
    variant: str
    chunk_s: float | None
    split: str
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None
    notes: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)  # metrics.json as it is
    is_odd: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)  # what was to run, failed or not

    @property
    def label(self) -> str:
        """The method and its variant, as tables call it."""
        return f"{self.method} {self.variant}".strip()

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals by metric; none of results scored before there were any."""
        pairs = (self.document.get("intervals") or {}).get("metrics") or {}
        return {name: (low_high[0], low_high[1]) for name, low_high in pairs.items() if low_high}

    def figure(self, metric: str) -> Figure:
        """Return a metric with its interval, to be judged (`score.judge`)."""
        value, bounds = self.metrics.get(metric), self.intervals.get(metric)
        if bounds or metric not in DRAWN:
            return Figure(value, *(bounds or ()))
        n = (self.document.get("intervals") or {}).get("n_drawn") or 0
        return Figure(value, lacking=lacking(n, drawn_over(self.document) or "nothing drawn"))

    def or_last(self, metric: str) -> float:
        """Return a metric to sort by: infinite where the run has none."""
        value = self.metrics.get(metric)
        return math.inf if value is None else value

    @property
    def model(self) -> str:
        """The name of the Whisper it ran on, "" where unknown."""
        return str((self.config.get("model") or {}).get("name") or "")

    @property
    def aligner(self) -> str:
        """What timed the words: an aligner, as whisper-tiny.en, or the name of a folder of
        alignments; "" where the corpus has times of its own, or none."""
        data = self.config.get("data")
        if not isinstance(data, Mapping):
            return ""
        if data.get("alignments"):
            folder = Path(str(data["alignments"]))
            # `align` writes <aligner>-<model>/<corpus>-<split>.
            is_ours = folder.parent.name.startswith(("ctc-", "mfa-", "whisper-"))
            return folder.parent.name if is_ours else folder.name
        return next(iter(str(data.get("word_times") or "").split()), "")

    @property
    def words_from(self) -> str | None:
        """The name of the run whose text was aligned, where there is no reference."""
        data = self.config.get("data")
        source = str(data.get("word_times") or "") if isinstance(data, Mapping) else ""
        _, mark, name = source.partition(TEXT_OF)
        return name.partition(": ")[0] if mark else None

    @property
    def is_labelled(self) -> bool:
        """Whether there is a reference to count errors against, or no result to tell."""
        return not self.metrics or "wer" not in self.metrics or self.metrics["wer"] is not None

    def row(self) -> dict[str, Any]:
        """Return what the page and --json have of the run, as JSON can hold it."""
        return {
            "name": self.name,
            "method": self.method,
            "variant": self.variant,
            "label": self.label,
            "chunk_s": self.chunk_s,
            "chunk": self.chunk,
            "split": self.split,
            "model": self.model,
            "error": self.error,
            "notes": list(self.notes),
            "metrics": dict(self.metrics),
            "intervals": self.intervals,
            "drawn": drawn_over(self.document),
        }

    @property
    def is_whole(self) -> bool:
        """Whether the method waits for the whole recording."""
        return is_whole(self.method)

    @property
    def series(self) -> str:
        """What all chunks of a method share, as one line of a panel of W&B."""
        model = "" if "model=" in self.variant else self.model
        return ", ".join(filter(None, (self.label, model, self.split)))

    @property
    def chunk(self) -> str:
        """The chunk as it is shown; the offline pass waits for the whole recording."""
        if self.is_whole:
            return "whole"
        return "" if self.chunk_s is None else f"{self.chunk_s * 1000:g} ms"


def is_whole(method: str | None) -> bool:
    """Return whether a method waits for the whole recording, whatever the chunk."""
    return method == "offline"


def drawn_over(document: Mapping[str, Any]) -> str:
    """Return what the intervals of a metrics.json were drawn over, as `12 speakers`; "" without
    intervals."""
    intervals = document.get("intervals") or {}
    if "n_drawn" not in intervals:
        return ""
    note = f" ({intervals['note']})" if intervals.get("note") else ""
    return f"{intervals['n_drawn']} {intervals['drawn']}s{note}"


def lost(name: object, n_failed: int, n_silent: int, n: int) -> list[str]:
    """Return a remark on the utterances of run `name` that have no text: `n_failed` and `n_silent`
    of `n`; [] if all have one."""
    if not n_failed and not n_silent:
        return []
    return [
        f"{name}: {n_failed} failed, {n_silent} silent of {n}; they count in WER with an empty "
        "hypothesis"
    ]


def no_folder(root: Path) -> UserError:
    """Return the error for what is no folder of results: a file, or nothing."""
    kind = "is a file" if root.exists() else "no such folder"
    return UserError(f"{root}: {kind}; give a folder of results, as outputs/default")


def read_results(folder: Path | str) -> list[Result]:
    """Return all cells under `folder`, by method, variant, split and chunk.

    Raises UserError where there is no such folder or no result in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise no_folder(root)
    cells = {
        path.parent
        for name in (folders.RESULT, folders.FAILED)
        for path in root.rglob(name)
        if not folders.is_set_aside(path.relative_to(root)) and _is_ours(path.parent)
    }
    cells |= {
        path.parent
        for path in root.rglob(folders.PIECES)
        if path.is_dir()
        and unfinished(path.parent)
        and not folders.is_set_aside(path.relative_to(root))
    }
    if not cells and next(root.rglob(folders.EVENTS), None) is not None:
        so_far = f"or see what there is so far: streaming-asr score {root}"
        raise UserError(f"{root}: no run in it is finished; give its command again, {so_far}")
    if not cells:
        raise UserError(
            f"{root}: no metrics.json of this program in it or below; report shows finished runs, "
            "so run first: python -m streaming_asr.run method=whisperrt chunk=300ms"
        )
    for cell in cells:
        check_name(cell)
    # A setting of _SHARED with one value in all runs would only repeat itself in every label.
    settings = [set(folders.settings_of(cell.name).items()) for cell in cells]
    common = frozenset(dict(set.intersection(*settings))) & _SHARED
    # A cell at the default model has no model in its name. If other cells name theirs, its label
    # needs one too.
    keys = frozenset(key for of_cell in settings for key, _ in of_cell)
    in_labels = keys & {"model", "data"} - common
    results = [_read_result(cell, root, common, in_labels) for cell in cells]
    results.sort(
        key=lambda result: (
            result.method,
            result.variant,
            result.split,
            result.chunk_s or 0.0,
            result.name,
        )
    )
    return mark_batch(_with_notes(results))


def _is_ours(folder: Path) -> bool:
    """Return whether this program wrote the metrics.json of a folder; others write such files
    too."""
    has_our_file = any((folder / name).exists() for name in OURS)
    return has_our_file or "schema" in folders.result_of(folder)


def _read_result(
    folder: Path, root: Path, common: frozenset[str], in_labels: frozenset[str]
) -> Result:
    """Return the result of one cell below `root`, with the notes that concern only itself.

    common: settings that no label repeats, as all runs share them. in_labels: settings (model,
    data) that every label has, also where the cell's name leaves a default out.
    """
    name = folder.relative_to(root).as_posix() if folder != root else folder.name
    document, metrics, error = _document(folder)
    notes: list[str] = []
    failure = folders.failure(folder)
    if failure and error is None:
        notes.append(f"a later run failed: {failure}")
    config = document.get("config") or saved_config(folder)
    overrides = folders.settings_of(folder.name)
    for key in sorted(in_labels - overrides.keys()):
        chosen = config.get(key)
        if isinstance(chosen, dict) and isinstance(chosen.get("name"), str):
            overrides[key] = chosen["name"]
    method = overrides.get("method") or _method(config) or name
    if label := overrides.pop("method.label", None):  # of a server, instead of its address
        method = label
        overrides = {
            k: v for k, v in overrides.items() if k not in ("method.url", "method.protocol")
        }
    notes += _notes(document, config)
    notes += _doubts(method, config, metrics)
    return Result(
        folder=folder,
        name=name,
        method=method,
        variant=" ".join(
            f"{key.rpartition('.')[2]}={value}"
            for key, value in overrides.items()
            if key not in _COLUMNS | _SETTING | common
        ),
        chunk_s=_seconds(config.get("chunk", overrides.get("chunk"))),
        split=split_of(config, overrides),
        metrics=metrics,
        error=error,
        notes=tuple(notes),
        document=document,
        is_odd=bool(document.get("faults")),
        config=config,
    )


def _document(folder: Path) -> tuple[dict[str, Any], Mapping[str, float | None], str | None]:
    """Return the content of a cell's metrics.json, its metrics, and why there are none.

    Without metrics the error is why: the run failed or is not finished, or the file is unreadable,
    of an invalid log or of another schema.
    """
    path = folder / folders.RESULT
    if not path.is_file():
        reason = folders.failure(folder) or unfinished(folder)
        return {}, {}, reason or "metrics.json is no file; score again"
    try:
        document = document_of(path)
        metrics = with_wer({str(key): value for key, value in document["metrics"].items()})
    except (ValueError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"
        return {}, {}, f"metrics.json is unreadable ({text}); score again"
    if document.get("invalid"):
        return document, metrics, "invalid log: " + "; ".join(document["invalid"][:3])
    schema = document.get("schema")
    if schema != SCHEMA:
        reason = f"metrics.json has schema {schema}, this report reads {SCHEMA}; score again"
        return document, {}, reason
    return document, metrics, None


def _notes(document: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the notes on how a run was made and scored: failed utterances, its feed, its batch,
    warnings, and the unit where it is not the word."""
    notes = []
    if n_failed := document.get("n_failed"):
        notes.append(f"{n_failed} of {document.get('n_utterances')} utterances failed")
    feed = config.get("feed")
    if feed in ("best_effort", "realtime"):
        notes.append(f"feed {feed}: the text depends on the machine")
    if document.get("n_slipped"):
        notes.append(f"{document['n_slipped']} utterances were fed late: this machine was busy")
    if feed == "realtime_queue":
        n_streams = config.get("streams") or config.get("batch")
        notes.append(f"{n_streams} streams on one device, {config.get('batch')} in a step")
    elif (config.get("batch") or 1) != 1:
        notes.append(f"batch {config['batch']}: no latency")
    if config.get("imported") and document["metrics"].get("word_latency_coverage") is None:
        notes.append("no word times, so no latency of words")
    notes += [f"breaks the contract: it {text}" for text in document.get("faults") or ()]
    notes += [f"warning: {text}" for text in document.get("warnings") or ()]
    units = document.get("unit") or ["word"]
    if units != ["word"]:
        notes.append(f"unit: {' and '.join(units)}")
    return notes


# Settings with which a method is a baseline and nothing to report: (method, key, value): why.
_UNTRAINED = {
    ("hush_word", "padding", "zeros"): (
        "padding=zeros: the model was not trained on audio that ends this early, and may output "
        "words that nobody spoke; take padding=hush, or full, which it was trained on"
    ),
    ("whisperrt", "weights", None): (
        "weights=none: unless they are merged into the model, it was not trained to encode block "
        "by block; take weights=auto, or train them with streaming_asr.train"
    ),
}


def _doubts(method: str, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """Return why these numbers should not be reported as the method's, and the remedy."""
    settings, model = config.get("method") or {}, (config.get("model") or {}).get("name")
    weights = settings.get("weights")
    folder = Path(weights) if isinstance(weights, str) else None
    doubts = []
    if metrics:
        doubts = [
            f"warning: {why}"
            for (name, key, value), why in _UNTRAINED.items()
            if name == method and settings.get(key, "unknown") == value
        ]
        # Of the toy mini a short training is all there is.
        minutes = _minutes_trained(folder) if folder and model != "mini" else 0
        if 0 < minutes < LITTLE_MIN:
            doubts.append(
                f"its weights were trained for {minutes:.0f} minutes of one core: the row shows "
                "that little training, not what the method can reach"
            )
    kind = KINDS.get(str(model)) or (of_type(type_of(folder)) if folder else None)
    if kind is not None and kind.note is not None:
        doubts.append(kind.note)
    if is_busy(config, metrics):
        doubts.append(BUSY)
    wer = metrics.get("wer")
    if isinstance(wer, int | float) and wer > 100:
        doubts.append(
            f"warning: WER {wer:.4g} %, more errors than words: the model outputs words that "
            "nobody spoke, often repeatedly; look at the texts in the page, at model, language and "
            "sample rate, and at whether the weights fit the method"
        )
    return doubts


def is_busy(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> bool:
    """Return whether the steps of a run on the CPU waited for other programs."""
    wall, cpu = metrics.get("rtf_total"), metrics.get("rtf_cpu")
    is_on_cpu = config.get("device", "cpu") == "cpu"
    return bool(is_on_cpu and wall and cpu and wall > BUSY_RATIO * cpu)


def _minutes_trained(weights: Path) -> float:
    """Return the minutes of the training that made these weights; 0 where it is unknown."""
    reached = json_of(weights / "training.json").get("reached")
    reached = reached if isinstance(reached, Mapping) else {}
    minutes = [reached.get(key) for key in ("minutes", "encoder_minutes")]
    return sum(value for value in minutes if isinstance(value, int | float))


def _with_notes(results: list[Result]) -> list[Result]:
    """Return the results with notes on how they compare: a result that differs from most in
    something that a comparison needs equal is noted and odd; results that would be equal rows of
    the table get their folder's name as a note."""
    # The note, the value that must be equal, and whether only among results of one corpus.
    properties: tuple[tuple[str, Callable[[Result], Any], bool], ...] = (
        ("scored by metrics version", lambda r: r.document.get("metrics_version"), False),
        ("measured on another machine:", lambda r: _machine(r.document.get("machine")), False),
        ("measured with threads of torch:", _threads, False),  # not of a method without torch
        ("of other data:", _corpus, True),
        ("normalised by", lambda r: ", ".join(r.document.get("normaliser") or ()), True),
    )
    rows = [(result.label, result.split, result.chunk_s) for result in results]
    noted = []
    for result, row in zip(results, rows, strict=True):
        unlike = []
        for note, value_of, is_per_corpus in properties:
            # The majority is taken as right: no number tells which of two runs is the odd one.
            values = [
                value_of(other)
                for other in results
                if other.metrics and (other.split == result.split or not is_per_corpus)
            ]
            values = [value for value in values if value is not None]
            most_frequent = max(values, key=values.count, default=None)
            value = value_of(result)
            if result.metrics and value is not None and value != most_frequent:
                unlike.append(f"{note} {value}, most others {most_frequent}")
        notes = [*result.notes, *unlike]
        notes += [f"folder {result.name}"] if rows.count(row) > 1 else []
        is_odd = result.is_odd or bool(unlike)
        noted.append(replace(result, notes=tuple(notes), is_odd=is_odd))
    return noted


def _corpus(result: Result) -> str:
    """Return which utterances a cell has, as `60 utterances of version 1a2b3c`: the version is of
    its task, or of its corpus if it was scored before tasks had ids."""
    task = (result.document.get("task") or {}).get("id")
    data = task or (result.document.get("hashes") or {}).get("data")
    version = f" of version {str(data)[:6]}" if data else ""
    return f"{result.document.get('n_utterances')} utterances{version}"


def _machine(machine: Any) -> str:
    """Return the properties of a machine that change a timing. Others, as its free memory, would
    make one machine look like two."""
    if not isinstance(machine, Mapping):
        return str(machine)
    keys = [key for key in ("cpu", "gpu", "cores") if key in machine]
    return " ".join(str(machine[key]) for key in keys or sorted(machine))


def _threads(result: Result) -> int | None:
    machine = result.document.get("machine")
    return machine.get("threads") if isinstance(machine, Mapping) else None


def _method(config: Mapping[str, Any]) -> str | None:
    """Return `whisperrt` of streaming_asr.methods.whisperrt.WhisperRT."""
    target = str((config.get("method") or {}).get("_target_", "")).split(".")
    return target[target.index("methods") + 1] if "methods" in target[:-1] else None


def split_of(config: Mapping[str, Any], overrides: Mapping[str, str]) -> str:
    """Return the corpus, its split and the noise added to it, as `voices test babble 10 dB`; ""
    if the configuration has none."""
    data = config.get("data")
    data = data if isinstance(data, Mapping) else {}
    corpus = data.get("name") or str(data.get("_target_", "")).rpartition(".")[2].lower()
    split = data.get("split") or overrides.get("data.split")
    if isinstance(split, list):
        split = "+".join(map(str, split))
    if data.get("ids"):
        split = Path(str(data["ids"])).stem
    noise = Path(str(data["noise"])).name if data.get("noise") else ""
    snr_db = data.get("snr_db")
    level = f"{snr_db:g} dB" if isinstance(snr_db, int | float) else ""
    return " ".join(str(part) for part in (corpus, split, noise, level) if part)


def _seconds(chunk: Any) -> float | None:
    """Return a duration with a unit in seconds, as 0.3 of `300ms`; None for anything else, which
    the log of another tool may have."""
    match = re.fullmatch(r"(\d+\.?\d*)\s*(ms|s)", str(chunk).strip())
    return float(match[1]) / (1000 if match[2] == "ms" else 1) if match else None


# -- what streams in name only ----------------------------------------------------------------


def mark_batch(results: Sequence[Result]) -> list[Result]:
    """Return the results, with the note BATCH on each that streams in name only: every text equals
    that of an offline run of the same data, and no word is committed before the end."""
    offline = [result for result in results if result.is_whole and result.metrics]
    marked = []
    for result in results:
        if result.metrics and not result.is_whole:
            has_its_text = any(_has_same_texts(result, other) for other in offline)
            if has_its_text and _commits_only_at_the_end(result):
                result = replace(result, notes=(*result.notes, BATCH))
        marked.append(result)
    return marked


def _has_same_texts(result: Result, other: Result) -> bool:
    # Equal texts have equal error rates, which are read already.
    if (result.split, result.metrics.get("wer")) != (other.split, other.metrics.get("wer")):
        return False
    texts = {line.utt: line.hypothesis for line in lines_of(result.folder)}
    other_texts = {line.utt: line.hypothesis for line in lines_of(other.folder)}
    return texts == other_texts and any(texts.values())


def _commits_only_at_the_end(result: Result) -> bool:
    try:
        log = read_log(result.folder / folders.EVENTS)
    except UserError:  # without its log the result counts as streaming
        return False
    return not any(step.committed for each in log.utterances for step in each.steps[:-1])
