"""speechocean762 (Zhang et al. 2021; openslr.org/101): English read by Mandarin speakers, half of
them children.

Read in three forms, told apart by what is in `path`:

    {train,test}/{wav.scp,text,utt2spk}    Kaldi's, as OpenSLR's archive has it
    {train,test}.jsonl                     manifests with speakers
    anything else                          a set on the hub, or saved by datasets

Ids are the recordings' names, speakers so0001 ..., texts in lower case, the same in all forms.
The published train speakers are split into train and 20 for dev; of the published test speakers the
63 that are frozen in speechocean762.json are test, without the texts that occur in the published
train part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from streaming_asr.corpora.huggingface import HuggingFace
from streaming_asr.corpora.kaldi import Kaldi
from streaming_asr.corpora.loader import Loader, need_split
from streaming_asr.corpora.manifest import scan_manifest
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

SPEAKERS = Path(__file__).with_suffix(".json")
SPLITS = ("train", "dev", "test")


def frozen_speakers() -> dict[str, frozenset[str]]:
    """Return the speakers of dev and of test."""
    names_of = json.loads(SPEAKERS.read_text(encoding="utf-8"))
    return {split: frozenset(names) for split, names in names_of.items()}


@dataclass(kw_only=True, eq=False)
class Speechocean762(Loader):
    """`split` is train, dev or test; `path` a folder, or a name on the hub."""

    kind = "speechocean762"

    split: str = "test"

    def __post_init__(self) -> None:
        self.source = str(self.path)
        super().__post_init__()
        need_split(self.path, self.split, SPLITS, "speechocean762")

    def licence(self) -> str:
        """Return what its publisher says."""
        return (
            "free, also commercially, CC BY 4.0 at openslr.org/101; "
            "Junbo Zhang et al., speechocean762, Interspeech 2021"
        )

    def scan(self) -> Iterator[Utterance | UserError]:
        speakers = frozen_speakers()
        if self.split != "test":
            is_dev = self.split == "dev"
            for each in self._part("train"):
                if isinstance(each, UserError) or (each.speaker in speakers["dev"]) == is_dev:
                    yield each
            return
        trained = {each.text for each in self._part("train") if isinstance(each, Utterance)}
        for each in self._part("test"):
            if isinstance(each, UserError) or (
                each.speaker in speakers["test"] and each.text not in trained
            ):
                yield each

    def _part(self, part: str) -> Iterator[Utterance | UserError]:
        """Yield the utterances of a published part in its order."""
        if (self.path / f"{part}.jsonl").is_file():
            scanned = scan_manifest(self.path / f"{part}.jsonl")
        elif (folder := self.path / part).is_dir() and (folder / "wav.scp").is_file():
            scanned = Kaldi(path=folder, root=self.path).scan()
        else:
            scanned = HuggingFace(path=Path(self.source), split=part).scan()
        for each in scanned:
            if isinstance(each, UserError):
                yield each
                continue
            if each.speaker is None:
                yield UserError(f"{self.source}: {each.id} names no speaker; take the whole set")
                continue
            yield replace(
                each,
                text=" ".join(each.text.lower().split()),
                speaker=f"so{each.speaker.removeprefix('so'):0>4}",
                language="en",
            )
