"""Manifests of NVIDIA NeMo: JSON lines with audio_filepath, duration, text, and where it is a part
of a longer recording, offset.

Unlike this project's own manifests (`data=manifest`) the lines have no ids, several of them may be
parts of one recording, and a text may be missing (then `text` of another name is given by
`text_key`: orig_text, text_pc).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_asr.corpora.audio import Cut, File
from streaming_asr.corpora.loader import (
    Loader,
    Split,
    is_there,
    missing,
    need_folder,
    need_split,
)
from streaming_asr.corpora.rows import json_row, numbers, text_rows
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

IDS = ("id", "utt_id")


@dataclass(kw_only=True, eq=False)
class Nemo(Loader):
    """One manifest; relative paths are relative to `audio_root`, by default its own folder."""

    text_key: str = "text"
    audio_root: str | Path | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.stem

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield an utterance for each line; with an offset it is a part of its recording."""
        root = Path(self.audio_root).expanduser() if self.audio_root else self.path.parent
        for where, line in text_rows(self.path):
            try:
                row = json_row(line, where)
                file = root / _text(row, "audio_filepath", where)
                offset_s = _seconds(row, "offset", where) or 0.0
                length_s = _seconds(row, "duration", where) or 0.0
                _check_channel(row, where)
                language = _text(row, "lang", where) or _text(row, "language", where)
            except UserError as error:
                yield error
                continue
            text = row.get(self.text_key)
            if not isinstance(text, str):
                yield UserError(f"{where}: no `{self.text_key}`; name another with data.text_key=")
                continue
            if not is_there(file):
                yield missing(file, where)
                continue
            if offset_s and not length_s:
                yield UserError(f"{where}: an offset without a duration; give both")
                continue
            is_part = "offset" in row
            row_id = next((row[key] for key in IDS if row.get(key) not in (None, "")), None)
            name = file.stem if row_id is None else str(row_id)
            if is_part and row_id is None:
                name += f"-{round(offset_s * 1000):08d}-{round(length_s * 1000):06d}"
            cut = Cut(file, offset_s, offset_s + length_s)
            speaker = row.get("speaker")
            yield Utterance(
                id=name,
                text=" ".join(text.split()),
                audio=cut if is_part and length_s else File(file),
                duration_s=length_s,
                speaker=None if speaker is None else str(speaker),
                language=language or self.language,
                audio_path=str(file),
            )


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
        for each in Nemo(path=manifest, audio_root=root, language="en").scan():
            if isinstance(each, Utterance):
                each = replace(each, speaker=each.id.partition("-")[0])
            yield each


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return a value that is a text, "" where the row has none. Raises UserError for another value,
    and where the row has no audio_filepath."""
    value = row.get(key)
    if key == "audio_filepath" and not value:
        raise UserError(f"{where}: no NeMo line with audio_filepath; name the recording")
    if not isinstance(value, str | None) or "\0" in (value or ""):
        raise UserError(f"{where}: {key} is {str(value)[:60]!r}; must be a text")
    return value or ""


def _seconds(row: Mapping[str, Any], key: str, where: str) -> float | None:
    """Return a value in seconds, None where the row has none. Raises UserError for no time."""
    return None if row.get(key) is None else numbers([row[key]], f"{where}, {key}")[0]


def _check_channel(row: Mapping[str, Any], where: str) -> None:
    """Raise UserError for a line that is of one channel: recordings are read as their mean."""
    if row.get("channel_selector") not in (None, "average"):
        raise UserError(
            f"{where}: channel_selector={str(row['channel_selector'])[:60]!r}, and all channels "
            "are read as their mean; write the channel to a file of its own and name that"
        )
