"""Training shards: many utterances with word times in few files, quick to open and to sample.

A shard is `shard-000.npy` (int16, one dimension: the samples of its utterances, joined, 16 kHz)
and `shard-000.jsonl`, one line per utterance: id, offset and n (samples), text (written), speaker,
language where it is known, words [[written, start_s, end_s], ...]. Audio is memory-mapped:
processes share its pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Annotated

import msgspec
import numpy as np

from streaming_asr.corpora.lists import without_listed
from streaming_asr.corpora.manifest import word_rows
from streaming_asr.corpora.rows import Time, json_rows
from streaming_asr.errors import UserError
from streaming_asr.files import replacing, write_text
from streaming_asr.utterance import Utterance

PER_SHARD = 2000  # utterances


class _Line(msgspec.Struct):
    """A line of a shard's index."""

    text: str
    words: tuple[tuple[str, Time, Time], ...]
    speaker: str
    offset: Annotated[int, msgspec.Meta(ge=0)]
    n: Annotated[int, msgspec.Meta(ge=1)]
    language: str | None = None
    id: str = ""  # old shards have none


@dataclass(frozen=True, slots=True)
class ShardItem:
    """One training utterance; `samples()` reads it from its shard. `offset`: in samples."""

    text: str
    words: tuple[tuple[str, float, float], ...]
    speaker: str
    offset: int
    n_samples: int
    shard: np.ndarray = field(repr=False, compare=False)
    language: str | None = None
    id: str = ""  # of the utterance; old shards have none

    @property
    def voice(self) -> tuple[str | None, str]:
        """Return (language, speaker). A training window has utterances of one voice only."""
        return self.language, self.speaker

    def samples(self) -> np.ndarray:
        """Return the samples, float32 (n_samples,), mono at 16 kHz, in [-1, 1]."""
        pcm = self.shard[self.offset : self.offset + self.n_samples]
        return pcm.astype(np.float32) / np.float32(32768)


def by_voice(
    items: Iterable[ShardItem], least: int = 8
) -> dict[tuple[str | None, str], list[ShardItem]]:
    """Return {voice: items to draw from}: the voice's own, or, for a voice with fewer than `least`,
    those of all such voices of its language.

    A training window joins several items of one entry. Of a voice with few items, a window would
    repeat the same sentences.
    """
    items_of: dict[tuple[str | None, str], list[ShardItem]] = {}
    for item in items:
        items_of.setdefault(item.voice, []).append(item)
    pool_of_language: dict[str | None, list[ShardItem]] = {}
    for (language, _), own_items in items_of.items():
        if len(own_items) < least:
            pool_of_language.setdefault(language, []).extend(own_items)
    return {
        (language, speaker): own_items if len(own_items) >= least else pool_of_language[language]
        for (language, speaker), own_items in items_of.items()
    }


def read_shards(folder: Path) -> list[ShardItem]:
    """Return the utterances of the shards in `folder`, memory-mapped. Raises UserError where there
    is none, and for a line with a fault."""
    items: list[ShardItem] = []
    for index in sorted(Path(folder).glob("shard-*.jsonl")):
        shard = _samples(index.with_suffix(".npy"))
        for where, row in json_rows(index):
            try:
                line = msgspec.convert(row, _Line)
            except msgspec.ValidationError as error:
                raise UserError(f"{where}: {error}; write the shards again") from error
            if line.offset + line.n > len(shard):
                raise UserError(
                    f"{where}: ends at sample {line.offset + line.n} of {len(shard)}; write the "
                    "shards again"
                )
            fields = msgspec.structs.asdict(line)
            items.append(ShardItem(n_samples=fields.pop("n"), shard=shard, **fields))
    if not items:
        raise UserError(
            f"{folder}: no training shards (shard-*.npy, shard-*.jsonl); make them with "
            "`streaming-asr data shards data=... out=FOLDER`"
        )
    return items


def _samples(file: Path) -> np.ndarray:
    """Return the samples of a shard, int16 (n,), memory-mapped. Raises UserError for a file that is
    missing, cut off, pickled or of other numbers."""
    try:
        shard = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError, TokenError) as error:  # numpy parses the header
        raise UserError(
            f"{file}: no whole array of samples ({error}); write the shards again"
        ) from error
    if shard.dtype != np.int16 or shard.ndim != 1:
        form = f"{shard.dtype} of shape {shard.shape}"
        raise UserError(f"{file}: {form}, not int16 of one dimension; write the shards again")
    return shard


def read_timed_shards(folder: Path) -> list[ShardItem]:
    """Return the utterances with word times. Raises UserError where there are none."""
    items = [item for item in read_shards(folder) if item.words]
    if not items:
        raise UserError(
            f"train_data={folder}: no utterance with word times there; time the words "
            "with `streaming-asr align`"
        )
    return items


def write_shards(
    utterances: Iterable[Utterance], folder: Path, *, max_s: float, timed: bool = True
) -> tuple[int, int, int]:
    """Write shards of the utterances of at most `max_s` seconds, except those that a frozen list
    holds (`lists.without_listed`), and return three counts: utterances that were written, that have
    no word times, and that are too long.

    timed: take only utterances with word times; without it also the others, for methods that learn
    from sound only. Raises UserError where `folder` has shards already, or nothing was written.
    """
    if any(Path(folder).glob("shard-*")):
        raise UserError(f"{folder}: holds shards already; remove them or name another folder")
    Path(folder).mkdir(parents=True, exist_ok=True)
    n_shards = n_written = n_without = n_long = 0
    pieces: list[np.ndarray] = []
    lines: list[str] = []
    offset = 0

    def close_shard() -> None:
        """Write the pending utterances as the next shard."""
        nonlocal n_shards, offset
        stem = Path(folder) / f"shard-{n_shards:03d}"
        with replacing(stem.with_suffix(".npy")) as scratch, scratch.open("wb") as file:
            np.save(file, np.concatenate(pieces))
        write_text(stem.with_suffix(".jsonl"), "\n".join(lines) + "\n")
        pieces.clear()
        lines.clear()
        n_shards, offset = n_shards + 1, 0

    for utterance in without_listed(utterances):
        if timed and not utterance.words:
            n_without += 1
            continue
        if utterance.duration_s > max_s:
            n_long += 1
            continue
        # 16 bits take half the disk of float32 and lose nothing that recordings have.
        samples = (utterance.load() * 32767).round().astype(np.int16)
        row = {
            "id": utterance.id,
            "offset": offset,
            "n": len(samples),
            "text": utterance.text,
            "speaker": utterance.speaker or "",
            **({"language": utterance.language} if utterance.language else {}),
            "words": word_rows(utterance.words or ()),
        }
        pieces.append(samples)
        lines.append(json.dumps(row, ensure_ascii=False))
        offset += len(samples)
        n_written += 1
        if len(lines) == PER_SHARD:
            close_shard()
    if lines:
        close_shard()
    if not n_written:
        if n_without:
            reason, remedy = (
                f"{n_without} have no word times",
                "streaming-asr align data=... makes them",
            )
        else:
            reason, remedy = "all are longer", "cut the recordings at pauses"
        raise UserError(
            f"data: no utterance with word times has at most {max_s:g} s ({reason}); {remedy}"
        )
    return n_written, n_without, n_long
