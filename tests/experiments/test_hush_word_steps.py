"""Words that a method loses, counted by the program of the hush word's page."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.hush_word.steps import losses, pieces


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("the cat sat down", (0, 0, 0)),
        ("the cat sat", (1, 1, 1)),
        ("the cat", (2, 2, 2)),
        ("the sat down", (1, 1, 0)),
        ("the cat sat up down", (1, 0, 0)),
        ("", (4, 4, 4)),
    ],
)
def test_lost_words_are_deletions_and_those_at_the_end_have_no_right_word_behind(
    text: str, counts: tuple[int, int, int]
) -> None:
    assert losses(["the", "cat", "sat", "down"], text.split()) == counts


@pytest.mark.parametrize("steps", ["0.3", "1", "random"])
def test_steps_have_all_of_the_audio_once_and_are_the_same_again(steps: str) -> None:
    audio = np.arange(160_001, dtype=np.float32)
    parts = list(pieces(audio, steps, "a"))
    assert np.array_equal(np.concatenate(parts), audio)
    assert [len(part) for part in parts] == [len(part) for part in pieces(audio, steps, "a")]
    assert min(len(part) for part in parts[:-1]) >= 4800
