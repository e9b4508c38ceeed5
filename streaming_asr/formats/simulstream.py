"""simulstream's JSONL: a line per processed chunk, with the tokens it added and took back.

    {"id": 0, "metadata": {"wav_name": "a.wav"}}
    {"id": 0, "total_audio_processed": 1.0, "computation_time": 0.2,
     "generated_tokens": ["the", "hat"], "deleted_tokens": []}

Times are in seconds; the tokens deleted are the last ones shown. This is what a screen shows, so a
log is written from the displayed text. Its own tools need to know how tokens become text and where
the sentences lie: `write` puts evaluation.yaml, segments.yaml and references.txt beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events import Log
from streaming_asr.formats.rows import json_rows, numbers, write_lines
from streaming_asr.formats.stream import (
    EVERYTHING,
    Emission,
    Stream,
    known_of,
    names_of,
)
from streaming_asr.metrics import trace
from streaming_asr.metrics.longform import Sentence, sentences
from streaming_asr.text import common_prefix

FILE = "metrics.jsonl"
BLANK = "▁"  # SentencePiece's sign for the blank before a word
BYTE_BLANK = "Ġ"  # the same in byte-level BPE


def write(log: Log, folder: Path) -> list[Path]:
    """Write folder/metrics.jsonl, evaluation.yaml, segments.yaml and references.txt.

    Raises UserError for a log that does not know every step and both clocks.
    """
    if not EVERYTHING.issubset(known_of(log.header)) or any(u.batch > 1 for u in log.utterances):
        raise UserError(
            "simulstream's log holds every step with its compute, which this log does not tell; "
            "run with batch=1, or export it as simuleval."
        )
    lines, segments, references = [], [], []
    for number, utterance in enumerate(log.utterances):
        seen = trace(utterance)
        wav = f"{seen.utt}.wav"
        named = {"id": number, "metadata": {"wav_name": wav}}
        lines.append(json.dumps(named, ensure_ascii=False))
        shown: list[str] = []
        if not seen.steps:  # failed: its readers need a line for every recording
            silent: dict[str, Any] = {"id": number, "total_audio_processed": seen.duration_s}
            silent |= {"computation_time": 0.0, "generated_tokens": [], "deleted_tokens": []}
            lines.append(json.dumps(silent))
        for step in seen.steps:
            now = step.displayed.split()
            kept = common_prefix(shown, now)
            row: dict[str, Any] = {
                "id": number,
                "total_audio_processed": step.audio_s,
                "computation_time": step.compute_s,
                "generated_tokens": now[kept:],
                "deleted_tokens": shown[kept:],
            }
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


def read(path: Path) -> tuple[list[Stream], set[str]]:
    """Return the recordings of a simulstream log, which knows everything.

    A token that is never taken back counts as committed when it was last shown anew, with all
    before it: the delay simulstream's own scorers use. Others are partial text.
    """
    names: dict[Any, str] = {}
    rows: dict[str, list[tuple[float, float, list[str], list[str]]]] = {}
    for where, row in json_rows(path):
        if "metadata" in row:
            name = row["metadata"].get("wav_name") if isinstance(row["metadata"], dict) else None
            if not isinstance(name, str):
                raise UserError(f"{where}: `metadata` without `wav_name`; whose lines are these?")
            names[row.get("id")] = name
        elif "id" in row:
            if row["id"] not in names:
                raise UserError(
                    f"{where}: id {row['id']!r} has no `metadata` line before it; the recording is "
                    "unknown."
                )
            audio_s, compute_s = numbers(
                [row.get("total_audio_processed"), row.get("computation_time")], where
            )
            rows.setdefault(names[row["id"]], []).append(
                (
                    audio_s,
                    compute_s,
                    _tokens(row.get("generated_tokens"), where),
                    _tokens(row.get("deleted_tokens"), where),
                )
            )
    streams = [
        Stream(names_of(name), _emissions(lines, path, name)) for name, lines in rows.items()
    ]
    return streams, set(EVERYTHING)


def _emissions(
    lines: Sequence[tuple[float, float, list[str], list[str]]], path: Path, name: str
) -> tuple[Emission, ...]:
    shown: list[list[str]] = []  # the tokens after each line
    tokens: list[str] = []
    for _, _, generated, deleted in lines:
        kept = len(tokens) - len(deleted)
        if kept < 0 or tokens[kept:] != deleted:
            raise UserError(
                f"{path}: {name}: the tokens {deleted} are deleted but are not the last ones "
                f"shown, {tokens[-5:]}; the log is damaged."
            )
        tokens = tokens[:kept] + generated
        shown.append(tokens)
    # How many tokens stay for ever: never cut below by a later line.
    stable = [0] * len(lines)
    low = len(tokens)
    for k in range(len(lines) - 1, -1, -1):
        low = min(low, len(shown[k]))
        stable[k] = low
        low = min(low, len(shown[k]) - len(lines[k][2]))
    with_blanks = any(BLANK in token for _, _, generated, _ in lines for token in generated)
    words = _words(tokens, with_blanks)
    ends = [end for _, end in words]
    n_before = 0
    emissions = []
    for k, (audio_s, compute_s, _, _) in enumerate(lines):
        n_words = n_before
        while n_words < len(words) and ends[n_words] <= stable[k]:
            n_words += 1
        rest = shown[k][ends[n_words - 1] if n_words else 0 :]
        emissions.append(
            Emission(
                tuple(text for text, _ in words[n_before:n_words]),
                tuple(text for text, _ in _words(rest, with_blanks)),
                audio_s=audio_s,
                compute_s=compute_s,
            )
        )
        n_before = n_words
    return tuple(emissions)


def _words(tokens: Sequence[str], with_blanks: bool) -> list[tuple[str, int]]:
    """Return (word with its blank, number of tokens up to its end)."""
    if not with_blanks:
        return [(f" {token}", i + 1) for i, token in enumerate(tokens)]
    words: list[tuple[str, int]] = []
    for i, token in enumerate(tokens):
        text = token.replace(BLANK, " ")
        if text.startswith(" ") or not words:
            words.append((text, i + 1))
        else:
            words[-1] = (words[-1][0] + text, i + 1)
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
