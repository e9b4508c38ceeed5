"""Manifests of NVIDIA NeMo: JSON lines with audio_filepath, duration, text, and where it is a part
of a longer recording, offset.

Unlike this project's own manifests (`data=manifest`) the lines have no ids, several of them may be
parts of one recording, and a text may be missing (then `text` of another name is given by
`text_key`: orig_text, text_pc).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.corpora.audio import Cut, File
from streaming_asr.corpora.loader import Loader, is_there, missing
from streaming_asr.corpora.rows import text_rows
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance


@dataclass(kw_only=True, eq=False)
class Nemo(Loader):
    """One manifest; relative paths are looked for below `audio_root`, else beside the manifest."""

    text_key: str = "text"
    audio_root: str | Path | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.stem

    def scan(self) -> Iterator[Utterance | UserError]:
        root = Path(self.audio_root).expanduser() if self.audio_root else self.path.parent
        for where, line in text_rows(self.path):
            try:
                row = json.loads(line)
                file = root / row["audio_filepath"]
                text = row.get(self.text_key)
                offset_s = float(row.get("offset") or 0.0)
                length_s = float(row["duration"]) if row.get("duration") is not None else 0.0
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                yield UserError(f"{where}: no NeMo line with audio_filepath ({error!r})")
                continue
            if not isinstance(text, str):
                yield UserError(f"{where}: no `{self.text_key}`; name another with data.text_key=")
            elif not is_there(file):
                yield missing(file, where)
            elif offset_s and not length_s:
                yield UserError(f"{where}: an offset without a duration; give both")
            else:
                cut = Cut(file, offset_s, offset_s + length_s) if "offset" in row else None
                name = str(row.get("id") or row.get("utt_id") or file.stem)
                if cut is not None and "id" not in row and "utt_id" not in row:
                    name += f"-{round(offset_s * 1000):08d}-{round(length_s * 1000):06d}"
                speaker = row.get("speaker")
                yield Utterance(
                    id=name,
                    text=" ".join(text.split()),
                    audio=cut if cut is not None and length_s else File(file),
                    duration_s=length_s,
                    speaker=None if speaker is None else str(speaker),
                    language=row.get("lang") or row.get("language") or self.language,
                    audio_path=str(file),
                )
