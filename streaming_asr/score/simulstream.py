"""Reads simulstream's log, and makes a log of it that can be scored (docs/formats.md).

A line names a recording; then a line per chunk has the tokens that it added to the screen and took
back from its end, with times in seconds. What the file does not tell is listed in the new log's
header as `unmeasured`: metrics that stay null.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streaming_asr.corpora.rows import Time, json_rows, names_of
from streaming_asr.errors import UserError
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.metrics.table import CA, CU, DISPLAY, STEPS
from streaming_asr.text.languages import language_code
from streaming_asr.text.units import unit_of
from streaming_asr.utterance import LENGTH_TOLERANCE_S, Utterance

T = TypeVar("T")
LEAST_CHUNK_MS = 20  # a smaller divisor of the counts is chance
MOST_LONGER = 20  # an STM may leave most of a recording out, but not nearly all of it
ROUNDING_NS = 1_000_000  # of times, to a millisecond at the coarsest
# Real-time factors outside of which times are more likely in other units.
LEAST_RTF, MOST_RTF = 5e-4, 20.0
BLANK = "▁"  # SentencePiece's sign for the blank before a word
BYTE_BLANK = "Ġ"  # that of byte-level BPE, the letter of byte 32
# Byte-level BPE (GPT-2, Whisper) writes a byte as the letter of its number where that can be seen,
# and the others in order from U+0100 on. As a table for str.translate, to Latin-1.
SEEN = (*range(33, 127), *range(161, 173), *range(174, 256))
BYTE_LETTERS = {byte: byte for byte in SEEN} | {
    256 + i: byte for i, byte in enumerate(sorted(set(range(256)) - set(SEEN)))
}
# How other tokenizers mark what is no whole word: GPT-2's blank and line end, WordPiece,
# subword-nmt, the end of a word in OpenAI's first GPT.
SUBWORDS = {
    "of byte-level BPE": re.compile("^[ĠĊ]."),
    "of WordPiece": re.compile("^##."),
    "of BPE": re.compile("(.@@|.</w>)$"),
}


def check_words(tokens: Iterable[str], where: str) -> None:
    """Raise UserError where tokens are no words, but pieces that only their tokenizer can join."""
    tokens = list(tokens)
    for kind, pattern in SUBWORDS.items():
        if matches := [token for token in tokens if pattern.search(token)]:
            examples = ", ".join(map(repr, matches[:3]))
            raise UserError(
                f"{where}: tokens {kind} ({examples}), which only their tokenizer turns into text; "
                "write words."
            )


def _as(kind: type[T], row: dict[str, Any], where: str) -> T:
    """Return a JSON object as a Struct. Raises UserError where its fields are of other types."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}; is the file in the format that was named?") from error


class Metadata(msgspec.Struct):
    wav_name: str


class Naming(msgspec.Struct):
    """A line that names a recording."""

    id: int | str
    metadata: Metadata


class Chunk(msgspec.Struct):
    """A line of a chunk."""

    id: int | str
    total_audio_processed: Time
    generated_tokens: list[str]
    deleted_tokens: list[str]
    computation_time: Time | None = None


@dataclass(frozen=True)
class Recording:
    """One recording of a file. names: what it may be called, best first. displays: its words after
    each chunk. is_bare: words lack the blanks before them, which languages with spaces have. notes:
    what is doubtful in the file."""

    names: tuple[str, ...]
    chunks: Sequence[Chunk]
    displays: Sequence[list[str]]
    is_bare: bool
    notes: tuple[str, ...]


def read(path: Path) -> tuple[list[Recording], set[str]]:
    """Return the recordings of a log, and what it has (of table.EVERYTHING): every step, what was
    displayed, the audio clock and, if every line has `computation_time`, the compute clock.

    Nothing tells which tokens are final, so metrics of commits mean nothing. Raises UserError for a
    line of another form, and for lines that contradict each other.
    """
    names: dict[int | str, str] = {}
    has_compute: dict[bool, str] = {}  # with where it was seen first
    chunks_of: dict[str, list[Chunk]] = {}
    for where, row in json_rows(path):
        if row.get("metadata") is not None:
            naming = _as(Naming, row, where)
            names[naming.id] = naming.metadata.wav_name
        elif row.get("id") is not None:
            chunk = _as(Chunk, row, where)
            if chunk.id not in names:
                raise UserError(
                    f"{where}: id {chunk.id!r} has no `metadata` line before it; the recording is "
                    "unknown."
                )
            chunks_of.setdefault(names[chunk.id], []).append(chunk)
            has_compute.setdefault(chunk.computation_time is not None, where)
        elif row.keys() & set(Chunk.__struct_fields__):
            raise UserError(f"{where}: no `id`; whose tokens are these?")
    if len(has_compute) == 2:
        raise UserError(
            f"{has_compute[False]}: no `computation_time`, which other lines have; give it for all "
            "chunks or for none."
        )
    all_chunks = [row for rows in chunks_of.values() for row in rows]
    tokens = [token for row in all_chunks for token in row.generated_tokens]
    letters = _letters(tokens)
    if letters != BYTE_LETTERS:
        check_words(tokens, str(path))
    first_s = Counter(rows[0].total_audio_processed for rows in chunks_of.values())
    usual_s = max(first_s, key=lambda end_s: (first_s[end_s], -end_s), default=0.0)
    recordings = [
        Recording(
            names_of(name),
            rows,
            _displays(rows, f"{path}: {name}", letters),
            letters is None,
            _uneven(rows, usual_s),
        )
        for name, rows in chunks_of.items()
    ]
    return recordings, {CU, STEPS, DISPLAY} | ({CA} if has_compute.keys() == {True} else set())


