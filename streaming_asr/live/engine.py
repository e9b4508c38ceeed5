"""The steps of live streams: one method that many of them share, in passes where it is `Batched`.

A pass that raises leaves its states half advanced, so none of them is used again. Each stream of
the pass starts again and repeats its steps by itself, from the audio that it keeps for this; only
one that raises by itself ends. The method's contract guarantees that the others
go on as if nothing had happened: a stream advanced with others gives the same updates as by itself.
A stream whose words come out differently is ended. From then on the streams of that pass share
none, so a stream is replayed once at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.events.log import Step
from streaming_asr.live.streams import LiveStream
from streaming_asr.method import Batched, Method, Samples, Update, steps_of
from streaming_asr.simulate.stepper import Pass, Stepper
from streaming_asr.text.spoken import WordsAlone

log = logging.getLogger(__name__)

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
        self.name, self.method = name, method
        self.schedule = Schedule(chunk, first_chunk, method.lookahead_samples)
        self.stepper = Stepper(method, synchronise, together=True)
        self.batched: Batched | None = method if isinstance(method, Batched) else None

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
        # A stream may be abandoned at any moment, which takes its state away: they are held here.
        held = self._started(streams, fail)
        if not held:
            return []
        audio, last, arrived_s = zip(*(stream.take() for stream in held), strict=True)
        timed = self.stepper.timed(lambda: self._updates(held, audio, last, fail))
        now_s = perf_counter()
        results = []
        for i, stream in enumerate(held):
            if timed.updates[i] is None:
                continue
            try:
                step = self._note(stream, timed, i, last[i])
            except ValueError as error:
                fail(stream, error)
                continue
            stream.keep(audio[i])
            results.append((stream, LiveStep(step, now_s - arrived_s[i], stream.queued_s)))
        return results

    def _note(self, stream: LiveStream, result: Pass, i: int, last: bool) -> Step:
        """Log a stream's step: it waited for the whole of the pass, and took a share of it."""
        times_ns, counts = result.share_of(i)
        update = stream.words_alone.of(result.updates[i])
        step = stream.note(update, times_ns | {"wall": result.wall_ns}, counts, last)
        stream.log.steps.append(step)
        return step

    def _started(self, streams: Sequence[LiveStream], fail: Fail) -> dict[LiveStream, Any]:
        """Return the state of each stream; new ones of one language start together, in phase."""
        new = [stream for stream in streams if stream.state is None]
        for language in {stream.log.language for stream in new}:
            same = [stream for stream in new if stream.log.language == language]
            try:
                states = self.stepper.start(len(same), language)
            except Exception:
                states = [self._state_alone(stream, fail) for stream in same]
            for stream, state in zip(same, states, strict=True):
                stream.state = state
        return {stream: stream.state for stream in streams if stream.state is not None}

    def _state_alone(self, stream: LiveStream, fail: Fail) -> Any:
        try:
            return self.stepper.start(1, stream.log.language)[0]
        except Exception as error:
            fail(stream, error)
            return None

    def _updates(
        self,
        held: dict[LiveStream, Any],
        audio: Sequence[Samples],
        last: Sequence[bool],
        fail: Fail,
    ) -> Sequence[Update | None]:
        """Return the update of each stream, None where it failed; after a pass that failed, each
        repeats its steps by itself."""
        if len(held) > 1 and self.batched is not None:
            try:
                return steps_of(self.batched, list(held.values()), audio, last=last)
            except Exception as error:
                log.warning(
                    "%s: a pass of %d streams failed (%s); each makes its steps again separately",
                    self.name,
                    len(held),
                    error,
                )
            held = {stream: self._replayed(stream, fail) for stream in held}
            self.stepper.recorder.drain()  # a step counts what it did, not what was done again
        updates: list[Update | None] = []
        for (stream, state), samples, ends in zip(held.items(), audio, last, strict=True):
            try:
                update = None if state is None else self.stepper.update(state, samples, ends)
            except Exception as error:
                fail(stream, error)
                update = None
            updates.append(update)
        return updates

    def _replayed(self, stream: LiveStream, fail: Fail) -> Any:
        """Make the stream's steps again and return its state, new and shared with none; None where
        they commit other words than the log holds."""
        pieces, stream.replay_audio = stream.replay_audio, None
        try:
            (state,) = self.stepper.start(1, stream.log.language)
            words_alone = WordsAlone()
            for audio, step in zip(pieces or [], stream.log.steps, strict=True):
                update = words_alone.of(self.stepper.update(state, audio, False))
                words = [word.text for word in update.committed]
                if (words, update.retracted) != (step.committed, step.retracted):
                    raise ValueError(
                        "a pass with other streams failed, and the steps made again separately "
                        f"commit other words: {words} instead of {step.committed}"
                    )
        except Exception as error:
            fail(stream, error)
            return None
        stream.state = state
        return state
