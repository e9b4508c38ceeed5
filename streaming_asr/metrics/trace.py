"""What the metrics read: one utterance as a sequence of texts on screen and times.

The metrics never touch a log. `trace` turns one logged utterance into a `Trace`; tests and other
tools' logs build traces by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from streaming_asr import clocks
from streaming_asr.events import UtteranceLog
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import TimedWord

if TYPE_CHECKING:
    from streaming_asr.metrics.latency import WordLatency

T = TypeVar("T")


@dataclass(frozen=True)
class TraceStep:
    """One step of a method, and what stood on the screen after it.

    `audio_s` is a_k, the audio received so far; `compute_s` is c_k, the time of this step;
    `finished_s` is f_k, when it ended on the computation-aware clock; `wait_s` is how long its
    audio waited for the step before it.
    """

    audio_s: float
    compute_s: float
    committed: str  # the whole committed text after this step
    displayed: str  # the committed text and the partial text after it
    kind: str = "audio"  # audio, endpoint or flush
    finished_s: float = 0.0
    wait_s: float = 0.0
    frames_real: int = 0
    frames_computed: int = 0
    decode_steps: int = 0
    beam_sum: int = 0
    encoder_flops: float = 0.0
    anchors: int = 0
    tokens: int = 0
    decoder_cache_bytes: int = 0
    retracted: int = 0


@dataclass(frozen=True)
class Trace:
    """One utterance: the reference, and every step of the method on it.

    A failed utterance keeps its reference and has no steps: it stays in every N, its hypothesis
    empty.
    """

    utt: str
    reference: str
    duration_s: float
    steps: tuple[TraceStep, ...]
    words: tuple[TimedWord, ...] | None = None  # None where the corpus has no word times
    speaker: str | None = None
    language: str | None = None
    error: str | None = None  # why it failed; None where it did not
    batch: int = 1  # streams advanced together; above 1 the times say nothing about latency
    lookahead_s: float = 0.0  # audio past a chunk's end that the method waits for
    memory_peak_bytes: int | None = None
    commit_violations: int = 0

    @property
    def hypothesis(self) -> str:
        """The committed text after the last step."""
        return self.steps[-1].committed if self.steps else ""

    @cached_property
    def displays(self) -> tuple[tuple[int, str], ...]:
        """(step index, displayed text) of the steps that changed what is displayed."""
        return _changes([step.displayed for step in self.steps])

    @cached_property
    def timed(self) -> WordLatency | None:
        """When its words were seen; None where the corpus has no word times."""
        from streaming_asr.metrics.latency import WordLatency  # which reads traces

        return None if self.words is None else WordLatency(self)

    def times(self, clock: str) -> list[float]:
        """When each step happened: a_k on the clock "cu", f_k on the clock "ca"."""
        if clock == "cu":
            return [step.audio_s for step in self.steps]
        return [step.finished_s for step in self.steps]


def queued(steps: Sequence[TraceStep]) -> tuple[TraceStep, ...]:
    """`steps` with `finished_s` and `wait_s` as the first-in first-out queue gives them."""
    a = np.array([step.audio_s for step in steps], dtype=np.float64)
    c = np.array([step.compute_s for step in steps], dtype=np.float64)
    if not len(a):
        return ()
    finished, waits = clocks.fifo(a, c).tolist(), clocks.queue_wait(a, c).tolist()
    return tuple(
        replace(step, finished_s=f, wait_s=w)
        for step, f, w in zip(steps, finished, waits, strict=True)
    )


def trace(log: UtteranceLog) -> Trace:
    """The trace of one logged utterance. The text of a failed one is not looked at."""
    steps: list[TraceStep] = []
    committed: list[str] = []
    for step in log.steps if log.status == "ok" else ():
        if step.retracted:
            del committed[-step.retracted :]
        committed += step.committed
        steps.append(
            TraceStep(
                audio_s=step.audio_s,
                compute_s=step.compute_s,
                committed="".join(committed).strip(),
                displayed="".join(committed + step.partial).strip(),
                kind=step.kind,
                frames_real=step.frames_real,
                frames_computed=step.frames_computed,
                decode_steps=step.decode_steps,
                beam_sum=step.beam_sum,
                encoder_flops=step.encoder_flops,
                anchors=step.anchors,
                tokens=step.tokens,
                decoder_cache_bytes=step.decoder_cache_bytes,
                retracted=step.retracted,
            )
        )
    return Trace(
        utt=log.utt,
        reference=log.text,
        duration_s=log.duration_s,
        steps=queued(steps),
        words=None if log.words is None else tuple(log.words),
        speaker=log.speaker,
        language=log.language,
        error=None if log.status == "ok" else log.error or "unknown error",
        batch=log.batch,
        lookahead_s=log.lookahead_samples / SAMPLE_RATE,
        memory_peak_bytes=log.memory_peak_bytes,
        commit_violations=log.commit_violations,
    )


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None


def ratio(numerator: float, denominator: float, scale: float = 1.0) -> float | None:
    """scale * numerator / denominator; None where the denominator is 0."""
    return scale * numerator / denominator if denominator else None


def pooled(traces: Sequence[Trace], values: Callable[[Trace], Sequence[T]]) -> list[T]:
    """The values of all traces in one list: a pooled (micro) figure is computed from it."""
    return [value for trace in traces for value in values(trace)]


def _changes(texts: Sequence[str]) -> tuple[tuple[int, str], ...]:
    changed, before = [], ""
    for k, text in enumerate(texts):
        if text != before:
            changed.append((k, text))
            before = text
    return tuple(changed)