def _displays(rows: Sequence[Chunk], place: str, letters: dict[int, Any] | None) -> list[list[str]]:
    """Return the words on the screen after each chunk.

    Raises UserError for a chunk that is there twice, and for deleted tokens that are not the last
    of the display.
    """
    tokens: list[str] = []
    displays = []
    for k, row in enumerate(rows):
        if k and row == rows[k - 1] and (row.generated_tokens or row.computation_time):
            raise UserError(
                f"{place}: the chunk that ends at {row.total_audio_processed:g} s is in it twice; "
                "keep one of them."
            )
        n_remaining = len(tokens) - len(row.deleted_tokens)
        if n_remaining < 0 or tokens[n_remaining:] != row.deleted_tokens:
            raise UserError(
                f"{place}: the tokens {row.deleted_tokens} are deleted but are not the last "
                f"ones shown, {tokens[-5:]}; the log is damaged."
            )
        tokens = tokens[:n_remaining] + row.generated_tokens
        displays.append(_joined(tokens, letters))
    return displays


def _uneven(rows: Sequence[Chunk], first_s: float) -> tuple[str, ...]:
    """Return a note where chunks may be missing: simulstream cuts all but the last to one size.
    first_s: where the first chunk of most recordings ends."""
    ends_s = [row.total_audio_processed for row in rows]
    sizes = Counter(round(after - before, 3) for before, after in pairwise(ends_s))
    del sizes[0.0]  # the end of a stream has a line too
    usual = max(sizes, key=lambda size: (sizes[size], -size), default=0.0)
    steps = [(after - before, before) for before, after in pairwise(ends_s)]
    steps.insert(0, (ends_s[0] - first_s + usual, 0.0))
    gaps = [f"{start_s:g} s" for size_s, start_s in steps if size_s > 1.5 * usual > 0]
    if not gaps:
        return ()
    more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
    return (
        f"chunks are {usual:g} s long, but longer after {', '.join(gaps[:3])}{more}: lines may be "
        "missing there",
    )


def _letters(tokens: Sequence[str]) -> dict[int, Any] | None:
    """Return the table with which `str.translate` makes text of tokens that are pieces of words, by
    the letters that all of them have; None where they are whole words.

    Tokens of byte-level BPE differ from words in their blanks, which over a third of them have, or
    in letters whose bytes make UTF-8, as those of words hardly ever do.
    """
    text = "".join(tokens)
    if BLANK in text:
        return {ord(BLANK): " "}
    if not all(ord(letter) in BYTE_LETTERS for letter in set(text)):
        return None
    content = text.translate(BYTE_LETTERS).encode("latin-1")
    n_high = sum(byte > 127 for byte in content)
    # A letter may be cut at the end of a chunk.
    n_valid = len(content.decode("utf-8", "ignore").encode()) - len(content) + n_high
    n_blanks = sum(token.startswith(BYTE_BLANK) for token in tokens)
    is_marked = 3 * n_blanks > len(tokens) or n_high > 0
    return BYTE_LETTERS if is_marked and n_valid >= 0.9 * n_high else None


def _joined(tokens: Sequence[str], letters: dict[int, Any] | None) -> list[str]:
    """Return the words of these tokens. letters: see `_letters`; a piece that begins with a blank
    begins a word."""
    if letters is None:
        return list(tokens)
    words: list[str] = []
    for token in tokens:
        text = token.translate(letters)
        if text[:1] in (" ", "\n") or not words:  # not isspace: \x85 may be a byte of a letter
            words.append(text)
        else:
            words[-1] += text
    if letters == BYTE_LETTERS:
        words = [word.encode("latin-1").decode("utf-8", "ignore") for word in words]
    return words


# -- with the references ------------------------------------------------------------------------


def reference(utt: str, text: str, duration_s: float, **fields: Any) -> Utterance:
    """Return an utterance of which only the reference is known."""
    return Utterance(utt, text, _no_sound, duration_s, **fields)


def _no_sound() -> Samples:
    raise UserError("this utterance is known only by its reference; it has no audio")


