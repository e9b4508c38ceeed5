"""Feeds audio to a method as it would arrive, times each step, writes the events.

Time is counted in samples, and compute is measured around each step, so nothing sleeps. In the feed
`fixed` the schedule alone cuts the chunks, so the text does not depend on the machine. In
`best_effort` the next chunk holds whatever arrived while the last was computed. `realtime` alone
sleeps: each chunk is handed over when it would have been spoken, for methods that answer by the
clock on the wall. There c_k is what the queue clock needs to give back the moment of each step, and
a stream whose pacing slipped is marked.

Reading files stays outside the timed region; log-mel and everything else that a method does with
the samples lies inside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns, process_time_ns, sleep
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events import SLIP_S, EventWriter, Step, UtteranceLog
from streaming_asr.memory import MemoryMeter, ran_out
from streaming_asr.method import (
    SAMPLE_RATE,
    Batched,
    LongForm,
    Method,
    Paced,
    Samples,
    Update,
    Word,
)
from streaming_asr.queue_feed import Queue
from streaming_asr.recorder import StepRecorder
from streaming_asr.schedule import (
    InMemory,
    OnDisk,
    check_feed,
    deliveries,
    groups,
    groups_within,
)
from streaming_asr.utterance import Utterance

NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE  # 62,500 exactly

log = logging.getLogger(__name__)


def simulate(
    method: Method[Any],
    utterances: Iterable[Utterance],
    *,
    writer: EventWriter,
    feed: str,
    chunk_samples: int,
    first_chunk_samples: int,
    batch: int = 1,
    synchronise: Callable[[], None] = lambda: None,
    on_utterance: Callable[[Utterance, str | None], None] = lambda utterance, error: None,
    on_heard: Callable[[Utterance, float], None] = lambda utterance, seconds: None,
    warm_up: bool = True,
    streams: int | None = None,
    seed: int = 0,
) -> None:
    """Run `method` over `utterances` and write every event.

    The run passes over utterances that the writer's log has already closed. `synchronise` waits
    for the device. `on_utterance(utterance, error)` is called as each one closes, and
    `on_heard(utterance, seconds)` after each step with the audio heard of it so far. With `batch`
    above 1 and a method that is `Batched`, that many streams advance together, each step's time is
    shared out among them, and the log says so. For `LongForm` methods see there; a recording longer
    than their step is read from disk as it is due where its corpus can (`audio.reader`). An
    utterance that fails (bad audio, a method that raises or breaks its contract) is closed as
    failed with its error, and the run goes on. In the feed `realtime_queue` so many `streams` (by
    default `batch`) share the device, see queue_feed; `seed` draws their offsets. Raises UserError
    for settings that contradict each other and for a log that cannot be written.
    """
    check_feed(feed, batch, streams)
    todo = [utterance for utterance in utterances if utterance.id not in writer.closed]
    if not todo:
        return
    together = method.samples_together if isinstance(method, LongForm) else None
    streams = streams or batch
    batch = batch if isinstance(method, Batched) else 1
    grouped = list(groups(todo, batch) if together is None else groups_within(todo, together))
    if together is not None:
        if feed == "realtime_queue":
            raise UserError("feed=realtime_queue: the method transcribes long recordings, unfed")
        batch, chunk_samples, first_chunk_samples = max(map(len, grouped)), together, together
    run = _Run(
        method=method,
        writer=writer,
        feed=feed,
        chunk=chunk_samples,
        first_chunk=first_chunk_samples,
        batch=batch,
        synchronise=synchronise,
        on_utterance=on_utterance,
        on_heard=on_heard,
        at_most=together,
    )
    with run.memory:
        if warm_up and together is None:
            run.warm_up(todo[0].language)
        if feed == "realtime_queue":
            Queue(run, todo, streams, seed, share).serve()
            return
        for group in grouped:
            if batch == 1 or run.opener(group[0]) is not None:
                run.alone(group[0])
            else:
                run.together(group)


class StreamRecord:
    """What is known of one stream besides its audio: its log, how much of the audio was taken and
    how many words are committed."""

    def __init__(self, log: UtteranceLog) -> None:
        self.log = log
        self.n_committed = 0
        self.received = 0

    def note(
        self, update: Update, compute_ns: dict[str, int], counts: dict[str, float], last: bool
    ) -> Step:
        """Return the step's event. Raises ValueError where the step takes back more words than were
        committed."""
        if not 0 <= update.retracted <= self.n_committed:
            raise ValueError(
                f"the method took back {update.retracted} of {self.n_committed} committed words"
            )
        self.n_committed += len(update.committed) - update.retracted
        self.log.commit_violations += update.retracted > 0
        return Step(
            kind="flush" if last else "endpoint" if update.endpoint else "audio",
            audio_samples=self.received,
            compute_ns=compute_ns,
            counts=counts,
            committed=[word.text for word in update.committed],
            partial=[word.text for word in update.partial],
            words=_times(update.committed),
            retracted=update.retracted,
        )


class _Row(StreamRecord):
    """A stream of the simulator, whose audio is all there."""

    def __init__(
        self, utterance: Utterance, audio: InMemory | OnDisk, feed: str, batch: int, ahead: int
    ) -> None:
        super().__init__(
            UtteranceLog.of(utterance, feed=feed, batch=batch, lookahead_samples=ahead)
        )
        self.utterance = utterance
        self.audio = audio
        self.log.duration_samples = audio.n
        self.log.audio_hash = audio.hash

    def take(self, end: int) -> Samples:
        """Return the samples that follow, up to `end`."""
        begin, self.received = self.received, end
        return self.audio.read(end - begin)


@dataclass
class _Run:
    method: Method[Any]
    writer: EventWriter
    feed: str
    chunk: int  # samples, as is first_chunk
    first_chunk: int
    batch: int
    synchronise: Callable[[], None]
    on_utterance: Callable[[Utterance, str | None], None]
    on_heard: Callable[[Utterance, float], None]
    at_most: int | None  # samples of all streams of a step; None outside of long form
    memory: MemoryMeter = field(default_factory=MemoryMeter)

    def warm_up(self, language: str | None) -> None:
        """Run a short silent stream of three steps, since the first use of anything is slow."""
        import numpy as np

        n_samples = self.first_chunk + self.method.lookahead_samples + 2 * self.chunk
        silence = np.zeros(n_samples, dtype=np.float32)
        rows = [
            self._row(Utterance("warm-up", "", lambda: silence, 0.0, language=language))
            for _ in range(self.batch)
        ]
        for _ in self._steps(rows[0]) if self.batch == 1 else self._steps_together(rows):
            pass

    def alone(self, utterance: Utterance) -> None:
        """Run one utterance and write its events as they happen."""
        try:
            row = self._row(utterance, batch=1)
        except Exception as error:
            self._fail_unopened(utterance, error)
            return
        self.writer.open_utterance(row.log)
        self.memory.reset()
        failure: str | None = None
        steps = self._steps(row)
        while True:
            try:
                step = next(steps, None)
            except Exception as error:
                failure = self._report(utterance, error)
                break
            if step is None:
                break
            self.writer.step(utterance.id, step)
            self._heard(row)
            if step.kind == "flush" and step.partial:
                failure = f"the method left partial words after the last step: {step.partial}"
        self._close(row, failure)

    def together(self, group: Sequence[Utterance]) -> None:
        """Run a batch and write it utterance by utterance once all of it is done.

        Where the batch fails, its utterances run one by one, to find out which one failed.
        """
        rows: list[_Row] = []
        for utterance in group:
            try:
                rows.append(self._row(utterance))
            except Exception as error:
                self._fail_unopened(utterance, error)
        self.memory.reset()
        try:
            for row, step in self._steps_together(rows):
                row.log.steps.append(step)
                self._heard(row)
        except Exception as error:
            log.warning("a batch of %d failed (%s); running it one by one", len(rows), error)
            for row in rows:
                self.alone(row.utterance)
            return
        for row in rows:
            self.writer.open_utterance(row.log)
            for step in row.log.steps:
                self.writer.step(row.utterance.id, step)
            left = row.log.steps[-1].partial
            self._close(
                row,
                f"the method left partial words after the last step: {left}" if left else None,
            )

    def opener(self, utterance: Utterance) -> Callable[[], Any] | None:
        """Return what reads a recording longer than a step from disk; None for all others."""
        n_samples = round(utterance.duration_s * SAMPLE_RATE)
        longer = self.at_most is not None and n_samples > self.at_most
        return getattr(utterance.audio, "reader", None) if longer else None

    def _row(self, utterance: Utterance, batch: int | None = None) -> _Row:
        """Return the row of an utterance. Raises what reading the audio raises."""
        opener, at_most = self.opener(utterance), self.at_most
        audio = OnDisk(opener, at_most) if opener and at_most else InMemory(utterance.load())
        utterance.check_length(audio.n)
        return _Row(utterance, audio, self.feed, batch or self.batch, self.method.lookahead_samples)

    def _heard(self, row: _Row) -> None:
        self.memory.sample()
        self.on_heard(row.utterance, row.received / SAMPLE_RATE)

    def _steps(self, row: _Row) -> Iterator[Step]:
        return self._steps_paced(row) if self.feed == "realtime" else self._steps_alone(row)

    def _steps_paced(self, row: _Row) -> Iterator[Step]:
        """Yield the steps of a stream whose audio comes by the clock on the wall."""
        method, recorder = self.method, StepRecorder(self.synchronise)
        state = method.start(language=row.utterance.language, recorder=recorder)
        recorder.drain()
        began_ns = perf_counter_ns()
        seen_ns = 0  # after `began_ns`

        def step(end: int, last: bool) -> Step:
            nonlocal seen_ns
            audio, begin_cpu = row.take(end), process_time_ns()
            update = method.step(state, audio, last=last)
            self.synchronise()
            now_ns, cpu_ns = perf_counter_ns() - began_ns, process_time_ns() - begin_cpu
            wall_ns = max(0, now_ns - max(end * NS_PER_SAMPLE, seen_ns))
            seen_ns = max(now_ns, end * NS_PER_SAMPLE)
            parts_ns, counts = recorder.drain()
            return row.note(update, {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}, counts, last)

        paced = method if isinstance(method, Paced) else None
        total = row.audio.n
        for end in deliveries(total, self.chunk, self.first_chunk, method.lookahead_samples):
            due_ns = began_ns + end * NS_PER_SAMPLE
            while (left_ns := due_ns - perf_counter_ns()) > 0:
                if paced is None:
                    sleep(left_ns / 1e9)
                elif paced.wait(state, left_ns / 1e9):
                    yield step(row.received, False)
            row.log.pacing_slip_s = max(row.log.pacing_slip_s or 0.0, -left_ns / 1e9)
            yield step(end, end == total and paced is None)
        if paced is not None:
            patience_s = paced.end(state)
            while not paced.is_done(state):
                if paced.wait(state, patience_s):
                    yield step(total, False)
            yield step(total, True)

    def _steps_alone(self, row: _Row) -> Iterator[Step]:
        method, recorder = self.method, StepRecorder(self.synchronise)
        state = method.start(language=row.utterance.language, recorder=recorder)
        recorder.drain()  # a step's parts are its own
        total = row.audio.n
        end = min(self.first_chunk + method.lookahead_samples, total)
        finished_ns = 0
        while True:
            audio, last = row.take(end), end == total
            self.synchronise()
            begin, begin_cpu = perf_counter_ns(), process_time_ns()
            update = method.step(state, audio, last=last)
            self.synchronise()
            wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
            parts_ns, counts = recorder.drain()
            times_ns = {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}
            yield row.note(update, times_ns, counts, last)
            if last:
                return
            finished_ns = max(finished_ns, end * NS_PER_SAMPLE) + wall_ns
            end += self.chunk
            if self.feed == "best_effort":  # what came in while the step was computed
                end = max(end, finished_ns // NS_PER_SAMPLE)
            end = min(end, total)

    def _steps_together(self, rows: Sequence[_Row]) -> Iterator[tuple[_Row, Step]]:
        """Yield the steps of all rows, which advance in phase and drop out with their last step."""
        method = self.method
        if not isinstance(method, Batched) or not rows:
            return
        recorder = StepRecorder(self.synchronise)
        language = rows[0].utterance.language
        states = method.start_many(len(rows), language=language, recorder=recorder)
        recorder.drain()
        schedules = [
            deliveries(row.audio.n, self.chunk, self.first_chunk, self.method.lookahead_samples)
            for row in rows
        ]
        active = list(zip(rows, states, schedules, strict=True))
        while active:
            audio = [row.take(next(schedule)) for row, _, schedule in active]
            last = [row.received == row.audio.n for row, _, _ in active]
            self.synchronise()
            begin, begin_cpu = perf_counter_ns(), process_time_ns()
            updates = method.step_many([state for _, state, _ in active], audio, last=last)
            self.synchronise()
            wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
            parts_ns, counts = recorder.drain()
            for i, ((row, _, _), update) in enumerate(zip(active, updates, strict=True)):
                times_ns = {
                    name: int(share(ns, i, len(active)))
                    for name, ns in {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}.items()
                }
                shares = {name: share(value, i, len(active)) for name, value in counts.items()}
                yield row, row.note(update, times_ns, shares, last[i])
            active = [stream for stream, ended in zip(active, last, strict=True) if not ended]

    def _close(self, row: _Row, failure: str | None) -> None:
        self.writer.close_utterance(
            row.utterance.id,
            error=failure,
            memory_peak_bytes=self.memory.peak_bytes(),
            commit_violations=row.log.commit_violations,
            pacing_slip_s=row.log.pacing_slip_s,
        )
        if (slip_s := row.log.pacing_slip_s or 0.0) > SLIP_S:
            log.warning("%s: was fed %.2f s late; this machine is busy", row.log.utt, slip_s)
        self.on_utterance(row.utterance, failure)

    def _fail_unopened(self, utterance: Utterance, error: Exception) -> None:
        failure = self._report(utterance, error)
        fields = {"batch": self.batch, "lookahead_samples": self.method.lookahead_samples}
        self.writer.open_utterance(UtteranceLog.of(utterance, feed=self.feed, **fields))
        self.writer.close_utterance(utterance.id, error=failure)
        self.on_utterance(utterance, failure)

    def _report(self, utterance: Utterance, error: Exception) -> str:
        if ran_out(error):  # no fault of the utterance, which stays open; the run ends here
            raise error
        expected = isinstance(error, UserError)
        log.warning("utterance %s failed: %s", utterance.id, error, exc_info=not expected)
        return str(error) if expected else f"{type(error).__name__}: {error}"


def _times(words: Sequence[Word]) -> list[list[float | None]] | None:
    """Return [start, end, probability] of each word, or None where none of them is known."""
    rows = [
        [None if value is None else round(float(value), 4) for value in triple]
        for triple in ((word.start, word.end, word.probability) for word in words)
    ]
    return rows if any(value is not None for row in rows for value in row) else None


def share(total: float, i: int, n: int) -> float:
    """Return the i-th of n shares that add up to `total`; those of a whole number are whole."""
    return total / n if isinstance(total, float) else total * (i + 1) // n - total * i // n
