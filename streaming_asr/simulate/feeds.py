"""Feeds audio to a method as it would arrive, times each step, writes the events.

Time is counted in samples, and compute is measured around each step, so nothing sleeps. In the feed
`fixed` only the schedule cuts the chunks, so the text does not depend on the machine. In
`best_effort` the next chunk has all audio that arrived while the last one was computed. Only
`realtime` sleeps: each chunk is fed at the time at which it would have been spoken, for methods
whose text depends on real time. There c_k is chosen so that the clock of the metrics
(f_k = max(a_k, f_k-1) + c_k) gives the measured time of each step. A stream that was fed late is
marked.

Reading files is not timed; log-mel and everything else that a method does with the samples is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule, check_feed
from streaming_asr.events.log import EventWriter, Step
from streaming_asr.method import NS_PER_SAMPLE, SAMPLE_RATE, Batched, LongForm, Method, Paced
from streaming_asr.simulate.logbook import Logbook, RecordedStream
from streaming_asr.simulate.recordings import groups
from streaming_asr.simulate.stepper import Stepper
from streaming_asr.utterance import Utterance

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
    on_progress: Callable[[Utterance, float], None] = lambda utterance, seconds: None,
    warm_up: bool = True,
) -> None:
    """Run `method` over `utterances` and write every event.

    writer: of the log; utterances that it has closed already are skipped. batch: the streams of a
    `Batched` method that advance together; each gets an equal share of a step's time. synchronise:
    waits for the device.
    on_utterance(utterance, error): called as each one closes.
    on_progress(utterance, seconds): called after each step with the audio fed so far.

    A `LongForm` method sets batch and chunks itself; a recording that is longer than its step is
    read from disk in pieces, if its corpus can (`audio.reader`). An utterance that fails (bad
    audio, a method that raises or breaks its contract) is closed as failed with its error, and the
    run goes on. Raises UserError for settings that contradict each other and for a log that cannot
    be written.
    """
    check_feed(feed, batch)
    todo = [utterance for utterance in utterances if utterance.id not in writer.closed]
    if not todo:
        return
    step_samples = method.samples_together if isinstance(method, LongForm) else None
    if step_samples is None:
        batch = batch if isinstance(method, Batched) else 1
        grouped = list(groups(todo, batch))
    else:
        grouped = list(groups(todo, step_samples, lambda u: round(u.duration_s * SAMPLE_RATE)))
        batch = max(map(len, grouped))
        chunk_samples = first_chunk_samples = step_samples
    lookahead = method.lookahead_samples
    book = Logbook(writer, feed, lookahead, on_utterance, on_progress, at_most=step_samples)
    schedule = Schedule(chunk_samples, first_chunk_samples, lookahead)
    feeder = _Feeder(Stepper(method, synchronise, together=batch > 1), book, schedule, batch)
    with book.memory:
        if warm_up and step_samples is None:
            feeder.warm_up(todo[0].language)
        for group in grouped:
            if batch == 1 or book.opener(group[0]) is not None:
                feeder.run_one(group[0])
            else:
                feeder.run_batch(group)


def in_phase(
    stepper: Stepper, rows: Sequence[RecordedStream], schedule: Schedule, *, waits: bool = False
) -> Iterator[tuple[RecordedStream, Step]]:
    """Yield (stream, its event) for the steps of streams of one language and prompt that advance
    together, a chunk at a time. A stream whose audio is complete takes no part in later steps.

    waits: a step also has the audio that arrived while the one before was computed.
    """
    if not rows:
        return
    states = stepper.start(len(rows), rows[0].utterance.language, rows[0].utterance.prompt)
    ends = [next(schedule.ends(row.audio.n)) for row in rows]
    active = list(zip(rows, states, ends, strict=True))
    finish_ns = 0  # when the last step ended, from the start of the audio
    while active:
        audio = [row.take(end) for row, _, end in active]
        last = [row.is_complete for row, _, _ in active]
        result = stepper.step([state for _, state, _ in active], audio, last)
        for i, (row, _, _) in enumerate(active):
            times_ns, counts = result.share_of(i)
            yield row, row.note(result.updates[i], times_ns, counts, last[i])
        # The step began when its audio was there and the step before had ended.
        finish_ns = max(finish_ns, active[0][2] * NS_PER_SAMPLE) + result.wall_ns
        arrived = finish_ns // NS_PER_SAMPLE if waits else 0
        active = [
            (row, state, min(max(end + schedule.chunk, arrived), row.audio.n))
            for row, state, end in active
            if not row.is_complete
        ]


@dataclass(frozen=True)
class _Feeder:
    """Feeds the recordings of a run, one by one or several that advance together."""

    stepper: Stepper
    book: Logbook
    schedule: Schedule
    batch: int

    def warm_up(self, language: str | None) -> None:
        """Run a short silent stream of three steps, since the first use of anything is slow."""
        n_samples = self.schedule.after(0) + 2 * self.schedule.chunk
        silence = np.zeros(n_samples, dtype=np.float32)
        quiet = Utterance("warm-up", "", lambda: silence, 0.0, language=language)
        rows = self._rows([quiet] * self.batch, self.batch)
        if self.batch == 1:
            list(self._steps(rows[0]))
        else:
            list(in_phase(self.stepper, rows, self.schedule))

    def _rows(self, group: Sequence[Utterance], batch: int) -> list[RecordedStream]:
        return [row for each in group if (row := self.book.row(each, batch)) is not None]

    def run_one(self, utterance: Utterance) -> None:
        """Run one utterance and write its events as they happen."""
        book = self.book
        row = book.row(utterance, batch=1)
        if row is None:
            return
        book.writer.open_utterance(row.log)
        book.memory.reset()
        steps, failure = self._steps(row), None
        while True:
            try:
                step = next(steps, None)
            except Exception as error:
                failure = book.failure_of(utterance, error)
                break
            if step is None:
                break
            step.memory_bytes = book.memory.now_bytes()
            book.writer.step(utterance.id, step)
            book.report_progress(row)
        book.close(row, failure)

    def run_batch(self, group: Sequence[Utterance]) -> None:
        """Run a batch and write it utterance by utterance once all of it is done.

        Where the batch fails, its utterances run one by one, so that only the cause fails.
        """
        book, rows = self.book, self._rows(group, self.batch)
        book.memory.reset()
        try:
            for row, step in in_phase(self.stepper, rows, self.schedule):
                row.log.steps.append(step)
                book.report_progress(row)
        except Exception as error:
            log.warning("a batch of %d failed (%s); running it one by one", len(rows), error)
            for row in rows:
                self.run_one(row.utterance)
            return
        for row in rows:
            book.writer.open_utterance(row.log)
            for step in row.log.steps:
                book.writer.step(row.utterance.id, step)
            book.close(row, None)

    def _steps(self, row: RecordedStream) -> Iterator[Step]:
        """Return the steps of a stream that shares none with others, as they are made."""
        stepper, feed = Stepper(self.stepper.method, self.stepper.synchronise), self.book.feed
        if feed == "realtime":
            return self._paced_steps(stepper, row)
        steps = in_phase(stepper, [row], self.schedule, waits=feed == "best_effort")
        return (step for _, step in steps)

    def _paced_steps(self, stepper: Stepper, row: RecordedStream) -> Iterator[Step]:
        """Yield the steps of a stream whose audio is fed in real time. A `Paced` method also makes
        a step whenever it has new text, and ends with a step after the audio."""
        (state,) = stepper.start(1, row.utterance.language, row.utterance.prompt)
        begin_ns = perf_counter_ns()
        finish_ns = 0  # when the last step ended by the clock of the metrics, after `begin_ns`

        def step(end: int, last: bool) -> Step:
            """Make a step of the audio up to sample `end`; times in ns since the stream began."""
            nonlocal finish_ns
            result = stepper.step([state], [row.take(end)], [last])
            now_ns = perf_counter_ns() - begin_ns
            # The clock of the metrics adds c_k, `wall`, to this start, and so gives `now_ns`.
            start_ns = max(end * NS_PER_SAMPLE, finish_ns)
            times_ns = result.times_ns | {"wall": max(0, now_ns - start_ns)}
            finish_ns = max(now_ns, end * NS_PER_SAMPLE)
            return row.note(result.updates[0], times_ns, result.counts, last)

        paced = stepper.method if isinstance(stepper.method, Paced) else None
        n_samples = row.audio.n
        for end in self.schedule.ends(n_samples):
            due_ns = begin_ns + end * NS_PER_SAMPLE
            while (wait_ns := due_ns - perf_counter_ns()) > 0:
                if paced is None:
                    sleep(wait_ns / 1e9)
                elif paced.wait(state, wait_ns / 1e9):
                    yield step(row.received, last=False)
            row.log.pacing_slip_s = max(row.log.pacing_slip_s or 0.0, -wait_ns / 1e9)
            yield step(end, last=end == n_samples and paced is None)
        if paced is not None:
            wait_s = paced.end(state)
            while not paced.is_done(state):
                if paced.wait(state, wait_s):
                    yield step(n_samples, last=False)
            yield step(n_samples, last=True)
