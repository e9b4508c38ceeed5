"""Published corpora whose splits are listed in tables, a line for each recording.

LibriSpeech (Panayotov et al. 2015; openslr.org/12), text in capitals without punctuation:

    LibriSpeech/<split>/<speaker>/<chapter>/<speaker>-<chapter>.trans.txt     "id TEXT"
    LibriSpeech/<split>/<speaker>/<chapter>/<speaker>-<chapter>-<utterance>.flac

Multilingual LibriSpeech (Pratap et al. 2020; openslr.org/94), lower case without punctuation:

    mls_<language>/<split>/transcripts.txt                  "id<TAB>text"
    mls_<language>/<split>/audio/<speaker>/<book>/<speaker>_<book>_<utterance>.flac   (or .opus)

Common Voice (Ardila et al. 2020); columns are taken by their names, which differ between releases:

    cv-corpus-<version>/<language>/{train,dev,test,validated,other,invalidated}.tsv
    cv-corpus-<version>/<language>/clips/<clip>.mp3
    cv-corpus-<version>/<language>/clip_durations.tsv       in newer releases

LibriSpeech-PC (openslr.org/145) has manifests in place of tables.

A folder with `<split>.jsonl`, a manifest of such recordings, is read in place of a split that has
no table; so is a folder of manifests with `ids`.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from streaming_asr.corpora.loader import Loader, Split, is_there, need_folder, need_split, recorded
from streaming_asr.corpora.manifest import scan_manifest
from streaming_asr.corpora.rows import text_rows
from streaming_asr.errors import UserError
from streaming_asr.text.languages import language_code
from streaming_asr.utterance import Utterance

MLS = ["dutch", "english", "french", "german", "italian", "polish", "portuguese", "spanish"]
Row = dict[str, str]
"""Fields of a line: `text`, those that `Layout.audio` uses, and speaker, locale, and the length in
ms where the table has them."""


@dataclass(frozen=True)
class Layout:
    """Where a corpus has its tables and recordings; {split} and {language} are the settings.

    name: the corpus in results. title: the corpus in messages. folder: the corpus's folder, where
    `path` is the one above it. tables: the pattern of a split's tables below that folder. line: the
    regular expression of a line, whose groups are its fields. form: a line in words, for messages.
    audio: a recording below the folder of its table. every: the pattern of all recordings of a
    split, each of which must be in a table.
    """

    name: str
    title: str
    folder: str
    tables: str
    audio: str
    line: str = ""
    form: str = ""
    every: str = ""


@dataclass(kw_only=True, eq=False)
class Published(Loader):
    """A corpus that is on disk as its `layout` states."""

    layout: ClassVar[Layout]

    path: Path = field(default=None)  # type: ignore[assignment]
    split: Split = "test"
    language: str | None = None

    def called(self) -> str:
        return self.layout.name.format(language=self.language)

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield an utterance for each line of the split's tables, then a UserError for each
        recording of the split that no table lists."""
        tables = self.tables(self.split)
        if not tables and (manifests := self._manifests()):
            yield from self._of_manifests(manifests)
            return
        root = self.root()
        if not tables:
            files = [table.relative_to(root) for table in self.tables("*")]
            splits = {file.parts[0].partition(".")[0] for file in files}
            splits |= {file.stem for file in self.path.glob("*.jsonl")}
            need_split(root, self.split, splits, self.layout.title)
        listed_files = set()
        for table in tables:
            for where, row in self.rows(table):
                if isinstance(row, UserError):
                    yield row
                    continue
                file = self._recording(table, row)
                listed_files.add(file)
                yield recorded(
                    file,
                    row["text"],
                    where,
                    duration_s=float(row.get("ms", 0)) / 1000,
                    speaker=row.get("speaker") or None,
                    language=row.get("locale") or self.language or root.name,
                )
        if self.layout.every:
            table_name = Path(self.layout.tables).name
            for file in sorted(root.glob(self.layout.every.format(split=self.split))):
                if file not in listed_files:
                    yield UserError(
                        f"{file}: no {table_name} has its text; extract the archive again"
                    )

    def _recording(self, table: Path, row: Row) -> Path:
        """Return the recording of a row; MLS also comes with Opus in the place of FLAC."""
        file = table.parent / self.layout.audio.format(**row, split=self.split)
        opus = file.with_suffix(".opus")
        return opus if is_there(opus) and not is_there(file) else file

    def root(self) -> Path:
        """Return the folder of the corpus. Raises UserError where there is none."""
        inner = self.layout.folder.format(language=self.language or "")
        return need_folder(self.path, self.layout.title, inner)

    def tables(self, split: str) -> list[Path]:
        """Return the tables of a split in the order of their paths, of every split for `*`."""
        if not self.path.is_dir():
            return []
        pattern = split if split == "*" else glob.escape(split)
        return sorted(self.root().glob(self.layout.tables.format(split=pattern)))

    def rows(self, table: Path) -> Iterator[tuple[str, Row | UserError]]:
        """Yield ("file, line n", fields) of every line, with a UserError in the place of the fields
        where the line has another form."""
        for where, line in text_rows(table):
            match = re.fullmatch(self.layout.line, line)
            error = UserError(f"{where}: {line[:60]!r}; a line is {self.layout.form}")
            yield where, match.groupdict() if match else error

    def _manifests(self) -> list[Path]:
        """Return the manifests that are read where there are no tables: `path` itself, else the
        split's in the folder `path`; with `ids` all of that folder."""
        if self.path.suffix == ".jsonl" and self.path.is_file():
            return [self.path]
        files = sorted(self.path.glob("*.jsonl")) if self.path.is_dir() else []
        return [file for file in files if self.ids is not None or file.stem == self.split]

    def _of_manifests(self, files: list[Path]) -> Iterator[Utterance | UserError]:
        """Yield the entries of the manifests, in the language of the settings where they have
        none."""
        for file in files:
            yield from scan_manifest(file, language=self.language)


