"""The inference thread of live streams."""

from __future__ import annotations

import logging
import threading
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.live.engine import Engine
from streaming_asr.live.streams import LiveStream

MAX_TOGETHER = 16  # streams in one call of the method

log = logging.getLogger(__name__)


class Worker:
    """The inference thread. It makes the next step of the stream that has waited longest, together
    with other ready streams of its method if that is `Batched`. Use as a context manager."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.streams: dict[LiveStream, Engine] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def open(self, engine: Engine, name: str, **settings: Any) -> LiveStream:
        """Return a new stream; the settings are those of `LiveStream`."""
        stream = LiveStream(
            name,
            engine.schedule,
            self.condition,
            is_kept=engine.batched is not None,
            leave=self._leave,
            **settings,
        )
        with self.condition:
            self.streams[stream] = engine
        return stream

    def _leave(self, stream: LiveStream) -> None:
        self.streams.pop(stream, None)

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
                engine = self.streams[ready[0]]
            self._advance(engine, ready)

    def _ready(self) -> list[LiveStream]:
        """Return the streams of the next step, all of one engine; [] where none is ready. A stream
        that keeps no audio for a replay is stepped by itself."""
        waiting = sorted(
            (stream for stream in self.streams if stream.ready_since is not None),
            key=lambda stream: stream.ready_since or 0.0,
        )
        if not waiting:
            return []
        first = waiting[0]
        if first.replay_audio is None:
            return [first]
        engine = self.streams[first]
        together = [s for s in waiting if self.streams[s] is engine and s.replay_audio is not None]
        return together[:MAX_TOGETHER]

    def _advance(self, engine: Engine, ready: list[LiveStream]) -> None:
        """Make one step of each stream, call their callbacks, and end those that have ended."""

        def fail(stream: LiveStream, error: Exception) -> None:
            self._fail(engine, stream, error)

        try:
            results = engine.advance(ready, fail)
        except Exception as error:  # outside of any step, as of a device that is lost
            for stream in ready:
                fail(stream, error)
            return
        for stream, result in results:
            if stream.closed:
                stream.state = None
            else:
                stream.on_step(stream, result)
            if result.step.kind == "flush":
                self._finish(stream, None)

    def _fail(self, engine: Engine, stream: LiveStream, error: Exception) -> None:
        """End a stream as failed, and log the error, with a traceback if it is no UserError."""
        if stream.closed:
            stream.state = None
            return
        is_user_error = isinstance(error, UserError)
        name = f"{engine.name}, {stream.log.utt}"
        log.warning("%s failed: %s", name, error, exc_info=None if is_user_error else error)
        self._finish(stream, str(error) if is_user_error else f"{type(error).__name__}: {error}")

    def _finish(self, stream: LiveStream, error: str | None) -> None:
        """Remove a stream that has ended or failed; call its `on_end` unless it was abandoned."""
        was_closed, on_end = stream.closed, stream.on_end
        stream.abandon()
        if error is not None:
            stream.log.status, stream.log.error = "failed", error
        if not was_closed:
            on_end(stream, error)
