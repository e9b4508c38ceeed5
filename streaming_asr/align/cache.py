"""Alignments on disk: a folder per aligner, corpus and split.

    <out>/<aligner>/<corpus>-<split>/settings.json
    <out>/<aligner>/<corpus>-<split>/part-*.jsonl       several in folders of earlier versions

A line is {"id", "text", "words": [[word, start_s, end_s], ...]}, `text` a hash of the transcript,
with null for the times of a word that the aligner cannot time, or {"id", "text", "failed": why}.
Utterances in it are not aligned again while their text is the same; failures are tried again.
`data.alignments=<folder>` reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from streaming_asr.align.result import UNTIMED, Aligned, is_timed
from streaming_asr.corpora.rows import drop_torn_line, json_rows
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.text.units import unit_of
from streaming_asr.utterance import TimedWord, Utterance


class AlignmentCache:
    """The results of one aligner on one split."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open the folder. Raises UserError where it cannot be written or has other settings."""
        self.folder = folder
        settings_file = folder / "settings.json"
        before = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if settings_file.is_file():
                before = json.loads(settings_file.read_text("utf-8"))
            else:
                write_text(settings_file, json.dumps(dict(settings), indent=2) + "\n")
            for part in self._parts():
                drop_torn_line(part)
            self._file = (folder / "part-001-of-001.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be written ({error.strerror}); give out=<a folder of your own>"
            ) from error
        # Times of two models in one folder could not be separated later.
        for key in sorted({*(before or settings), *settings}):
            if before is not None and before.get(key) != settings.get(key):
                self._file.close()
                raise UserError(
                    f"{folder}: was made with {key}={before.get(key)!r}, this call has "
                    f"{settings.get(key)!r}; give out=<another folder>, or remove that one"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, result: Aligned) -> None:
        """Append a result to the file and flush it: a command that is killed loses none."""
        row: dict[str, Any] = {"id": result.utterance.id, "text": text_hash(result.utterance)}
        if result.words is None:
            row["failed"] = result.reason
        else:
            row["words"] = [_row(word) for word in result.words]
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def results(self, utterances: list[Utterance]) -> list[Aligned]:
        """Return the results that are stored for `utterances` with their present texts: the last
        words of each, else its last failure."""
        with_words: dict[str, dict[str, Any]] = {}
        failed: dict[tuple[str, str], dict[str, Any]] = {}
        for part in self._parts():
            for _, row in json_rows(part):
                if "words" in row:
                    with_words[row["id"]] = row
                else:
                    failed[row["id"], row["text"]] = row
        results = []
        for utterance in utterances:
            text = text_hash(utterance)
            row = with_words.get(utterance.id, {})
            if row.get("text") != text:
                row = failed.get((utterance.id, text), {})
            if row:
                words = tuple(map(_word, row["words"])) if "words" in row else None
                results.append(Aligned(utterance, words, row.get("failed", "")))
        return results

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.jsonl"))


def _row(word: TimedWord) -> list[Any]:
    """Return [text, start_s, end_s], null for the times of a word without them."""
    times = [round(word.start, 4), round(word.end, 4)] if is_timed(word) else [None, None]
    return [word.text, *times]


def _word(row: list[Any]) -> TimedWord:
    """Return the word of a row from `_row`."""
    text, start, end = row
    return TimedWord(text, UNTIMED, UNTIMED) if end is None else TimedWord(text, start, end)


def text_hash(utterance: Utterance) -> str:
    """Return the first 12 digits of the sha256 of the transcript, and of the unit that is timed in
    it (characters in some languages) where that is not words."""
    unit = unit_of(utterance.language)
    key = utterance.text if unit == "word" else f"{unit}s of {utterance.text}"
    return hashlib.sha256(key.encode()).hexdigest()[:12]
