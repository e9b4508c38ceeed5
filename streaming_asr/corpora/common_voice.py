"""Common Voice (Ardila et al. 2020): a folder per language, a TSV per split, clips as mp3.

    cv-corpus-<version>/<language>/{train,dev,test,validated,other,invalidated}.tsv
    cv-corpus-<version>/<language>/clips/<clip>.mp3
    cv-corpus-<version>/<language>/clip_durations.tsv       in newer releases

A folder with `<split>.jsonl`, a manifest of such clips, is read in its place; so is a folder of
manifests with `ids`.

Columns are taken by their names, which differ between releases: client_id (the speaker), path,
sentence, locale.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streaming_asr.corpora.loader import (
    Loader,
    Split,
    need_folder,
    need_split,
    recorded,
    scan_manifests,
)
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance


@dataclass(kw_only=True, eq=False)
class CommonVoice(Loader):
    """Read sentences; `path` is the folder of one language, or of a release with `language`."""

    kind = "common_voice"

    path: Path = field(default=None)  # type: ignore[assignment]
    split: Split = "test"
    language: str | None = None

    def scan(self) -> Iterator[Utterance | UserError]:
        table = self.path / (self.language or "") / f"{self.split}.tsv"
        if manifests := self.manifest_files(table, self.path / "clips"):
            yield from scan_manifests(manifests, self.language)
            return
        root = need_folder(self.path, "Common Voice", self.language or "")
        splits = [file.stem for file in root.glob("*.tsv") if is_split(file)]
        need_split(root, self.split, splits, "Common Voice")
        lengths_s = _lengths_s(root / "clip_durations.tsv")
        table = root / f"{self.split}.tsv"
        for number, row in enumerate(rows(table), start=2):
            where, clip = f"{table}, line {number}", row.get("path")
            if not clip:
                yield UserError(f"{where}: no path; extract the archive again")
                continue
            file = root / "clips" / (clip if clip.endswith(".mp3") else f"{clip}.mp3")
            yield recorded(
                file,
                row.get("sentence") or "",
                where,
                duration_s=lengths_s.get(file.name, 0.0),
                speaker=row.get("client_id") or None,
                language=(row.get("locale") or self.language or root.name).partition("-")[0],
            )


def rows(table: Path) -> Iterator[dict[str, str]]:
    """Yield the lines of a table by the names of its columns."""
    lines = text_lines(table)
    return csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def is_split(table: Path) -> bool:
    """Return whether the table is one of a split: others lie beside them."""
    with table.open(encoding="utf-8") as file:
        return {"path", "sentence", "client_id"} <= set(file.readline().strip().split("\t"))


def _lengths_s(table: Path) -> dict[str, float]:
    if not table.is_file():
        return {}
    return {row["clip"]: float(row["duration[ms]"]) / 1000 for row in rows(table) if row["clip"]}
