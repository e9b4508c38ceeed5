"""Data sets in the form of Hugging Face datasets (needs the package: pip install datasets).

`path` is a folder that `save_to_disk` wrote, a local folder of parquet files, or a name on the
hub. The audio column is taken undecoded: datasets' own decoding needs torchcodec.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from streaming_asr.corpora.audio import duration_s, load_audio
from streaming_asr.corpora.loader import Loader, recorded
from streaming_asr.errors import UserError
from streaming_asr.machine import no_way
from streaming_asr.method import Samples
from streaming_asr.utterance import Utterance

TEXTS = ("text", "sentence", "transcription", "transcript", "normalized_text", "raw_transcription")
SPEAKERS = ("speaker_id", "speaker", "client_id")
IDS = ("id", "utt_id", "segment_id", "original_full_path")


@dataclass(kw_only=True, eq=False)
class HuggingFace(Loader):
    """A split of a data set; columns are found by their usual names, or named."""

    config: str | None = None
    split: str = "test"
    text_column: str | None = None
    audio_column: str = "audio"
    language: str | None = None

    def __post_init__(self) -> None:
        self.source = str(self.path)
        super().__post_init__()

    def called(self) -> str:
        return self.path.name

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield each row of the split as an utterance, or a UserError for an incomplete one."""
        table = self._table()
        columns = set(table.column_names)
        text_column = self.text_column or next((c for c in TEXTS if c in columns), None)
        for key, column in (("text_column", text_column), ("audio_column", self.audio_column)):
            if column not in columns:
                raise UserError(
                    f"data.{key}={column}: {self.source} has no such column; there are: "
                    f"{', '.join(sorted(columns))}"
                )
        speaker_column = next((name for name in SPEAKERS if name in columns), None)
        id_column = next((name for name in IDS if name in columns), None)
        text_columns = [name for name in (text_column, speaker_column, id_column) if name]
        # Rows without audio are quick to go through; audio is only read by its index.
        rows = table.select_columns(text_columns)
        audio_table = table.select_columns([self.audio_column])
        for i, row in enumerate(rows):
            audio = audio_table[i][self.audio_column]
            if not isinstance(audio, dict):
                audio = {}
            stem = Path(audio.get("path") or "").stem
            name = str(row[id_column]) if id_column else stem or f"{self.split}-{i:06d}"
            where = f"{self.source}, {self.split}, row {i}"
            text = row[text_column]
            if not isinstance(text, str) or not text.strip():
                yield UserError(
                    f"{where}: {name} has no text in column {text_column}; filter it out"
                )
                continue
            text = " ".join(text.split())
            fields: dict[str, Any] = {
                "speaker": None if speaker_column is None else str(row[speaker_column]),
                "language": self.language,
            }
            if (content := audio.get("bytes")) is not None:
                samples = partial(_load, table, i, self.audio_column, name)
                with _written(content) as copy:
                    length_s = duration_s(copy)
                yield Utterance(name, text, samples, length_s, **fields)
            elif audio.get("path"):
                yield recorded(Path(audio["path"]), text, where, name=name, **fields)
            else:
                yield UserError(
                    f"{where}: {name} has no recording in column {self.audio_column}, which holds "
                    "files as datasets.Audio writes them; cast the column to it"
                )

    def _table(self) -> Any:
        """Return the `datasets.Dataset` of the split, its audio undecoded. Raises UserError where
        it cannot be had."""
        try:
            import datasets
            from huggingface_hub import constants
        except ImportError as error:
            raise UserError(
                f"data.path={self.source}: needs the package datasets; pip install datasets"
            ) from error
        saved_names = ("dataset_info.json", "dataset_dict.json")  # of `save_to_disk`
        try:
            if any((self.path / name).is_file() for name in saved_names):
                table = datasets.load_from_disk(str(self.path))
            else:
                # The hub's own client would try for half a minute; the cache may have the set.
                if not self.path.exists() and no_way(constants.ENDPOINT):
                    constants.HF_HUB_OFFLINE = True
                table = datasets.load_dataset(self.source, self.config)
        except Exception as error:  # datasets raises errors of many packages
            reason = str(error).strip().split("\n")[0]
            raise UserError(
                f"data.path={self.source}: datasets cannot load it ({reason}); give the name of a "
                "set on the hub where that can be reached, or a folder it was saved to"
            ) from error
        if isinstance(table, datasets.DatasetDict):
            if self.split not in table:
                splits = ", ".join(table) or "none"
                raise UserError(f"data.split={self.split}: {self.source} has {splits}")
            table = table[self.split]
        if isinstance(table.features.get(self.audio_column), datasets.Audio):
            table = table.cast_column(self.audio_column, datasets.Audio(decode=False))
        return table


@contextmanager
def _written(content: bytes) -> Iterator[str]:
    """Yield the path of a file with the content, as long as the block lasts."""
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _load(table: Any, index: int, column: str, name: str) -> Samples:
    """Return the audio, (n,) at 16 kHz, of a row with an encoded file; it stays on disk until it is
    asked for. Raises UserError."""
    with _written(table[index][column]["bytes"]) as file:
        try:
            return load_audio(file)
        except UserError as error:
            raise UserError(str(error).replace(file, name)) from error
