"""What another tool's file tells of one recording, and how it becomes a log that can be scored.

Tools give the audio received at an emission (a_k), and some the compute of it (c_k); few give the
steps without text. What a file does not tell is listed in the log's header as `unmeasured`: metrics
that stay null.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.text.languages import language_code
from streaming_asr.text.units import unit_of
from streaming_asr.utterance import LENGTH_TOLERANCE_S, Utterance

LEAST_CHUNK_MS = 20  # a smaller divisor of a tool's counts is chance
MOST_LONGER = 20  # an STM may leave most of a recording out, but not nearly all of it
ROUNDING_NS = 1_000_000  # tools round their times, to a millisecond at the coarsest
# Real-time factors outside of which times are more likely in other units.
LEAST_RTF, MOST_RTF = 5e-4, 20.0


@dataclass(frozen=True)
class Emission:
    """One moment at which a tool spoke; times in seconds from the start of the recording."""

    committed: tuple[str, ...]  # as appended to the text
    partial: tuple[str, ...]
    audio_s: float  # a_k
    compute_s: float | None  # c_k; None where the file does not tell


@dataclass(frozen=True)
class ForeignRecording:
    """One recording in another tool's file; `names` are what it may be called, best first."""

    names: tuple[str, ...]
    emissions: tuple[Emission, ...]
    reference: str | None = None
    duration_s: float | None = None
    error: str | None = None  # why it has no text
    has_steps: bool = False  # every step is an emission, so that none must be added
    is_bare: bool = False  # words lack the blanks before them, which languages with spaces have
    notes: tuple[str, ...] = ()  # what is doubtful in the file


def reference(utt: str, text: str, duration_s: float, **fields: Any) -> Utterance:
    """Return an utterance of which only the reference is known."""
    return Utterance(utt, text, _no_sound, duration_s, **fields)


def _no_sound() -> Samples:
    raise UserError("this utterance is known only by its reference; it has no audio")


def meet(
    recordings: Sequence[ForeignRecording],
    references: Sequence[Utterance] | None,
    path: Path,
    language: str | None = None,
    *,
    open_ended: bool = False,
    notes: list[str] | None = None,
) -> list[UtteranceLog]:
    """Return the recordings of a tool's file as logged utterances, each with its reference, in the
    order of the references.

    references: None if the file has them itself; recordings are then named by their stems, or by
    their paths if two have one stem. A reference without a recording becomes a failed utterance,
    so that it counts. path: the file, for messages. language: of references that name none.
    open_ended: the references give only a least length of a recording (an STM). notes: gets what a
    reader of the scores should know.
    Raises UserError for a recording without a reference, for one of another length than its
    reference, and for two of one name.
    """
    notes = [] if notes is None else notes
    by_name = {each.id: _in_language(each, language) for each in references or ()}
    n_of_stem = Counter(each.names[-1] for each in recordings)
    sources: dict[str, str] = {}  # the name in the file, by the utterance's
    logged: dict[str, UtteranceLog] = {}
    for recording in recordings:
        source, stem = recording.names[0], recording.names[-1]
        name = next((name for name in recording.names if name in by_name), None)
        if name is not None:
            utterance = by_name[name]
            if open_ended:
                utterance = _as_long_as(recording, utterance, path)
            elif recording.duration_s is not None:
                utterance.check_length(round(recording.duration_s * SAMPLE_RATE))
        elif references is not None:
            raise UserError(
                f"{path}: {source!r} is in none of the {len(by_name)} references (such "
                f"as {next(iter(by_name), None)!r}); give the manifest of this audio."
            )
        elif recording.reference is None or recording.duration_s is None:
            lacking = "reference text" if recording.reference is None else "`source_length`"
            raise UserError(f"{path}: holds no {lacking} for {source!r}; give --manifest.")
        else:
            name = stem if n_of_stem[stem] == 1 else source
            utterance = reference(
                name, recording.reference, recording.duration_s, language=language
            )
        if utterance.id in logged:
            other_source = sources[utterance.id]
            if other_source == source:
                raise UserError(f"{path}: {source!r} is in it twice; keep one of them.")
            raise UserError(
                f"{path}: {other_source!r} and {source!r} both fit the reference "
                f"{utterance.id!r}; give a manifest whose ids are their paths."
            )
        sources[utterance.id] = source
        notes += [f"{utterance.id}: {note}" for note in recording.notes]
        recording = _within(recording, utterance, notes)
        log = logged[utterance.id] = _utterance(recording, utterance)
        notes += _odd_compute(log)
    for name in by_name.keys() - logged.keys():
        recording = ForeignRecording((name,), (), error=f"absent from {path.name}")
        logged[name] = _utterance(recording, by_name[name])
    order = {name: i for i, name in enumerate(by_name)}
    return sorted(logged.values(), key=lambda utterance: order.get(utterance.utt, 0))


