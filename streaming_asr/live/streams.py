"""Live streams: audio that arrives by the clock on the wall, advanced by one inference thread.

A `LiveStream` is one method on one speaker's audio. Its steps end where the simulator's would, at
the first chunk and every chunk after it, so with a machine that keeps up the text is that of a
simulated run. Where computing falls behind, a step takes every whole chunk that has arrived (feed
`best_effort`), at most `MAX_STEP_S` at once. What is logged is what a run logs: a_k, the audio
taken, and c_k, the time the step took, here the whole of a pass that several streams share, since
each of them waits for all of it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.events.log import UtteranceLog
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.simulate.stepper import StreamRecord
from streaming_asr.text.spoken import WordsAlone

MAX_STEP_S = 10.0
MAX_REPLAY_S = 120.0  # of audio; a longer stream shares no pass


class LiveStream(StreamRecord):
    """One method on one speaker's audio; `feed` and `end` may be called from any thread.

    grows: whether a step takes all whole chunks that have arrived; else one chunk a step, as the
    feed `fixed`. on_step and on_end are called in the inference thread; on_end gets the error.
    """

    def __init__(
        self,
        name: str,
        schedule: Schedule,
        condition: threading.Condition,
        *,
        language: str | None,
        grows: bool,
        is_kept: bool,
        leave: Callable[[LiveStream], None],
        on_step: Callable[[LiveStream, Any], None],
        on_end: Callable[[LiveStream, str | None], None],
    ) -> None:
        """condition: guards all streams of a worker. is_kept: whether the audio is kept, for a
        stream that may share passes. leave: called, with the condition held, when it is over."""
        super().__init__(
            UtteranceLog(
                utt=name,
                text="",
                duration_samples=0,
                language=language,
                feed="best_effort" if grows else "fixed",
                lookahead_samples=schedule.lookahead,
            )
        )
        self.grows, self.on_step, self.on_end = grows, on_step, on_end
        self.state: Any = None
        self.words_alone = WordsAlone()
        # The audio of each step so far; None for a stream that shares no pass.
        self.replay_audio: list[Samples] | None = [] if is_kept else None
        self.ended = self.closed = False
        self._schedule = schedule
        self._condition, self._leave = condition, leave
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
        with self._condition:
            if self.ended or not len(samples):
                return
            self._arrived_s = perf_counter()
            self._pieces.append((samples, self._arrived_s))
            self._n_pending += len(samples)
            self._note_ready()

    def end(self) -> None:
        """Mark the end of the audio: what is left is one last step."""
        with self._condition:
            self.ended = True
            self._note_ready()

    def abandon(self) -> None:
        """Drop the stream: no step of it begins any more; on_end is not called."""
        with self._condition:
            self.closed = self.ended = True
            # At once, not when the collector comes by.
            self.ready_since = self.state = self.replay_audio = None
            self.on_step, self.on_end = _nothing, _nothing  # the old ones hold the stream
            self._pieces.clear()
            self._n_pending = 0
            self._leave(self)

    def _note_ready(self) -> None:
        due = self._schedule.after(self.received)
        is_ready = self.received + self._n_pending >= due or self.ended
        if not is_ready or self.closed:
            self.ready_since = None
        elif self.ready_since is None:
            self.ready_since = perf_counter()
            self._condition.notify_all()

    def take(self) -> tuple[Samples, bool, float]:
        """Return the samples (n,) of the next step, whether they are the last, and when the newest
        of them arrived, in seconds of `perf_counter`."""
        with self._condition:
            arrived = self.received + self._n_pending
            due = self._schedule.after(self.received)
            end = due
            if self.grows and arrived > due:
                end = self._schedule.after(arrived) - self._schedule.chunk
            room = max(due - self.received, round(MAX_STEP_S * SAMPLE_RATE))
            end = min(end, arrived, self.received + room)
            if self.ended and self.grows and arrived - self.received <= room:
                end = arrived
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
        pieces = self.replay_audio
        if pieces is not None:
            pieces.append(audio)
        if self.received > MAX_REPLAY_S * SAMPLE_RATE:
            self.replay_audio = None


def _nothing(*_: object) -> None:
    pass
