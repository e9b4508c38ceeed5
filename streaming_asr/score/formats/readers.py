"""Reads other tools' logs. A line of JSON has the fields of its Struct; what is special to a tool
is in its function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from streaming_asr.corpora.rows import Time, json_rows, names_of
from streaming_asr.errors import UserError
from streaming_asr.metrics.table import CA, COMMITS, CU, DISPLAY, STEPS
from streaming_asr.score.formats.foreign import Emission, ForeignRecording

T = TypeVar("T")
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


class Instance(msgspec.Struct):
    """A line of instances.log, as far as it is read."""

    prediction: str
    delays: list[Time]
    elapsed: list[Time] = []
    reference: str | None = None
    source: str | list[str] | None = None
    source_length: Time | None = None
    prediction_length: int | None = None
    index: int | None = None


def simuleval(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of an instances.log, a line each, and what it knows (of
    table.EVERYTHING).

    `delays` are the audio received, in ms, when each whitespace token of `prediction` was emitted,
    or each character (--eval-latency-unit char); `elapsed` is that plus all compute so far. The
    compute of steps without a word goes to the next word: f_k is never earlier than it was, and
    never later than `elapsed`.
    """
    recordings: list[ForeignRecording] = []
    with_compute = True
    indices: list[int] = []
    for where, row in json_rows(path):
        line = _as(Instance, row, where)
        words = line.prediction.split()
        check_words(words, where)
        if line.prediction_length not in (None, len(line.delays)):
            raise UserError(
                f"{where}: `prediction_length` is {line.prediction_length} with "
                f"{len(line.delays)} delays; the file contradicts itself."
            )
        is_bare = len(words) == len(line.delays) or len(line.delays) != len(line.prediction)
        words = words if is_bare else list(line.prediction)  # --eval-latency-unit char
        if len(words) != len(line.delays):
            raise UserError(
                f"{where}: {len(words)} words with {len(line.delays)} delays; the latency unit "
                "must be word or char."
            )
        has_compute = len(line.elapsed) == len(words)
        with_compute = with_compute and (has_compute or not words)
        source = [line.source] if isinstance(line.source, str) else line.source
        recordings.append(
            ForeignRecording(
                names_of((source or [str(line.index)])[0]),
                _emissions(line, words, line.elapsed if has_compute else [None] * len(words)),
                line.reference,
                None if line.source_length is None else line.source_length / 1000.0,
                is_bare=is_bare,
                notes=_gap(indices, line.index),
            )
        )
    return recordings, {CU, CA, COMMITS} if with_compute else {CU, COMMITS}


def _emissions(
    line: Instance, words: Sequence[str], elapsed: Sequence[float | None]
) -> tuple[Emission, ...]:
    """Return the emissions of a line, words with equal times in one."""
    emissions: list[Emission] = []
    spent_ms = 0.0
    rows = zip(line.delays, elapsed, words, strict=True)
    for (delay_ms, elapsed_ms), same in groupby(rows, key=itemgetter(0, 1)):
        compute_s = None
        if elapsed_ms is not None:
            compute_s = (elapsed_ms - delay_ms - spent_ms) / 1000
            spent_ms = elapsed_ms - delay_ms
        texts = tuple(word for *_, word in same)
        emissions.append(Emission(texts, (), delay_ms / 1000.0, compute_s))
    return tuple(emissions)


def _gap(indices: list[int], index: int | None) -> tuple[str, ...]:
    """Return a note where `index` does not follow the last of `indices`, and append it."""
    if index is None:
        return ()
    indices.append(index)
    if len(indices) == 1 or index == indices[-2] + 1:
        return ()
    return (f"`index` goes from {indices[-2]} to {index}: lines may be missing before it",)


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


def simulstream(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of a simulstream log, and what the log has (of table.EVERYTHING): every
    step, what was displayed, the audio clock and, if every line has `computation_time`, the compute
    clock.

    A line names a recording; then a line per chunk has the tokens that it added to the screen and
    took back from its end, with times in seconds. Nothing tells which tokens are final: all text is
    partial until the last line, and metrics of commits mean nothing.
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
        ForeignRecording(
            names_of(name),
            _displays(rows, f"{path}: {name}", letters),
            has_steps=True,
            is_bare=letters is None,
            notes=_uneven(rows, usual_s),
        )
        for name, rows in chunks_of.items()
    ]
    return recordings, {CU, STEPS, DISPLAY} | ({CA} if has_compute.keys() == {True} else set())


def _displays(
    rows: Sequence[Chunk], place: str, letters: dict[int, Any] | None
) -> tuple[Emission, ...]:
    """Return the emissions of a recording, one for each chunk; the last commits all tokens.

    Raises UserError for a chunk that is there twice, and for deleted tokens that are not the last
    of the display.
    """
    tokens: list[str] = []
    emissions = []
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
        words = tuple(_joined(tokens, letters))
        final, partial = (words, ()) if k == len(rows) - 1 else ((), words)
        emissions.append(Emission(final, partial, row.total_audio_processed, row.computation_time))
    return tuple(emissions)


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


class Format(NamedTuple):
    """A format: its files, and `read(path)`, which returns the recordings and what the file knows
    of them (of metrics.table.EVERYTHING)."""

    files: str
    read: Callable[[Path], tuple[list[ForeignRecording], set[str]]]


FORMATS = {
    "simuleval": Format("SimulEval's instances.log", simuleval),
    "simulstream": Format("simulstream's JSONL", simulstream),
}
