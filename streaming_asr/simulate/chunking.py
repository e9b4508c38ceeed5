"""What is fed when: the chunks of a recording, the groups that share a step, the samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import Utterance

FEEDS = ("fixed", "best_effort", "realtime", "realtime_queue")


def check_feed(feed: str, batch: int, streams: int | None = None) -> None:
    """Raise UserError for an unknown feed, a batch below 1, a batch of streams that wait, and
    streams that are below 1, fewer than the batch or not of the feed `realtime_queue`."""
    check_one_of(FEEDS, feed=feed)
    if batch < 1:
        raise UserError(f"batch={batch}: must be 1 or more; leave batch out for its default")
    if streams is not None:
        if feed != "realtime_queue":
            raise UserError(f"streams={streams}: many streams need feed=realtime_queue")
        if streams < batch:
            raise UserError(
                f"streams={streams}: must be at least batch={batch}, which shares a step"
            )
    if feed in ("best_effort", "realtime") and batch > 1:
        raise UserError(
            f"batch={batch} feed={feed}: such a stream waits for its own steps, "
            "so streams cannot share one; use batch=1"
        )


def deliveries(n_samples: int, chunk: int, first_chunk: int, lookahead: int) -> Iterator[int]:
    """Yield the samples received after each delivery of the feed `fixed`, ending with `n_samples`.

    The first delivery is longer by the look-ahead and the last is whatever is left: audio that
    ends on a boundary ends with a full delivery, never with an empty one after it.
    """
    end = first_chunk + lookahead
    while end < n_samples:
        yield end
        end += chunk
    yield n_samples


@dataclass(frozen=True)
class Schedule:
    """How a recording is cut, in samples: its chunks, the first one, the look-ahead behind it."""

    chunk: int
    first_chunk: int
    lookahead: int

    def ends(self, n_samples: int) -> Iterator[int]:
        """Yield the samples received after each delivery of a recording of `n_samples`."""
        return deliveries(n_samples, self.chunk, self.first_chunk, self.lookahead)


def groups(utterances: Sequence[Utterance], size: int) -> Iterator[list[Utterance]]:
    """Yield neighbours of one language, up to `size`: a batch is started with one language."""
    return _grouped(utterances, size, lambda utterance: 1)


def groups_within(utterances: Sequence[Utterance], n_samples: int) -> Iterator[list[Utterance]]:
    """Yield neighbours of one language of at most `n_samples` together; a longer one alone."""
    return _grouped(utterances, n_samples, lambda u: round(u.duration_s * SAMPLE_RATE))


def _grouped(
    utterances: Sequence[Utterance], room: int, size: Callable[[Utterance], int]
) -> Iterator[list[Utterance]]:
    group: list[Utterance] = []
    left = room
    for utterance in utterances:
        if group and (size(utterance) > left or utterance.language != group[0].language):
            yield group
            group, left = [], room
        group.append(utterance)
        left -= size(utterance)
    yield group


class InMemory:
    """The `n` samples of a recording with their `hash`, held in memory."""

    def __init__(self, samples: Samples) -> None:
        self.n, self.hash = len(samples), hashlib.sha256(samples.tobytes()).hexdigest()
        self._samples, self._at = samples, 0

    def read(self, n: int) -> Samples:
        """Return a copy of the next `n` samples, which a method may change as it likes."""
        begin, self._at = self._at, self._at + n
        return self._samples[begin : self._at].copy()


class OnDisk:
    """The same for a recording that is read from disk in pieces of at most `size` samples.

    All of it is read once for its length and hash, so that what cannot be read is known before
    anything is computed.
    """

    def __init__(self, opener: Callable[[], Any], size: int) -> None:
        reader, digest, self.n = opener(), hashlib.sha256(), 0
        while len(piece := reader.read(size)):
            digest.update(piece)
            self.n += len(piece)
        self.hash = digest.hexdigest()
        self.read: Callable[[int], Samples] = opener().read
