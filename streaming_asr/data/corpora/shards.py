"""Training shards as a corpus: to align them, to check them, to run on them. See data/shards.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streaming_asr.data.corpora.loader import Loader
from streaming_asr.data.shards import Item, read_shards
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import TimedWord, Utterance


@dataclass(frozen=True, slots=True)
class Stretch:
    """The samples of one item."""

    item: Item

    def __call__(self) -> Samples:
        return self.item.samples()


@dataclass(kw_only=True, eq=False)
class Shards(Loader):
    """The utterances of a folder of shards, with the word times they carry; ids by position."""

    kind = "shards"

    language: str | None = "en"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.name

    def scan(self) -> Iterator[Utterance | UserError]:
        for i, item in enumerate(read_shards(self.path)):
            yield Utterance(
                id=f"{self.split}-{i:06d}",
                text=item.text,
                audio=Stretch(item),
                duration_s=item.n_samples / SAMPLE_RATE,
                speaker=item.speaker,
                language=self.language,
                words=tuple(TimedWord(*word) for word in item.words) or None,
            )
