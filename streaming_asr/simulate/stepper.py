"""One step of a stream, or of several that share it: computed, timed, checked and recorded.

All steps of methods are made here: those of the simulator, of live streams, of programs, and of
the score on dev during a training. A `Stepper` calls the method and times the call. A
`StreamRecord` has the text of one stream so far and turns each update into an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, process_time_ns
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.method import (
    Batched,
    Method,
    Samples,
    Update,
    Word,
    display_text,
    revise,
    step_of,
    steps_of,
)
from streaming_asr.simulate.recorder import StepRecorder


@dataclass(frozen=True)
class Pass:
    """One call of a method: the update of each stream, and the time that the call took.

    times_ns: `wall`, `cpu` and the parts of the step, in nanoseconds, of all streams together.
    counts: sums over all streams, by `method.COUNTS`.
    """

    updates: Sequence[Any]
    times_ns: dict[str, int]
    counts: dict[str, float]

    @property
    def wall_ns(self) -> int:
        return self.times_ns["wall"]

    def share_of(self, i: int) -> tuple[dict[str, int], dict[str, float]]:
        """Return (times in ns, counts) of stream `i`, an equal share of the call's."""
        n = len(self.updates)
        times_ns = {name: int(share(ns, i, n)) for name, ns in self.times_ns.items()}
        counts = {name: share(count, i, n) for name, count in self.counts.items()}
        return times_ns, counts


class Stepper:
    """A method that several streams may share, and the clock around its steps."""

    def __init__(
        self,
        method: Method[Any],
        synchronise: Callable[[], None] = lambda: None,
        *,
        together: bool = False,
    ) -> None:
        """synchronise: waits for the device that computes. together: streams share passes where
        the method is `Batched`."""
        self.method = method
        self.synchronise = synchronise
        self.recorder = StepRecorder(synchronise)
        self._batched = method if together and isinstance(method, Batched) else None

    def start(
        self, n: int = 1, language: str | None = None, prompt: str | None = None
    ) -> list[Any]:
        """Return the states of `n` new streams in one language. prompt: theirs, for a method that
        takes one, in place of its setting."""
        options: dict[str, Any] = {"language": language, "recorder": self.recorder}
        if prompt is not None:
            options["prompt"] = prompt
        if self._batched is not None:
            states = self._batched.start_many(n, **options)
        else:
            states = [self.method.start(**options) for _ in range(n)]
        self.recorder.drain()  # what `start` reported is no part of the first step
        return states

    def step(self, states: Sequence[Any], audio: Sequence[Samples], last: Sequence[bool]) -> Pass:
        """Make one step of each stream: `audio[i]`, (n,) at 16 kHz, is the next audio of
        `states[i]`, and `last[i]` whether it is the last."""
        if (batched := self._batched) is not None:
            return self.timed(lambda: steps_of(batched, states, audio, last=last))
        return self.timed(
            lambda: [
                self.update(state, samples, ends)
                for state, samples, ends in zip(states, audio, last, strict=True)
            ]
        )

    def update(self, state: Any, samples: Samples, last: bool) -> Update:
        """Make one step of one stream with samples (n,), without timing it.

        Raises UserError for a method that returns no `Update`.
        """
        return step_of(self.method, state, samples, last=last)

    def timed(self, call: Callable[[], Sequence[Any]]) -> Pass:
        """Run `call`, which makes a step of each stream and returns their updates, and return them
        with the times and counts of the call."""
        self.synchronise()
        begin_ns, begin_cpu_ns = perf_counter_ns(), process_time_ns()
        updates = call()
        self.synchronise()
        wall_ns, cpu_ns = perf_counter_ns() - begin_ns, process_time_ns() - begin_cpu_ns
        parts_ns, counts = self.recorder.drain()
        return Pass(updates, {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}, counts)


class StreamRecord:
    """The log of one stream, the number of samples that it has received, and its words so far."""

    def __init__(self, log: UtteranceLog) -> None:
        self.log = log
        self.committed: list[Word] = []
        self.partial: tuple[Word, ...] = ()
        self.received = 0  # samples

    def note(
        self, update: Update, times_ns: dict[str, int], counts: dict[str, float], last: bool
    ) -> Step:
        """Apply a step's update to the words, and return the step's event.

        Raises ValueError where the step retracts more words than were committed, and UserError
        where the last step has partial words.
        """
        revise(self.committed, update.retracted, update.committed)
        self.partial = update.partial
        if last and update.partial:
            raise UserError(
                "the method left partial words after the last step: "
                f"{display_text(update.partial)!r:.80}; commit them where `last` is true"
            )
        self.log.commit_violations += update.retracted > 0
        return Step(
            kind="flush" if last else "endpoint" if update.endpoint else "audio",
            audio_samples=self.received,
            compute_ns=times_ns,
            **counts,  # type: ignore[arg-type]  # by the names of method.COUNTS
            committed=[word.text for word in update.committed],
            partial=[word.text for word in update.partial],
            words=_times(update.committed),
            retracted=update.retracted,
            language=update.language,
        )


def share(total: float, i: int, n: int) -> float:
    """Return the i-th of n shares that sum to `total`. The shares of an integer are integers, which
    differ by at most 1."""
    if isinstance(total, float):
        return total / n
    return total * (i + 1) // n - total * i // n


def _times(words: Sequence[Word]) -> list[list[float | None]] | None:
    """Return [start, end, probability] of each word, or None where no word has any of them."""
    rows: list[list[float | None]] = []
    for word in words:
        values = (word.start, word.end, word.probability)
        rows.append([None if value is None else round(float(value), 4) for value in values])
    return rows if any(value is not None for row in rows for value in row) else None
