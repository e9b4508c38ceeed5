"""One cell of results: its log in, metrics.json and utterances.jsonl out."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import (
    EVENTS,
    PIECES,
    RESULT,
    UTTERANCES,
    is_set_aside,
    result_of,
)
from streaming_asr.cells.pieces import join, number_of_pieces, unfinished
from streaming_asr.errors import UserError
from streaming_asr.events.check import N_LISTED, InvalidLog
from streaming_asr.events.invariants import broken
from streaming_asr.events.log import SLIP_S, EventWriter, Log, UtteranceLog, read_log
from streaming_asr.files import beside, write_text
from streaming_asr.metrics import METRICS, METRICS_VERSION, Trace, compute, traces, utterance_line
from streaming_asr.score.results import SCHEMA, no_folder
from streaming_asr.score.sample import Sample, intervals, shares
from streaming_asr.score.task import normalisers, task_of_log
from streaming_asr.text.languages import language_code
from streaming_asr.text.normalise import MARKED
from streaming_asr.text.scripts import mismatch


def score_folder(
    folder: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    hashes: Mapping[str, Any] | None = None,
    experiment: str | None = None,
    cell: str | None = None,
    normaliser: str | None = None,
) -> dict[str, Any]:
    """Score folder/events.jsonl, write metrics.json and utterances.jsonl beside it, return the
    content of metrics.json.

    What is not given is taken from the log's header (`config`), from an earlier metrics.json
    (`hashes`, `experiment`, `cell`), else from the folder's name. `normaliser` is by default that
    of the log's run. Raises UserError where the log is missing or the folder cannot be written, and
    InvalidLog for a log that must not be scored: then metrics.json says why and holds no number.
    """
    folder = Path(folder)
    earlier = result_of(folder)
    place = folder.resolve()
    names = {
        "schema": SCHEMA,
        "metrics_version": METRICS_VERSION,
        "experiment": experiment or earlier.get("experiment") or place.parent.name,
        "cell": cell or earlier.get("cell") or place.name,
    }
    try:
        log = read_log(folder / EVENTS)
    except InvalidLog as error:
        document = {
            "config": earlier.get("config") or {},
            "invalid": error.violations,
            "metrics": {},
        }
        write_text(folder / RESULT, _json({**names, **document}, indent=1) + "\n")
        (folder / UTTERANCES).unlink(missing_ok=True)
        raise
    seen = traces(log, normaliser)
    # What an imported log cannot tell: these stay null, whatever the formulas make of its gaps.
    unmeasured = frozenset(log.header.get("unmeasured") or ()) & METRICS.keys()
    result = {
        **names,
        "config": dict(config if config is not None else log.header.get("config") or {}),
        "task": task_of_log(log, seen),
        "hashes": dict(hashes if hashes is not None else earlier.get("hashes") or {}),
        "versions": log.header.get("versions") or {},
        "machine": log.header.get("machine") or {},
        "normaliser": normalisers(seen),
        "unit": sorted({trace.unit for trace in seen}),
        "warnings": [*_lacking(log), *(log.header.get("warnings") or ()), *language_warnings(seen)],
        "n_utterances": len(seen),
        "n_failed": sum(t.error is not None for t in seen),
        "n_slipped": sum((u.pacing_slip_s or 0.0) > SLIP_S for u in log.utterances),
        # Lagging (AL, LAAL, DAL, AP) is a mean over the others, as in SimulEval.
        "n_silent": sum(not t.hypothesis for t in seen),
        "failed": [{"utt": t.utt, "error": t.error} for t in seen if t.error is not None],
        "metrics": (metrics := compute(seen) | dict.fromkeys(unmeasured)),
        "intervals": _intervals(log, seen, metrics),
    }
    lines = "".join(_json(_line(t, unmeasured)) + "\n" for t in seen)
    write_text(folder / UTTERANCES, lines)
    write_text(folder / RESULT, _json(result, indent=1) + "\n")
    return result


def write_cell(
    folder: Path, header: Mapping[str, Any], utterances: Sequence[UtteranceLog], advice: str
) -> dict[str, Any]:
    """Write a log as the cell `folder` with its scores and return those, or write nothing.

    advice: what the error says first. Raises UserError where the log would be invalid, the folder
    exists or the disk is full.
    """
    if folder.exists():
        raise UserError(f"{folder}: is there already; remove it, or name another with --into")
    place = folder.resolve()
    listed = [f"{each.utt}: {text}" for each in utterances for _, text in broken(each)]
    try:
        if listed:
            raise InvalidLog(folder, listed)
        with beside(folder) as scratch:
            scratch.mkdir()
            with EventWriter(scratch / EVENTS, header) as writer:
                for utterance in utterances:
                    writer.write_utterance(utterance)
            return score_folder(scratch, experiment=place.parent.name, cell=place.name)
    except InvalidLog as error:
        listed = error.violations[:N_LISTED]
        raise UserError("\n  ".join([advice, *listed])) from error


def _intervals(log: Log, traces: Sequence[Trace], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the intervals of those metrics that the run has."""
    recordings = {utterance.utt: utterance.audio_path for utterance in log.utterances}
    drawn = intervals(Sample.of(traces, recordings=recordings), shares(traces))
    drawn["metrics"] = {
        name: each for name, each in drawn["metrics"].items() if metrics.get(name) is not None
    }
    return drawn


