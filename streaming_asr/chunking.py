"""How audio is cut into chunks: durations as they are written, the first chunk, each delivery."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import FRAME_SAMPLES, SAMPLE_RATE

FEEDS = ("fixed", "best_effort", "realtime")
FRAME_MS = FRAME_SAMPLES * 1000 // SAMPLE_RATE  # every duration is a multiple of it
FIRST_CHUNK_FRAMES = 30  # 600 ms: the first chunk is at least this long


def parse_duration(text: str, key: str = "chunk") -> int:
    """Return the milliseconds of a duration such as `300ms` or `1.2s`.

    key: the setting, for messages. Raises UserError for a number without a unit, another unit, and
    a duration that is not positive or no multiple of one encoder frame (20 ms).
    """
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([a-zµ]*)\s*", str(text))
    if match is None:
        raise UserError(
            f"{key}={text}: not a duration; write a number and a unit, as in {key}=300ms"
        )
    number, unit = Decimal(match[1]), match[2]
    if number <= 0:
        raise UserError(f"{key}={text}: must be positive; the least is {key}={FRAME_MS}ms")
    if not unit:
        likely = f"{match[1]}s" if number < FRAME_MS else f"{match[1]}ms"
        raise UserError(f"{key}={text}: a duration needs a unit (ms or s); write {key}={likely}")
    if unit not in ("ms", "s"):
        raise UserError(f"{key}={text}: the unit is ms or s; write for instance {key}=300ms")
    ms = number * (1000 if unit == "s" else 1)
    if ms % FRAME_MS:
        below_ms = int(ms // FRAME_MS) * FRAME_MS
        neighbours = [f"{n_ms}ms" for n_ms in (below_ms, below_ms + FRAME_MS) if n_ms > 0]
        raise UserError(
            f"{key}={text}: not a multiple of {FRAME_MS} ms, one encoder frame; "
            f"use {key}={' or '.join(neighbours)}"
        )
    return int(ms)


def format_duration(ms: int) -> str:
    """Return the shortest exact spelling: 300 -> `300ms`, 2000 -> `2s`."""
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def first_chunk_ms(chunk: str, first_chunk: str | None = None) -> int:
    """Return the length of the first chunk in ms: that of the setting `first_chunk`, else of
    `first_of`. Raises UserError as `parse_duration` does."""
    if first_chunk is not None:
        return parse_duration(first_chunk, "first_chunk")
    chunk_frames = parse_duration(chunk) // FRAME_MS
    return first_of(chunk_frames) * FRAME_MS


def first_of(chunk_frames: int) -> int:
    """Return the frames of the first chunk: the smallest multiple of the chunk that has at least
    FIRST_CHUNK_FRAMES (600 ms)."""
    n_chunks = -(-FIRST_CHUNK_FRAMES // chunk_frames)  # rounded up
    return n_chunks * chunk_frames


def duration_key(name: str) -> str:
    """Return a duration in milliseconds, so that `1s` and `1000ms` are the same key; any other name
    as it is."""
    try:
        return f"{parse_duration(name)}ms"
    except UserError:
        return name


def check_feed(feed: str, batch: int) -> None:
    """Raise UserError for an unknown feed, a batch below 1, and a batch of streams that wait."""
    check_one_of(FEEDS, feed=feed)
    if batch < 1:
        raise UserError(f"batch={batch}: must be 1 or more; leave batch out for its default")
    if feed in ("best_effort", "realtime") and batch > 1:
        raise UserError(
            f"batch={batch} feed={feed}: such a stream waits for its own steps, "
            "so streams cannot share one; use batch=1"
        )


@dataclass(frozen=True)
class Schedule:
    """How a recording is cut into deliveries, in samples: the length of a chunk, of the first one,
    and the look-ahead, which the first delivery has in addition."""

    chunk: int
    first_chunk: int
    lookahead: int

    def after(self, received: int) -> int:
        """Return where the next delivery ends, in samples from the start of the recording, when
        `received` samples were delivered: after the first chunk and the look-ahead, then every
        chunk.
        """
        first = self.first_chunk + self.lookahead
        n_chunks = (received - first) // self.chunk + 1 if received >= first else 0
        return first + n_chunks * self.chunk

    def ends(self, n_samples: int) -> Iterator[int]:
        """Yield the samples received after each delivery of the feed `fixed`, ending with
        `n_samples`.

        The last delivery is whatever is left: audio that ends on a boundary ends with a full
        delivery, never with an empty one after it.
        """
        end = self.after(0)
        while end < n_samples:
            yield end
            end = self.after(end)
        yield n_samples
