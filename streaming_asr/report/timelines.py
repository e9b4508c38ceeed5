"""Which utterances the page shows, and what happened to each of their words when."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics import Trace
from streaming_asr.metrics.latency import WordTimes
from streaming_asr.score.document import lines_of
from streaming_asr.score.results import Result
from streaming_asr.text.normalise import Normaliser, light_key
from streaming_asr.text.tokens import common_prefix

MAX_DURATION_S = 600.0  # a longer recording is more rows than a reader can follow
MAX_TIMELINES = 1200  # of a page, all runs together


def choose(results: Sequence[Result]) -> dict[Path, dict[str, str]]:
    """Return the utterances to show, by cell folder and utterance, with why they are remarkable,
    "" for most.

    Cells of one split share the remarkable ones (`_remarkable`), which come first. The others
    follow in their order, the same in all cells, as far as MAX_TIMELINES allows.
    """
    scores = {result.folder: _scores(result) for result in results if result.metrics}
    chosen: dict[Path, dict[str, str]] = {}
    for split in {result.split for result in results}:
        folders = [r.folder for r in results if r.split == split and r.folder in scores]
        remarkable = _remarkable([scores[folder] for folder in folders])
        for folder in folders:
            first = list(scores[folder])[: MAX_TIMELINES // len(scores)]
            chosen[folder] = remarkable | {utt: "" for utt in first if utt not in remarkable}
    return chosen


def _remarkable(scores: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, str]:
    """Return why some utterances are remarkable: the median, with which the page opens, the two
    worst and the slowest. The mean over cells decides, since it shows which recordings are hard and
    not which run is bad at them.

    scores: of each cell, (WER, latency in s) by utterance; only those of all cells count.
    """
    common = set.intersection(*(set(of_cell) for of_cell in scores)) if scores else set()
    if len(common) < 2:  # an only one is not remarkable
        return {}
    wer = {utt: statistics.fmean(of_cell[utt][0] for of_cell in scores) for utt in common}
    latency_s = {utt: statistics.fmean(of_cell[utt][1] for of_cell in scores) for utt in common}
    hardest = sorted(common, key=lambda utt: (-wer[utt], utt))
    remarkable = {utt: "worst WER over all methods" for utt in hardest[:2] if wer[utt]}
    median = hardest[len(hardest) // 2]
    if any(wer.values()) and median not in remarkable:
        remarkable = {median: "median WER over all methods"} | remarkable
    slowest = min(common, key=lambda utt: (-latency_s[utt], utt))
    if latency_s[slowest]:
        remarkable.setdefault(slowest, "slowest over all methods")
    return remarkable


def _scores(result: Result) -> dict[str, tuple[float, float]]:
    """Return (WER, p90 of its commit latency in s) of each utterance, 0 if unknown; without
    recordings of more than MAX_DURATION_S."""
    late = "committed_p90_ca_s"
    return {
        row.utt: ((row.wer or 0.0) * result.is_labelled, row.latency.get(late) or 0.0)
        for row in lines_of(result.folder)
        if row.audio_s <= MAX_DURATION_S
    }


def timeline(trace: Trace) -> dict[str, Any]:
    """Return what the page draws of one utterance.

    steps: [a_k, f_k, n, text, m] of every step that changed the screen: keep n characters of the
    display before, add text; the first m characters are committed. Seconds.
    rows: one per word of the aligned reference and final text: word, start, end (null for an
    insertion and for an unjudged word, where there is no reference); final, shown, stable,
    committed, changes (null for a deletion), all in indices of `steps`; changes are [step, text
    at this place], from the first text shown on. kind: hit, substitution, deletion, insertion,
    unjudged, or forgiven, an error to the eye that WER does not count.
    """
    labelled = bool(trace.reference.strip())
    steps: list[list[Any]] = []
    entry_of: list[int] = []  # by step of the trace, the entry of `steps` with its display
    displayed = committed = ""
    for step in trace.steps:
        if (step.displayed, step.committed) != (displayed, committed):
            n_same = common_prefix(displayed, step.displayed)
            n_final = len(step.committed) if step.displayed.startswith(step.committed) else 0
            times = [round(step.audio_s, 4), round(step.finished_s, 4)]
            steps.append([*times, n_same, step.displayed[n_same:], n_final])
            displayed, committed = step.displayed, step.committed
        entry_of.append(len(steps) - 1)
    final = [word for word in trace.units(trace.hypothesis) if light_key(word)]
    word_times = WordTimes(trace)
    changes = _changes(trace, final, entry_of)

    def of_reference(i: int) -> dict[str, Any]:
        if trace.words is None:
            return {"word": reference[i], "start": None, "end": None}
        word = words[i]
        return {"word": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}

    def of_text(j: int) -> dict[str, Any]:
        row: dict[str, Any] = {"final": final[j], "changes": changes[j]}
        for name in ("shown", "stable", "committed"):
            k = getattr(word_times, name)[j]
            row[name] = entry_of[k] if k >= 0 else None
        return row

    words = [word for word in trace.words or () if light_key(word.text)]
    written = trace.units(trace.reference) if trace.words is None else [word.text for word in words]
    reference = [word for word in written if light_key(word)]
    nothing: dict[str, Any] = dict.fromkeys(("final", "shown", "stable", "committed"))
    nothing["changes"] = []
    rows: list[dict[str, Any]] = []
    keys = [light_key(word) for word in reference]
    for edit in Levenshtein.opcodes(keys, [light_key(word) for word in final]):
        i, i_end, j, j_end = edit.src_start, edit.src_end, edit.dest_start, edit.dest_end
        if edit.tag in ("equal", "replace"):
            kind = "hit" if edit.tag == "equal" else "substitution"
            rows += [
                {"kind": kind, **of_reference(i + k), **of_text(j + k)} for k in range(i_end - i)
            ]
        elif edit.tag == "delete":
            rows += [{"kind": "deletion", **of_reference(k), **nothing} for k in range(i, i_end)]
        else:
            no_reference = {"word": None, "start": None, "end": None}
            kind = "insertion" if labelled else "unjudged"
            rows += [{"kind": kind, **no_reference, **of_text(k)} for k in range(j, j_end)]
    _forgive(rows, trace.normalise)
    last_s = trace.steps[-1].finished_s if trace.steps else 0.0
    return {
        "utt": trace.utt,
        "reference": trace.reference,
        "speaker": trace.speaker,
        "duration_s": round(trace.duration_s, 3),
        "end_s": round(max(trace.duration_s, last_s), 4),  # as the steps: the last one is in it
        "timed": trace.words is not None,
        "error": trace.error,
        "steps": steps,
        "rows": rows,
    }


def _forgive(rows: list[dict[str, Any]], normalise: Normaliser) -> None:
    """Mark the stretches of errors whose words are equal when normalised, as "I am" and "I'm"."""
    for is_hit, stretch in groupby(rows, key=lambda row: row["kind"] in ("hit", "unjudged")):
        if is_hit:
            continue
        errors = list(stretch)
        texts = (" ".join(row[side] or "" for row in errors) for side in ("word", "final"))
        spoken, written = map(normalise.words, texts)
        if spoken == written:
            for row in errors:
                row["kind"] = "forgiven"


def _changes(
    trace: Trace, final: Sequence[str], entry_of: Sequence[int]
) -> list[list[tuple[int, str]]]:
    """Return for each final word how the display changed at its place: (entry of the page's steps,
    word) at each change, "" for a word that is gone. A place that the display has not reached yet
    has no change.

    Each display is aligned with the start of the final text that it is nearest to. entry_of: by
    step of the trace.
    """
    keys = [light_key(word) for word in final]
    changes: list[list[tuple[int, str]]] = [[] for _ in final]
    for k, text in trace.displays:
        words = [word for word in trace.written(text).all() if light_key(word)]
        word_keys = [light_key(word) for word in words]
        word_at = [""] * len(final)
        for edit in Levenshtein.opcodes(word_keys, _start_like(word_keys, keys)):
            if edit.tag in ("equal", "replace"):
                word_at[edit.dest_start : edit.dest_end] = words[edit.src_start : edit.src_end]
        for j, word in enumerate(word_at):
            word_before = changes[j][-1][1] if changes[j] else ""
            if light_key(word) != light_key(word_before):
                changes[j].append((entry_of[k], word))
    return changes


def _start_like(display: Sequence[str], final: Sequence[str]) -> Sequence[str]:
    """Return the prefix of `final` that is nearest to `display`. In an alignment with all of
    `final`, a wrong last word would be taken for the last word of the recording."""
    n = len(display)
    return min(
        (final[:m] for m in range(max(n - 3, 0), min(n + 3, len(final)) + 1)),
        key=lambda start: (Levenshtein.distance(display, start), abs(len(start) - n)),
        default=final,
    )