def _lacking(log: Log) -> list[str]:
    """Return how many recordings lack, where the log was cut short."""
    promised, n = log.header.get("n_utterances"), len(log.utterances)
    if not isinstance(promised, int) or n >= promised:
        return []
    return [f"the log has {n} of the {promised} recordings that its header promises"]


def language_warnings(traces: Sequence[Trace]) -> list[str]:
    """Return what is doubtful in how the normaliser, and the unit, fit the references."""
    texts: dict[str | None, list[str]] = {}
    dropped = set()
    for trace in traces:
        texts.setdefault(trace.language, []).append(trace.reference)
        if trace.normaliser == "whisper" and language_code(trace.language or "en") in MARKED:
            dropped.add(language_code(trace.language or "en"))
    warnings = [each for language in texts if (each := mismatch(language, texts[language]))]
    if dropped:
        warnings.append(
            f"normaliser whisper drops the vowel signs of {', '.join(sorted(dropped))}, so wrong "
            "words may count as right; score with --normaliser whisper_marks"
        )
    return warnings


def _line(utterance: Trace, unmeasured: Collection[str]) -> dict[str, Any]:
    line = utterance_line(utterance)
    for field, clock in (("latency", ""), ("latency_parts", "_mean_ca_s")):
        for name in line[field]:
            if f"word_latency_{name}{clock}" in unmeasured:
                line[field][name] = None
    if "rtf_total" in unmeasured:
        line["compute_s"] = None
    if "words_on_nonspeech_per_min" in unmeasured:
        line["ordinary"]["words_on_nonspeech"] = None
    return line


def find_cells(root: str | Path) -> list[Path]:
    """Return every folder at or below `root` that holds an events.jsonl, leaving out those set
    aside. Cells whose pieces are all finished are joined first.

    Raises UserError for none, and for pieces of different runs in one cell."""
    root = Path(root)
    if not root.is_dir():
        raise no_folder(root)
    split = sorted(path.parent for path in root.rglob(PIECES) if path.is_dir())
    lacking = [cell for cell in split if number_of_pieces(cell) and not join(cell)]
    cells = sorted(
        path.parent for path in root.rglob(EVENTS) if not is_set_aside(path.relative_to(root))
    )
    if not cells and lacking:
        raise UserError(f"{lacking[0]}: {unfinished(lacking[0])}")
    if not cells:
        raise UserError(
            f"{root}: holds no {EVENTS}; give a folder that `python -m streaming_asr.run` wrote"
        )
    return cells


def one_cell(place: str | Path) -> Path:
    """Return the cell that a folder or an events.jsonl names. Raises UserError for none and for
    several."""
    path = Path(place)
    cells = find_cells(path.parent if path.name == EVENTS else path)
    if len(cells) > 1:
        raise UserError(f"{place}: holds {len(cells)} cells; name one of them, as {cells[0]}")
    return cells[0]


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
