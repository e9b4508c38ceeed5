"""Live streams: audio that arrives by the clock on the wall, advanced by one inference thread.

A `Stream` is one method on one speaker's audio. Its steps end where the simulator's would, at the
first chunk and every chunk after it, so with a machine that keeps up the text is that of a
simulated run. Where computing falls behind, a step takes every whole chunk that has arrived (feed
`best_effort`), at most `MAX_STEP_S` at once. What is logged is what a run logs: a_k, the audio
taken, and c_k, the time the step took, here the whole of a pass that several streams share, since
each of them waits for all of it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from streaming_asr.engine import Engine, Seen, tried
from streaming_asr.errors import UserError
from streaming_asr.events import UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.simulate import StreamRecord

MAX_STEP_S = 10.0
MAX_TOGETHER = 16  # streams of a pass
MAX_REPLAY_S = 120.0  # of audio; a stream that has heard more shares no pass

log = logging.getLogger(__name__)


class Stream(StreamRecord):
    """One method on one speaker's audio; `feed` and `end` may be called from any thread.

    grows: whether a step takes all whole chunks that have arrived; else one chunk a step, as the
    feed `fixed`. on_step and on_end are called in the inference thread; on_end gets the error.
    """

    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        name: str,
        *,
        language: str | None,
        grows: bool,
        on_step: Callable[[Stream, Seen], None],
        on_end: Callable[[Stream, str | None], None],
    ) -> None:
        super().__init__(
            UtteranceLog(
                utt=name,
                text="",
                duration_samples=0,
                language=language,
                feed="best_effort" if grows else "fixed",
                lookahead_samples=engine.method.lookahead_samples,
            )
        )
        self.engine, self.grows, self.on_step, self.on_end = engine, grows, on_step, on_end
        self.state: Any = None
        # The audio of each step so far; None for a stream that shares no pass.
        self.kept: list[Samples] | None = None if engine.batched is None else []
        self.ended = self.closed = False
        self._worker = worker
        self._pieces: deque[tuple[Samples, float]] = deque()  # samples, when they arrived
        self._n_pending = 0
        self._arrived_s = perf_counter()
        self._digest = hashlib.sha256()
        self.ready_since: float | None = None

    @property
    def queued_s(self) -> float:
        return self._n_pending / SAMPLE_RATE

    def feed(self, samples: Samples) -> None:
        """Take in audio, (n,) float32 at 16 kHz."""
        with self._worker.condition:
            if self.ended or not len(samples):
                return
            self._arrived_s = perf_counter()
            self._pieces.append((samples, self._arrived_s))
            self._n_pending += len(samples)
            self._note_ready()

    def end(self) -> None:
        """Say that no more audio comes: what is left is one last step."""
        with self._worker.condition:
            self.ended = True
            self._note_ready()

    def abandon(self) -> None:
        """Drop the stream: no step of it begins any more; on_end is not called."""
        with self._worker.condition:
            self.closed = self.ended = True
            # At once, not when the collector comes by.
            self.ready_since = self.state = self.kept = None
            self.on_step, self.on_end = _nothing, _nothing  # the old ones hold the stream
            self._pieces.clear()
            self._n_pending = 0
            self._worker.streams.discard(self)

    def _due(self) -> int:
        """Return the samples at which the next step ends, on the grid of the schedule."""
        first, chunk = self.engine.first, self.engine.chunk
        return first + chunk * (-(-(self.received + 1 - first) // chunk) if self.received else 0)

    def _note_ready(self) -> None:
        is_ready = self.received + self._n_pending >= self._due() or self.ended
        if not is_ready or self.closed:
            self.ready_since = None
        elif self.ready_since is None:
            self.ready_since = perf_counter()
            self._worker.condition.notify_all()

    def take(self) -> tuple[Samples, bool, float]:
        """Return the samples of the next step, whether they are the last, and when the newest of
        them arrived."""
        with self._worker.condition:
            there, due = self.received + self._n_pending, self._due()
            end = due
            if self.grows and there > due:
                end += (there - due) // self.engine.chunk * self.engine.chunk
            room = max(due - self.received, round(MAX_STEP_S * SAMPLE_RATE))
            end = min(end, there, self.received + room)
            if self.ended and self.grows and there - self.received <= room:
                end = there
            taken, n, arrived_s = [], end - self.received, self._arrived_s
            while n:
                samples, arrived_s = self._pieces.popleft()
                if len(samples) > n:
                    self._pieces.appendleft((samples[n:], arrived_s))
                    samples = samples[:n]
                taken.append(samples)
                n -= len(samples)
            self._n_pending -= end - self.received
            self.received = end
            last = self.ended and not self._n_pending
            self.ready_since = None
            if not last:
                self._note_ready()
        audio = np.concatenate([np.zeros(0, np.float32), *taken])
        self._digest.update(audio.tobytes())
        self.log.duration_samples, self.log.audio_hash = end, self._digest.hexdigest()
        return audio, last, arrived_s

    def keep(self, audio: Samples) -> None:
        """Keep the audio of a step that was made, (n,), as long as a replay would not be long."""
        kept = self.kept
        if kept is not None:
            kept.append(audio)
        if self.received > MAX_REPLAY_S * SAMPLE_RATE:
            self.kept = None


def _nothing(*_: object) -> None:
    pass


class Worker:
    """The inference thread: steps the stream that has waited longest, with those of its method
    that are ready too where the method is `Batched`. Use as a context manager."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.streams: set[Stream] = set()
        self.busy = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def open(self, engine: Engine, name: str, **settings: Any) -> Stream:
        """Return a new stream; the settings are those of `Stream`."""
        stream = Stream(self, engine, name, **settings)
        with self.condition:
            self.streams.add(stream)
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
        while True:
            with self.condition:
                while not (ready := self._ready()) and not self._stopping:
                    self.condition.wait()
                if self._stopping:
                    return
            self.busy = True
            self._advance(ready)
            self.busy = False

    def _ready(self) -> list[Stream]:
        waiting = sorted(
            (stream for stream in self.streams if stream.ready_since is not None),
            key=lambda stream: stream.ready_since or 0.0,
        )
        if not waiting:
            return []
        first = waiting[0]
        if first.kept is None:
            return [first]
        return [
            stream
            for stream in waiting
            if stream.engine is first.engine and stream.kept is not None
        ][:MAX_TOGETHER]

    def _advance(self, ready: list[Stream]) -> None:
        given = tried(ready[0].engine.advance, ready)
        if isinstance(given, Exception):  # outside of any step, as of a device that is lost
            given = [(stream, given) for stream in ready]
        for stream, seen in given:
            if isinstance(seen, Exception):
                self._fail(stream, seen)
                continue
            if stream.closed:
                stream.state = None
            else:
                stream.on_step(stream, seen)
            if seen.step.kind == "flush":
                self._finish(stream, None)

    def _fail(self, stream: Stream, error: Exception) -> None:
        if stream.closed:
            stream.state = None
            return
        expected = isinstance(error, UserError)
        name = f"{stream.engine.name}, {stream.log.utt}"
        log.warning("%s failed: %s", name, error, exc_info=None if expected else error)
        self._finish(stream, str(error) if expected else f"{type(error).__name__}: {error}")

    def _finish(self, stream: Stream, error: str | None) -> None:
        was_closed, on_end = stream.closed, stream.on_end
        stream.abandon()
        if error is not None:
            stream.log.status, stream.log.error = "failed", error
        if not was_closed:
            on_end(stream, error)
