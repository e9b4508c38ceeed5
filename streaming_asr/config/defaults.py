"""The defaults that measurements chose.

`transcribe`, `compare`, `live` and `serve` take `chunk` from here where the command line gives
none. `run` takes that of conf/run.yaml for every method, so that a table compares methods at one.
"""

from __future__ import annotations

from collections.abc import Iterable

from streaming_asr.chunking import parse_duration

ALIGNERS = {"en": ("ctc", "tiny.en")}
"""The aligner of a language and the Whisper it runs on (`data.align=auto`), the same for all
methods, so that their latencies are against the same times. English has the one with the smallest
error (docs/align.md)."""
OTHER_ALIGNER = ("whisper", "base")
ALIGNER_ERRORS_MS = {"ctc-tiny.en": (20, 30), "whisper-tiny.en": (95, 115)}
"""The median error of all word edges and that of word ends, in ms, by the aligner's name: on the 60
clips of `data=voices`, which have exact times (docs/align.md)."""


CHUNKS = {
    "hush_word": "1s",
    "native": "560ms",
    "reencode": "1s",
    "simul_whisper": "1s",
    "ufal": "1s",
}
"""The chunk of a method; of others, yours too, CHUNK. Each chunk of those at 1 s costs the encoding
of a whole buffer: at 300 ms that is expensive, and UFAL falls behind its speaker
(docs/choosing.md)."""
CHUNK = "300ms"


def aligner_of(languages: Iterable[str]) -> tuple[str, str]:
    """Return the aligner of a corpus in these languages and the Whisper it runs on.

    A corpus in several languages has one aligner for all, OTHER_ALIGNER; a corpus that names no
    language is English.
    """
    distinct = set(languages) or {"en"}
    return ALIGNERS.get(distinct.pop(), OTHER_ALIGNER) if len(distinct) == 1 else OTHER_ALIGNER


def chunk_of(methods: Iterable[str]) -> str:
    """Return the chunk for methods that run on the same audio: the longest of theirs."""
    return max((CHUNKS.get(name, CHUNK) for name in methods), key=parse_duration)
