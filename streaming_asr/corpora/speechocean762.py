"""speechocean762 (Zhang et al. 2021; openslr.org/101): English read by Mandarin speakers, half of
them children.

Read in three forms, by what is in `path`:

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
        """Return licence and attribution, as its publisher states them."""
        return (
            "free, also commercially, CC BY 4.0 at openslr.org/101; "
            "Junbo Zhang et al., speechocean762, Interspeech 2021"
        )

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield the utterances of the split's speakers. Those of test have no text that is in the
        published train part."""
        speakers = frozen_speakers()
        train_entries = self._published_part("train")
        if self.split == "test":
            train_texts = {entry.text for entry in train_entries if isinstance(entry, Utterance)}
            for entry in self._published_part("test"):
                is_test = isinstance(entry, Utterance) and (
                    entry.speaker in speakers["test"] and entry.text not in train_texts
                )
                if isinstance(entry, UserError) or is_test:
                    yield entry
            return
        is_dev = self.split == "dev"
        for entry in train_entries:
            if isinstance(entry, UserError) or (entry.speaker in speakers["dev"]) == is_dev:
                yield entry

    def _published_part(self, part: str) -> Iterator[Utterance | UserError]:
        """Yield the utterances of a published part, train or test, in its order, with texts and
        speakers' names in the same form whatever the source."""
        if (self.path / f"{part}.jsonl").is_file():
            scanned = scan_manifest(self.path / f"{part}.jsonl")
        elif (folder := self.path / part).is_dir() and (folder / "wav.scp").is_file():
            scanned = Kaldi(path=folder, root=self.path).scan()
        else:
            scanned = HuggingFace(path=Path(self.source), split=part).scan()
        for entry in scanned:
            if isinstance(entry, UserError):
                yield entry
                continue
            if entry.speaker is None:
                yield UserError(f"{self.source}: {entry.id} names no speaker; take the whole set")
                continue
            yield replace(
                entry,
                text=" ".join(entry.text.lower().split()),
                speaker=f"so{entry.speaker.removeprefix('so'):0>4}",
                language="en",
            )
