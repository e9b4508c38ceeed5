"""The guard against loops: which copies are dropped, by literal cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from streaming_asr.method import NULL
from streaming_asr.whisper.guard import Copy, even, no_guard, unsupported
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
    copy = unsupported(tokens, lambda i: LONG_AGO)
    assert copy == (Copy(n_copied, too_often=True) if n_copied else None)
    assert copy is None or copy.is_short == (n_copied < 5)
    assert no_guard(tokens, lambda i: 0.0) is None


def test_two_tokens_need_sixteen_frames_and_a_phrase_of_five_eighty() -> None:
    assert unsupported([3, 3], since(16, 16)) is None
    assert unsupported([3, 3], since(15, 15)) == Copy(1, too_often=False)
    phrase = [1, 2, 3, 4, 5]
    assert unsupported(phrase * 2, lambda i: 80.0) is None
    assert unsupported(phrase * 2, lambda i: 79.0) == Copy(5, too_often=False)
    assert unsupported([9, 9, 1], lambda i: 0.0) is None  # it has gone on


def test_the_last_of_two_long_phrases_needs_its_own_time() -> None:
    phrase = [1, 2, 3, 4, 5]

    def last_within(n_frames: float, k: int = 5) -> Any:
        """The first phrase came slowly, the last one within `n_frames` after it."""
        return lambda i: n_frames if i >= k - 1 else 400.0

    assert unsupported(phrase * 2, last_within(39)) == Copy(5, too_often=False)
    assert unsupported(phrase * 2, last_within(40)) is None
    assert unsupported([1, 2, 3, 4] * 2, last_within(0, k=4)) is None  # short: may be spoken fast


@pytest.mark.parametrize("n_tokens, n_frames", [(10, 80.0), (14, 112.0), (40, 400.0)])
def test_tokens_of_unknown_place_fail_by_the_first_phrase_only(n_tokens, n_frames) -> None:
    phrase = list(range(n_tokens // 2))
    assert unsupported(phrase * 2, even(n_tokens, n_frames)) is None
    assert unsupported(phrase * 2, even(n_tokens, 8.0 * n_tokens - 1)) is not None


def test_tokens_of_unknown_place_share_the_audio() -> None:
    frames_since = even(10, 50.0)
    assert [frames_since(i) for i in (0, 5, 9)] == [50.0, 25.0, 5.0]


class Says:
    """A decoder of 8 tokens that goes by the last token fed: `best` first, then `second`."""

    max_tokens = 100
    device = "cpu"

    def __init__(self, best: dict[int, int], second: dict[int, int]) -> None:
        self.best, self.second = best, second

    def part(self, cache: Any, feed: list[list[int]], *args: Any, **settings: Any) -> Any:
        return feed

    def next_log_probs(self, parts: list[list[list[int]]]) -> list[torch.Tensor]:
        rows = []
        for row in parts[0]:
            logits = torch.full((8,), -9.0)
            logits[self.second.get(row[-1], 0)] = -1.0
            logits[self.best.get(row[-1], 2)] = 0.0
            rows.append(logits.log_softmax(-1))
        return [torch.stack(rows)]


def searched(decoder: Says, beam: int, guard: str, n_heard: int | None = None) -> tuple[int, ...]:
    cache = SimpleNamespace(reorder=lambda parents, n: None)
    search = BeamSearch(decoder, 0, beam, guard)  # type: ignore[arg-type]
    return alone(search.passes(cache, [1], 1500, 60, NULL, None, n_heard), NULL).tokens  # type: ignore[arg-type]


LOOP = Says({1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 2}, {})
"""Says `2 3 4 5 6` without end."""


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("n_heard", "n_said"), [(2000, 2), (40, 1)])
def test_a_search_ends_before_a_long_copy_that_no_speech_supports(
    beam: int, n_heard: int, n_said: int
) -> None:
    said = searched(LOOP, beam, "repeats", n_heard)
    if beam == 1:
        assert said == (2, 3, 4, 5, 6) * n_said
    else:  # others go on where one loops, under the same rule
        assert not any(unsupported(said[:n], even(n, n_heard)) for n in range(len(said) + 1))
    assert len(searched(LOOP, 1, "none")) == 60


def test_after_a_short_copy_too_many_the_next_best_is_said_and_the_text_goes_on() -> None:
    """No, no, no, no, ... I said: 2 comes without end, then 3 and 4; in silence nothing does."""
    spoken = Says({1: 2, 2: 2, 3: 4, 4: 0}, {2: 3})
    assert searched(spoken, 1, "repeats") == (2, 2, 2, 3, 4)
    assert searched(spoken, 1, "none") == (2,) * 60
    assert searched(Says({1: 2, 2: 2}, {2: 0}), 1, "repeats") == (2, 2, 2)
