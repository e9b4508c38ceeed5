"""simulstream's JSONL: a line per processed chunk, with the tokens it added and took back.

    {"id": 0, "metadata": {"wav_name": "a.wav"}}
    {"id": 0, "total_audio_processed": 1.0, "computation_time": 0.2,
     "generated_tokens": ["the", "hat"], "deleted_tokens": []}

Times are in seconds; the tokens deleted are the last ones shown. This is what a screen shows, and
nothing in it says which words are final. Written logs carry two keys more, which simulstream
ignores: `committed_tokens`, how many of the tokens shown are committed, and in the metadata
`failed`, why a recording has no text. Its own tools need to know how tokens become text and where
the sentences lie: `write` puts evaluation.yaml, segments.yaml and references.txt beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streaming_asr.corpora.rows import json_rows, names_of, numbers, write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.metrics import trace
from streaming_asr.metrics.longform import Sentence, sentences
from streaming_asr.metrics.table import CA, COMMITS, CU, DISPLAY, STEPS, known_of
from streaming_asr.score.formats.foreign import Emission, ForeignRecording
from streaming_asr.text.normalise import common_prefix

FILE = "metrics.jsonl"
BLANK = "▁"  # SentencePiece's sign for the blank before a word
KINDS = ("generated", "deleted")
BYTE_BLANK = "Ġ"  # the same in byte-level BPE


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
    lines, segments, references = [], [], []
    for number, utterance in enumerate(log.utterances):
        seen = trace(utterance)
        wav = f"{seen.utt}.wav"
        metadata = {"wav_name": wav} | ({"failed": seen.error} if seen.error is not None else {})
        named = {"id": number, "metadata": metadata}
        lines.append(json.dumps(named, ensure_ascii=False))
        shown: list[str] = []
        if not seen.steps:  # failed: its readers need a line for every recording
            silent: dict[str, Any] = {"id": number, "total_audio_processed": seen.duration_s}
            silent |= {"computation_time": 0.0, "generated_tokens": [], "deleted_tokens": []}
            lines.append(json.dumps(silent))
        commits = [step.committed.split() for step in seen.steps]
        # A partial text may run into the last committed word: then no number of tokens says it.
        tells_commits = all(
            step.displayed.split()[: len(words)] == words
            for step, words in zip(seen.steps, commits, strict=True)
        )
        for step, words in zip(seen.steps, commits, strict=True):
            now = step.displayed.split()
            kept = common_prefix(shown, now)
            row: dict[str, Any] = {
                "id": number,
                "total_audio_processed": step.audio_s,
                "computation_time": step.compute_s,
                "generated_tokens": now[kept:],
                "deleted_tokens": shown[kept:],
            }
            if tells_commits:
                row["committed_tokens"] = len(words)
            lines.append(json.dumps(row, ensure_ascii=False))
            shown = now
        whole = Sentence(" ".join(seen.reference.split()), 0.0, seen.duration_s)
        for sentence in sentences(seen) or [whole]:
            segments.append(
                f"- {{wav: {json.dumps(wav, ensure_ascii=False)}, offset: {sentence.start_s:.6f}, "
                f"duration: {sentence.end_s - sentence.start_s:.6f}}}"
            )
            references.append(sentence.text)
    return [
        write_lines(folder / FILE, lines),
        write_lines(
            folder / "evaluation.yaml", ["detokenizer_type: simuleval", "latency_unit: word"]
        ),
        write_lines(folder / "segments.yaml", segments),
        write_lines(folder / "references.txt", references),
    ]


class Chunk(NamedTuple):
    """One line: times in seconds, tokens added and taken back, tokens committed if it tells."""

    audio_s: float
    compute_s: float
    generated: list[str]
    deleted: list[str]
    n_committed: int | None


def read(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of a simulstream log, which knows both clocks, every step and what was
    displayed.

    It knows when words were committed only where every line has `committed_tokens`. Otherwise all
    text is partial until the last line, and no figure of commits is to be taken from it.
    """
    names: dict[int | str, str] = {}
    failed: dict[str, str] = {}
    found: dict[str, list[Chunk]] = {}
    for where, row in json_rows(path):
        key = row.get("id")
        if not isinstance(key, int | str | None):
            raise UserError(f"{where}: `id` is {repr(key)[:60]}; it must be a number or a text.")
        if "metadata" in row:
            metadata = row["metadata"] if isinstance(row["metadata"], dict) else {}
            name = metadata.get("wav_name")
            if not isinstance(name, str) or key is None:
                raise UserError(f"{where}: no `id` with `wav_name`; whose lines are these?")
            names[key] = name
            if "failed" in metadata:
                failed[name] = str(metadata["failed"])
        elif key is not None:
            if key not in names:
                raise UserError(
                    f"{where}: id {key!r} has no `metadata` line before it; the recording is "
                    "unknown."
                )
            found.setdefault(names[key], []).append(_chunk(row, where))
    tells_commits = all(
        chunk.n_committed is not None
        for name, chunks in found.items()
        for chunk in chunks
        if name not in failed
    )
    recordings = [
        ForeignRecording(
            names_of(name),
            () if name in failed else _emissions(chunks, path, name, tells_commits=tells_commits),
            error=failed.get(name),
        )
        for name, chunks in found.items()
    ]
    return recordings, {CU, CA, STEPS, DISPLAY} | ({COMMITS} if tells_commits else set())


