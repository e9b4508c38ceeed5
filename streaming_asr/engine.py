"""The steps of live streams: one method that many of them share, in passes where it is `Batched`.

A pass that raises leaves its states half advanced, so none of them is used again. Each stream of
the pass is begun anew and makes its steps again, alone, from the audio that it keeps for this; only
the one that raises alone ends. What guarantees that the others go on as if nothing had happened is
the method's contract, that a stream advanced with others gives the updates it gives alone; a stream
whose words come out differently is ended. From then on the streams of that pass share none, so a
stream is replayed once at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_asr.events import Step
from streaming_asr.method import Batched, Method, Samples, Update
from streaming_asr.recorder import StepRecorder
from streaming_asr.simulate import share

if TYPE_CHECKING:
    from streaming_asr.sessions import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen:
    """What a step gave: its event, and how long before its end the newest audio of it arrived."""

    step: Step
    behind_s: float
    queued_s: float  # audio that has arrived and waits, after the step


class Engine:
    """A method that many live streams share, and the chunks they are cut into (samples)."""

    def __init__(
        self,
        name: str,
        method: Method[Any],
        chunk: int,
        first_chunk: int,
        synchronise: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.method = name, method
        self.chunk, self.first = chunk, first_chunk + method.lookahead_samples
        self.synchronise = synchronise
        self.recorder = StepRecorder(synchronise)
        self.batched: Batched | None = method if isinstance(method, Batched) else None

    def warm_up(self) -> None:
        """Make three steps of silence, since the first use of anything is slow."""
        state = self.method.start(recorder=self.recorder)
        for n, last in ((self.first, False), (self.chunk, False), (0, True)):
            self.method.step(state, np.zeros(n, np.float32), last=last)
        self.recorder.drain()

    def advance(self, streams: Sequence[Stream]) -> list[tuple[Stream, Seen | Exception]]:
        """Make one step of each stream and return what it gave, or the error that ends it."""
        # A stream may be abandoned at any moment, which takes its state away.
        held = {stream: stream.state for stream in streams}
        held |= self._start([stream for stream, state in held.items() if state is None])
        ended = [(stream, held.pop(stream)) for stream in streams if _failed(held[stream])]
        if not held:
            return ended
        for stream, state in held.items():
            stream.state = state
        audio, last, arrived_s = zip(*(stream.take() for stream in held), strict=True)
        self.synchronise()
        begin, begin_cpu = perf_counter_ns(), process_time_ns()
        updates = self._updates(held, audio, last)
        self.synchronise()
        wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
        parts_ns, counts = self.recorder.drain()
        now_s, n = perf_counter(), len(held)
        given: list[tuple[Stream, Seen | Exception]] = list(ended)
        for i, (stream, update) in enumerate(zip(held, updates, strict=True)):
            if isinstance(update, Exception):
                given.append((stream, update))
                continue
            shares = {
                name: int(share(ns, i, n)) for name, ns in {"cpu": cpu_ns, **parts_ns}.items()
            }
            try:
                step = stream.note(
                    update,
                    {"wall": wall_ns, **shares},
                    {name: share(value, i, n) for name, value in counts.items()},
                    last[i],
                )
                stream.log.steps.append(step)
                if last[i] and step.partial:
                    raise ValueError(f"the method left partial words: {step.partial}")
            except ValueError as error:
                given.append((stream, error))
                continue
            stream.keep(audio[i])
            given.append((stream, Seen(step, now_s - arrived_s[i], stream.queued_s)))
        return given

    def _start(self, streams: Sequence[Stream]) -> dict[Stream, Any]:
        """Return a new state for each stream, or the error of its start; those of one language
        start together, in phase."""
        made: dict[Stream, Any] = {}
        for language in {stream.log.language for stream in streams}:
            same = [stream for stream in streams if stream.log.language == language]
            settings: dict[str, Any] = {"language": language, "recorder": self.recorder}
            states: Any = None
            if self.batched is not None:
                states = tried(self.batched.start_many, len(same), **settings)
            if not isinstance(states, list):
                states = [tried(self.method.start, **settings) for _ in same]
            made.update(zip(same, states, strict=True))
        self.recorder.drain()
        return made

    def _updates(
        self, held: dict[Stream, Any], audio: Sequence[Samples], last: Sequence[bool]
    ) -> list[Update | Exception]:
        """Return the update of each stream, or its error; after a pass that failed, each alone."""
        states = list(held.values())
        if len(states) > 1 and self.batched is not None:
            updates = tried(self.batched.step_many, states, audio, last=last)
            if not isinstance(updates, Exception):
                return list(updates)
            log.warning(
                "%s: a pass of %d streams failed (%s); each makes its steps again, alone",
                self.name,
                len(states),
                updates,
            )
            states = [tried(self._replayed, stream) for stream in held]
            self.recorder.drain()  # a step counts what it did, not what was done again
        return [
            state if _failed(state) else tried(self.method.step, state, samples, last=ends)
            for state, samples, ends in zip(states, audio, last, strict=True)
        ]

    def _replayed(self, stream: Stream) -> Any:
        """Make the stream's steps again and return its state, new and shared with none.

        Raises ValueError where they commit other words than the log holds.
        """
        kept, stream.kept = stream.kept, None
        state = self.method.start(language=stream.log.language, recorder=self.recorder)
        for audio, step in zip(kept or [], stream.log.steps, strict=True):
            update = self.method.step(state, audio, last=False)
            words = [word.text for word in update.committed]
            if (words, update.retracted) != (step.committed, step.retracted):
                raise ValueError(
                    "a pass with other streams failed, and the steps made again alone commit other "
                    f"words: {words} instead of {step.committed}"
                )
        stream.state = state
        return state


def tried(call: Callable[..., Any], *given: Any, **settings: Any) -> Any:
    """Return what the call returns, or the exception that it raises."""
    try:
        return call(*given, **settings)
    except Exception as error:
        return error


def _failed(state: Any) -> bool:
    return isinstance(state, Exception)
