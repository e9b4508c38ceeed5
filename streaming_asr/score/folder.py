"""One cell of results: its log in, metrics.json and utterances.jsonl out."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
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
from streaming_asr.events.invariants import broken, contract_faults, too_early
from streaming_asr.events.log import SLIP_S, EventWriter, Log, UtteranceLog, read_log
from streaming_asr.files import replacing, write_text
from streaming_asr.machine import one_collection
from streaming_asr.metrics import METRICS, METRICS_VERSION, Trace, compute, traces, utterance_line
from streaming_asr.metrics.table import unmeasured
from streaming_asr.score.results import SCHEMA, no_folder
from streaming_asr.score.sample import RATES, Sample, intervals
from streaming_asr.score.task import normalisers, task_of_log
from streaming_asr.text.languages import language_code
from streaming_asr.text.normalise import MARKED
from streaming_asr.text.scripts import mismatch


@one_collection()
def score_folder(
    folder: str | Path,
    *,
    experiment: str | None = None,
    cell: str | None = None,
    normaliser: str | None = None,
) -> dict[str, Any]:
    """Score folder/events.jsonl, write metrics.json and utterances.jsonl next to it, and return the
    content of metrics.json.

    experiment, cell: default those of an earlier metrics.json, else the folders' names. normaliser:
    default that of the run. Raises UserError if the log is missing or the folder cannot be written,
    and InvalidLog for a log that breaks a rule; metrics.json then has the broken rules and no
    number.
    """
    folder = Path(folder)
    earlier = result_of(folder)
    absolute = folder.resolve()
    names = {
        "schema": SCHEMA,
        "metrics_version": METRICS_VERSION,
        "experiment": experiment or earlier.get("experiment") or absolute.parent.name,
        "cell": cell or earlier.get("cell") or absolute.name,
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
    utterances = traces(log, normaliser)
    # The source of an imported log does not give these. They stay null, though the formulas would
    # compute a number from the gaps of the log.
    unknown = frozenset(log.header.get("unmeasured") or ()) & METRICS.keys()
    if knows := log.header.get("knows"):  # also of metrics that are newer than the log
        unknown |= unmeasured(frozenset(knows)).keys()
    metrics = compute(utterances) | dict.fromkeys(unknown)
    drawn = intervals(Sample.of(utterances, log=log, rates=RATES))
    drawn["metrics"] = {
        name: bounds for name, bounds in drawn["metrics"].items() if metrics.get(name) is not None
    }
    failed = [{"utt": t.utt, "error": t.error} for t in utterances if t.error is not None]
    warnings = [*_lacking(log), *_joined(utterances), *(log.header.get("warnings") or ())]
    warnings += language_warnings(utterances)
    faults = []
    if not any(utterance.is_imported for utterance in log.utterances):
        faults = contract_faults(log.utterances)
        warnings += filter(None, [too_early(log.utterances)])
    result = {
        **names,
        "config": log.header.get("config") or {},
        "task": task_of_log(log, utterances),
        "hashes": log.header.get("hashes") or earlier.get("hashes") or {},
        "versions": log.header.get("versions") or {},
        "machine": log.header.get("machine") or {},
        "normaliser": normalisers(utterances),
        "unit": sorted({trace.unit for trace in utterances}),
        "warnings": warnings,
        "faults": faults,  # of the method's contract
        "n_utterances": len(utterances),
        "n_failed": len(failed),
        "n_slipped": sum((u.pacing_slip_s or 0.0) > SLIP_S for u in log.utterances),
        # Lagging (AL, LAAL, DAL, AP) is a mean over the others, as in SimulEval.
        "n_silent": sum(not trace.hypothesis for trace in utterances),
        "failed": failed,
        "metrics": metrics,
        "intervals": drawn,
    }
    lines = "".join(_json(_line(trace, unknown)) + "\n" for trace in utterances)
    write_text(folder / UTTERANCES, lines)
    write_text(folder / RESULT, _json(result, indent=1) + "\n")
    return result


def write_cell(
    folder: Path, header: Mapping[str, Any], utterances: Sequence[UtteranceLog], advice: str
) -> dict[str, Any]:
    """Write a log as the new cell `folder`, score it, and return the content of metrics.json.

    advice: the first line of the error for an invalid log. Raises UserError if the log is invalid,
    the folder exists or the disk is full; then no folder is left.
    """
    if folder.exists():
        raise UserError(f"{folder}: is there already; remove it, or name another with --into")
    absolute = folder.resolve()
    violations = [f"{each.utt}: {text}" for each in utterances for _, text in broken(each)]
    try:
        if violations:
            raise InvalidLog(folder, violations)
        with replacing(folder) as scratch:
            scratch.mkdir()
            with EventWriter(scratch / EVENTS, header) as writer:
                for utterance in utterances:
                    writer.write_utterance(utterance)
            return score_folder(scratch, experiment=absolute.parent.name, cell=absolute.name)
    except InvalidLog as error:
        raise UserError("\n  ".join([advice, *error.violations[:N_LISTED]])) from error


def _lacking(log: Log) -> list[str]:
    """Return a warning where the log has fewer recordings than its header has; else []."""
    n_expected, n = log.header.get("n_utterances"), len(log.utterances)
    if not isinstance(n_expected, int) or n >= n_expected:
        return []
    return [f"the log has {n} of the {n_expected} recordings that its header promises"]


def _joined(traces: Sequence[Trace]) -> list[str]:
    """Return a warning where a method outputs its words without the blanks between them: most of
    its pieces join the text before, and the text has less than half of the reference's words."""
    n_pieces = n_joined = n_words = n_spoken = 0
    for trace in traces:
        if trace.unit == "word":
            pieces = [piece for each in trace.steps for piece in each.step.committed]
            pairs = list(pairwise(pieces))
            n_pieces += len(pairs)
            n_joined += sum(
                before[-1:].isalnum() and after[:1].isalnum() for before, after in pairs
            )
            n_words += len(trace.hypothesis.split())
            n_spoken += len(trace.reference.split())
    if 2 * n_joined <= n_pieces or 2 * n_words >= n_spoken or not n_pieces:
        return []
    return [
        f"{n_joined} of {n_pieces} words have no blank in front, so that they join the word before "
        "them; a word's text begins with its blank, as Word(' hello')"
    ]


