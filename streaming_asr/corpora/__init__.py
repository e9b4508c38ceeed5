"""Corpora: named sets of utterances, which a file of conf/data chooses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from streaming_asr.corpora.audio import SUFFIXES, File, by_channel, duration_s
from streaming_asr.corpora.headers import check_no_url
from streaming_asr.corpora.loader import Loader, choose, in_order_of_limit
from streaming_asr.corpora.manifest import Outline, outlines, scan_manifest
from streaming_asr.corpora.rows import text_of
from streaming_asr.errors import UserError
from streaming_asr.files import HERE, check_file, in_utf_8
from streaming_asr.utterance import Utterance

__all__ = ["MINI", "Folder", "Manifest", "Mini", "choose", "hash_of"]

MINI = HERE / "data" / "mini"
TABLES = (".csv", ".tsv", ".xlsx")  # of corpora, not recordings
SIGNS = {"wav.scp": "kaldi", "*.jsonl": "manifest data.path=FILE"}


@dataclass(eq=False)
class Manifest(Loader):
    """The utterances of one manifest file; see `manifest.py` for its fields, and `scan_manifest`
    for what `text_key`, `audio_root` (a folder) and `language` mean."""

    path: Path
    text_key: str = field(default="text", kw_only=True)
    audio_root: str | Path | None = field(default=None, kw_only=True)
    language: str | None = field(default=None, kw_only=True)
    _lines: Collection[int] | None = field(default=None, init=False)  # the only ones to read

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.stem

    def called(self) -> str:
        return self.path.parent.name or "manifest"

    def scan(self) -> Iterator[Utterance | UserError]:
        yield from scan_manifest(
            self.path,
            self._lines,
            folder=self._base,
            text_key=self.text_key,
            language=self.language,
        )

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        """See `Loader`. Where only a limit chooses, only the lines that it takes are read."""
        limit = self.limit if limit is None else limit
        is_joined = self.join_s is not None or self.per_speaker is not None
        if limit is not None and limit > 0 and not is_joined and self._is_plain and self._outlines:
            names = {each.id for each in in_order_of_limit(self._outlines)[:limit]}
            part = copy(self)
            part._lines = {n for n, each in enumerate(self._outlines) if each.id in names}
            return super(Manifest, part).utterances(limit)
        return super().utterances(limit)

    def languages(self) -> set[str]:
        if not self._is_plain or self._outlines is None:
            return super().languages()
        named = {each.language or self.language for each in self._outlines}
        return {language for language in named if language}

    @property
    def _is_plain(self) -> bool:
        """Whether the utterances are all lines: no ids, and no subclass chooses or makes them."""
        return self.ids is None and type(self).scan is Manifest.scan

    def data_hash(self) -> str:
        if self.ids is not None:  # of the chosen utterances only
            return super().data_hash()
        if self._outlines is None:
            super().utterances()  # raises the fault
        names = dict.fromkeys(name for each in self._outlines or () for name in each.files)
        files = dict.fromkeys(self._base / name for name in names)
        content = text_of(self.path)
        return hash_of(content, [*files, *self._alignment_files()])

    @property
    def _base(self) -> Path:
        """The folder from which the relative paths of the lines start."""
        return Path(self.audio_root).expanduser() if self.audio_root else self.path.parent

    @cached_property
    def _outlines(self) -> list[Outline] | None:
        return outlines(self.path)


@dataclass(eq=False)
class Mini(Manifest):
    """The embedded corpus of synthetic speech, with exact word times."""

    path: Path = field(default=MINI, init=False)
    split: str = "clean"

    def __post_init__(self) -> None:
        self.path = MINI / f"{self.split}.jsonl"
        if not self.path.is_file():
            splits = ", ".join(sorted(file.stem for file in MINI.glob("*.jsonl"))) or "none"
            raise UserError(
                f"data.split={self.split}: mini has no such split; there are: {splits}."
            )
        self.name = "mini"
        super().__post_init__()


@dataclass(eq=False)
class Folder(Loader):
    """A folder of recordings, or one recording. Either every recording has a text file next to it
    (talk.wav, talk.txt) or none has.

    Ids are the paths below the folder without the ending. channel: the one that is read, from 1;
    None is the mean of all, `each` makes an utterance of every channel, as talk-channel1, whose
    text is in talk-channel1.txt. Hidden files are passed over. Without texts there are no error
    rates, but latency and cost are measured.
    """

    path: Path
    split: str = field(default="all", kw_only=True)
    language: str | None = field(default=None, kw_only=True)
    channel: int | str | None = field(default=None, kw_only=True)

    def called(self) -> str:
        return self.path.name or "folder"

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield each recording as an utterance, or a UserError for one that lacks its text."""
        recordings = [
            (audio, audio.path.with_name(f"{audio.path.stem}{suffix}.txt"))
            for file in self.files()
            for audio, suffix in by_channel(File(file), self.channel, "data.channel")
        ]
        any_has_text = any(text_file.is_file() for _, text_file in recordings)
        for audio, text_file in recordings:
            file = audio.path
            if any_has_text and not text_file.is_file():
                yield UserError(
                    f"{file}: no text next to it, though others have one; add {text_file.name} "
                    "(empty where nothing is spoken)."
                )
                continue
            yield Utterance(
                id=in_utf_8(text_file.relative_to(self._root).with_suffix("")),
                text=" ".join(text_of(text_file).split()) if any_has_text else "",
                audio=audio,
                duration_s=duration_s(file),
                language=self.language,
                audio_path=in_utf_8(file),
            )

    def data_hash(self) -> str:
        recordings = self.files()
        text_files = [file.with_suffix(".txt") for file in recordings]
        texts = [text_of(text_file) for text_file in text_files if text_file.is_file()]
        content = "\0".join(texts)
        if self.channel is not None:
            content += f"\0channel {self.channel}"
        return hash_of(content, [*recordings, *self._alignment_files()])

    @property
    def _root(self) -> Path:
        return self.path.parent if self.path.is_file() else self.path

    def files(self) -> list[Path]:
        """Return the recordings in the order of their paths.

        Raises UserError where there is none, and where two have the same path except the ending.
        """
        if os.path.isfile(self.path):  # of a name of any length
            if self.path.suffix.lower() in TABLES:
                raise UserError(
                    f"{self.path}: a table, not a recording; a corpus of your own is a .jsonl with "
                    "audio_filepath and text in each line, and data=common_voice reads a release"
                )
            return [self.path]
        if not os.path.isdir(self.path):
            check_no_url(self.path)
            check_file(self.path)
            raise UserError(
                f"{self.path}: no such folder or file; give a recording or a folder of them."
            )
        files = sorted(
            file
            for file in self.path.rglob("*")
            if file.suffix.lower() in SUFFIXES
            and not any(part.startswith(".") for part in file.relative_to(self.path).parts)
        )
        if not files:
            signs = [(file, kind) for name, kind in SIGNS.items() for file in self.path.glob(name)]
            for file, kind in signs:
                raise UserError(f"{self.path}: no audio in it, but {file.name}; give data={kind}")
            raise UserError(f"{self.path}: no audio in it; endings read: {', '.join(SUFFIXES)}.")
        by_stem: dict[Path, Path] = {}
        for file in files:
            other = by_stem.setdefault(file.with_suffix(""), file)
            if other != file:
                raise UserError(f"{file}: {other.name} has the same name; rename one of them.")
        return files


def hash_of(text: str, files: Iterable[Path]) -> str:
    """Return the sha256 of `text` (the references) and of the names and sizes of `files`. Their
    content is left out, because reading all audio would be slow."""
    digest = hashlib.sha256(text.encode())
    for file in files:
        n_bytes = file.stat().st_size if file.is_file() else 0  # a link may lead nowhere
        digest.update(f"\0{file.name}\0{n_bytes}".encode(errors="surrogateescape"))
    return digest.hexdigest()
