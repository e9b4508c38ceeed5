"""Feeds audio to a method as it would arrive, times each step, writes the events.

Nothing sleeps: time is counted in samples, and compute is measured around each step. In the feed
`fixed` the chunks are cut by the schedule alone, so the text does not depend on the machine. In
`best_effort` the next chunk holds whatever arrived while the last was computed.

Reading files stays outside the timed region, and log-mel and everything else that a method does
with the samples inside it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Literal, TypeAlias

from streaming_asr.data.utterance import Utterance
from streaming_asr.errors import UserError
from streaming_asr.events import EventWriter, Step, UtteranceLog
from streaming_asr.memory import MemoryMeter, ran_out
from streaming_asr.method import (
    COUNTS,
    PARTS,
    SAMPLE_RATE,
    Batched,
    Method,
    Samples,
    Update,
    Word,
)

Feed: TypeAlias = Literal["fixed", "best_effort"]
FEEDS: tuple[Feed, ...] = ("fixed", "best_effort")
NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE  # 62,500 exactly

log = logging.getLogger(__name__)


class StepRecorder:
    """Collects what one step did; drained by the simulator after each."""

    def __init__(self, synchronise: Callable[[], None] = lambda: None) -> None:
        self._synchronise = synchronise
        self._parts_ns: dict[str, int] = {}
        self._counts: dict[str, float] = {}
        self._open: str | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        if name not in PARTS:
            raise ValueError(f"part {name!r} is none of {', '.join(PARTS)}")
        if self._open is not None:
            raise ValueError(f"part {name!r} begins within {self._open!r}; parts do not nest")
        self._open = name
        self._synchronise()
        begin = perf_counter_ns()
        try:
            yield
        finally:
            self._synchronise()
            self._parts_ns[name] = self._parts_ns.get(name, 0) + perf_counter_ns() - begin
            self._open = None

    def count(self, **counts: float) -> None:
        for name, value in counts.items():
            if name not in COUNTS:
                raise ValueError(f"count {name!r} is none of {', '.join(COUNTS)}")
            self._counts[name] = self._counts.get(name, 0) + value

    def drain(self) -> tuple[dict[str, int], dict[str, float]]:
        """(nanoseconds by part, counts) since the last call."""
        drained = self._parts_ns, self._counts
        self._parts_ns, self._counts = {}, {}
        return drained


def deliveries(n_samples: int, chunk: int, first_chunk: int, lookahead: int) -> Iterator[int]:
    """Samples received after each delivery of the feed `fixed`, ending with `n_samples`.

    The first delivery is longer by the look-ahead, the last is whatever is left: audio that ends
    on a boundary ends with a full one, never with an empty one after it.
    """
    end = first_chunk + lookahead
    while end < n_samples:
        yield end
        end += chunk
    yield n_samples


def simulate(
    method: Method[Any],
    utterances: Iterable[Utterance],
    *,
    writer: EventWriter,
    feed: Feed,
    chunk_samples: int,
    first_chunk_samples: int,
    batch: int = 1,
    synchronise: Callable[[], None] = lambda: None,
    on_utterance: Callable[[Utterance, str | None], None] = lambda utterance, error: None,
    on_heard: Callable[[Utterance, float], None] = lambda utterance, seconds: None,
    warm_up: bool = True,
) -> None:
    """Run `method` over `utterances` and write every event.

    Utterances that the writer's log has already closed are passed over. `synchronise` waits for
    the device. `on_utterance(utterance, error)` is called as each one closes, and after each step
    `on_heard(utterance, seconds)` with the audio heard of it so far. With `batch` above 1
    and a method that has `step_many`, that many streams advance together, each step's time is
    shared out among them, and the log says so. A batched method that promises no latency may have
    `samples_together`, the audio of all streams of a step: it then takes the place of `batch` and
    of the chunks, and a longer recording comes in pieces of it, read from disk as they are due
    where its corpus can (`audio.reader`). An utterance that fails (bad audio,
    a method that raises or breaks its contract) is closed as failed with its error, and the run
    goes on; a log that cannot be written ends it with UserError.
    """
    if feed not in FEEDS:
        raise UserError(f"feed={feed}: it must be one of {', '.join(FEEDS)}.")
    if batch < 1:
        raise UserError(f"batch={batch}: it must be 1 or more.")
    if batch > 1 and feed == "best_effort":
        raise UserError(
            "batch>1 with feed=best_effort: there the chunks follow the time one stream takes; "
            "use batch=1 or feed=fixed."
        )
    todo = [utterance for utterance in utterances if utterance.id not in writer.closed]
    if not todo:
        return
    together = getattr(method, "samples_together", None) if isinstance(method, Batched) else None
    batch = batch if isinstance(method, Batched) else 1
    groups = list(_groups(todo, batch) if together is None else _groups_within(todo, together))
    if together is not None:
        batch, chunk_samples, first_chunk_samples = max(map(len, groups)), together, together
    run = _Run(
        method,
        writer,
        feed,
        chunk_samples,
        first_chunk_samples,
        batch,
        synchronise,
        on_utterance,
        on_heard,
        together,
    )
    with run.memory:
        if warm_up and together is None:
            run.warm_up(todo[0].language)
        for group in groups:
            if batch == 1 or run.opener(group[0]) is not None:
                run.alone(group[0])
            else:
                run.together(group)


def _groups(utterances: Sequence[Utterance], size: int) -> Iterator[list[Utterance]]:
    """Neighbours of one language, up to `size` of them: a batch is started with one language."""
    group: list[Utterance] = []
    for utterance in utterances:
        if group and (len(group) == size or utterance.language != group[0].language):
            yield group
            group = []
        group.append(utterance)
    yield group


def _groups_within(utterances: Sequence[Utterance], n_samples: int) -> Iterator[list[Utterance]]:
    """Neighbours of one language that have at most `n_samples` together; a longer one alone."""
    group: list[Utterance] = []
    room = n_samples
    for utterance in utterances:
        length = round(utterance.duration_s * SAMPLE_RATE)
        if group and (length > room or utterance.language != group[0].language):
            yield group
            group, room = [], n_samples
        group.append(utterance)
        room -= length
    yield group


class _InMemory:
    """The samples of a recording, `n` of them."""

    def __init__(self, samples: Samples) -> None:
        self.n, self.hash = len(samples), hashlib.sha256(samples.tobytes()).hexdigest()
        self._samples, self._at = samples, 0

    def read(self, n: int) -> Samples:
        """The next `n`; a copy, so that a method may do with it what it likes."""
        begin, self._at = self._at, self._at + n
        return self._samples[begin : self._at].copy()


class _OnDisk:
    """The same, read in pieces of at most `size` samples; first all of it for length and hash, so
    that what cannot be read is known before anything is computed."""

    def __init__(self, opener: Callable[[], Any], size: int) -> None:
        reader, digest, self.n = opener(), hashlib.sha256(), 0
        while len(piece := reader.read(size)):
            digest.update(piece)
            self.n += len(piece)
        self.hash = digest.hexdigest()
        self.read: Callable[[int], Samples] = opener().read


class _Row:
    """One stream's share of the simulator's knowledge: its log and its committed text."""

    def __init__(
        self, utterance: Utterance, audio: _InMemory | _OnDisk, feed: str, batch: int, ahead: int
    ) -> None:
        self.utterance = utterance
        self.audio = audio
        self.log = _opening(utterance, feed, batch, ahead)
        self.log.duration_samples = audio.n
        self.log.audio_hash = audio.hash
        self.n_committed = 0
        self.received = 0

    def take(self, end: int) -> Samples:
        """The samples up to `end`."""
        begin, self.received = self.received, end
        return self.audio.read(end - begin)

    def note(
        self, update: Update, compute_ns: dict[str, int], counts: Mapping[str, float], last: bool
    ) -> Step:
        """The step's event. Raises ValueError where it takes back more than was committed."""
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
            frames_real=int(counts.get("frames_real", 0)),
            frames_computed=int(counts.get("frames_computed", 0)),
            decode_steps=int(counts.get("decode_steps", 0)),
            beam_sum=int(counts.get("beam_sum", 0)),
            encoder_flops=float(counts.get("encoder_flops", 0)),
            anchors=int(counts.get("anchors", 0)),
            tokens=int(counts.get("tokens", 0)),
            decoder_cache_bytes=int(counts.get("decoder_cache_bytes", 0)),
            committed=[word.text for word in update.committed],
            partial=[word.text for word in update.partial],
            words=_times(update.committed),
            retracted=update.retracted,
        )


