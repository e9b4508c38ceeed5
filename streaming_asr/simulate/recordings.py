"""The recordings of a simulation: which of them share a step, and their samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streaming_asr.method import Samples
from streaming_asr.utterance import Utterance


def groups(
    utterances: Sequence[Utterance],
    room: int,
    size: Callable[[Utterance], int] = lambda utterance: 1,
) -> Iterator[list[Utterance]]:
    """Yield the utterances in groups that can be a batch: neighbours of one language and prompt, of
    which the sizes sum to at most `room`. An utterance that is larger is a group by itself."""
    group: list[Utterance] = []
    n_free = room
    for utterance in utterances:
        first = group[0] if group else utterance
        is_alike = (utterance.language, utterance.prompt) == (first.language, first.prompt)
        if group and (size(utterance) > n_free or not is_alike):
            yield group
            group, n_free = [], room
        group.append(utterance)
        n_free -= size(utterance)
    yield group


class InMemory:
    """The `n` samples of a recording with their `hash`, held in memory."""

    def __init__(self, samples: Samples) -> None:
        self.n, self.hash = len(samples), hashlib.sha256(samples.tobytes()).hexdigest()
        self._samples, self._n_read = samples, 0

    def read(self, n: int) -> Samples:
        """Return the next `n` samples, (n,), as a copy that a method may change."""
        piece = self._samples[self._n_read : self._n_read + n].copy()
        self._n_read += n
        return piece


class OnDisk:
    """The same for a recording that is read from disk in pieces of at most `size` samples.

    It is first read from end to end for its length and hash, so that a fault is found before
    anything is computed. opener: opens the recording and returns an `audio.Reader`.
    """

    def __init__(self, opener: Callable[[], Any], size: int) -> None:
        reader, digest, self.n = opener(), hashlib.sha256(), 0
        while len(piece := reader.read(size)):
            digest.update(piece)
            self.n += len(piece)
        self.hash = digest.hexdigest()
        self.read: Callable[[int], Samples] = opener().read
