"""The feed `realtime_queue`: many streams share one device, on a virtual clock; nothing sleeps.

Each stream plays recordings one after another from an offset of its own. Steps are computed in the
order in which their audio arrives. Each is timed, and on the virtual clock the device is busy for
that time. A `Batched` method makes one step of all streams whose audio has arrived. The lag of a
step, from the arrival of its audio to its end, is logged in `compute_ns`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.errors import UserError
from streaming_asr.method import NS_PER_SAMPLE
from streaming_asr.simulate.logbook import Logbook, RecordedStream
from streaming_asr.simulate.stepper import Stepper
from streaming_asr.utterance import Utterance


def assign(durations_s: Sequence[float], n: int, seed: int) -> tuple[list[list[int]], list[int]]:
    """Return for `n` streams the indices of the recordings that each plays, and the offset in ns at
    which each begins.

    Every recording is played once. Offsets are below the mean duration (1 s where no duration is
    known), so that the streams are not in step with each other.
    """
    rng = np.random.default_rng([seed, n])
    order = rng.permutation(len(durations_s))
    mean_s = sum(durations_s) / len(durations_s) or 1.0
    offsets = rng.integers(0, max(round(mean_s * 1e9), 1), n)
    return [order[i::n].tolist() for i in range(n)], offsets.tolist()


@dataclass
class _Player:
    """A stream of the queue: recordings that play one after another."""

    todo: list[Utterance]
    begin_ns: int  # of the recording that plays
    row: RecordedStream | None = None
    state: Any = None
    ends: Iterator[int] = field(default_factory=lambda: iter(()))
    end: int = 0  # samples of the recording once the next step's audio is there

    @property
    def arrival_ns(self) -> int:
        return self.begin_ns + self.end * NS_PER_SAMPLE

    @property
    def language(self) -> str | None:
        return None if self.row is None else self.row.utterance.language


class Queue:
    """Serves `n` streams of `utterances` on one device, at most `batch` of them in a step."""

    def __init__(
        self,
        stepper: Stepper,
        book: Logbook,
        schedule: Schedule,
        batch: int,
        utterances: Sequence[Utterance],
        n: int,
        seed: int,
    ) -> None:
        """n: the number of streams. seed: draws their orders and offsets. Raises UserError where
        there are fewer utterances than streams."""
        if n > len(utterances):
            raise UserError(
                f"streams={n}: there are only {len(utterances)} utterances; a stream plays one at "
                "least, and several for a steady load"
            )
        orders, offsets_ns = assign([each.duration_s for each in utterances], n, seed)
        self.stepper, self.book, self.schedule, self.batch = stepper, book, schedule, batch
        self.players = [
            _Player([utterances[i] for i in order], offset_ns)
            for order, offset_ns in zip(orders, offsets_ns, strict=True)
        ]

    def serve(self) -> None:
        """Run all streams to their ends and write the log, an utterance when its last step ends."""
        # (when the audio of the next step is there, index of the player), the earliest first
        waiting = [
            (player.arrival_ns, i) for i, player in enumerate(self.players) if self._open(player)
        ]
        heapq.heapify(waiting)
        free_ns = 0  # when the device has ended the last step
        while waiting:
            now_ns = max(free_ns, waiting[0][0])
            due = [heapq.heappop(waiting)[1]]
            language = self.players[due[0]].language
            while len(due) < self.batch and waiting:
                arrival_ns, i = waiting[0]
                # A step has one language. A stream of another one is not overtaken by later ones.
                if arrival_ns > now_ns or self.players[i].language != language:
                    break
                heapq.heappop(waiting)
                due.append(i)
            free_ns = now_ns + self._step([self.players[i] for i in due], now_ns)
            for i in due:
                player = self.players[i]
                if player.row is not None or self._open(player):
                    heapq.heappush(waiting, (player.arrival_ns, i))

    def _open(self, player: _Player) -> bool:
        """Begin the player's next recording that can be read; return False where none is left."""
        while player.todo:
            utterance = player.todo.pop(0)
            try:
                player.row = self.book.row(utterance, batch=len(self.players))
                (player.state,) = self.stepper.start(1, utterance.language, utterance.prompt)
            except Exception as error:
                player.row = None
                self.book.fail_unopened(utterance, error, self.batch)
                continue
            player.ends = self.schedule.ends(player.row.audio.n)
            player.end = next(player.ends)
            return True
        return False

    def _step(self, due: list[_Player], now_ns: int) -> int:
        """Make one step of these streams at the time `now_ns`, log it, and return the time that it
        took in ns. Where it fails, the recordings of all of them end as failed."""
        rows = [player.row for player in due if player.row is not None]
        audio = [row.take(player.end) for row, player in zip(rows, due, strict=True)]
        last = [row.is_complete for row in rows]
        begin_ns = perf_counter_ns()
        try:
            result = self.stepper.step([player.state for player in due], audio, last)
        except Exception as error:
            for player, row in zip(due, rows, strict=True):
                self._end(player, row, self.book.failure_of(row.utterance, error))
            return perf_counter_ns() - begin_ns
        for i, (player, row) in enumerate(zip(due, rows, strict=True)):
            times_ns, counts = result.share_of(i)
            times_ns["lag"] = now_ns + result.wall_ns - player.arrival_ns
            try:
                row.log.steps.append(row.note(result.updates[i], times_ns, counts, last[i]))
            except ValueError as error:
                self._end(player, row, self.book.failure_of(row.utterance, error))
                continue
            self.book.report_progress(row)
            if last[i]:
                self._end(player, row, None)
            else:
                player.end = next(player.ends)
        return result.wall_ns

    def _end(self, player: _Player, row: RecordedStream, failure: str | None) -> None:
        """Write a recording that has ended; the player's next one follows where it would end."""
        self.book.write_all(row, failure)
        player.begin_ns += row.audio.n * NS_PER_SAMPLE
        player.row = None
