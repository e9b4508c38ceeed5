"""The inference thread of live streams.

Streams of one `Batched` method whose audio is there share a call of it (a pass). A pass that raises
may leave its states half advanced, so all of its streams end with the error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.live.streams import Engine, LiveStep, LiveStream
from streaming_asr.simulate.stepper import Pass

log = logging.getLogger(__name__)


class Worker:
    """The inference thread. It makes the next step of the stream that has waited longest, together
    with other ready streams of its method if that is `Batched`. Use as a context manager."""

    def __init__(self) -> None:
        self.condition = threading.Condition()  # guards all streams
        self.streams: list[LiveStream] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def open(self, engine: Engine, name: str, **settings: Any) -> LiveStream:
        """Return a new stream; the settings are those of `LiveStream`."""
        stream = LiveStream(self.condition, self.streams, engine, name, **settings)
        with self.condition:
            self.streams.append(stream)
        return stream

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.condition:
            self._stopping = True
            self.condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        """Make steps until the worker stops; wait where no stream is ready."""
        while True:
            with self.condition:
                while not (ready := self._ready()) and not self._stopping:
                    self.condition.wait()
                if self._stopping:
                    return
            self._advance(ready[0].engine, ready)

    def _ready(self) -> list[LiveStream]:
        """Return the streams of the next step, all of one engine; [] where none is ready."""
        waiting = sorted(
            (stream for stream in self.streams if stream.ready_since is not None),
            key=lambda stream: stream.ready_since or 0.0,
        )
        together = [stream for stream in waiting if stream.engine is waiting[0].engine]
        return together[: together[0].engine.max_together] if together else []

    def _advance(self, engine: Engine, ready: Sequence[LiveStream]) -> None:
        """Make one step of each stream, call their callbacks, and end those that have ended."""
        # A stream may be abandoned at any moment, which deletes its state; so they are held here.
        state_of = {stream: state for stream in ready if (state := self._state(stream)) is not None}
        if not state_of:
            return
        try:
            audio, last, arrival_s = zip(*(stream.take() for stream in state_of), strict=True)
            result = engine.stepper.step(list(state_of.values()), audio, last)
        except Exception as error:
            for stream in state_of:
                self._fail(stream, error)
            return
        now_s = perf_counter()
        for i, stream in enumerate(state_of):
            try:
                live_step = _noted(stream, result, i, last[i], now_s - arrival_s[i])
            except ValueError as error:
                self._fail(stream, error)
                continue
            if stream.closed:
                stream.state = None
            else:
                stream.on_step(stream, live_step)
            if last[i]:
                self._finish(stream, None)

    def _state(self, stream: LiveStream) -> Any:
        """Return the state of a stream, which a new one begins with; None where that fails."""
        if stream.state is None:
            try:
                (stream.state,) = stream.engine.stepper.start(1, *stream.options)
            except Exception as error:
                self._fail(stream, error)
        return stream.state

    def _fail(self, stream: LiveStream, error: Exception) -> None:
        """End a stream as failed, and log the error, with a traceback if it is no UserError."""
        if stream.closed:
            stream.state = None
            return
        is_user_error = isinstance(error, UserError)
        name = f"{stream.engine.name}, {stream.log.utt}"
        log.warning("%s failed: %s", name, error, exc_info=None if is_user_error else error)
        self._finish(stream, str(error) if is_user_error else f"{type(error).__name__}: {error}")

    def _finish(self, stream: LiveStream, error: str | None) -> None:
        """Remove a stream that has ended or failed; call its `on_end` unless it was abandoned."""
        was_closed, on_end = stream.closed, stream.on_end
        stream.abandon()
        stream.partial = ()
        if error is not None:
            stream.log.status, stream.log.error = "failed", error
        if not was_closed:
            on_end(stream, error)


def _noted(stream: LiveStream, result: Pass, i: int, last: bool, behind_s: float) -> LiveStep:
    """Log and return the step of `stream`, the i-th of a pass. Its `wall` is the time of the whole
    pass, for which it waited; its other times and its counts are an equal share. Raises ValueError
    as `StreamRecord.note` does."""
    times_ns, counts = result.share_of(i)
    is_first = not stream.committed
    update = stream.words_alone.of(result.updates[i])
    step = stream.note(update, times_ns | {"wall": result.wall_ns}, counts, last)
    stream.log.steps.append(step)
    return LiveStep(step, behind_s, stream.queued_s, is_first)
