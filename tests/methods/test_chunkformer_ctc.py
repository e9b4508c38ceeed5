"""Greedy CTC on literal paths: repeats, blanks, words, borders, segments."""

from __future__ import annotations

import pytest
import torch

from streaming_asr.method import Word
from streaming_asr.methods.chunkformer.ctc import Greedy, best_path
from streaming_asr.text.subtitles import segments

TOKENS = ["<blank>", "<unk>", "▁the", "▁fox", "ed", "s", "▁", "<sos/eos>"]


def said(*chunks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The words complete after each chunk, and what is left at the end."""
    greedy = Greedy(TOKENS)
    complete = [[w.text for w in greedy.push(path, [-0.1] * len(path))] for path in chunks]
    return complete, [w.text for w in greedy.finish()]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([], ""),
        ([0, 0, 0], ""),
        ([2, 2, 2], " the"),
        ([2, 0, 2], " the the"),
        ([2, 2, 0, 3, 5, 5, 0, 5], " the foxss"),
        ([2, 1, 7, 3], " the fox"),  # signs that are no text
        ([6, 5, 0, 6, 4], " s ed"),  # a space of its own
        ([6], ""),
        ([4, 5, 2], "eds the"),  # nothing says that a word begins here
    ],
)
def test_repeats_merge_blanks_part_them_and_signs_drop(path: list[int], text: str) -> None:
    complete, left = said(path)
    assert "".join([*complete[0], *left]) == text


@pytest.mark.parametrize("border", range(9))
def test_a_border_anywhere_changes_nothing(border: int) -> None:
    path = [2, 2, 0, 3, 3, 4, 0, 4, 2]
    complete, left = said(path[:border], path[border:])
    assert [*complete[0], *complete[1], *left] == [" the", " foxeded", " the"]


def test_a_word_is_complete_when_the_next_begins() -> None:
    assert said([2, 0], [0, 0], [3, 4], [2]) == ([[], [], [" the"], [" foxed"]], [" the"])


def test_the_open_word_is_shown_and_its_times_and_probability_are_of_its_tokens() -> None:
    greedy = Greedy(TOKENS)
    assert greedy.push([0, 2, 2], [-9.0, -0.2, -9.0]) == []
    assert greedy.push([0, 5, 0, 0], [-9.0, -0.4, -9.0, -9.0]) == []
    (word,) = greedy.open_word()
    assert word.text == " thes"
    assert (word.start, word.end) == (pytest.approx(0.08), pytest.approx(0.40))
    assert word.probability == pytest.approx(2.718281828 ** ((-0.2 - 0.4) / 2))
    assert greedy.finish() == (word,) and greedy.finish() == () == greedy.open_word()


def test_the_best_path_is_the_likeliest_token_of_each_frame() -> None:
    tokens, log_probs = best_path(torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]]))
    assert tokens == [1, 0]
    assert log_probs == pytest.approx([-0.40760596, -0.01338597], abs=1e-6)
    assert best_path(torch.zeros(0, 3)) == ([], [])


def test_a_pause_of_half_a_second_ends_a_segment() -> None:
    words = [Word(" one", 1.0, 1.2), Word(" two", 1.6, 1.9), Word(" three", 2.4, 2.5)]
    assert [(s.start, s.end, s.text) for s in segments(words)] == [
        (1.0, 1.9, "one two"),
        (2.4, 2.5, "three"),
    ]
    assert [s.text for s in segments(words, silence_s=1.0)] == ["one two three"]
    assert segments([]) == []
    with pytest.raises(ValueError, match="no times"):
        segments([Word("x")])
