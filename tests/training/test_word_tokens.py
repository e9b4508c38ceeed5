"""Tests of the one rule that places a word's tokens in frames."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_asr.training.word_tokens import tokens_in_frames, write_labels

WORD = [("word", 0.10, 0.42, 0)]
TOKENS = (7, 8, 9)


@pytest.mark.parametrize(
    "options, frames",
    [
        # Edges at 0.1, 0.2067, 0.3133 and 0.42 s; frames of 20 ms, their middles at 10, 30, ... ms.
        ({}, [(5, 10), (10, 16), (16, 21)]),
        # WhisperRT: where each of 20 ms begins.
        ({"point_s": 0.0}, [(5, 11), (11, 16), (16, 21)]),
        # U2's rows of 40 ms.
        ({"frame_s": 0.04}, [(2, 5), (5, 8), (8, 10)]),
        # ChunkFormer's frames, centred at 82.5, 162.5, 242.5, 322.5 and 402.5 ms.
        ({"frame_s": 0.08, "point_s": 0.0825}, [(1, 2), (2, 3), (3, 5)]),
        # Middles at 0.1, 0.3 and 0.5 s: the third token is spoken at none of them.
        ({"frame_s": 0.2}, [(0, 1), (1, 2), (2, 2)]),
    ],
)
def test_the_tokens_of_a_word_share_its_time(options, frames):
    placed = list(tokens_in_frames(WORD, lambda word: TOKENS, **options))
    assert placed == [(token, *each) for token, each in zip(TOKENS, frames, strict=True)]


@pytest.mark.parametrize("middle", range(0, 100))
def test_an_edge_in_the_middle_of_a_frame_gives_it_to_what_begins_there(middle):
    edge_s = 0.01 + 0.02 * middle  # a float on either side of the middle
    words = [("a", edge_s - 0.01, edge_s, 0), ("b", edge_s, edge_s + 0.1, 0)]
    (_, _, end), (_, first, stop) = tokens_in_frames(words, lambda word: [1])
    assert (end, first, stop) == (middle, middle, middle + 5)


def test_a_word_without_tokens_has_no_frames_and_none_lies_before_the_window():
    words = [("...", 0.0, 0.2, 0), ("b", -0.3, 0.1, 0)]
    tokens_of = {"...": [], "b": [1, 2]}.__getitem__
    assert list(tokens_in_frames(words, tokens_of)) == [(1, 0, 0), (2, 0, 5)]


def test_a_token_without_a_frame_gets_one_if_no_other_begins_there():
    labels = np.zeros(6, np.int64)
    tokens = [(1, 0, 2), (2, 2, 2), (3, 2, 3), (4, 4, 4)]
    assert write_labels(labels, iter(tokens)).tolist() == [1, 1, 3, 0, 4, 0]
