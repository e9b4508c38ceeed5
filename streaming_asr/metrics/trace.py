"""What the metrics read: one utterance as a sequence of texts on screen and times.

The metrics never touch a log. `trace` turns one logged utterance into a `Trace`; tests and other
tools' logs build traces by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from streaming_asr.events.log import Log, Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, revise
from streaming_asr.metrics import clocks
from streaming_asr.text.growing import Beginnings, Growing, Rules, Text, Words
from streaming_asr.text.normalise import LIGHT, WRITTEN, Normaliser, default_kind, normaliser
from streaming_asr.text.units import Unit, timed_units, unit_of, units
from streaming_asr.utterance import TimedWord


@dataclass(frozen=True)
class TraceStep:
    """One step of a method, what was on the screen after it, and when.

    `compute_s` is c_k, the time of this step; `finished_s` is f_k, when it ended on the
    computation-aware clock; `wait_s` is how long its audio waited for the step before it.
    """

    step: Step  #: as logged
    committed_text: Text  #: the whole committed text after this step
    displayed_text: Text  #: the committed text and the partial text after it
    compute_s: float
    finished_s: float = 0.0
    wait_s: float = 0.0

    @property
    def committed(self) -> str:
        """The whole committed text after this step, made when it is read."""
        return self.committed_text.all()

    @property
    def displayed(self) -> str:
        """The committed text and the partial text after it, made when it is read."""
        return self.displayed_text.all()

    @property
    def audio_s(self) -> float:
        """a_k: the audio received so far, in seconds."""
        return self.step.audio_s

    def count(self, name: str) -> float:
        """Return a count of method.COUNTS, 0 where the step reported none."""
        return self.step.count(name)


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
    #: Of the reference, cut into the language's units; None where the corpus has no word times
    words: tuple[TimedWord, ...] | None = None
    speaker: str | None = None
    language: str | None = None
    error: str | None = None  #: why it failed; None where it did not
    batch: int = 1  #: streams advanced together; above 1 the times are no latencies
    has_company: bool = False  #: other streams on the device, whose steps it waited for
    lookahead_s: float = 0.0  #: audio past a chunk's end that the method waits for
    memory_peak_bytes: int | None = None
    commit_violations: int = 0
    biasing: Sequence[str] | None = None  #: the words that B-WER counts; None: no list
    normaliser: str | None = None  #: of text.NORMALISERS; None: that of the language
    # What metrics derive from this trace once and read again.
    derived: dict[Any, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def final(self) -> Text:
        """The committed text after the last step; empty without steps."""
        return self.steps[-1].committed_text if self.steps else Growing.of("")

    @property
    def hypothesis(self) -> str:
        """The committed text after the last step; empty without steps."""
        return self.final.all()

    @property
    def normalise(self) -> Normaliser:
        """The normaliser of this utterance's language, by which its words are compared."""
        return normaliser(self.language, self.normaliser)

    @property
    def unit(self) -> Unit:
        """What latency and stability count in this utterance's language: words or characters."""
        return unit_of(self.language)

    def units(self, text: str) -> list[str]:
        """Return the units of `text`, as they are written."""
        return units(text, self.unit)

    def written(self, text: Text) -> Words:
        """Return the units of the text of a step, as they are written."""
        return self.words_by(WRITTEN[self.unit], text)

    def light(self, text: Text) -> Words:
        """Return the units of the text of a step under the light key."""
        return self.words_by(LIGHT[self.unit], text)

    def words_by(self, rules: Rules, text: Text) -> Words:
        """Return the words of the text of a step."""
        if (rules, text.whole) not in self.derived:
            self.derived[rules, text.whole] = Beginnings(text.whole, rules)
        beginnings: Beginnings = self.derived[rules, text.whole]
        return beginnings.words(text)

    @cached_property
    def displays(self) -> list[tuple[int, Text]]:
        """(step index, displayed text) of the steps that changed what is displayed."""
        return _changes([step.displayed_text for step in self.steps])

    @cached_property
    def commits(self) -> list[tuple[int, Text]]:
        """(step index, committed text) of the steps that changed what is committed."""
        return _changes([step.committed_text for step in self.steps])

    @cached_property
    def audio_times(self) -> list[float]:
        """a_k of every step, in seconds."""
        return [step.audio_s for step in self.steps]

    def times(self, clock: str) -> list[float]:
        """Return when each step happened: a_k on the clock "cu", f_k on the clock "ca"."""
        if clock == "cu":
            return self.audio_times
        return [step.finished_s for step in self.steps]


def _changes(texts: Sequence[Text]) -> list[tuple[int, Text]]:
    pairs = enumerate(pairwise([Growing.of(""), *texts]))
    return [(k, text) for k, (before, text) in pairs if text != before and (k or len(text))]


