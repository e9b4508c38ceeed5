"""The feed `realtime_queue`: many streams on one device, on a clock that only computing moves.

Each stream plays recordings one after another from an offset of its own. Steps are served in the
order in which their audio arrives, each is computed and timed, and the device is busy that long on
the virtual clock: nothing sleeps. A `Batched` method makes one step of the streams whose audio is
there. The lag of a step, from the arrival of its audio to its end, is logged in `compute_ns`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Batched, Samples, Update
from streaming_asr.recorder import StepRecorder
from streaming_asr.schedule import deliveries
from streaming_asr.utterance import Utterance

if TYPE_CHECKING:
    from streaming_asr.simulate import _Row, _Run

NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE


def assign(durations_s: Sequence[float], n: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Return which recordings each of `n` streams plays, every recording once, and the offset in ns
    at which it begins, below the mean duration (1 s where none is known)."""
    rng = np.random.default_rng([seed, n])
    order = rng.permutation(len(durations_s))
    mean_s = sum(durations_s) / len(durations_s) or 1.0
    offsets = rng.integers(0, max(round(mean_s * 1e9), 1), n)
    return [order[i::n].tolist() for i in range(n)], offsets.tolist()


@dataclass
class _Stream:
    todo: list[Utterance]
    begin_ns: int  # of the recording that plays
    row: _Row | None = None
    state: Any = None
    ends: Iterator[int] = field(default_factory=lambda: iter(()))
    end: int = 0  # samples of the recording once the next step's audio is there

    @property
    def arrival_ns(self) -> int:
        return self.begin_ns + self.end * NS_PER_SAMPLE


class Queue:
    """Serves `n` streams of `utterances` on the device of a run; `share` splits a shared step."""

    def __init__(
        self,
        run: _Run,
        utterances: Sequence[Utterance],
        n: int,
        seed: int,
        share: Callable[[float, int, int], float],
    ) -> None:
        if n > len(utterances):
            raise UserError(
                f"streams={n}: there are only {len(utterances)} utterances; a stream plays one at "
                "least, and several for a steady load"
            )
        orders, offsets = assign([each.duration_s for each in utterances], n, seed)
        self.run = run
        self.share = share
        self.recorder = StepRecorder(run.synchronise)
        self.streams = [
            _Stream([utterances[at] for at in order], offset)
            for order, offset in zip(orders, offsets, strict=True)
        ]

    def serve(self) -> None:
        """Run all streams to their ends and write the log, an utterance when its last step ends."""
        waiting = [
            (stream.arrival_ns, at) for at, stream in enumerate(self.streams) if self._open(stream)
        ]
        heapq.heapify(waiting)
        free_ns = 0
        while waiting:
            now_ns = max(free_ns, waiting[0][0])
            due = [heapq.heappop(waiting)[1]]
            language = self._language(due[0])
            while len(due) < self.run.batch and waiting and waiting[0][0] <= now_ns:
                if self._language(waiting[0][1]) != language:  # a step has one language
                    break
                due.append(heapq.heappop(waiting)[1])
            free_ns = now_ns + self._step([self.streams[at] for at in due], now_ns)
            for at in due:
                stream = self.streams[at]
                if stream.row is not None or self._open(stream):
                    heapq.heappush(waiting, (stream.arrival_ns, at))

    def _language(self, at: int) -> str | None:
        row = self.streams[at].row
        return None if row is None else row.utterance.language

    def _open(self, stream: _Stream) -> bool:
        """Begin the next recording of a stream that can be read; return False after the last."""
        run = self.run
        while stream.todo:
            utterance = stream.todo.pop(0)
            try:
                stream.row = run._row(utterance, batch=len(self.streams))
                options = {"language": utterance.language, "recorder": self.recorder}
                method: Any = run.method
                if run.batch > 1:
                    (stream.state,) = method.start_many(1, **options)
                else:
                    stream.state = method.start(**options)
            except Exception as error:
                stream.row = None
                run._fail_unopened(utterance, error)
                continue
            self.recorder.drain()
            n, ahead = stream.row.audio.n, run.method.lookahead_samples
            stream.ends = deliveries(n, run.chunk, run.first_chunk, ahead)
            stream.end = next(stream.ends)
            return True
        return False

    def _step(self, due: list[_Stream], now_ns: int) -> int:
        """Make one step of these streams and log it; return the time it took in ns."""
        run = self.run
        rows = [stream.row for stream in due if stream.row is not None]
        audio = [row.take(stream.end) for row, stream in zip(rows, due, strict=True)]
        last = [row.received == row.audio.n for row in rows]
        run.synchronise()
        begin, begin_cpu = perf_counter_ns(), process_time_ns()
        try:
            updates = self._updates(due, audio, last)
        except Exception as error:
            for stream, row in zip(due, rows, strict=True):
                self._end(stream, run._report(row.utterance, error))
            return perf_counter_ns() - begin
        run.synchronise()
        wall_ns, cpu_ns = perf_counter_ns() - begin, process_time_ns() - begin_cpu
        parts_ns, counts = self.recorder.drain()
        times_ns = {"wall": wall_ns, "cpu": cpu_ns, **parts_ns}
        for i, (stream, row, update) in enumerate(zip(due, rows, updates, strict=True)):
            mine = {key: int(self.share(ns, i, len(due))) for key, ns in times_ns.items()}
            mine["lag"] = now_ns + wall_ns - stream.arrival_ns
            shares = {name: self.share(value, i, len(due)) for name, value in counts.items()}
            try:
                row.log.steps.append(row.note(update, mine, shares, last[i]))
            except ValueError as error:
                self._end(stream, run._report(row.utterance, error))
                continue
            run._heard(row)
            if last[i]:
                left = f"the method left partial words after the last step: {update.partial}"
                self._end(stream, left if update.partial else None)
            else:
                stream.end = next(stream.ends)
        return wall_ns

    def _updates(
        self, due: list[_Stream], audio: list[Samples], last: list[bool]
    ) -> Sequence[Update]:
        method = self.run.method
        if self.run.batch > 1 and isinstance(method, Batched):
            return method.step_many([stream.state for stream in due], audio, last=last)
        return [method.step(due[0].state, audio[0], last=last[0])]

    def _end(self, stream: _Stream, failure: str | None) -> None:
        row = stream.row
        assert row is not None  # a recording plays
        self.run.writer.open_utterance(row.log)
        for step in row.log.steps:
            self.run.writer.step(row.utterance.id, step)
        self.run._close(row, failure)
        stream.begin_ns += row.audio.n * NS_PER_SAMPLE
        stream.row = None
