"""Live streams: audio that arrives in real time, processed by one inference thread.

A `LiveStream` is one method on one speaker's audio. Its steps end where the simulator's would, at
the first chunk and every chunk after it, so on a machine that is fast enough the text is that of a
simulated run. Where computing falls behind, a step takes all complete chunks that have arrived
(feed `best_effort`), at most `MAX_STEP_S` at once. The log is that of a run: a_k, the audio
received, and c_k, the time of the step. If several streams share a pass, c_k is the time of the
whole pass, because each of them waits for all of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Batched, Method, Samples
from streaming_asr.simulate.stepper import Stepper, StreamRecord
from streaming_asr.text.spoken import WordsAlone

MAX_STEP_S = 10.0
MAX_TOGETHER = 16  # streams in one call of the method


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
        self.max_together = MAX_TOGETHER if isinstance(method, Batched) else 1

    def warm_up(self) -> None:
        """Make three steps of silence, since the first use of anything is slow."""
        states = self.stepper.start()
        for n_samples in (self.schedule.after(0), self.schedule.chunk, 0):
            self.stepper.step(states, [np.zeros(n_samples, np.float32)], [n_samples == 0])


@dataclass(frozen=True)
class LiveStep:
    """The event of a step, and the delays at its end."""

    step: Step
    behind_s: float  # since the newest audio of the step arrived
    queued_s: float  # audio that has arrived and is in no step yet
    is_first: bool  # whether no text was committed before it

    @property
    def text(self) -> str:
        """Return the committed text, at the start of a stream without the space before it."""
        text = "".join(self.step.committed)
        return text.lstrip() if self.is_first else text


class LiveStream(StreamRecord):
    """One method on one speaker's audio; `feed` and `end` may be called from any thread.

    grows: whether a step takes all complete chunks that have arrived; else every step takes one, as
    in the feed `fixed`. on_step(stream, `LiveStep`) and on_end(stream, error or None) are called in
    the inference thread.
    """

    def __init__(
        self,
        condition: threading.Condition,
        streams: list[LiveStream],
        engine: Engine,
        name: str,
        *,
        language: str | None,
        prompt: str | None = None,
        grows: bool,
        on_step: Callable[[LiveStream, LiveStep], None],
        on_end: Callable[[LiveStream, str | None], None],
    ) -> None:
        """condition: guards all `streams` of a worker, which this one leaves at its end."""
        super().__init__(
            UtteranceLog(
                utt=name,
                text="",
                duration_samples=0,
                language=language,
                prompt=prompt,
                feed="best_effort" if grows else "fixed",
                lookahead_samples=engine.schedule.lookahead,
            )
        )
        self.engine, self.grows, self.on_step, self.on_end = engine, grows, on_step, on_end
        self.state: Any = None
        self.words_alone = WordsAlone()
        self.ended = self.closed = False
        self._condition, self._streams = condition, streams
        self._schedule = engine.schedule
        self._pieces: deque[tuple[Samples, float]] = deque()  # pending audio, its arrival
        self._n_pending = 0  # samples that have arrived and are in no step yet
        self._arrival_s = perf_counter()  # of the newest audio, as all times here
        self._digest = hashlib.sha256()
        self.ready_since: float | None = None  # when the next step could begin; None: not yet

    @property
    def options(self) -> tuple[str | None, str | None]:
        """Return the stream's language and prompt, as its method is started with them."""
        return self.log.language, self.log.prompt

    @property
    def queued_s(self) -> float:
        return self._n_pending / SAMPLE_RATE

    def feed(self, samples: Samples) -> None:
        """Add audio, (n,) float32 at 16 kHz; after `end` it is ignored."""
        with self._condition:
            if self.ended or not len(samples):
                return
            self._arrival_s = perf_counter()
            self._pieces.append((samples, self._arrival_s))
            self._n_pending += len(samples)
            self._update_ready()

    def end(self) -> None:
        """Mark the end of the audio; the rest of it is processed."""
        with self._condition:
            self.ended = True
            self._update_ready()

    def abandon(self) -> None:
        """Drop the stream: no step of it begins any more, and on_end is not called."""
        with self._condition:
            self.closed = self.ended = True
            # The callbacks refer to this stream in a circle. Without them and these its memory is
            # free at once, not when the garbage collector runs.
            self.ready_since = self.state = None
            self.on_step, self.on_end = _nothing, _nothing
            self._pieces.clear()
            self._n_pending = 0
            if self in self._streams:
                self._streams.remove(self)

    def _update_ready(self) -> None:
        """Set `ready_since`, and wake the worker when the stream becomes ready: when the next
        delivery is complete, or the audio has ended."""
        due = self._schedule.after(self.received)
        is_ready = self.received + self._n_pending >= due or self.ended
        if not is_ready or self.closed:
            self.ready_since = None
        elif self.ready_since is None:
            self.ready_since = perf_counter()
            self._condition.notify_all()

    def take(self) -> tuple[Samples, bool, float]:
        """Return the samples of the next step, (n,), whether they are the last, and when the newest
        of them arrived, in seconds of `perf_counter`."""
        with self._condition:
            end = self._step_end()
            n_missing, arrival_s = end - self.received, self._arrival_s
            self._n_pending -= n_missing
            self.received = end
            parts = [np.zeros(0, np.float32)]
            while n_missing:
                samples, arrival_s = self._pieces.popleft()
                if len(samples) > n_missing:
                    self._pieces.appendleft((samples[n_missing:], arrival_s))
                    samples = samples[:n_missing]
                parts.append(samples)
                n_missing -= len(samples)
            last = self.ended and not self._n_pending
            self.ready_since = None
            if not last:
                self._update_ready()
        audio = np.concatenate(parts)
        self._digest.update(audio.tobytes())
        self.log.duration_samples, self.log.audio_hash = end, self._digest.hexdigest()
        return audio, last, arrival_s

    def _step_end(self) -> int:
        """Return where the next step ends, in samples from the start of the stream.

        That is the next delivery's end, or with `grows` the last one's that has arrived completely;
        at the end of the audio, all of it. A step is at most MAX_STEP_S long, or one delivery.
        """
        arrived = self.received + self._n_pending
        due = self._schedule.after(self.received)
        end = due
        if self.grows and arrived > due:
            end = self._schedule.after(arrived) - self._schedule.chunk
        max_samples = max(due - self.received, round(MAX_STEP_S * SAMPLE_RATE))
        if self.ended and self.grows and self._n_pending <= max_samples:
            return arrived
        return min(end, arrived, self.received + max_samples)


def _nothing(*_: object) -> None:
    pass
