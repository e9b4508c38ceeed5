"""Feeds audio to a method as it would arrive, times each step, writes the events.

Time is counted in samples, and compute is measured around each step, so nothing sleeps. In the feed
`fixed` only the schedule cuts the chunks, so the text does not depend on the machine. In
`best_effort` the next chunk holds whatever arrived while the last was computed. Only `realtime`
sleeps: each chunk is handed over when it would have been spoken, for methods that answer by the
clock on the wall. There c_k is what the queue clock needs to give back the moment of each step, and
a stream whose pacing slipped is marked.

Reading files stays outside the timed region; log-mel and everything else that a method does with
the samples lies inside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, sleep
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule, check_feed
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Step
from streaming_asr.method import NS_PER_SAMPLE, SAMPLE_RATE, Batched, LongForm, Method, Paced
from streaming_asr.simulate.logbook import Logbook, RecordedStream
from streaming_asr.simulate.queue import Queue
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
    streams: int | None = None,
    seed: int = 0,
) -> None:
    """Run `method` over `utterances` and write every event.

    The run passes over utterances that the writer's log has already closed. `synchronise` waits
    for the device. `on_utterance(utterance, error)` is called as each one closes, and
    `on_progress(utterance, seconds)` after each step with the audio fed of it so far. With `batch`
    above 1 and a method that is `Batched`, that many streams advance together, each step's time is
    shared out among them, as the log records. For `LongForm` methods see there; a recording longer
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
    if together is None:
        grouped = list(groups(todo, batch))
    else:
        grouped = list(groups(todo, together, lambda each: round(each.duration_s * SAMPLE_RATE)))
    if together is not None:
        if feed == "realtime_queue":
            raise UserError(
                "feed=realtime_queue: this method takes whole recordings and no chunks; "
                "leave feed out"
            )
        batch, chunk_samples, first_chunk_samples = max(map(len, grouped)), together, together
    book = Logbook(writer, feed, method.lookahead_samples, on_utterance, on_progress, at_most=together)
    schedule = Schedule(chunk_samples, first_chunk_samples, method.lookahead_samples)
    feeder = _Feeder(Stepper(method, synchronise, together=batch > 1), book, schedule, batch)
    with book.memory:
        if warm_up and together is None:
            feeder.warm_up(todo[0].language)
        if feed == "realtime_queue":
            Queue(feeder.stepper, book, schedule, batch, todo, streams, seed).serve()
            return
        for group in grouped:
            if batch == 1 or book.opener(group[0]) is not None:
                feeder.alone(group[0])
            else:
                feeder.together(group)


def in_phase(
    stepper: Stepper, rows: Sequence[RecordedStream], schedule: Schedule
) -> Iterator[tuple[RecordedStream, Step]]:
    """Yield the steps of all rows, which advance in phase and drop out with their last step."""
    if not rows:
        return
    states = stepper.start(len(rows), rows[0].utterance.language)
    ends = [schedule.ends(row.audio.n) for row in rows]
    active = list(zip(rows, states, ends, strict=True))
    while active:
        audio = [row.take(next(end)) for row, _, end in active]
        last = [row.is_complete for row, _, _ in active]
        result = stepper.step([state for _, state, _ in active], audio, last)
        for i, (row, _, _) in enumerate(active):
            yield row, row.note(result.updates[i], *result.share_of(i), last[i])
        active = [stream for stream in active if not stream[0].is_complete]


@dataclass(frozen=True)
class _Feeder:
    """Feeds the recordings of a run, one by one or several in phase."""

    stepper: Stepper
    book: Logbook
    schedule: Schedule
    batch: int

    def warm_up(self, language: str | None) -> None:
        """Run a short silent stream of three steps, since the first use of anything is slow."""
        n_samples = self.schedule.after(0) + 2 * self.schedule.chunk
        silence = np.zeros(n_samples, dtype=np.float32)
        quiet = Utterance("warm-up", "", lambda: silence, 0.0, language=language)
        rows = [self.book.row(quiet, self.batch) for _ in range(self.batch)]
        for _ in (
            self._steps(rows[0]) if self.batch == 1 else in_phase(self.stepper, rows, self.schedule)
        ):
            pass

    def alone(self, utterance: Utterance) -> None:
        """Run one utterance and write its events as they happen."""
        book = self.book
        try:
            row = book.row(utterance, batch=1)
        except Exception as error:
            book.fail_unopened(utterance, error, self.batch)
            return
        book.open(row)
        book.memory.reset()
        failure: str | None = None
        steps = self._steps(row)
        while True:
            try:
                step = next(steps, None)
            except Exception as error:
                failure = book.failure_of(utterance, error)
                break
            if step is None:
                break
            step.memory_bytes = book.memory.now_bytes()
            book.write(row, step)
            book.heard(row)
        book.close(row, failure)

    def together(self, group: Sequence[Utterance]) -> None:
        """Run a batch and write it utterance by utterance once all of it is done.

        Where the batch fails, its utterances run one by one, to find out which one failed.
        """
        book = self.book
        rows: list[RecordedStream] = []
        for utterance in group:
            try:
                rows.append(book.row(utterance, self.batch))
            except Exception as error:
                book.fail_unopened(utterance, error, self.batch)
        book.memory.reset()
        try:
            for row, step in in_phase(self.stepper, rows, self.schedule):
                row.log.steps.append(step)
                book.heard(row)
        except Exception as error:
            log.warning("a batch of %d failed (%s); running it one by one", len(rows), error)
            for row in rows:
                self.alone(row.utterance)
            return
        for row in rows:
            book.write_all(row, None)

    def _steps(self, row: RecordedStream) -> Iterator[Step]:
        """Yield the steps of a stream that shares none with others."""
        alone = Stepper(self.stepper.method, self.stepper.synchronise)
        (state,) = alone.start(language=row.utterance.language)
        if self.book.feed == "realtime":
            yield from self._paced(alone, state, row)
            return
        total, finished_ns = row.audio.n, 0
        end = next(self.schedule.ends(total))
        while True:
            audio = row.take(end)
            last = row.is_complete
            result = alone.step([state], [audio], [last])
            yield row.note(result.updates[0], *result.share_of(0), last)
            if last:
                return
            finished_ns = max(finished_ns, end * NS_PER_SAMPLE) + result.wall_ns
            end += self.schedule.chunk
            if self.book.feed == "best_effort":  # what came in while the step was computed
                end = max(end, finished_ns // NS_PER_SAMPLE)
            end = min(end, total)

    def _paced(self, alone: Stepper, state: Any, row: RecordedStream) -> Iterator[Step]:
        """Yield the steps of a stream whose audio comes by the clock on the wall."""
        began_ns = perf_counter_ns()
        seen_ns = 0  # after `began_ns`

        def step(end: int, last: bool) -> Step:
            nonlocal seen_ns
            result = alone.step([state], [row.take(end)], [last])
            now_ns = perf_counter_ns() - began_ns
            # c_k is what the queue clock needs to give back the moment of the step.
            wall_ns = max(0, now_ns - max(end * NS_PER_SAMPLE, seen_ns))
            seen_ns = max(now_ns, end * NS_PER_SAMPLE)
            return row.note(
                result.updates[0], result.times_ns | {"wall": wall_ns}, result.counts, last
            )

        method = alone.method
        paced = method if isinstance(method, Paced) else None
        total = row.audio.n
        for end in self.schedule.ends(total):
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
