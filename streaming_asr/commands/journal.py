"""What a transcription has said so far, kept in the cache until it is whole.

A command that was killed goes on from there: the words up to a pause near the end stay as they
were, and the recording is heard again from the middle of that pause.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from streaming_asr.cells.hashes import config_hash
from streaming_asr.files import cache_root
from streaming_asr.method import Samples, Word

AGAIN_S = 30.0
"""A recording is taken up in the longest pause before any word of its last so many seconds."""
STALE_S = 7 * 24 * 3600
"""What nobody has gone on with for so long is removed."""


class Journal:
    """The committed words of one recording under one configuration, a line for each step.

    Where the cache cannot be written nothing is kept, and a killed command begins anew.
    """

    def __init__(self, config: Mapping[str, Any], samples: Samples) -> None:
        """config: the settled configuration, as plain containers. samples: the recording, (n,)."""
        audio = hashlib.sha256(samples.tobytes()).hexdigest()
        key = hashlib.sha256(f"{config_hash(config)} {audio}".encode()).hexdigest()[:32]
        self.path = cache_root() / "transcripts" / f"{key}.jsonl"
        with suppress(OSError):
            for left in self.path.parent.glob("*.jsonl"):
                if time.time() - left.stat().st_mtime > STALE_S:
                    left.unlink()

    def kept(self) -> tuple[list[Word], float]:
        """Return the words that stay, and the second from which the recording is heard again."""
        words: list[Word] = []
        with suppress(OSError):
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError, KeyError):  # the last line may be torn
                    row = json.loads(line)
                    said = [Word(*each) for each in row["words"]]
                    words = [*words[: row["n"]], *said]
        return taken_up(words)

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


def taken_up(words: Sequence[Word]) -> tuple[list[Word], float]:
    """Return the words before the longest pause near the end, and the middle of that pause.

    words: with times, in seconds. A method's last word may be cut short and the times of its words
    are inexact by a tenth of a second, so nothing is taken up right behind a word. Two words at
    least are needed; else nothing stays, and the time is 0.
    """
    timed = [(w.start or 0.0, w.end or 0.0) for w in words]
    last_s = timed[-1][1] - AGAIN_S if timed else 0.0
    pauses = [
        (start - timed[i - 1][1], i) for i, (start, _) in enumerate(timed) if i and start >= last_s
    ]
    if not pauses:
        return [], 0.0
    _, at = max(pauses)
    return list(words[:at]), (timed[at - 1][1] + timed[at][0]) / 2
