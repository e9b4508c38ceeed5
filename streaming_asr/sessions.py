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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.events import Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Batched, Method, Samples
from streaming_asr.recorder import StepRecorder
from streaming_asr.simulate import StreamRecord, share

MAX_STEP_S = 10.0
MAX_TOGETHER = 16  # streams of a pass

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

    def start(self, streams: Sequence[Stream]) -> list[Any]:
        """Return a new state for each stream; those of one language start together, in phase."""
        made: dict[Stream, Any] = {}
        for language in {stream.log.language for stream in streams}:
            same = [stream for stream in streams if stream.log.language == language]
            settings: dict[str, Any] = {"language": language, "recorder": self.recorder}
            if self.batched is not None:
                states = self.batched.start_many(len(same), **settings)
            else:
                states = [self.method.start(**settings) for _ in same]
            made.update(zip(same, states, strict=True))
        self.recorder.drain()
        return [made[stream] for stream in streams]

    def advance(self, streams: Sequence[Stream]) -> list[tuple[Stream, Seen]]:
        """Make one step of each stream and return what it gave."""
        # A stream may be abandoned at any moment, which takes its state away.
        held = {stream: stream.state for stream in streams}
        new = [stream for stream, state in held.items() if state is None]
        for stream, state in zip(new, self.start(new), strict=True):
            held[stream] = stream.state = state
        audio, last, arrived_s = zip(*(stream.take() for stream in streams), strict=True)
        self.synchronise()
        begin, begin_cpu = perf_counter_ns(), process_time_ns()
        states = list(held.values())
        if self.batched is not None:
            updates = self.batched.step_many(states, audio, last=last)
        else:
            updates = [
                self.method.step(state, samples, last=ends)
                for state, samples, ends in zip(states, audio, last, strict=True)
            ]
        self.synchronise()
        wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
        parts_ns, counts = self.recorder.drain()
        now_s, n = perf_counter(), len(streams)
        seen = []
        for i, (stream, update) in enumerate(zip(streams, updates, strict=True)):
            shares = {
                name: int(share(ns, i, n)) for name, ns in {"cpu": cpu_ns, **parts_ns}.items()
            }
            step = stream.note(
                update,
                {"wall": wall_ns, **shares},
                {name: share(value, i, n) for name, value in counts.items()},
                last[i],
            )
            stream.log.steps.append(step)
            if last[i] and step.partial:
                raise ValueError(f"the method left partial words: {step.partial}")
            seen.append((stream, Seen(step, now_s - arrived_s[i], stream.queued_s)))
        return seen


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
            self.ready_since = self.state = None  # at once, not when the collector comes by
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


class Worker:
    """The inference thread: steps the stream that has waited longest, with those of its method
    that are ready too where the method is `Batched`. Use as a context manager."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.streams: set[Stream] = set()
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
            self._advance(ready)

    def _ready(self) -> list[Stream]:
        waiting = sorted(
            (stream for stream in self.streams if stream.ready_since is not None),
            key=lambda stream: stream.ready_since or 0.0,
        )
        if not waiting:
            return []
        engine = waiting[0].engine
        together = MAX_TOGETHER if engine.batched is not None else 1
        return [stream for stream in waiting if stream.engine is engine][:together]

    def _advance(self, ready: list[Stream]) -> None:
        try:
            seen = ready[0].engine.advance(ready)
        except Exception as error:
            expected = isinstance(error, UserError)
            log.warning("%s failed: %s", ready[0].engine.name, error, exc_info=not expected)
            told = str(error) if expected else f"{type(error).__name__}: {error}"
            for stream in ready:
                self._finish(stream, told)
            return
        for stream, each in seen:
            if stream.closed:
                stream.state = None
            else:
                stream.on_step(stream, each)
            if each.step.kind == "flush":
                self._finish(stream, None)

    def _finish(self, stream: Stream, error: str | None) -> None:
        was_closed = stream.closed
        stream.abandon()
        if error is not None:
            stream.log.status, stream.log.error = "failed", error
        if not was_closed:
            stream.on_end(stream, error)
