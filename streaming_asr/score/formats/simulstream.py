"""simulstream's JSONL: a line per processed chunk, with the tokens it added and took back.

    {"id": 0, "metadata": {"wav_name": "a.wav"}}
    {"id": 0, "total_audio_processed": 1.0, "computation_time": 0.2,
     "generated_tokens": ["the", "hat"], "deleted_tokens": []}

Times are in seconds; the tokens deleted are the last ones shown. This is what a screen shows, and
nothing in it says which words are final. Written logs carry two keys more, which simulstream
ignores: `committed_tokens`, how many of the tokens shown are committed, and in the metadata
`failed`, why a recording has no text. Its own tools need to know how tokens become text and where
the sentences lie: `write` puts evaluation.yaml, segments.yaml and references.txt next to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from streaming_asr.corpora.rows import Time, names_of, write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.metrics import Trace, trace
from streaming_asr.metrics.longform import Sentence, sentences
from streaming_asr.metrics.table import CA, COMMITS, CU, DISPLAY, STEPS, known_of
from streaming_asr.score.formats.foreign import (
    LATENCY_UNITS,
    Emission,
    ForeignRecording,
    check_words,
    typed_rows,
    unit_of_log,
)
from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import Unit, unit_pieces

FILE = "metrics.jsonl"
BLANK = "▁"  # SentencePiece's sign for the blank before a word


def write(log: Log, folder: Path) -> list[Path]:
    """Write folder/metrics.jsonl, evaluation.yaml, segments.yaml and references.txt.

    Raises UserError for a log that does not know every step and both clocks.
    """
    needed = {CU, CA, STEPS, DISPLAY, COMMITS}
    if needed - known_of(log.header) or any(u.batch > 1 for u in log.utterances):
        raise UserError(
            "simulstream's log holds every step with its compute, which this log does not tell; "
            "run with batch=1, or export it as simuleval."
        )
    unit = unit_of_log(log)
    lines, segments, references = [], [], []
    for number, utterance in enumerate(log.utterances):
        of_utterance = trace(utterance)
        wav = f"{of_utterance.utt}.wav"
        metadata = {"wav_name": wav}
        if of_utterance.error is not None:
            metadata["failed"] = of_utterance.error
        rows: list[dict[str, Any]] = [{"id": number, "metadata": metadata}]
        rows += _rows(of_utterance, number, unit)
        lines += [json.dumps(row, ensure_ascii=False) for row in rows]
        reference = " ".join(of_utterance.reference.split())
        whole = Sentence(reference, 0.0, of_utterance.duration_s)
        for sentence in sentences(of_utterance) or [whole]:
            segments.append(
                f"- {{wav: {json.dumps(wav, ensure_ascii=False)}, offset: {sentence.start_s:.6f}, "
                f"duration: {sentence.end_s - sentence.start_s:.6f}}}"
            )
            references.append(sentence.text)
    return [
        write_lines(folder / FILE, lines),
        write_lines(
            folder / "evaluation.yaml",
            ["detokenizer_type: simuleval", f"latency_unit: {LATENCY_UNITS[unit]}"],
        ),
        write_lines(folder / "segments.yaml", segments),
        write_lines(folder / "references.txt", references),
    ]


def _rows(utterance: Trace, number: int, unit: Unit) -> list[dict[str, Any]]:
    """Return the lines of an utterance's steps: the tokens that each adds to the display, those
    that it deletes, and how many are committed.

    The number is left out if committed tokens of a step are not the first ones of its display: a
    partial text may continue the last committed word.
    """
    if not utterance.steps:  # failed: simulstream's readers need a line for every recording
        row: dict[str, Any] = {"id": number, "total_audio_processed": utterance.duration_s}
        return [row | {"computation_time": 0.0, "generated_tokens": [], "deleted_tokens": []}]
    committed = [_tokens(step.committed, unit) for step in utterance.steps]
    displayed = [_tokens(step.displayed, unit) for step in utterance.steps]
    tells_commits = all(
        tokens[: len(final)] == final for tokens, final in zip(displayed, committed, strict=True)
    )
    rows = []
    tokens: list[str] = []
    for k, step in enumerate(utterance.steps):
        tokens_before, tokens = tokens, displayed[k]
        n_common = common_prefix(tokens_before, tokens)
        row = {
            "id": number,
            "total_audio_processed": step.audio_s,
            "computation_time": step.compute_s,
            "generated_tokens": tokens[n_common:],
            "deleted_tokens": tokens_before[n_common:],
        }
        if tells_commits:
            row["committed_tokens"] = len(committed[k])
        rows.append(row)
    return rows


def _tokens(text: str, unit: Unit) -> list[str]:
    """Return the tokens of a text: words, which simulstream joins with blanks, or characters, which
    it joins as they are, so that a character after a blank includes the blank."""
    return text.split() if unit == "word" else list(unit_pieces(text, unit))


class SimulstreamLine(msgspec.Struct):
    """A line: what names a recording, or a chunk with the tokens it added and took back."""

    id: int | str | None = None
    metadata: dict[str, Any] | None = None
    total_audio_processed: Time | None = None
    computation_time: Time | None = None
    generated_tokens: list[str] | None = None
    deleted_tokens: list[str] | None = None
    committed_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Chunk(NamedTuple):
    """A chunk that has what it needs; `compute_s` is None where the file does not tell it."""

    audio_s: float
    compute_s: float | None
    generated: list[str]
    deleted: list[str]
    n_committed: int | None


def read(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of a simulstream log, and what the log has (of table.EVERYTHING): every
    step, what was displayed, the audio clock and, if every line has `computation_time`, the compute
    clock.

    It has the times of commits only if every line has `committed_tokens`. Otherwise all text is
    partial until the last line, and metrics of commits mean nothing.
    """
    names: dict[int | str, str] = {}
    failed: dict[str, str] = {}
    has_compute: dict[bool, str] = {}  # with where it was seen first
    chunks_of: dict[str, list[Chunk]] = {}
    for where, row in typed_rows(path, SimulstreamLine):
        if row.metadata is not None:
            name = row.metadata.get("wav_name")
            if not isinstance(name, str) or row.id is None:
                raise UserError(f"{where}: no `id` with `wav_name`; whose lines are these?")
            names[row.id] = name
            if "failed" in row.metadata:
                failed[name] = str(row.metadata["failed"])
        elif row.id is not None:
            if row.id not in names:
                raise UserError(
                    f"{where}: id {row.id!r} has no `metadata` line before it; the recording is "
                    "unknown."
                )
            chunk = _chunk(row, where)
            chunks_of.setdefault(names[row.id], []).append(chunk)
            has_compute.setdefault(chunk.compute_s is not None, where)
        elif row != SimulstreamLine():  # neither a chunk nor a line that tells something else
            raise UserError(f"{where}: no `id`; whose tokens are these?")
    if len(has_compute) == 2:
        raise UserError(
            f"{has_compute[False]}: no `computation_time`, which other lines have; give it for all "
            "chunks or for none."
        )
    tells_commits = all(
        row.n_committed is not None
        for name, rows in chunks_of.items()
        for row in rows
        if name not in failed
    )
    recordings = [
        ForeignRecording(
            names_of(name),
            () if name in failed else _emissions(rows, path, name, tells_commits=tells_commits),
            error=failed.get(name),
            has_steps=True,
            blank_before=None if _has_blanks(rows) else "tokens",
        )
        for name, rows in chunks_of.items()
    ]
    metadata = {CU, STEPS, DISPLAY} | ({COMMITS} if tells_commits else set())
    return recordings, metadata | ({CA} if has_compute.keys() == {True} else set())


