"""Many streams on one device, from the log of single streams: a virtual queue, no model.

Each of N streams plays all recordings of the log, one after another in an order of its own, from an
offset drawn at random. The device serves the steps one by one in the order in which their audio
arrives, each for as long as it took alone. The lag of a step is the time from the arrival of its
audio to its end. Batching, caches that streams take from each other and the switch from one to the
next are not in it: `run feed=realtime_queue` measures those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.simulate.queue import assign

SEEDS = 5  # draws of orders and offsets
MAX_LAG_S = 1.0  # beside one chunk: what a stream may lag behind and still be served
MOST = 4096  # streams, where a search for the limit ends
MAX_STEPS = 20_000_000  # of a virtual queue


Nanoseconds: TypeAlias = npt.NDArray[np.int64]  # whole ones, so that sums are exact
NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE


class Recording(NamedTuple):
    """The steps of one recording: a_k and c_k, (K,) each, and how long it lasts, in ns."""

    a: Nanoseconds
    c: Nanoseconds
    duration: int


class Drawn(NamedTuple):
    """What chance decides of N streams: which recordings each plays, and when it begins (ns)."""

    orders: list[list[int]]
    offsets: list[int]


@dataclass(frozen=True)
class Served:
    """What N streams get. load: compute per second of audio of all of them; above 1 the queue grows
    without end. p50, p95: lag in seconds, the median over the draws with their least and most."""

    n: int
    load: float
    p50: tuple[float, float, float]
    p95: tuple[float, float, float]

    def keeps_up(self, chunk_s: float) -> bool:
        """Return whether the 95th percentile of lag is below one chunk and below 1 s."""
        return self.load < 1 and self.p95[0] < min(chunk_s, MAX_LAG_S)


def recordings(log: Log) -> list[Recording]:
    """Return the recordings that were transcribed. Raises UserError where there are none."""
    played = [
        Recording(
            np.array([step.audio_samples for step in each.steps]) * NS_PER_SAMPLE,
            np.array([step.compute_ns["wall"] for step in each.steps]),
            each.duration_samples * NS_PER_SAMPLE,
        )
        for each in log.utterances
        if each.status == "ok" and each.steps
    ]
    if not played:
        raise UserError("no utterance of the log succeeded, so no step's time is known; run again")
    return played


def lags(streams: Sequence[Sequence[Recording]], offsets: Sequence[int]) -> Nanoseconds:
    """Return the lag of every step in ns, stream by stream in the order of its steps.

    streams: what each plays, one recording after another. offsets: when each begins, in ns.
    """
    arrivals, compute = [], []
    for stream, offset in zip(streams, offsets, strict=True):
        begin = offset
        for recording in stream:
            arrivals.append(begin + recording.a)
            compute.append(recording.c)
            begin += recording.duration
    a, c = np.concatenate(arrivals), np.concatenate(compute)
    order = np.argsort(a, kind="stable")  # of equal arrivals, the stream named first
    total = np.cumsum(c[order])  # clocks.fifo, in whole nanoseconds
    by_stream: Nanoseconds = np.empty_like(a)
    by_stream[order] = total + np.maximum.accumulate(a[order] - (total - c[order])) - a[order]
    return by_stream


def draw(n_recordings: int, n: int, longest_offset: int, seed: Sequence[int]) -> Drawn:
    """Return the order in which each of `n` streams plays the recordings, and the offsets in ns at
    which they begin, below `longest_offset`."""
    rng = np.random.default_rng(list(seed))
    orders = [rng.permutation(n_recordings).tolist() for _ in range(n)]
    return Drawn(orders, rng.integers(0, max(longest_offset, 1), n).tolist())


def serve(recordings: Sequence[Recording], n: int, *, seed: int = 0) -> Served:
    """Return the lag of `n` streams. Raises UserError for n below 1 and for too many steps."""
    if n < 1:
        raise UserError(f"--streams {n}: must be 1 or more")
    n_steps = n * sum(len(each.a) for each in recordings)
    if n_steps > MAX_STEPS:
        raise UserError(
            f"--streams {n}: {n_steps:,} steps are more than {MAX_STEPS:,}; give fewer streams, or "
            "a log of fewer recordings"
        )
    # Offsets lie within one recording, so that streams are out of step but all are at work.
    audio = sum(each.duration for each in recordings)
    rows = []
    for k in range(SEEDS):
        drawn = draw(len(recordings), n, audio // len(recordings), (seed, k, n))
        streams = [[recordings[at] for at in order] for order in drawn.orders]
        rows.append(np.percentile(lags(streams, drawn.offsets), (50, 95)) / 1e9)
    p50, p95 = (
        (float(np.median(column)), float(np.min(column)), float(np.max(column)))
        for column in np.stack(rows).T
    )
    return Served(n, n * sum(int(each.c.sum()) for each in recordings) / audio, p50, p95)


def capacity(recordings: Sequence[Recording], chunk_s: float, *, seed: int = 0) -> Served | None:
    """Return the most streams that keep up, with their lag; None where not even one does."""
    most = serve(recordings, 1, seed=seed)
    if not most.keeps_up(chunk_s):
        return None
    # At a load of 1 the queue grows, so the search ends there.
    low, high = 1, min(int(1 / most.load) + 1 if most.load else MOST, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        tried = serve(recordings, middle, seed=seed)
        if tried.keeps_up(chunk_s):
            low, most = middle, tried
        else:
            high = middle
    return most


class Beside(NamedTuple):
    """Lag p50 and p95 in seconds of a run with feed=realtime_queue, and of its replay from single
    streams, served one by one; together: the most streams that shared a step."""

    n: int
    together: int
    measured: tuple[float, float]
    replayed: tuple[float, float]


def beside(single: Log, queue: Log) -> Beside:
    """Return a run of many streams beside its replay from `single`, a log of the same utterances.

    Raises UserError where `queue` is not of that feed, or of other utterances or steps.
    """
    config = queue.header.get("config") or {}
    if config.get("feed") != "realtime_queue":
        raise UserError("--beside: takes a run with feed=realtime_queue")
    alone = {each.utt: each for each in single.utterances}
    logs = {each.utt: each for each in queue.utterances}
    if alone.keys() != logs.keys():
        raise UserError(
            f"--beside: of other utterances ({len(logs)} and {len(alone)}); run both on the same "
            "corpus with the same limit"
        )
    for utt, log in logs.items():
        if log.status != "ok" or [s.audio_samples for s in log.steps] != [
            s.audio_samples for s in alone[utt].steps
        ]:
            raise UserError(f"--beside: {utt} failed or has other steps; run both with one chunk")
    n = config.get("streams") or config["batch"]
    recorded = recordings(single)
    durations = [each.duration_s for each in single.utterances]
    orders, offsets = assign(durations, n, config["seed"])
    names = list(alone)
    replayed = lags([[recorded[at] for at in order] for order in orders], offsets)
    measured = [
        step.compute_ns["lag"] for order in orders for at in order for step in logs[names[at]].steps
    ]
    quantiles = (np.percentile(each, (50, 95)) / 1e9 for each in (measured, replayed))
    return Beside(n, config["batch"], *((float(p50), float(p95)) for p50, p95 in quantiles))


def parse_streams(text: str) -> list[int]:
    """Return the numbers of `1,2,4`. Raises UserError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--streams {text}: give numbers of streams from 1, as in 1,2,4,8")
    return [int(part) for part in parts]


