"""The guard against loops: which copies are dropped, by literal cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streaming_asr.method import NULL
from streaming_asr.whisper.guard import even, no_guard, surplus
from streaming_asr.whisper.search import BeamSearch
from streaming_asr.whisper.together import alone

LONG_AGO = 10_000.0
"""Frames that hold any speech."""


def since(*frames: float) -> Any:
    """Audio since each token, as if those at the end were heard last."""
    return lambda i: frames[i]


@pytest.mark.parametrize(
    ("tokens", "n_copied"),
    [
        ([], 0),
        ([1], 0),
        ([1, 2, 3, 1, 2], 0),
        ([7, 7, 7], 0),  # no, no, no
        ([7, 7, 7, 7], 1),
        ([5, 1, 2, 1, 2, 1, 2], 0),
        ([5, 1, 2, 1, 2, 1, 2, 1, 2], 2),
        ([1, 2, 3, 4, 5] * 2, 0),  # said again, in time enough
        ([1, 2, 3, 4, 5] * 3, 5),
    ],
)
def test_a_phrase_stands_so_often_in_a_row_whatever_is_heard(
    tokens: list[int], n_copied: int
) -> None:
    assert surplus(tokens, lambda i: LONG_AGO) == n_copied
    assert no_guard(tokens, lambda i: 0.0) == 0


def test_two_tokens_need_sixteen_frames_and_a_phrase_of_five_eighty() -> None:
    assert surplus([3, 3], since(16, 16)) == 0
    assert surplus([3, 3], since(15, 15)) == 1
    phrase = [1, 2, 3, 4, 5]
    assert surplus(phrase * 2, lambda i: 80.0) == 0
    assert surplus(phrase * 2, lambda i: 79.0) == 5
    assert surplus([9, 9, 1], lambda i: 0.0) == 0  # it has gone on


def test_tokens_of_unknown_place_share_the_audio() -> None:
    frames_since = even(10, 50.0)
    assert [frames_since(i) for i in (0, 5, 9)] == [50.0, 25.0, 5.0]


class Loops:
    """A decoder that says a phrase without end: token t is followed by t + 1, 4 by 1."""

    max_tokens = 100
    device = "cpu"

    def part(self, cache: Any, feed: list[list[int]], *args: Any, **settings: Any) -> Any:
        return feed

    def next_log_probs(self, parts: list[list[list[int]]]) -> list[torch.Tensor]:
        rows = []
        for row in parts[0]:
            logits = torch.full((8,), -9.0)
            logits[row[-1] % 4 + 1] = 0.0
            rows.append(logits.log_softmax(-1))
        return [torch.stack(rows)]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("n_heard", "said"), [(2000, 12), (40, 4)])
def test_a_search_ends_before_a_copy_that_no_speech_supports(
    beam: int, n_heard: int, said: int
) -> None:
    cache = SimpleNamespace(reorder=lambda parents, n: None)
    search = BeamSearch(Loops(), 0, beam, "repeats")  # type: ignore[arg-type]
    passes = search.passes(cache, [4], 1500, 60, NULL, None, n_heard)  # type: ignore[arg-type]
    best = alone(passes, NULL)
    if beam == 1:
        assert best.tokens == (1, 2, 3, 4) * (said // 4)
    else:  # others go on where one loops, under the same rule
        assert not any(
            surplus(best.tokens[:n], even(n, n_heard)) for n in range(len(best.tokens) + 1)
        )
    free = BeamSearch(Loops(), 0, 1)  # type: ignore[arg-type]
    passes = free.passes(cache, [4], 1500, 60, NULL)  # type: ignore[arg-type]
    assert len(alone(passes, NULL).tokens) == 60
