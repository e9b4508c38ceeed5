"""Reads other tools' logs. A line of JSON has the fields of its Struct; what is special to a tool
is in its function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

import msgspec

from streaming_asr.corpora.rows import Time, files, json_rows, names_of, numbers, text_of, text_rows
from streaming_asr.errors import UserError
from streaming_asr.metrics.table import CA, COMMITS, CU, DISPLAY, STEPS
from streaming_asr.score.formats.foreign import Emission, ForeignRecording
from streaming_asr.text.tokens import common_prefix, pieces

T = TypeVar("T")
ROUNDING_MS = 2.0  # of times that are added up
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
    elapsed_fifo: list[Time] | None = None
    reference: str | None = None
    source: str | list[str] | None = None
    source_length: Time | None = None
    prediction_length: int | None = None
    index: int | None = None


def simuleval(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of an instances.log, a line each, and what it knows (of
    table.EVERYTHING).

    `delays` are the audio received, in ms, when each whitespace token of `prediction` was emitted,
    or each character (--eval-latency-unit char); `elapsed` is that plus all compute so far.
    `elapsed_fifo`, which only our logs have, is the time in a first-in first-out queue. The compute
    of steps without a word goes to the next word: with only `elapsed` f_k is never earlier than it
    was, and never later than `elapsed`.
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
        has_compute = len(line.elapsed_fifo or line.elapsed) == len(words)
        with_compute = with_compute and (has_compute or not words)
        source = [line.source] if isinstance(line.source, str) else line.source
        recordings.append(
            ForeignRecording(
                names_of((source or [str(line.index)])[0]),
                _emissions(line, words, where, has_compute=has_compute),
                line.reference,
                None if line.source_length is None else line.source_length / 1000.0,
                is_bare=is_bare,
                notes=_gap(indices, line.index),
            )
        )
    return recordings, {CU, CA, COMMITS} if with_compute else {CU, COMMITS}


def _emissions(
    line: Instance, words: Sequence[str], where: str, *, has_compute: bool
) -> tuple[Emission, ...]:
    """Return the emissions of a line, words with equal times in one. Raises UserError where its two
    times of compute contradict each other."""
    nothing = [None] * len(words)
    elapsed = line.elapsed if len(line.elapsed) == len(words) else nothing
    fifo = line.elapsed_fifo if has_compute and line.elapsed_fifo else nothing
    emissions: list[Emission] = []
    spent_ms = seen_ms = 0.0
    rows = zip(line.delays, elapsed, fifo, words, strict=True)
    for (delay_ms, elapsed_ms, fifo_ms), same in groupby(rows, key=itemgetter(0, 1, 2)):
        compute_ms = None
        if elapsed_ms is not None:
            compute_ms, spent_ms = elapsed_ms - delay_ms - spent_ms, elapsed_ms - delay_ms
        if fifo_ms is not None and compute_ms is not None:
            # All of this compute comes after the last emission, and waits for no later audio.
            least_ms, most_ms = seen_ms + compute_ms, max(delay_ms, seen_ms) + compute_ms
            if not least_ms - ROUNDING_MS <= fifo_ms <= most_ms + ROUNDING_MS:
                raise UserError(
                    f"{where}: `elapsed_fifo` is {fifo_ms:g} ms where `elapsed` gives "
                    f"{least_ms:g} to {most_ms:g} ms; the file contradicts itself."
                )
        seen_ms = fifo_ms or 0.0
        emissions.append(
            Emission(
                tuple(word for *_, word in same),
                audio_s=delay_ms / 1000.0,
                finished_s=None if fifo_ms is None else fifo_ms / 1000.0,
                compute_s=None if fifo_ms is not None or compute_ms is None else compute_ms / 1000,
            )
        )
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
    failed: Any = msgspec.UNSET


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
    committed_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None


def simulstream(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of a simulstream log, and what the log has (of table.EVERYTHING): every
    step, what was displayed, the audio clock and, if every line has `computation_time`, the compute
    clock.

    A line names a recording; then a line per chunk has the tokens that it added to the screen and
    took back from its end, with times in seconds. The log has the times of commits only if every
    line has `committed_tokens`, how many of the tokens shown are final, which our logs add.
    Otherwise all text is partial until the last line, and metrics of commits mean nothing.
    """
    names: dict[int | str, str] = {}
    failed: dict[str, str] = {}
    has_compute: dict[bool, str] = {}  # with where it was seen first
    chunks_of: dict[str, list[Chunk]] = {}
    for where, row in json_rows(path):
        if row.get("metadata") is not None:
            naming = _as(Naming, row, where)
            name = names[naming.id] = naming.metadata.wav_name
            if naming.metadata.failed is not msgspec.UNSET:
                failed[name] = str(naming.metadata.failed)
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
    ok = {name: rows for name, rows in chunks_of.items() if name not in failed}
    all_chunks = [row for rows in ok.values() for row in rows]
    tells_commits = all(row.committed_tokens is not None for row in all_chunks)
    tokens = [token for row in all_chunks for token in row.generated_tokens]
    letters = _letters(tokens)
    if letters != BYTE_LETTERS:
        check_words(tokens, str(path))
    first_s = Counter(rows[0].total_audio_processed for rows in ok.values())
    usual_s = max(first_s, key=lambda end_s: (first_s[end_s], -end_s), default=0.0)
    recordings = [
        ForeignRecording(
            names_of(name),
            _displays(rows, f"{path}: {name}", letters, tells_commits=tells_commits)
            if name in ok
            else (),
            error=failed.get(name),
            has_steps=True,
            is_bare=letters is None,
            notes=_uneven(rows, usual_s),
        )
        for name, rows in chunks_of.items()
    ]
    metadata = {CU, STEPS, DISPLAY} | ({COMMITS} if tells_commits else set())
    return recordings, metadata | ({CA} if has_compute.keys() == {True} else set())