def _chunk(row: dict[str, Any], where: str) -> Chunk:
    audio_s, compute_s = numbers(
        [row.get("total_audio_processed"), row.get("computation_time")], where
    )
    n_committed = row.get("committed_tokens")
    if n_committed is not None and not (type(n_committed) is int and n_committed >= 0):
        raise UserError(f"{where}: `committed_tokens` must be a whole number from 0.")
    generated, deleted = (_tokens(row.get(f"{name}_tokens"), where) for name in KINDS)
    return Chunk(audio_s, compute_s, generated, deleted, n_committed)


def _emissions(
    chunks: Sequence[Chunk], path: Path, name: str, *, tells_commits: bool
) -> tuple[Emission, ...]:
    tokens: list[str] = []
    committed: list[str] = []
    emissions = []
    with_blanks = any(BLANK in token for chunk in chunks for token in chunk.generated)
    for k, chunk in enumerate(chunks):
        kept = len(tokens) - len(chunk.deleted)
        if kept < 0 or tokens[kept:] != chunk.deleted:
            raise UserError(
                f"{path}: {name}: the tokens {chunk.deleted} are deleted but are not the last ones "
                f"shown, {tokens[-5:]}; the log is damaged."
            )
        tokens = tokens[:kept] + chunk.generated
        n_final = chunk.n_committed if tells_commits else 0
        if k == len(chunks) - 1 and not tells_commits:
            n_final = len(tokens)
        if n_final is None or n_final > len(tokens):
            raise UserError(
                f"{path}: {name}: {n_final} tokens are committed where {len(tokens)} are shown; "
                "the log is damaged."
            )
        words = _words(tokens[:n_final], with_blanks)
        same = common_prefix(committed, words)
        emissions.append(
            Emission(
                tuple(words[same:]),
                tuple(_words(tokens[n_final:], with_blanks)),
                audio_s=chunk.audio_s,
                compute_s=chunk.compute_s,
                retracted=len(committed) - same,
            )
        )
        committed = words
    return tuple(emissions)


def _words(tokens: Sequence[str], with_blanks: bool) -> list[str]:
    """Return the words of these tokens, each with its blank."""
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


def _tokens(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(token, str) for token in value):
        raise UserError(f"{where}: `generated_tokens` and `deleted_tokens` must be lists of text.")
    if any(BYTE_BLANK in token for token in value):
        raise UserError(
            f"{where}: tokens of byte-level BPE ({BYTE_BLANK}), which only their tokenizer turns "
            f"into text; write words, or SentencePiece tokens ({BLANK})."
        )
    return value
