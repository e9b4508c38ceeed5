"""FLEURS (Conneau et al. 2022), as its repository on the hub lies on disk.

    data/<language>/{train,dev,test}.tsv
    data/<language>/audio/<split>/<file>.wav        extracted from audio/<split>.tar.gz

The TSV has no header: id of the sentence, file, text as written, normalised text, its characters,
number of samples, gender. A sentence is read by up to three speakers, who have no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streaming_asr.corpora.loader import Loader, need_folder, need_split, recorded
from streaming_asr.corpora.rows import text_rows
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import Utterance

CODES = {"cmn": "zh", "yue": "yue", "ckb": "ku", "fil": "tl", "nb": "no", "iw": "he"}
"""Whisper's names where they are not the first part of FLEURS' own."""


@dataclass(kw_only=True, eq=False)
class Fleurs(Loader):
    """Read sentences in 102 languages; `language` is FLEURS' name, as de_de."""

    language: str
    split: str = "test"

    def called(self) -> str:
        return f"fleurs_{self.language}"

    def scan(self) -> Iterator[Utterance | UserError]:
        data = need_folder(self.path, "FLEURS", "data")
        root = data / self.language
        if not root.is_dir():
            languages = sorted(f.name for f in data.iterdir() if (f / "audio").is_dir())
            raise UserError(
                f"data.language={self.language}: {data} has no such folder; there are: "
                f"{', '.join(languages) or 'none'}"
            )
        need_split(root, self.split, [file.stem for file in root.glob("*.tsv")], self.name)
        audio = root / "audio" / self.split
        if not audio.is_dir() and (root / "audio" / f"{self.split}.tar.gz").is_file():
            raise UserError(
                f"{audio}: not extracted; run: tar -xzf {self.split}.tar.gz in {audio.parent}"
            )
        table = root / f"{self.split}.tsv"
        code = self.language.partition("_")[0]
        for where, line in text_rows(table):
            fields = line.rstrip("\r").split("\t")
            if len(fields) < 6 or not fields[5].isdigit():
                yield UserError(f"{where}: {len(fields)} fields; FLEURS has 7, the 6th the samples")
                continue
            length_s = int(fields[5]) / SAMPLE_RATE
            language = CODES.get(code, code)
            yield recorded(
                audio / fields[1], fields[2], where, duration_s=length_s, language=language
            )
