"""Which utterances the page shows, and what happened to each of their words when."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics import Trace
from streaming_asr.metrics.latency import WordTimes
from streaming_asr.score.document import lines_of
from streaming_asr.score.results import Result
from streaming_asr.text.normalise import light_key
from streaming_asr.text.tokens import common_prefix

MAX_DURATION_S = 600.0  # a longer recording is more rows than a reader can follow
MAX_TIMELINES = 1200  # of a page, all runs together


def choose(results: Sequence[Result]) -> dict[Path, dict[str, str]]:
    """Return the utterances to show, by cell folder and utterance id, with what is remarkable of
    them, "" for most.

    Cells of one split share the remarkable ones: the median, with which the page opens, the two
    worst and the slowest by the mean over cells. The others follow in their order, the same in all
    cells, as far as `MAX_TIMELINES` allows.
    """
    rows = {result.folder: _scores(result) for result in results if result.metrics}
    chosen: dict[Path, dict[str, str]] = {}
    for split in {result.split for result in results}:
        folders = [r.folder for r in results if r.split == split and r.folder in rows]
        # The mean over runs shows which recordings are hard, not which run is bad at them.
        common = set.intersection(*(set(rows[folder]) for folder in folders)) if folders else set()
        wer, late_s = (
            {utt: statistics.fmean(rows[folder][utt][at] for folder in folders) for utt in common}
            for at in (0, 1)
        )
        hardest = sorted(common, key=lambda utt: (-wer[utt], utt))
        if len(common) == 1:  # the only one is nothing remarkable
            hardest, late_s = [], dict.fromkeys(common, 0.0)
        remarkable = {utt: "worst WER over all methods" for utt in hardest[:2] if wer[utt]}
        median = hardest[len(hardest) // 2 :][:1]
        if any(wer.values()) and not remarkable.keys() & median:
            remarkable = {utt: "median WER over all methods" for utt in median} | remarkable
        for utt in sorted(common, key=lambda utt: (-late_s[utt], utt))[:1]:
            if late_s[utt]:
                remarkable.setdefault(utt, "slowest over all methods")
        for folder in folders:
            some = list(rows[folder])[: MAX_TIMELINES // len(rows)]
            chosen[folder] = remarkable | {utt: "" for utt in some if utt not in remarkable}
    return chosen


def _scores(result: Result) -> dict[str, tuple[float, float]]:
    """Return (WER, p90 of its commit latency in s; 0 where unknown) of each utterance."""
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
    at this place], from the first text shown on.
    """
    labelled = bool(trace.reference.strip())
    steps: list[list[Any]] = []
    at_step: list[int] = []  # step k -> the entry of `steps` that holds what was on screen then
    displayed = committed = ""
    for step in trace.steps:
        if (step.displayed, step.committed) != (displayed, committed):
            n_kept = common_prefix(displayed, step.displayed)
            n_final = len(step.committed) if step.displayed.startswith(step.committed) else 0
            times = [round(step.audio_s, 4), round(step.finished_s, 4)]
            steps.append([*times, n_kept, step.displayed[n_kept:], n_final])
            displayed, committed = step.displayed, step.committed
        at_step.append(len(steps) - 1)
    final = [word for word in trace.units(trace.hypothesis) if light_key(word)]
    seen = WordTimes.of(trace)
    changes = _changes(trace, final, at_step)

    def spoken(i: int) -> dict[str, Any]:
        if trace.words is None:
            return {"word": reference[i], "start": None, "end": None}
        word = words[i]
        return {"word": word.text, "start": round(word.start, 3), "end": round(word.end, 3)}

    def heard(j: int) -> dict[str, Any]:
        times = {
            name: at_step[k] if (k := getattr(seen, name)[j]) >= 0 else None
            for name in ("shown", "stable", "committed")
        }
        return {"final": final[j], "changes": changes[j], **times}

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
            rows += [{"kind": kind, **spoken(i + at), **heard(j + at)} for at in range(i_end - i)]
        elif edit.tag == "delete":
            rows += [{"kind": "deletion", **spoken(at), **nothing} for at in range(i, i_end)]
        else:
            unspoken = {"word": None, "start": None, "end": None}
            kind = "insertion" if labelled else "unjudged"
            rows += [{"kind": kind, **unspoken, **heard(at)} for at in range(j, j_end)]
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


def _changes(
    trace: Trace, final: Sequence[str], at_step: Sequence[int]
) -> list[list[tuple[int, str]]]:
    """Return, for each final word, the text at its place: (entry of steps, text) at every change.

    The place is found by aligning each display with the start of the final text that it is
    nearest to; what the display does not have yet is no change, what it no longer has is a change
    to "".
    """
    keys = [light_key(word) for word in final]
    changes: list[list[tuple[int, str]]] = [[] for _ in final]
    for k, text in trace.displays:
        words = [word for word in trace.units(text) if light_key(word)]
        shown_keys = [light_key(word) for word in words]
        at_place = dict.fromkeys(range(len(final)), "")
        for edit in Levenshtein.opcodes(shown_keys, _start_like(shown_keys, keys)):
            if edit.tag in ("equal", "replace"):
                at_place |= zip(
                    range(edit.dest_start, edit.dest_end),
                    words[edit.src_start : edit.src_end],
                    strict=True,
                )
        for j, word in at_place.items():
            before = changes[j][-1][1] if changes[j] else ""
            if light_key(word) != light_key(before):
                changes[j].append((at_step[k], word))
    return changes


def _start_like(display: Sequence[str], final: Sequence[str]) -> Sequence[str]:
    """Return the prefix of `final` that is nearest to `display`: aligned with the whole, a misheard
    last word would be taken for the last word of the recording."""
    n = len(display)
    return min(
        (final[:m] for m in range(max(n - 3, 0), min(n + 3, len(final)) + 1)),
        key=lambda start: (Levenshtein.distance(display, start), abs(len(start) - n)),
        default=final,
    )