def arrays(steps: Sequence[TraceStep]) -> tuple[clocks.Times, clocks.Times]:
    """Return (a_k, c_k) of the steps, float64 (K,) each."""
    a, c = np.array([(step.audio_s, step.compute_s) for step in steps]).reshape(-1, 2).T
    return a, c


def queued(steps: Sequence[TraceStep]) -> tuple[TraceStep, ...]:
    """Return `steps` with the `finished_s` and `wait_s` of the first-in first-out queue."""
    a, c = arrays(steps)
    if not len(a):
        return ()
    finished, waits = clocks.fifo(a, c).tolist(), clocks.queue_wait(a, c).tolist()
    return tuple(
        replace(step, finished_s=f, wait_s=w)
        for step, f, w in zip(steps, finished, waits, strict=True)
    )


def lagged(steps: Sequence[TraceStep]) -> tuple[TraceStep, ...]:
    """Return `steps` with the `finished_s` and `wait_s` of the lag that the log has: the time from
    a step's audio to its end, measured while the device also served other streams."""
    lagged_steps = []
    for step in steps:
        lag_s = step.step.compute_ns["lag"] / 1e9
        # The rest of the lag: the steps of other streams, and the wait for a batch.
        wait_s = max(lag_s - step.compute_s, 0.0)
        lagged_steps.append(replace(step, finished_s=step.audio_s + lag_s, wait_s=wait_s))
    return tuple(lagged_steps)


def traces(log: Log, normaliser: str | None = None) -> list[Trace]:
    """Return the trace of every utterance. normaliser: default that of the log's run; if the run
    names none, the one for the log's languages."""
    kind = normaliser or (log.header.get("config") or {}).get("normaliser")
    kind = kind or default_kind({utterance.language for utterance in log.utterances})
    return [trace(utterance, kind) for utterance in log.utterances]


class _Stripped:
    """Removes the blanks at both ends of texts that are differences from `whole`."""

    def __init__(self, whole: str) -> None:
        self._whole = whole.strip()
        self._n_blanks = len(whole) - len(whole.lstrip())

    def __call__(self, text: Text) -> Text:
        n, rest = text.n, text.rest.rstrip()
        while not rest and n and text.whole[n - 1].isspace():
            n -= 1
        if 0 < n - self._n_blanks <= len(self._whole):
            return Growing(self._whole, n - self._n_blanks, rest)
        return Growing.of(text.all().strip(), self._whole)


def trace(log: UtteranceLog, normaliser: str | None = None) -> Trace:
    """Return the trace of one logged utterance; that of a failed one has no steps."""
    unit = unit_of(log.language)
    steps: list[TraceStep] = []
    # The text that a failed utterance had before it failed is not its result.
    logged = log.steps if log.status == "ok" else ()
    words_of_text: list[str] = []
    for step in logged:
        revise(words_of_text, step.retracted, step.committed)
    whole = "".join(words_of_text)
    words_of_text, text, stripped = [], Growing.of("", whole), _Stripped(whole)
    for step in logged:
        n_retracted = sum(map(len, words_of_text[len(words_of_text) - step.retracted :]))
        revise(words_of_text, step.retracted, step.committed)
        text = text.first(len(text) - n_retracted).plus("".join(step.committed))
        displayed = text.plus("".join(step.partial))
        steps.append(TraceStep(step, stripped(text), stripped(displayed), step.compute_s))
    # A lag is measured for one stream, also if its steps were shared.
    has_lag = bool(steps) and all("lag" in each.step.compute_ns for each in steps)
    words = None
    if log.words is not None:
        words = tuple(TimedWord(*word) for word in timed_units(log.words, unit))
    return Trace(
        utt=log.utt,
        reference=log.text,
        duration_s=log.duration_s,
        steps=lagged(steps) if has_lag else queued(steps),
        words=words,
        speaker=log.speaker,
        language=log.language,
        error=None if log.status == "ok" else log.error or "unknown error",
        batch=1 if has_lag or log.feed == "realtime_queue" else log.batch,
        has_company=log.feed == "realtime_queue",
        lookahead_s=log.lookahead_samples / SAMPLE_RATE,
        memory_peak_bytes=log.memory_peak_bytes,
        commit_violations=log.commit_violations,
        normaliser=normaliser,
        biasing=log.biasing,
    )


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of `values`, or None where there are none."""
    return sum(values) / len(values) if values else None


def ratio(numerator: float, denominator: float, scale: float = 1.0) -> float | None:
    """Return scale * numerator / denominator, or None where the denominator is 0."""
    return scale * numerator / denominator if denominator else None
