"""LibriSpeech (Panayotov et al. 2015; openslr.org/12) and LibriSpeech-PC (openslr.org/145).

    LibriSpeech/<split>/<speaker>/<chapter>/<speaker>-<chapter>-<utterance>.flac
    LibriSpeech/<split>/<speaker>/<chapter>/<speaker>-<chapter>.trans.txt     "id TEXT IN CAPITALS"

LibriSpeech-PC gives the same recordings punctuation and case: one manifest of NeMo's form per
split, its paths relative to LibriSpeech/.

A folder with `<split>.jsonl`, a manifest of such recordings, is read in its place; so is a folder
of manifests with `ids`.

Word times: the TextGrids of LibriSpeech-Alignments, beside the audio or below `alignments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from streaming_asr.corpora.loader import (
    Loader,
    Split,
    need_folder,
    need_split,
    recorded,
    scan_manifests,
)
from streaming_asr.corpora.nemo import Nemo
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

LANGUAGE = "en"


@dataclass(kw_only=True, eq=False)
class LibriSpeech(Loader):
    """Read English books; text in capitals without punctuation."""

    kind = "librispeech"

    path: Path = field(default=None)  # type: ignore[assignment]
    split: Split = "test-clean"

    def scan(self) -> Iterator[Utterance | UserError]:
        folders = (self.path / self.split, self.path / "LibriSpeech" / self.split)
        if manifests := self.manifest_files(*folders):
            yield from scan_manifests(manifests, LANGUAGE)
            return
        root = need_folder(self.path, "LibriSpeech", "LibriSpeech")
        splits = [f.name for f in root.iterdir() if f.is_dir() and next(f.glob("*/*/*.flac"), None)]
        splits += [f.stem for f in self.path.glob("*.jsonl")]
        need_split(root, self.split, splits, "LibriSpeech")
        for chapter in sorted((root / self.split).glob("*/*/")):
            speaker, number = chapter.parent.name, chapter.name
            transcripts = chapter / f"{speaker}-{number}.trans.txt"
            if not transcripts.is_file():
                yield UserError(f"{chapter}: {transcripts.name} is missing; extract it again")
                continue
            spoken = set()
            for line in text_lines(transcripts):
                name, _, text = line.strip().partition(" ")
                file = chapter / f"{name}.flac"
                spoken.add(file.name)
                yield recorded(file, text, transcripts.name, speaker=speaker, language=LANGUAGE)
            for file in sorted(chapter.glob("*.flac")):
                if file.name not in spoken:
                    yield UserError(f"{file}: {transcripts.name} has no text for it")


@dataclass(kw_only=True, eq=False)
class LibriSpeechPC(Loader):
    """LibriSpeech's recordings with written text: punctuation and case."""

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
        for each in Nemo(path=manifest, audio_root=root, language=LANGUAGE).scan():
            if isinstance(each, Utterance):
                each = replace(each, speaker=each.id.partition("-")[0])
            yield each
