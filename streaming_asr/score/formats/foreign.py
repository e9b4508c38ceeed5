"""What another tool's file tells of one recording, and how it becomes a log that can be scored.

Tools differ in what they write down. Some give the audio received at an emission (a_k), some the
time it was seen (f_k), some both, some neither; few give the steps in which nothing was said. What
a file does not tell is listed in the log's header as `unmeasured`: metrics that stay null.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streaming_asr.corpora.rows import json_rows
from streaming_asr.errors import UserError
from streaming_asr.events.invariants import WINDOW_S
from streaming_asr.events.log import Log, Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.text.languages import language_code
from streaming_asr.text.units import Unit, unit_of
from streaming_asr.utterance import LENGTH_TOLERANCE_S, Utterance

T = TypeVar("T")
LATENCY_UNITS: dict[Unit, str] = {"word": "word", "character": "char"}  # as others call them
LEAST_CHUNK_MS = 20  # a smaller divisor of a tool's counts is chance
MOST_LONGER = 20  # an STM may leave most of a recording out, but not nearly all of it
ROUNDING_NS = 1_000_000  # tools round their times, to a millisecond at the coarsest


@dataclass(frozen=True)
class Emission:
    """One moment at which a tool spoke; times in seconds from the start of the recording."""

    committed: tuple[str, ...] = ()  # as appended to the text, blanks included
    partial: tuple[str, ...] = ()
    audio_s: float | None = None  # a_k; None where the file does not tell
    finished_s: float | None = None  # f_k, the time it was seen
    compute_s: float | None = None  # c_k, where the file gives that instead of f_k
    retracted: int = 0  # words taken back before `committed` was added


@dataclass(frozen=True)
class ForeignRecording:
    """One recording in another tool's file; `names` are what it may be called, best first."""

    names: tuple[str, ...]
    emissions: tuple[Emission, ...]
    reference: str | None = None
    duration_s: float | None = None
    error: str | None = None  # why it failed, where the file tells
    has_steps: bool = False  # every step is an emission, so that none must be added
    text_end_s: float | None = None  # the latest end of a word, where the file tells ends
    notes: tuple[str, ...] = ()  # what is doubtful in the file
    # Where the reader put a blank that the file lacks: before each of its "tokens" or "lines". In a
    # language without spaces it is taken away again.
    blank_before: str | None = None


# How tokenizers mark what is no whole word: GPT-2's blank and line end, WordPiece, subword-nmt, the
# end of a word in OpenAI's first GPT.
SUBWORDS = {
    "of byte-level BPE": re.compile("^[ĠĊ]."),
    "of WordPiece": re.compile("^##."),
    "of BPE": re.compile("(.@@|.</w>)$"),
}


def check_words(tokens: Iterable[str], where: str, allowed: str = "words") -> None:
    """Raise UserError where tokens are no words, but pieces that only their tokenizer can join."""
    tokens = list(tokens)
    for kind, pattern in SUBWORDS.items():
        if matches := [token for token in tokens if pattern.search(token)]:
            examples = ", ".join(map(repr, matches[:3]))
            raise UserError(
                f"{where}: tokens {kind} ({examples}), which only their tokenizer turns into text; "
                f"write {allowed}."
            )


def typed_rows(path: Path, kind: type[T]) -> Iterator[tuple[str, T]]:
    """Yield ("file, line n", row) of a file of one JSON object per line, each as `kind`, a struct
    of msgspec. Raises UserError for a line whose fields are of other types."""
    for where, row in json_rows(path):
        try:
            yield where, msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            raise UserError(
                f"{where}: {error}; is the file in the format that was named?"
            ) from error


def reference(utt: str, text: str, duration_s: float, **fields: Any) -> Utterance:
    """Return an utterance of which only the reference is known."""
    return Utterance(utt, text, _no_sound, duration_s, **fields)


def _no_sound() -> Samples:
    raise UserError("this utterance is known only by its reference; it has no audio")


def unit_of_log(log: Log) -> Unit:
    """Return the unit of a log's languages, since a file has one. Raises UserError for two."""
    units = {unit_of(utterance.language) for utterance in log.utterances}
    if len(units) > 1:
        raise UserError(
            "this log has languages with spaces and without; a file of this format counts either "
            "words or characters: run and export each language by itself."
        )
    return units.pop() if units else "word"