def _chunk(row: SimulstreamLine, where: str) -> Chunk:
    """Return a line's chunk. Raises UserError where it lacks a field or has tokens that are no
    words."""
    audio_s, generated, deleted = (
        row.total_audio_processed,
        row.generated_tokens,
        row.deleted_tokens,
    )
    if audio_s is None or generated is None or deleted is None:
        fields = "total_audio_processed", "generated_tokens", "deleted_tokens"
        lacking = next(name for name in fields if getattr(row, name) is None)
        raise UserError(
            f"{where}: no `{lacking}`; a chunk has {', '.join(fields)} and, where the compute is "
            "known, computation_time."
        )
    check_words(generated, where, f"words, or SentencePiece tokens ({BLANK})")
    return Chunk(audio_s, row.computation_time, generated, deleted, row.committed_tokens)


def _emissions(
    rows: Sequence[Chunk], path: Path, name: str, *, tells_commits: bool
) -> tuple[Emission, ...]:
    """Return the emissions of recording `name`, one for each chunk.

    tells_commits: every chunk has its number of committed tokens; else all tokens are partial until
    the last chunk commits them. Raises UserError for deleted tokens that are not the last of the
    display, and for more committed tokens than the display has.
    """
    tokens: list[str] = []
    words: list[str] = []  # the committed ones
    emissions = []
    with_blanks = _has_blanks(rows)
    for k, row in enumerate(rows):
        n_remaining = len(tokens) - len(row.deleted)
        if n_remaining < 0 or tokens[n_remaining:] != row.deleted:
            raise UserError(
                f"{path}: {name}: the tokens {row.deleted} are deleted but are not the last "
                f"ones shown, {tokens[-5:]}; the log is damaged."
            )
        tokens = tokens[:n_remaining] + row.generated
        n_at_end = len(tokens) if k == len(rows) - 1 else 0
        n_final = row.n_committed if tells_commits else n_at_end
        if n_final is None or n_final > len(tokens):
            raise UserError(
                f"{path}: {name}: {n_final} tokens are committed where {len(tokens)} are shown; "
                "the log is damaged."
            )
        words_before, words = words, _words(tokens[:n_final], with_blanks)
        n_same = common_prefix(words_before, words)
        emissions.append(
            Emission(
                tuple(words[n_same:]),
                tuple(_words(tokens[n_final:], with_blanks)),
                audio_s=row.audio_s,
                compute_s=row.compute_s,
                retracted=len(words_before) - n_same,
            )
        )
    return tuple(emissions)


def _has_blanks(rows: Sequence[Chunk]) -> bool:
    return any(BLANK in token for row in rows for token in row.generated)


def _words(tokens: Sequence[str], with_blanks: bool) -> list[str]:
    """Return the words of these tokens, each with the blank before it. with_blanks: the tokens are
    pieces of words, of which BLANK begins a new one; else each token is a word."""
    if not with_blanks:
        return [f" {token}" for token in tokens]
    words: list[str] = []
    for token in tokens:
        text = token.replace(BLANK, " ")
        if text.startswith(" ") or not words:
            words.append(text)
        else:
            words[-1] += text
    return words