@dataclass(kw_only=True, eq=False)
class LibriSpeech(Published):
    """Read English books. Word times: the TextGrids of LibriSpeech-Alignments, next to the audio
    or below `alignments`."""

    layout = Layout(
        name="librispeech",
        title="LibriSpeech",
        folder="LibriSpeech",
        tables="{split}/*/*/*.trans.txt",
        line=r"\s*(?P<id>(?P<speaker>[^ -]+)[^ ]*)(?P<text>.*)",
        form="`id TEXT`",
        audio="{id}.flac",
        every="{split}/*/*/*.flac",
    )
    split: Split = "test-clean"
    language: str | None = "en"


@dataclass(kw_only=True, eq=False)
class LibriSpeechPC(Loader):
    """LibriSpeech's recordings with punctuation and case (openslr.org/145): a manifest per split,
    its paths relative to LibriSpeech/."""

    kind = "librispeech_pc"

    manifests: Path
    split: Split = "test-clean"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.manifests = Path(self.manifests).expanduser()

    def scan(self) -> Iterator[Utterance | UserError]:
        root = need_folder(self.path, "LibriSpeech", "LibriSpeech")
        need_folder(self.manifests, "LibriSpeech-PC")
        splits = [file.stem for file in self.manifests.glob("*.json")]
        need_split(self.manifests, self.split, splits, "LibriSpeech-PC")
        manifest = self.manifests / f"{self.split}.json"
        for each in scan_manifest(manifest, folder=root, language="en"):
            if isinstance(each, Utterance):
                each = replace(each, speaker=each.id.partition("-")[0])
            yield each


@dataclass(kw_only=True, eq=False)
class Mls(Published):
    """Read books in eight languages; `language` is an English name (german) or a code (de)."""

    layout = Layout(
        name="mls_{language}",
        title="MLS",
        folder="mls_{language}",
        tables="{split}/transcripts.txt",
        line=r"(?P<id>(?P<speaker>[^_\t]*)_(?P<book>[^_\t]*)_[^_\t]*)\t(?P<text>.*\S.*)",
        form="`speaker_book_utterance<TAB>text`, the text not empty",
        audio="audio/{speaker}/{book}/{id}.flac",
    )

    def __post_init__(self) -> None:
        code = language_code(str(self.language))
        name = next((name for name in MLS if language_code(name) == code), None)
        if name is None:
            raise UserError(f"data.language={self.language}: MLS has {', '.join(MLS)}; choose one")
        self.language = name
        super().__post_init__()


@dataclass(kw_only=True, eq=False)
class CommonVoice(Published):
    """Read sentences; `path` is the folder of one language, or of a release with `language`."""

    layout = Layout(
        name="common_voice",
        title="Common Voice",
        folder="{language}",
        tables="{split}.tsv",
        audio="clips/{file}",
    )

    def tables(self, split: str) -> list[Path]:
        return [table for table in super().tables(split) if is_split(table)]

    def rows(self, table: Path) -> Iterator[tuple[str, Row | UserError]]:
        """Yield the rows with the fields that `Published.scan` needs; the length is in ms."""
        durations = table.with_name("clip_durations.tsv")
        duration_rows = named_rows(durations) if durations.is_file() else ()
        ms_of = {row.get("clip"): row.get("duration[ms]", "") for _, row in duration_rows}
        for where, row in named_rows(table):
            clip = row.get("path")
            if not clip:
                yield where, UserError(f"{where}: no path; extract the archive again")
                continue
            file = clip if clip.endswith(".mp3") else f"{clip}.mp3"
            row["file"] = file
            row["text"] = row.get("sentence", "")
            ms = ms_of.get(file, "")
            row["ms"] = ms if re.fullmatch(r"\d{1,9}(\.\d+)?", ms) else "0"  # 0: unknown
            row["speaker"] = row.get("client_id", "")
            yield where, row


def named_rows(table: Path) -> Iterator[tuple[str, Row]]:
    """Yield ("file, line n", {column: cell}) of every line after the first, which has the names of
    the columns, with TABs between."""
    lines = text_rows(table)
    _, header = next(lines, ("", ""))
    for where, line in lines:
        yield where, dict(zip(header.split("\t"), line.split("\t"), strict=False))


def is_split(table: Path) -> bool:
    """Return whether a table of Common Voice lists a split's clips, by its columns. Tables of other
    content are in the same folder. Raises UserError for one that is no UTF-8 text."""
    _, header = next(text_rows(table), ("", ""))
    return {"path", "sentence", "client_id"} <= set(header.strip().split("\t"))
