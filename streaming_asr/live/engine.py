"""The steps of live streams that share a method, several in one call (a pass) if it is `Batched`.

A pass that raises may leave its states half advanced, so none of them is used again. Each stream of
the pass starts again and repeats its steps by itself, from the audio that it keeps for this. Only a
stream that then raises by itself ends. The others go on as before, since by the method's contract
a stream has the same updates with others as by itself; one whose committed words differ is ended.
The streams of a failed pass share no pass any more, so a stream is replayed once at most.
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
    """The event of a step, and the delays at its end."""

    step: Step
    behind_s: float  # since the newest audio of the step arrived
    queued_s: float  # audio that has arrived and is in no step yet


class Engine:
    """A method that many live streams share; chunk, first_chunk: in samples, as all streams have
    them."""

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
        n_first = self.schedule.first_chunk + self.schedule.lookahead
        for n_samples, last in ((n_first, False), (self.schedule.chunk, False), (0, True)):
            self.stepper.step([state], [np.zeros(n_samples, np.float32)], [last])

    def advance(
        self, streams: Sequence[LiveStream], fail: Fail
    ) -> list[tuple[LiveStream, LiveStep]]:
        """Make one step of each stream and return their steps, without those that failed: for each
        of these `fail` is called, which ends the stream."""
        # A stream may be abandoned at any moment, which deletes its state; so they are held here.
        state_of = self._states(streams, fail)
        if not state_of:
            return []
        audio, last, arrival_s = zip(*(stream.take() for stream in state_of), strict=True)
        result = self.stepper.timed(lambda: self._updates(state_of, audio, last, fail))
        now_s = perf_counter()
        steps = []
        for i, stream in enumerate(state_of):
            if result.updates[i] is None:
                continue
            try:
                step = self._note(stream, result, i, last[i])
            except ValueError as error:
                fail(stream, error)
                continue
            stream.keep(audio[i])
            steps.append((stream, LiveStep(step, now_s - arrival_s[i], stream.queued_s)))
        return steps

    def _note(self, stream: LiveStream, result: Pass, i: int, last: bool) -> Step:
        """Log and return the step of stream `i` of a pass. Its `wall` is the time of the whole
        pass, for which it waited; its other times and its counts are an equal share. Raises
        ValueError as `StreamRecord.note` does."""
        times_ns, counts = result.share_of(i)
        update = stream.words_alone.of(result.updates[i])
        step = stream.note(update, times_ns | {"wall": result.wall_ns}, counts, last)
        stream.log.steps.append(step)
        return step

    def _states(self, streams: Sequence[LiveStream], fail: Fail) -> dict[LiveStream, Any]:
        """Return {stream: state}, and start new streams, those of one language and prompt in one
        call. Streams that cannot be started are left out."""
        new = [stream for stream in streams if stream.state is None]
        for options in {stream.options for stream in new}:
            alike = [stream for stream in new if stream.options == options]
            try:
                states = self.stepper.start(len(alike), *options)
            except Exception:  # one by one, so that only the cause fails
                states = [self._start_one(stream, fail) for stream in alike]
            for stream, state in zip(alike, states, strict=True):
                stream.state = state
        return {stream: stream.state for stream in streams if stream.state is not None}

    def _start_one(self, stream: LiveStream, fail: Fail) -> Any:
        """Return the state of a new stream; None where it fails."""
        try:
            return self.stepper.start(1, *stream.options)[0]
        except Exception as error:
            fail(stream, error)
            return None

    def _updates(
        self,
        state_of: dict[LiveStream, Any],
        audio: Sequence[Samples],
        last: Sequence[bool],
        fail: Fail,
    ) -> Sequence[Update | None]:
        """Return the update of each stream, None where it failed. If a pass of several streams
        fails, each is replayed and makes its step by itself.

        audio: (n,) of each stream. last: whether each stream ends with it.
        """
        if len(state_of) > 1 and self.batched is not None:
            try:
                return steps_of(self.batched, list(state_of.values()), audio, last=last)
            except Exception as error:
                log.warning(
                    "%s: a pass of %d streams failed (%s); each makes its steps again separately",
                    self.name,
                    len(state_of),
                    error,
                )
            state_of = {stream: self._replay(stream, fail) for stream in state_of}
            self.stepper.recorder.drain()  # the counts of a step are without those of the replay
        updates: list[Update | None] = []
        for (stream, state), samples, is_last in zip(state_of.items(), audio, last, strict=True):
            try:
                update = None if state is None else self.stepper.update(state, samples, is_last)
            except Exception as error:
                fail(stream, error)
                update = None
            updates.append(update)
        return updates

    def _replay(self, stream: LiveStream, fail: Fail) -> Any:
        """Make all steps of a stream again, and return its new state; None where a step fails or
        commits other words than the log has. The stream shares no pass from now on."""
        pieces, stream.replay_audio = stream.replay_audio, None
        try:
            (state,) = self.stepper.start(1, *stream.options)
            words_alone = WordsAlone()
            for samples, step in zip(pieces or [], stream.log.steps, strict=True):
                update = words_alone.of(self.stepper.update(state, samples, False))
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
