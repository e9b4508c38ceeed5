"""The defaults that measurements chose, in one table.

`transcribe`, `compare`, `live` and `serve` take `chunk` and `threads` from here where the command
line gives none. `run` takes those of conf/run.yaml for every method, so that a table compares
methods at one chunk. `padding` and `prune` are settings of a method: conf/method/ has the same
values, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streaming_asr.chunking import parse_duration

ALIGNERS = {"en": ("ctc", "tiny.en")}
"""The aligner of a language and the Whisper it runs on (`data.align=auto`), the same for all
methods, so that their latencies are against the same times. English has the one with the smallest
error (docs/align.md)."""
OTHER_ALIGNER = ("whisper", "base")
ALIGNER_ERRORS_MS = {"ctc-tiny.en": (20, 30), "whisper-tiny.en": (95, 115)}
"""The median error of all word edges and that of word ends, in ms, by the aligner's name: on the 60
clips of `data=voices`, which have exact times (docs/align.md)."""


@dataclass(frozen=True)
class Defaults:
    """A method's defaults. None: the method has no such setting; of threads, torch's own choice."""

    chunk: str = "300ms"
    padding: str | None = None
    prune: bool | None = None
    threads: int | None = None


# Each chunk of those at 1 s costs the encoding of a whole buffer: at 300 ms that is expensive, and
# UFAL falls behind its speaker (docs/choosing.md).
METHODS = {
    "chunkformer": Defaults(),
    "hush_word": Defaults(chunk="1s", padding="hush", prune=True),
    "native": Defaults(chunk="560ms"),
    "offline": Defaults(padding="full"),
    "reencode": Defaults(chunk="1s", padding="full"),
    "remote": Defaults(),
    "simul_whisper": Defaults(chunk="1s", padding="full"),
    "star": Defaults(),
    "u2": Defaults(),
    "ufal": Defaults(chunk="1s", padding="full"),
    "whisperrt": Defaults(),
}


def aligner_of(languages: Iterable[str]) -> tuple[str, str]:
    """Return the aligner of a corpus in these languages and the Whisper it runs on.

    A corpus in several languages has one aligner for all, OTHER_ALIGNER; a corpus that names no
    language is English.
    """
    distinct = set(languages) or {"en"}
    return ALIGNERS.get(distinct.pop(), OTHER_ALIGNER) if len(distinct) == 1 else OTHER_ALIGNER


def defaults_of(methods: Sequence[str]) -> Defaults:
    """Return the chunk and the threads for methods that run on the same audio.

    The chunk is the longest of theirs, as methods are compared at one chunk; the threads are None
    unless all methods have the same. A method that is not in the table, as one of the user's own,
    has the defaults of conf/run.yaml.
    """
    rows = [METHODS.get(name, Defaults()) for name in methods]
    chunk = max((row.chunk for row in rows), key=parse_duration)
    threads = {row.threads for row in rows}
    return Defaults(chunk, threads=threads.pop() if len(threads) == 1 else None)
