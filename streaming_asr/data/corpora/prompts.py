"""Debian's telephone prompts as a corpus: see data/prompts.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streaming_asr.data import prompts
from streaming_asr.data.corpora import Manifest, hash_of
from streaming_asr.data.manifest import manifest_text
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance


@dataclass(kw_only=True, eq=False)
class Prompts(Manifest):
    """The prompts of one language, obtained on first use."""

    path: Path = field(default=Path(), init=False)
    language: str | None = None
    """One of `prompts.LANGUAGES`; None and `detect` take English."""

    def __post_init__(self) -> None:
        self.split = "en" if self.language in (None, "detect") else str(self.language)
        prompts.packages(self.split)
        self.path = prompts.place_of(self.split) / prompts.MANIFEST
        self.name = self.name or "prompts"
        super().__post_init__()

    def scan(self) -> Iterator[Utterance | UserError]:
        self._folder()
        yield from super().scan()

    def data_hash(self) -> str:
        """Of what was read of the packages, and of noise and alignments where they are given."""
        source = json.loads(manifest_text(self._folder() / prompts.SOURCE))
        return hash_of(str(source["sha256"]), self._beside())

    def licence(self) -> str:
        """Licence and attribution, as the package states them."""
        return prompts.licence(self._folder() / prompts.COPYRIGHT, self.split)

    def _folder(self) -> Path:
        return prompts.fetch_prompts(self.split)