def show(folder: str | Path, rows: Sequence[Served]) -> None:
    """Print lag against the number of streams."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from streaming_asr.terminal import console

    grid = Table(box=SIMPLE_HEAD)
    for heading in ("streams", "load", "lag p50 s", "lag p95 s", f"p95 of {SEEDS} draws"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for each in rows:
        middle, low, high = each.p95
        grid.add_row(
            str(each.n),
            f"{each.load:.3f}",
            f"{each.p50[0]:.3f}",
            f"{middle:.3f}",
            f"{low:.3f} to {high:.3f}",
        )
    console().print(grid)
    print(f"{folder}: served one by one on one device, from the steps' times in the log")
    if any(each.load >= 1 for each in rows):
        print("at a load of 1 and more the queue grows for as long as the streams last")


def show_beside(beside: Beside) -> None:
    """Print the lag of a run of many streams and of its replay."""
    for name, measured, replayed in zip(
        ("p50", "p95"), beside.measured, beside.replayed, strict=True
    ):
        change = f" ({100 * (replayed / measured - 1):+.1f} %)" if measured else ""
        print(f"lag {name}: measured {measured:.3f} s, replayed {replayed:.3f} s{change}")
    how = "one by one" if beside.together == 1 else f"up to {beside.together} in a step"
    print(f"{beside.n} streams, measured {how}, replayed one by one from single streams")