def _as_long_as(recording: ForeignRecording, utterance: Utterance, path: Path) -> Utterance:
    """Return the reference, as long as the audio that the tool received if that is longer. Raises
    UserError if it is shorter, or so much longer that its times must be in another unit."""
    if recording.duration_s is not None and recording.duration_s < utterance.duration_s:
        utterance.check_length(round(recording.duration_s * SAMPLE_RATE))
    received_s = [each.audio_s for each in recording.emissions]
    length_s = max(recording.duration_s or 0.0, utterance.duration_s, *received_s)
    if length_s > MOST_LONGER * utterance.duration_s:
        raise UserError(
            f"{path}: {utterance.id}: {length_s:g} s are received, and its reference ends at "
            f"{utterance.duration_s:g} s; are the times in the units of the format?"
        )
    return replace(utterance, duration_s=length_s)


def _within(
    recording: ForeignRecording, utterance: Utterance, notes: list[str]
) -> ForeignRecording:
    """Return the recording with no audio time after its end, if the tool counts whole chunks: each
    of its times is a multiple of the chunk, and the last is the first multiple past the end."""
    received_ms = {round(each.audio_s * 1000) for each in recording.emissions}
    last_ms = max(received_ms, default=0)
    if last_ms / 1000 - utterance.duration_s <= LENGTH_TOLERANCE_S:  # rounded
        return recording
    chunk_ms = math.gcd(*received_ms)
    n_chunks = math.ceil(utterance.duration_s * 1000 / chunk_ms)
    if chunk_ms < LEAST_CHUNK_MS or last_ms != n_chunks * chunk_ms:
        return recording  # the check of every log will refuse it
    notes.append(
        f"{utterance.id}: {last_ms / 1000:g} s of audio are counted, in whole chunks, of "
        f"{utterance.duration_s:g} s; the recording's end is taken"
    )
    emissions = tuple(
        replace(each, audio_s=min(each.audio_s, utterance.duration_s))
        for each in recording.emissions
    )
    return replace(recording, emissions=emissions)


def _in_language(utterance: Utterance, language: str | None) -> Utterance:
    """Return the utterance in `language` if it names none. Raises UserError for another one."""
    named = utterance.language
    if language is None or (named and language_code(named) == language_code(language)):
        return utterance
    if named:
        raise UserError(
            f"--language {language}: by the references {utterance.id} is in {named}; leave "
            "--language out, or correct the references."
        )
    return replace(utterance, language=language)


def _utterance(recording: ForeignRecording, utterance: Utterance) -> UtteranceLog:
    n_samples = round(utterance.duration_s * SAMPLE_RATE)
    if recording.error is not None:
        return UtteranceLog.of(utterance, status="failed", error=recording.error, is_imported=True)
    steps = _steps(recording, n_samples, with_blanks=unit_of(utterance.language) == "word")
    return UtteranceLog.of(utterance, steps=steps, is_imported=True)


def _odd_compute(log: UtteranceLog) -> list[str]:
    """Return a note where a recording's compute is so long or so short that its times must be in
    another unit. A file that does not tell has 0."""
    compute_s = sum(step.compute_s for step in log.steps)
    least_s = LEAST_RTF * log.duration_s if compute_s else 0.0
    if least_s <= compute_s <= MOST_RTF * max(log.duration_s, 1.0):
        return []
    return [
        f"{log.utt}: {compute_s:g} s of computing or waiting for {log.duration_s:g} s of audio; "
        "are the times in the units of the format?"
    ]


def _steps(recording: ForeignRecording, n_samples: int, *, with_blanks: bool) -> list[Step]:
    """Return the steps of a recording of `n_samples`, one for each emission, from which the clocks
    compute the times of the emissions; the last step is the flush. with_blanks: whether its
    language has blanks between words.

    Impossible times give steps that break an invariant of logs, which `write_cell` then refuses.
    """

    def words(tokens: Sequence[str]) -> list[str]:
        blank = " " if recording.is_bare and with_blanks else ""
        return [token if token[:1].isspace() else f"{blank}{token}" for token in tokens]

    steps: list[Step] = []
    n_received = 0
    for emission in recording.emissions:
        n_received = round(emission.audio_s * SAMPLE_RATE)
        compute_ns = round((emission.compute_s or 0.0) * 1e9)
        if -ROUNDING_NS < compute_ns < 0:  # only the rounding of the tool's times
            compute_ns = 0
        steps.append(
            Step(
                "audio",
                n_received,
                {"wall": compute_ns},
                committed=words(emission.committed),
                partial=words(emission.partial),
            )
        )
    if not steps or (n_received < n_samples and not recording.has_steps):
        steps.append(Step("flush", max(n_samples, n_received), {"wall": 0}))
    steps[-1].kind = "flush"
    return steps
