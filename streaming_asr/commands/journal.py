"""The text of a transcription so far, kept in the cache until it is whole.

A command that was killed goes on from there: the words up to a quiet place near the end stay as
they were, and the recording is transcribed again from the middle of that place.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import numpy as np

from streaming_asr.cells.hashes import config_hash
from streaming_asr.files import cache_root
from streaming_asr.method import SAMPLE_RATE, Samples, Word

AGAIN_S, UNSURE_S, QUIET_S = 30.0, 3.0, 0.5
"""Where a recording is taken up; see `taken_up`."""
STALE_S = 7 * 24 * 3600
"""What nobody has gone on with for so long is removed."""


Time = float | None


class JournalLine(msgspec.Struct):
    """A line: the first `n` words are as before, and these follow."""

    n: Annotated[int, msgspec.Meta(ge=0)]
    words: list[tuple[str, Time, Time, Time]]  # with start, end and probability


class Journal:
    """The committed words of one recording under one configuration, a line for each step.

    Where the cache cannot be written nothing is kept, and a killed command begins again.
    """

    def __init__(self, config: Mapping[str, Any], samples: Samples) -> None:
        """config: the settled configuration, as plain containers. samples: the recording, (n,)."""
        audio = hashlib.sha256(samples.tobytes()).hexdigest()
        key = hashlib.sha256(f"{config_hash(config)} {audio}".encode()).hexdigest()[:32]
        self._samples = samples
        self.path = cache_root() / "transcripts" / f"{key}.jsonl"
        with suppress(OSError):
            for file in self.path.parent.glob("*.jsonl"):
                if time.time() - file.stat().st_mtime > STALE_S:
                    file.unlink()

    def words_so_far(self) -> tuple[list[Word], float]:
        """Return the words that stay, and the second from which the method goes on."""
        words: list[Word] = []
        with suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError, RecursionError):  # the last line may be torn
                    row = msgspec.json.decode(line, type=JournalLine)
                    words = [*words[: row.n], *(Word(*each) for each in row.words)]
        return taken_up(words, self._samples)

    def write(self, words: Sequence[Word], n: int) -> None:
        """Note that the first `n` words are as before, and the others are new."""
        new = [(w.text, w.start, w.end, w.probability) for w in words[n:]]
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"n": n, "words": new}) + "\n")

    def remove(self) -> None:
        """Remove what was kept: the transcription is whole."""
        with suppress(OSError):
            self.path.unlink()


def taken_up(words: Sequence[Word], samples: Samples) -> tuple[list[Word], float]:
    """Return where an interrupted transcription goes on: the words that it keeps, and the second
    from which the recording is transcribed again. That is the middle of the quietest QUIET_S of the
    AGAIN_S before the last words; ([], 0.0) if the words are too few for that.

    words: with times, in seconds, of the recording `samples`, (n,). The times of the last words are
    the least certain, so the UNSURE_S before the end of the last one are transcribed again too.
    """
    end = round(((words[-1].end or 0.0) - UNSURE_S) * SAMPLE_RATE) if words else 0
    size = round(QUIET_S * SAMPLE_RATE)
    begin = max(0, end - round(AGAIN_S * SAMPLE_RATE))
    if end - begin < size:
        return [], 0.0
    energy_before = np.concatenate([[0.0], np.cumsum(samples[begin:end].astype(np.float64) ** 2)])
    # Of each window of `size` samples; rounded, so that the last of equally quiet ones is found.
    energy = np.round(energy_before[size:] - energy_before[:-size], 9)
    quietest = begin + len(energy) - 1 - int(energy[::-1].argmin())
    resume_s = (quietest + size / 2) / SAMPLE_RATE
    # A word is kept if its middle is before that.
    kept_words = [w for w in words if (w.start or 0.0) + (w.end or 0.0) < 2 * resume_s]
    return kept_words, resume_s
