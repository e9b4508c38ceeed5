"""One utterance as it is logged: its reference, its steps, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streaming_asr.method import SAMPLE_RATE, revise
from streaming_asr.utterance import TimedWord, Utterance


@dataclass(slots=True)
class Step:
    """One step: `committed` is what it added, `partial` all that is shown behind the committed."""

    kind: str  # audio, endpoint or flush
    audio_samples: int  # received so far, this step's included
    compute_ns: dict[str, int]  # "wall" and the parts that were measured within it
    counts: dict[str, float] = field(default_factory=dict)  # by the names of method.COUNTS
    committed: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    # [start, end, probability] of each committed word, or None where the method knows none
    words: list[list[float | None]] | None = None
    retracted: int = 0  # committed words taken back, before `committed` was added
    memory_bytes: int | None = None  # after the step, above the loaded model; of a lone stream
    language: str | None = None  # that the method found out in this step

    @property
    def audio_s(self) -> float:
        """The audio received so far, a_k, in seconds."""
        return self.audio_samples / SAMPLE_RATE

    @property
    def compute_s(self) -> float:
        """The time that this step took, c_k, in seconds."""
        return self.compute_ns["wall"] / 1e9


@dataclass(slots=True)
class UtteranceLog:
    """Everything logged about one utterance."""

    utt: str
    text: str  # the reference
    duration_samples: int
    words: list[TimedWord] | None = None
    speaker: str | None = None
    language: str | None = None
    audio_hash: str | None = None
    audio_path: str | None = None
    feed: str = "fixed"
    batch: int = 1  # streams advanced together; above 1 the times are no latencies
    lookahead_samples: int = 0  # audio past a chunk's end that the method waits for
    steps: list[Step] = field(default_factory=list)
    status: str = "ok"  # or "failed"
    error: str | None = None
    memory_peak_bytes: int | None = None
    commit_violations: int = 0  # steps that took committed words back
    pacing_slip_s: float | None = None  # feed realtime: how late the latest chunk was fed
    # The schedule of its steps, by the log's header; None where that has none.
    chunk_samples: int | None = None
    first_chunk_samples: int | None = None
    is_imported: bool = False  # another tool's, by the log's header

    @classmethod
    def of(cls, utterance: Utterance, **fields: Any) -> UtteranceLog:
        """Return the log of an utterance before its first step; `fields` are further ones."""
        return cls(
            utt=utterance.id,
            text=utterance.text,
            duration_samples=round(utterance.duration_s * SAMPLE_RATE),
            words=None if utterance.words is None else list(utterance.words),
            speaker=utterance.speaker,
            language=utterance.language,
            audio_path=utterance.audio_path,
            **fields,
        )

    @property
    def duration_s(self) -> float:
        return self.duration_samples / SAMPLE_RATE

    @property
    def detected(self) -> str | None:
        """Return the language that the method found out last; None where it looked for none."""
        return next((step.language for step in reversed(self.steps) if step.language), None)


def committed_words(steps: Iterable[Step]) -> list[tuple[str, list[float | None]]]:
    """Return the final committed words, each with its [start, end, probability]."""
    words: list[tuple[str, list[float | None]]] = []
    for step in steps:
        times = step.words or [[None, None, None]] * len(step.committed)
        revise(words, step.retracted, zip(step.committed, times, strict=True))
    return words