def _displays(
    rows: Sequence[Chunk], place: str, letters: dict[int, Any] | None, *, tells_commits: bool
) -> tuple[Emission, ...]:
    """Return the emissions of a recording, one for each chunk.

    tells_commits: every chunk has its number of committed tokens; else all tokens are partial until
    the last chunk commits them. Raises UserError for a chunk that is there twice, for deleted
    tokens that are not the last of the display, and for more committed tokens than it has.
    """
    tokens: list[str] = []
    words: list[str] = []  # the committed ones
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
        n_final = len(tokens) if k == len(rows) - 1 else 0
        if tells_commits:
            n_final = row.committed_tokens or 0
        if n_final > len(tokens):
            raise UserError(
                f"{place}: {n_final} tokens are committed where {len(tokens)} are shown; the log "
                "is damaged."
            )
        words_before, words = words, _joined(tokens[:n_final], letters)
        n_same = common_prefix(words_before, words)
        emissions.append(
            Emission(
                tuple(words[n_same:]),
                tuple(_joined(tokens[n_final:], letters)),
                audio_s=row.total_audio_processed,
                compute_s=row.computation_time,
                retracted=len(words_before) - n_same,
            )
        )
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


NUMBER = r"(-?\d+(?:\.\d+)?)"
LINE = re.compile(rf"(\d+(?:\.\d+)?) {NUMBER} {NUMBER}(?: (.*))?")


def whisper_online(
    path: Path, *, comp_unaware: bool = False
) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recording of a file, or the recordings of a folder of *.txt, by file name: a line
    `emission_ms beg_ms end_ms text` per emission.

    It knows one clock. The emission time is the audio received where `comp_unaware`, as with
    --comp_unaware, else when the line appeared, from the start of the recording.
    """
    recordings = []
    for file in files(path, (".txt", ".log", ".out")):
        rows = list(_lines(file))
        # Some back ends write the blank before a word, others leave it to the reader.
        is_bare = not any(text.startswith(" ") for _, _, text in rows)
        emissions = tuple(
            Emission(
                pieces(text),
                audio_s=emission_s if comp_unaware else None,
                finished_s=None if comp_unaware else emission_s,
            )
            for emission_s, _, text in rows
        )
        is_torn = rows and not text_of(file).endswith("\n")
        torn = f"its last line, {rows[-1][2].strip()!r}, has no line end" if is_torn else ""
        recordings.append(
            ForeignRecording(
                (unquote(file.stem),),
                emissions,
                is_bare=is_bare,
                text_end_s=max((end_s for _, end_s, _ in rows), default=None),
                notes=(f"{torn}: it may be cut short",) if torn else (),
            )
        )
    return recordings, {CU if comp_unaware else CA, COMMITS}


def _lines(file: Path) -> Iterator[tuple[float, float, str]]:
    """Yield (emission in s, end of the text in s, text) of each line. Raises UserError for a line
    of another form, and for one that is there twice."""
    line_before = None
    for where, line in text_rows(file):
        match = LINE.fullmatch(line)
        if match is None:
            raise UserError(
                f"{where}: {line[:60]!r} is not `emission_ms beg_ms end_ms text`; keep the "
                "program's standard output, without other lines."
            )
        if line == line_before and match[4]:
            raise UserError(f"{where}: the line before once more; keep one of them.")
        line_before = line
        text = match[4] or ""
        check_words(text.split(), where)
        yield numbers([match[1]], where)[0] / 1000.0, float(match[3]) / 1000.0, text