def language_warnings(traces: Sequence[Trace]) -> list[str]:
    """Return warnings where the normaliser, or the unit (word or character), does not fit the
    script of the references."""
    texts: dict[str | None, list[str]] = {}
    without_signs = set()  # languages whose vowel signs the normaliser removes
    for trace in traces:
        texts.setdefault(trace.language, []).append(trace.reference)
        language = language_code(trace.language or "en")
        if trace.normaliser == "whisper" and language in MARKED:
            without_signs.add(language)
    mismatches = [mismatch(language, references) for language, references in texts.items()]
    warnings = [warning for warning in mismatches if warning]
    if without_signs:
        warnings.append(
            f"normaliser whisper drops the vowel signs of {', '.join(sorted(without_signs))}, so "
            "wrong words may count as right; score with --normaliser whisper_marks"
        )
    return warnings


def _line(utterance: Trace, unknown: Collection[str]) -> dict[str, Any]:
    """Return the line of utterances.jsonl for an utterance, with null for the parts of metrics that
    are in `unknown`."""
    line = utterance_line(utterance)
    for field, ending in (("latency", ""), ("latency_parts", "_mean_ca_s")):
        for name in line[field]:
            if f"word_latency_{name}{ending}" in unknown:
                line[field][name] = None
    if "rtf_total" in unknown:
        line["compute_s"] = None
    if "words_on_nonspeech_per_min" in unknown:
        line["ordinary"]["words_on_nonspeech"] = None
    return line


def find_cells(root: str | Path) -> list[Path]:
    """Return every folder at or below `root` that holds an events.jsonl, without those set aside.
    Cells whose pieces are all finished are joined first.

    Raises UserError if there is none, and for a cell with pieces of different runs.
    """
    root = Path(root)
    if not root.is_dir():
        raise no_folder(root)
    split_cells = sorted(path.parent for path in root.rglob(PIECES) if path.is_dir())
    not_joined = [cell for cell in split_cells if number_of_pieces(cell) and not join(cell)]
    cells = sorted(
        path.parent for path in root.rglob(EVENTS) if not is_set_aside(path.relative_to(root))
    )
    if not cells and not_joined:
        raise UserError(f"{not_joined[0]}: {unfinished(not_joined[0])}")
    if not cells:
        raise UserError(
            f"{root}: holds no {EVENTS}; give a folder that `python -m streaming_asr.run` wrote"
        )
    return cells


def one_cell(place: str | Path) -> Path:
    """Return the only cell at or below a folder, or that of an events.jsonl. Raises UserError for
    none and for several."""
    path = Path(place)
    cells = find_cells(path.parent if path.name == EVENTS else path)
    if len(cells) > 1:
        raise UserError(f"{place}: holds {len(cells)} cells; name one of them, as {cells[0]}")
    return cells[0]


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