def meet(
    recordings: Sequence[ForeignRecording],
    references: Sequence[Utterance] | None,
    path: Path,
    language: str | None = None,
    *,
    open_ended: bool = False,
    notes: list[str] | None = None,
) -> list[UtteranceLog]:
    """Return the recordings as logged utterances, each with its reference, in `language` where that
    names none.

    Without `references` the file must hold them itself. References the file says nothing about
    become failed utterances: they stay in every count. open_ended: the references do not tell how
    long a recording is, only that it is no shorter (an STM). notes: takes what a reader should
    know. Without references, recordings are named by their stems, and where two have one stem by
    their paths. Raises UserError for a recording without reference, for one of another length than
    its reference, and for two of one name.
    """
    notes = [] if notes is None else notes
    by_name = {each.id: _in_language(each, language) for each in references or ()}
    stems = Counter(each.names[-1] for each in recordings)
    sources: dict[str, str] = {}
    logged: dict[str, UtteranceLog] = {}
    for recording in recordings:
        name = next((name for name in recording.names if name in by_name), None)
        if name is not None:
            utterance = by_name[name]
            if open_ended:
                utterance = _as_long_as(recording, utterance, path)
            elif recording.duration_s is not None:
                utterance.check_length(round(recording.duration_s * SAMPLE_RATE))
        elif references is not None:
            raise UserError(
                f"{path}: {recording.names[0]!r} is in none of the {len(by_name)} references (such "
                f"as {next(iter(by_name), None)!r}); give the manifest of this audio."
            )
        elif recording.reference is None or recording.duration_s is None:
            lacking = "reference text" if recording.reference is None else "`source_length`"
            raise UserError(
                f"{path}: holds no {lacking} for {recording.names[0]!r}; give --manifest."
            )
        else:
            name = recording.names[-1 if stems[recording.names[-1]] == 1 else 0]
            utterance = reference(
                name, recording.reference, recording.duration_s, language=language
            )
        source = recording.names[0]
        before = sources.setdefault(utterance.id, source)
        if utterance.id in logged and before == source:
            raise UserError(f"{path}: {source!r} is in it twice; keep one of them.")
        if utterance.id in logged:
            raise UserError(
                f"{path}: {before!r} and {source!r} both fit the reference {utterance.id!r}; "
                "give a manifest whose ids are their paths."
            )
        notes += [f"{utterance.id}: {note}" for note in recording.notes]
        _check_ends(recording, utterance, path)
        recording = _within(recording, utterance, notes)
        logged[utterance.id] = _utterance(recording, utterance)
    for name in by_name.keys() - logged.keys():
        recording = ForeignRecording((name,), (), error=f"absent from {path.name}")
        logged[name] = _utterance(recording, by_name[name])
    order = {name: i for i, name in enumerate(by_name)}
    return sorted(logged.values(), key=lambda u: order.get(u.utt, 0))


def _as_long_as(recording: ForeignRecording, utterance: Utterance, path: Path) -> Utterance:
    """Return the reference with the length of what a tool received, where that is longer."""
    if recording.duration_s is not None and recording.duration_s < utterance.duration_s:
        utterance.check_length(round(recording.duration_s * SAMPLE_RATE))
    heard_s = [each.audio_s for each in recording.emissions if each.audio_s is not None]
    length_s = max(recording.duration_s or 0.0, utterance.duration_s, *heard_s)
    if length_s > MOST_LONGER * utterance.duration_s:
        raise UserError(
            f"{path}: {utterance.id}: {length_s:g} s are received, and its reference ends at "
            f"{utterance.duration_s:g} s; are the times in the units of the format?"
        )
    return replace(utterance, duration_s=length_s)


def _check_ends(recording: ForeignRecording, utterance: Utterance, path: Path) -> None:
    """Raise UserError where the words end far behind the recording."""
    end_s = recording.text_end_s
    if end_s is not None and utterance.duration_s and end_s > utterance.duration_s + WINDOW_S:
        raise UserError(
            f"{path}: {utterance.id}: a word ends at {end_s:g} s of a recording of "
            f"{utterance.duration_s:g} s; are the times in the units of the format?"
        )


