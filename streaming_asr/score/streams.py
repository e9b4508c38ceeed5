"""Many streams on one device, from the log of single streams: a virtual queue, no model.

Each of N streams plays all recordings of the log, one after another in an order of its own, from an
offset drawn at random. The device serves the steps one by one in the order in which their audio
arrives, each for as long as it took by itself. The lag of a step is the time from the arrival of
its audio to its end. Batching, caches that streams take from each other and the switch from one
to the next are not in it; `load` measures a server with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.method import SAMPLE_RATE

SEEDS = 5  # draws of orders and offsets
MAX_LAG_S = 1.0  # what a stream may lag behind by, apart from one chunk, and still be served
MOST = 4096  # streams, where a search for the limit ends
MAX_STEPS = 20_000_000  # of a virtual queue


Nanoseconds: TypeAlias = npt.NDArray[np.int64]  # whole ones, so that sums are exact
NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE


class RecordingSteps(NamedTuple):
    """The steps of one recording: a_k and c_k, (K,) each, and how long it lasts, in ns."""

    a: Nanoseconds
    c: Nanoseconds
    duration: int


class Served(NamedTuple):
    """The service that n streams on one machine get.

    load: seconds of compute of all streams per second; above 1 the queue grows without end.
    p95: 95th percentile of the lag in seconds, the median over the draws.
    """

    n: int
    load: float
    p95: float

    def keeps_up(self, chunk_s: float) -> bool:
        """Return whether the 95th percentile of lag is below one chunk and below 1 s."""
        return self.load < 1 and self.p95 < min(chunk_s, MAX_LAG_S)


def recordings(log: Log) -> list[RecordingSteps]:
    """Return the steps of the recordings that were transcribed. Raises UserError for none."""
    transcribed = [
        RecordingSteps(
            np.array([step.audio_samples for step in each.steps]) * NS_PER_SAMPLE,
            np.array([step.compute_ns["wall"] for step in each.steps]),
            each.duration_samples * NS_PER_SAMPLE,
        )
        for each in log.utterances
        if each.status == "ok" and each.steps
    ]
    if not transcribed:
        raise UserError("no utterance of the log succeeded, so no step's time is known; run again")
    return transcribed


def lags(streams: Sequence[Sequence[RecordingSteps]], offsets: Sequence[int]) -> Nanoseconds:
    """Return the lag of every step in ns, from the arrival of its audio to its end on one machine
    that serves all streams first in, first out; stream by stream, in the order of the steps.

    streams: the recordings of each, one after another. offsets: when each stream begins, in ns.
    """
    arrivals, compute = [], []
    for stream, offset in zip(streams, offsets, strict=True):
        begin = offset
        for recording in stream:
            arrivals.append(begin + recording.a)
            compute.append(recording.c)
            begin += recording.duration
    a, c = np.concatenate(arrivals), np.concatenate(compute)
    order = np.argsort(a, kind="stable")  # of equal arrivals the earlier stream comes first
    sorted_a, sorted_c = a[order], c[order]
    total = np.cumsum(sorted_c)
    # The end of each step as in clocks.fifo, but in whole nanoseconds.
    finished = total + np.maximum.accumulate(sorted_a - (total - sorted_c))
    by_stream: Nanoseconds = np.empty_like(a)
    by_stream[order] = finished - sorted_a
    return by_stream


def serve(recordings: Sequence[RecordingSteps], n: int, *, seed: int = 0) -> Served:
    """Return the load and the lag of `n` streams that each play all recordings in a random order,
    from a random moment on; the lag is the median over SEEDS draws. Raises UserError for too many
    steps."""
    n_steps = n * sum(len(each.a) for each in recordings)
    if n_steps > MAX_STEPS:
        raise UserError(
            f"{n} streams: {n_steps:,} steps are more than {MAX_STEPS:,}; give a log of fewer "
            "recordings"
        )
    audio_ns = sum(each.duration for each in recordings)
    mean_duration_ns = max(audio_ns // len(recordings), 1)
    p95_s = []
    for k in range(SEEDS):
        rng = np.random.default_rng([seed, k, n])
        orders = [rng.permutation(len(recordings)) for _ in range(n)]
        # Within one recording, so that the steps do not coincide but all streams are active.
        offsets = rng.integers(0, mean_duration_ns, n).tolist()
        streams = [[recordings[index] for index in order] for order in orders]
        p95_s.append(np.percentile(lags(streams, offsets), 95) / 1e9)
    load = n * sum(int(each.c.sum()) for each in recordings) / audio_ns
    return Served(n, load, float(np.median(p95_s)))


def capacity(recordings: Sequence[RecordingSteps], chunk_s: float) -> Served | None:
    """Return the largest number of streams that keep up, with their lag; None if not even one
    does. The search halves an interval: `low` streams keep up, `high` do not."""
    best = serve(recordings, 1)
    if not best.keeps_up(chunk_s):
        return None
    # From a load of 1 on the queue grows, so no more streams than that can keep up.
    low, high = 1, min(int(1 / best.load) + 1 if best.load else MOST, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = serve(recordings, middle)
        if candidate.keeps_up(chunk_s):
            low, best = middle, candidate
        else:
            high = middle
    return best
