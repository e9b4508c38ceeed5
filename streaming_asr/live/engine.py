"""The steps of live streams: one method that many of them share, in passes where it is `Batched`.

A pass that raises leaves its states half advanced, so all of its streams end with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.events.log import Step
from streaming_asr.live.streams import LiveStream
from streaming_asr.method import Batched, Method
from streaming_asr.simulate.stepper import Pass, Stepper

Fail: TypeAlias = Callable[[LiveStream, Exception], None]


@dataclass(frozen=True)
class LiveStep:
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
        self.name, self.is_batched = name, isinstance(method, Batched)
        self.schedule = Schedule(chunk, first_chunk, method.lookahead_samples)
        self.stepper = Stepper(method, synchronise, together=True)

    def warm_up(self) -> None:
        """Make three steps of silence, since the first use of anything is slow."""
        (state,) = self.stepper.start()
        first = self.schedule.first_chunk + self.schedule.lookahead
        for n, last in ((first, False), (self.schedule.chunk, False), (0, True)):
            self.stepper.step([state], [np.zeros(n, np.float32)], [last])

    def advance(
        self, streams: Sequence[LiveStream], fail: Fail
    ) -> list[tuple[LiveStream, LiveStep]]:
        """Make one step of each stream and return what it gave; `fail` ends those that cannot."""
        self._start(streams, fail)
        # A stream may be abandoned at any moment, which takes its state away: they are held here.
        held = {stream: stream.state for stream in streams if stream.state is not None}
        if not held:
            return []
        audio, last, arrived_s = zip(*(stream.take() for stream in held), strict=True)
        try:
            made = self.stepper.step(list(held.values()), audio, last)
        except Exception as error:
            for stream in held:
                fail(stream, error)
            return []
        now_s = perf_counter()
        given = []
        for i, stream in enumerate(held):
            try:
                step = self._note(stream, made, i, last[i])
            except ValueError as error:
                fail(stream, error)
                continue
            given.append((stream, LiveStep(step, now_s - arrived_s[i], stream.queued_s)))
        return given

    def _note(self, stream: LiveStream, made: Pass, i: int, last: bool) -> Step:
        """Log a stream's step: it waited for the whole of the pass, and took a share of it."""
        times_ns, counts = made.share_of(i)
        step = stream.note(made.updates[i], times_ns | {"wall": made.wall_ns}, counts, last)
        stream.log.steps.append(step)
        return step

    def _start(self, streams: Sequence[LiveStream], fail: Fail) -> None:
        """Begin the new ones among the streams; those of one language start together, in phase."""
        new = [stream for stream in streams if stream.state is None]
        for language in {stream.log.language for stream in new}:
            same = [stream for stream in new if stream.log.language == language]
            try:
                states = self.stepper.start(len(same), language)
            except Exception as error:
                for stream in same:
                    fail(stream, error)
                continue
            for stream, state in zip(same, states, strict=True):
                stream.state = state