def meet(
    recordings: Sequence[Recording],
    references: Sequence[Utterance],
    path: Path,
    language: str | None = None,
    *,
    open_ended: bool = False,
) -> tuple[list[UtteranceLog], list[str]]:
    """Return the recordings of a file as logged utterances, each with its reference, in the order
    of the references, and what a reader of the scores should know.

    A reference without a recording becomes a failed utterance, so that it counts. path: the file,
    for messages. language: of references that name none. open_ended: the references give only a
    least length of a recording (an STM). Raises UserError for a recording without a reference, for
    one much longer than its reference, and for two of one name.
    """
    notes: list[str] = []
    by_name = {each.id: _in_language(each, language) for each in references}
    sources: dict[str, str] = {}  # the name in the file, by the utterance's
    logged: dict[str, UtteranceLog] = {}
    for recording in recordings:
        source = recording.names[0]
        name = next((name for name in recording.names if name in by_name), None)
        if name is None:
            raise UserError(
                f"{path}: {source!r} is in none of the {len(by_name)} references (such "
                f"as {next(iter(by_name), None)!r}); give the manifest of this audio."
            )
        utterance = by_name[name]
        if open_ended:
            utterance = _as_long_as(recording, utterance, path)
        if name in logged:
            if sources[name] == source:
                raise UserError(f"{path}: {source!r} is in it twice; keep one of them.")
            raise UserError(
                f"{path}: {sources[name]!r} and {source!r} both fit the reference {name!r}; give a "
                "manifest whose ids are their paths."
            )
        sources[name] = source
        notes += [f"{name}: {note}" for note in recording.notes]
        steps = _steps(recording, utterance, notes)
        log = logged[name] = UtteranceLog.of(utterance, steps=steps, is_imported=True)
        notes += _odd_compute(log)
    for name in by_name.keys() - logged.keys():
        error = f"absent from {path.name}"
        logged[name] = UtteranceLog.of(
            by_name[name], status="failed", error=error, is_imported=True
        )
    order = {name: i for i, name in enumerate(by_name)}
    return sorted(logged.values(), key=lambda utterance: order[utterance.utt]), notes


def _as_long_as(recording: Recording, utterance: Utterance, path: Path) -> Utterance:
    """Return the reference, as long as the audio that was received if that is longer. Raises
    UserError if it is so much longer that its times must be in another unit."""
    received_s = [each.total_audio_processed for each in recording.chunks]
    length_s = max(utterance.duration_s, *received_s)
    if length_s > MOST_LONGER * utterance.duration_s:
        raise UserError(
            f"{path}: {utterance.id}: {length_s:g} s are received, and its reference ends at "
            f"{utterance.duration_s:g} s; are the times in the units of the format?"
        )
    return replace(utterance, duration_s=length_s)


def _steps(recording: Recording, utterance: Utterance, notes: list[str]) -> list[Step]:
    """Return the steps of a recording, one for each chunk; the last is the flush, which commits all
    words. Impossible times give steps that break an invariant of logs, which `write_cell` then
    refuses. notes: gets one where audio is counted past the recording's end."""
    is_bare = recording.is_bare and unit_of(utterance.language) == "word"
    most_s = math.inf
    if _counts_whole_chunks(recording, utterance):
        most_s = utterance.duration_s
        last_s = max(each.total_audio_processed for each in recording.chunks)
        notes.append(
            f"{utterance.id}: {round(last_s * 1000) / 1000:g} s of audio are counted, in whole "
            f"chunks, of {utterance.duration_s:g} s; the recording's end is taken"
        )
    steps = []
    for chunk, display in zip(recording.chunks, recording.displays, strict=True):
        compute_ns = round((chunk.computation_time or 0.0) * 1e9)
        if -ROUNDING_NS < compute_ns < 0:  # only the rounding of the times
            compute_ns = 0
        n_received = round(min(chunk.total_audio_processed, most_s) * SAMPLE_RATE)
        words = [f" {each}" if is_bare and not each[:1].isspace() else each for each in display]
        steps.append(Step("audio", n_received, {"wall": compute_ns}, partial=words))
    steps[-1].kind, steps[-1].committed, steps[-1].partial = "flush", steps[-1].partial, []
    return steps


def _counts_whole_chunks(recording: Recording, utterance: Utterance) -> bool:
    """Return whether audio is counted in whole chunks, past the recording's end: each time is a
    multiple of the chunk, and the last is the first multiple past the end."""
    received_ms = {round(each.total_audio_processed * 1000) for each in recording.chunks}
    last_ms = max(received_ms)
    if last_ms / 1000 - utterance.duration_s <= LENGTH_TOLERANCE_S:  # rounded
        return False
    chunk_ms = math.gcd(*received_ms)
    n_chunks = math.ceil(utterance.duration_s * 1000 / chunk_ms)
    return chunk_ms >= LEAST_CHUNK_MS and last_ms == n_chunks * chunk_ms


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