class _Run:
    def __init__(
        self,
        method: Method[Any],
        writer: EventWriter,
        feed: Feed,
        chunk: int,
        first_chunk: int,
        batch: int,
        synchronise: Callable[[], None],
        on_utterance: Callable[[Utterance, str | None], None],
        on_heard: Callable[[Utterance, float], None],
        at_most: int | None,
    ) -> None:
        self.method = method
        self.writer = writer
        self.feed = feed
        self.chunk = chunk
        self.first_chunk = first_chunk
        self.batch = batch
        self.synchronise = synchronise
        self.on_utterance = on_utterance
        self.on_heard = on_heard
        self.at_most = at_most
        self.memory = MemoryMeter()

    def warm_up(self, language: str | None) -> None:
        """A short silent stream of three steps: the first use of anything is slow."""
        import numpy as np

        n_samples = self.first_chunk + self.method.lookahead_samples + 2 * self.chunk
        silence = np.zeros(n_samples, dtype=np.float32)
        rows = [
            self._row(Utterance("warm-up", "", lambda: silence, 0.0, language=language))
            for _ in range(self.batch)
        ]
        for _ in self._steps_alone(rows[0]) if self.batch == 1 else self._steps_together(rows):
            pass

    def alone(self, utterance: Utterance) -> None:
        """One utterance, its events written as they happen."""
        try:
            row = self._row(utterance, batch=1)
        except Exception as error:
            self._fail_unopened(utterance, error)
            return
        self.writer.open_utterance(row.log)
        self.memory.reset()
        failure: str | None = None
        steps = self._steps_alone(row)
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
        """A batch, written utterance by utterance once all of it is done.

        Where the batch fails its utterances are run one by one, to find out which it was.
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
        """What reads a recording from disk that is longer than a step takes; None for others."""
        n_samples = round(utterance.duration_s * SAMPLE_RATE)
        longer = self.at_most is not None and n_samples > self.at_most
        return getattr(utterance.audio, "reader", None) if longer else None

    def _row(self, utterance: Utterance, batch: int | None = None) -> _Row:
        """Raises what reading the audio raises."""
        opener, at_most = self.opener(utterance), self.at_most
        audio = _OnDisk(opener, at_most) if opener and at_most else _InMemory(utterance.load())
        utterance.check_length(audio.n)
        return _Row(utterance, audio, self.feed, batch or self.batch, self.method.lookahead_samples)

    def _heard(self, row: _Row) -> None:
        self.memory.sample()
        self.on_heard(row.utterance, row.received / SAMPLE_RATE)

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
            begin = perf_counter_ns()
            update = method.step(state, audio, last=last)
            self.synchronise()
            wall_ns = perf_counter_ns() - begin
            parts_ns, counts = recorder.drain()
            yield row.note(update, {"wall": wall_ns, **parts_ns}, counts, last)
            if last:
                return
            finished_ns = max(finished_ns, end * NS_PER_SAMPLE) + wall_ns
            end += self.chunk
            if self.feed == "best_effort":  # what came in while the step was computed
                end = max(end, finished_ns // NS_PER_SAMPLE)
            end = min(end, total)

    def _steps_together(self, rows: Sequence[_Row]) -> Iterator[tuple[_Row, Step]]:
        """All rows in phase; each drops out with its last step."""
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
            begin = perf_counter_ns()
            updates = method.step_many([state for _, state, _ in active], audio, last=last)
            self.synchronise()
            wall_ns = perf_counter_ns() - begin
            parts_ns, counts = recorder.drain()
            for i, ((row, _, _), update) in enumerate(zip(active, updates, strict=True)):
                times_ns = {
                    name: _share(ns, i, len(active))
                    for name, ns in {"wall": wall_ns, **parts_ns}.items()
                }
                shares = {
                    name: value / len(active)
                    if name == "encoder_flops"
                    else _share(int(value), i, len(active))
                    for name, value in counts.items()
                }
                yield row, row.note(update, times_ns, shares, last[i])
            active = [stream for stream, ended in zip(active, last, strict=True) if not ended]

    def _close(self, row: _Row, failure: str | None) -> None:
        self.writer.close_utterance(
            row.utterance.id,
            error=failure,
            memory_peak_bytes=self.memory.peak_bytes(),
            commit_violations=row.log.commit_violations,
        )
        self.on_utterance(row.utterance, failure)

    def _fail_unopened(self, utterance: Utterance, error: Exception) -> None:
        failure = self._report(utterance, error)
        lookahead = self.method.lookahead_samples
        self.writer.open_utterance(_opening(utterance, self.feed, self.batch, lookahead))
        self.writer.close_utterance(utterance.id, error=failure)
        self.on_utterance(utterance, failure)

    def _report(self, utterance: Utterance, error: Exception) -> str:
        if ran_out(error):  # not this utterance's fault: it stays open, and the run ends here
            raise error
        expected = isinstance(error, UserError)
        log.warning("utterance %s failed: %s", utterance.id, error, exc_info=not expected)
        return str(error) if expected else f"{type(error).__name__}: {error}"


def _opening(utterance: Utterance, feed: str, batch: int, lookahead: int) -> UtteranceLog:
    return UtteranceLog(
        utt=utterance.id,
        text=utterance.text,
        duration_samples=round(utterance.duration_s * SAMPLE_RATE),
        words=None if utterance.words is None else list(utterance.words),
        speaker=utterance.speaker,
        language=utterance.language,
        audio_path=utterance.audio_path,
        feed=feed,
        batch=batch,
        lookahead_samples=lookahead,
    )


def _times(words: Sequence[Word]) -> list[list[float | None]] | None:
    """[start, end, probability] of each word, or None where none of them is known."""
    rows = [
        [None if value is None else round(float(value), 4) for value in triple]
        for triple in ((word.start, word.end, word.probability) for word in words)
    ]
    return rows if any(value is not None for row in rows for value in row) else None


def _share(total: int, i: int, n: int) -> int:
    """The i-th of n whole shares that add up to `total`."""
    return total * (i + 1) // n - total * i // n
