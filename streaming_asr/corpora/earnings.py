"""Earnings-21 and Earnings-22 (Del Rio et al. 2021, 2022): whole earnings calls, long form.

    earnings21/media/<id>.mp3       transcripts/nlp_references/<id>.nlp
                                    eval10-file-metadata.csv     the ids of split eval10
    earnings22/media/<id>.mp3       transcripts/nlp_references/<id>.nlp
                                    transcripts/force_aligned_nlp_references/<id>.aligned.nlp
    earnings22/subset10/media/<id>.mp3   verbatim_transcripts/nlp_references/<id>.nlp

An .nlp file has a token per line, fields between bars, named in its first line; `punctuation` is
appended to the token, `prepunctuation` put before it. `ts` and `endTs` are filled in the aligned
files: word times.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.corpora.loader import Loader, is_there, need_folder, need_split, recorded
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord, Utterance

REFERENCES = Path("transcripts") / "nlp_references"
ALIGNED = Path("transcripts") / "force_aligned_nlp_references"


@dataclass(kw_only=True, eq=False)
class Earnings(Loader):
    """`year` 21 or 22; splits: all, and the ten-hour selections eval10 (21) and subset10 (22)."""

    year: int
    split: str = "all"

    def __post_init__(self) -> None:
        if self.year not in (21, 22):
            raise UserError(f"data.year={self.year}: there are Earnings-21 and Earnings-22")
        super().__post_init__()

    def called(self) -> str:
        return f"earnings{self.year}"

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield each call as one utterance, with word times where a reference has them."""
        root = need_folder(self.path, self.name, self.called())
        selection = "eval10" if self.year == 21 else "subset10"
        need_split(root, self.split, ["all", selection], self.name)
        media, references = root / "media", root / REFERENCES
        if self.split == "subset10":
            media = root / "subset10" / "media"
            references = root / "subset10" / "verbatim_transcripts" / "nlp_references"
        need_folder(references, self.name)
        names = sorted(file.stem for file in references.glob("*.nlp"))
        if self.split == "eval10":
            table = root / "eval10-file-metadata.csv"
            rows = list(csv.DictReader(text_lines(table)))
            names = sorted(row["file_id"] for row in rows if row.get("file_id"))
            if not names:
                raise UserError(f"{table}: no column `file_id`; clone the repository again")
        for name in names:
            audio, reference = media / f"{name}.mp3", references / f"{name}.nlp"
            # subset10's references are verbatim; the aligned files have the other transcripts.
            aligned = root / ALIGNED / f"{name}.aligned.nlp" if self.split == "all" else None
            if _is_lfs_pointer(audio):
                yield UserError(f"{audio}: a pointer of Git LFS, not audio; run `git lfs pull`")
                continue
            if not reference.is_file():
                yield UserError(f"{audio}: has no {reference}; clone the repository again")
                continue
            try:
                text, words = read_nlp(reference)
                if words is None and aligned is not None and aligned.is_file():
                    text, words = read_nlp(aligned)
            except UserError as error:
                yield error
                continue
            yield recorded(audio, text, reference.name, language="en", words=words)


def _is_lfs_pointer(file: Path) -> bool:
    """Return whether Git LFS has left a small text in the place of the recording."""
    is_small = is_there(file) and file.stat().st_size < 1000
    return is_small and file.read_bytes().startswith(b"version https://")


def read_nlp(path: Path) -> tuple[str, tuple[TimedWord, ...] | None]:
    """Return the text of an .nlp file, and its words with times, or None unless every token has
    them. Raises UserError for a file without tokens or without their columns."""
    lines = text_lines(path)
    rows = csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    if rows.fieldnames is None or not {"token", "punctuation"} <= set(rows.fieldnames):
        raise UserError(f"{path}: its first line names no fields token and punctuation")
    words, times = [], []
    for row in rows:
        token = (row["token"] or "").strip()
        if not token:
            continue
        words.append(f"{row.get('prepunctuation') or ''}{token}{row['punctuation'] or ''}")
        try:
            times.append((float(row["ts"]), float(row["endTs"])))
        except (KeyError, TypeError, ValueError):
            continue
    if not words:
        raise UserError(f"{path}: holds no token; clone the repository again")
    timed = None
    if len(times) == len(words):
        timed = tuple(TimedWord(word, *time) for word, time in zip(words, times, strict=True))
    return " ".join(words), timed
