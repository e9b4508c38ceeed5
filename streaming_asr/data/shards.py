"""Training shards: many utterances with word times in few files, quick to open and to sample.

A shard is `shard-000.npy` (int16, one dimension: the samples of its utterances, joined, 16 kHz)
and `shard-000.jsonl`, one line per utterance: offset and n (samples), text (written), speaker,
words [[written, start_s, end_s], ...]. Audio is memory-mapped: processes share its pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streaming_asr.errors import UserError


@dataclass(frozen=True, slots=True)
class Item:
    """One training utterance; `samples()` reads it from its shard."""

    text: str
    words: tuple[tuple[str, float, float], ...]
    speaker: str
    offset: int
    n_samples: int
    shard: np.ndarray = field(repr=False, compare=False)

    def samples(self) -> np.ndarray:
        """float32 (n_samples,), mono at 16 kHz, in [-1, 1]."""
        cut = self.shard[self.offset : self.offset + self.n_samples]
        return cut.astype(np.float32) / np.float32(32768)


def by_speaker(items: Iterable[Item]) -> dict[str, list[Item]]:
    """The items of each speaker, in order."""
    voices: dict[str, list[Item]] = {}
    for item in items:
        voices.setdefault(item.speaker, []).append(item)
    return voices


def read_shards(folder: Path) -> list[Item]:
    """The utterances of the complete shards of `folder`, in order. Raises UserError for none."""
    items: list[Item] = []
    for index in sorted(Path(folder).glob("shard-*.jsonl")):
        shard = np.load(index.with_suffix(".npy"), mmap_mode="r")
        for line in index.read_text("utf-8").splitlines():
            row = json.loads(line)
            words = tuple((str(w), float(a), float(b)) for w, a, b in row["words"])
            items.append(Item(row["text"], words, row["speaker"], row["offset"], row["n"], shard))
    if not items:
        raise UserError(
            f"{folder}: no training shards (shard-*.npy, shard-*.jsonl); make mini's with "
            "`python experiments/mini/corpus.py train --out outputs/mini/train`"
        )
    return items