def _within(
    recording: ForeignRecording, utterance: Utterance, notes: list[str]
) -> ForeignRecording:
    """Return the recording with its audio cut at its end, where a tool counts whole chunks: each of
    its counts is a multiple of the chunk, and the last is the first one past the end."""
    heard_ms = {
        round(each.audio_s * 1000) for each in recording.emissions if each.audio_s is not None
    }
    excess_s = max(heard_ms, default=0) / 1000 - utterance.duration_s
    if excess_s <= LENGTH_TOLERANCE_S:  # rounded
        return recording
    chunk_ms = math.gcd(*heard_ms)
    n_chunks = math.ceil(utterance.duration_s * 1000 / chunk_ms)
    if chunk_ms < LEAST_CHUNK_MS or max(heard_ms) != n_chunks * chunk_ms:
        return recording  # and refused, by the rule of all logs
    notes.append(
        f"{utterance.id}: {max(heard_ms) / 1000:g} s of audio are counted, in whole chunks, of "
        f"{utterance.duration_s:g} s; the recording's end is taken"
    )
    emissions = tuple(
        each
        if each.audio_s is None
        else replace(each, audio_s=min(each.audio_s, utterance.duration_s))
        for each in recording.emissions
    )
    return replace(recording, emissions=emissions)


def _in_language(utterance: Utterance, language: str | None) -> Utterance:
    named = utterance.language
    if language is None or (named and language_code(named) == language_code(language)):
        return utterance
    if named:
        raise UserError(
            f"--language {language}: the references say that {utterance.id} is in {named}; leave "
            "--language out, or correct the references."
        )
    return replace(utterance, language=language)


def _utterance(recording: ForeignRecording, utterance: Utterance) -> UtteranceLog:
    n_samples = round(utterance.duration_s * SAMPLE_RATE)
    if recording.error is not None:
        return UtteranceLog.of(utterance, status="failed", error=recording.error, is_imported=True)
    if recording.blank_before and unit_of(utterance.language) == "character":
        emissions = tuple(
            _without_blanks(each, recording.blank_before) for each in recording.emissions
        )
        recording = replace(recording, emissions=emissions)
    steps = _steps(recording, n_samples)
    return UtteranceLog.of(
        utterance,
        steps=steps,
        commit_violations=sum(step.retracted > 0 for step in steps),
        is_imported=True,
    )


def _without_blanks(emission: Emission, before: str) -> Emission:
    committed, partial = (
        tuple(
            token.removeprefix(" ") if before == "tokens" or i == 0 else token
            for i, token in enumerate(tokens)
        )
        for tokens in (emission.committed, emission.partial)
    )
    return replace(emission, committed=committed, partial=partial)


def _steps(recording: ForeignRecording, n_samples: int) -> list[Step]:
    """Return steps whose clocks give back the times of the emissions; the last of them is the
    flush. Times that cannot be come out as steps that break an invariant of a log.

    Where f_k is known, c_k = f_k - max(a_k, f_{k-1}), the compute that explains it in a
    first-in first-out queue. Where a_k is not, the earliest there is: the audio up to f_k.
    """
    steps: list[Step] = []
    heard, finished_ns = 0, 0
    for emission in recording.emissions:
        if emission.audio_s is not None:
            heard = round(emission.audio_s * SAMPLE_RATE)
        elif emission.finished_s is not None:
            heard = max(heard, min(int(emission.finished_s * SAMPLE_RATE), n_samples))
        begins_ns = max(heard * 1_000_000_000 // SAMPLE_RATE, finished_ns)
        compute_ns = 0
        if emission.compute_s is not None:
            compute_ns = round(emission.compute_s * 1e9)
        elif emission.finished_s is not None:
            compute_ns = round(emission.finished_s * 1e9) - begins_ns
        if -ROUNDING_NS < compute_ns < 0:
            compute_ns = 0
        finished_ns = begins_ns + compute_ns
        steps.append(
            Step(
                "audio",
                heard,
                {"wall": compute_ns},
                committed=list(emission.committed),
                partial=list(emission.partial),
                retracted=emission.retracted,
            )
        )
    if not steps or (heard < n_samples and not recording.has_steps):
        steps.append(Step("flush", max(n_samples, heard), {"wall": 0}))
    steps[-1].kind = "flush"
    return steps
