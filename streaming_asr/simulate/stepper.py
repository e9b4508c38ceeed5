"""One step of a stream, or of several that share it: made, timed, checked and noted.

Whoever feeds a method (the simulator, a live stream, a program, the score on dev) makes its steps
here. A `Stepper` calls the method and times the call; a `StreamRecord` keeps what one stream has
output and turns each update into an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, process_time_ns
from typing import Any

from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.method import Batched, Method, Samples, Update, Word, revise, step_of, steps_of
from streaming_asr.simulate.recorder import StepRecorder


@dataclass(frozen=True)
class Pass:
    """One call of a method: the update of each of its streams, and what the call took.

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
        """Return the times and counts of stream `i`, an equal share of the call's."""
        n = len(self.updates)
        times_ns = {name: int(share(ns, i, n)) for name, ns in self.times_ns.items()}
        return times_ns, {name: share(value, i, n) for name, value in self.counts.items()}


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

    def start(self, n: int = 1, language: str | None = None) -> list[Any]:
        """Return the states of `n` new streams in one language."""
        if self._batched is not None:
            states = self._batched.start_many(n, language=language, recorder=self.recorder)
        else:
            states = [
                self.method.start(language=language, recorder=self.recorder) for _ in range(n)
            ]
        self.recorder.drain()  # a step's parts and counts are its own
        return states

    def step(self, states: Sequence[Any], audio: Sequence[Samples], last: Sequence[bool]) -> Pass:
        """Make one step of each stream: `audio[i]`, (n,) at 16 kHz, is the next of `states[i]`."""
        if (batched := self._batched) is not None:
            return self.timed(lambda: steps_of(batched, states, audio, last=last))
        return self.timed(
            lambda: [
                self.update(state, samples, ends)
                for state, samples, ends in zip(states, audio, last, strict=True)
            ]
        )

    def update(self, state: Any, samples: Samples, last: bool) -> Update:
        """Make one step of one stream with samples (n,).

        Raises UserError for a method that returns no `Update`."""
        return step_of(self.method, state, samples, last=last)

    def timed(self, call: Callable[[], Sequence[Any]]) -> Pass:
        """Return the pass of a `call` that makes steps."""
        self.synchronise()
        begin, begin_cpu = perf_counter_ns(), process_time_ns()
        updates = call()
        self.synchronise()
        wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
        parts_ns, counts = self.recorder.drain()
        return Pass(updates, {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}, counts)


class StreamRecord:
    """What is known of one stream besides its audio: its log, the samples taken, its words."""

    def __init__(self, log: UtteranceLog) -> None:
        self.log = log
        self.committed: list[Word] = []
        self.partial: tuple[Word, ...] = ()
        self.received = 0  # samples

    def note(
        self, update: Update, times_ns: dict[str, int], counts: dict[str, float], last: bool
    ) -> Step:
        """Apply the update and return the step's event.

        Raises ValueError where the step takes back more words than were committed, or leaves
        partial words at the end.
        """
        revise(self.committed, update.retracted, update.committed)
        self.partial = update.partial
        if last and update.partial:
            words = [word.text for word in update.partial]
            raise ValueError(f"the method left partial words after the last step: {words}")
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
    """Return the i-th of n shares that add up to `total`; those of a whole number are whole."""
    return total / n if isinstance(total, float) else total * (i + 1) // n - total * i // n


def _times(words: Sequence[Word]) -> list[list[float | None]] | None:
    """Return [start, end, probability] of each word, or None where none of them is known."""
    rows = [
        [None if value is None else round(float(value), 4) for value in triple]
        for triple in ((word.start, word.end, word.probability) for word in words)
    ]
    return rows if any(value is not None for row in rows for value in row) else None
