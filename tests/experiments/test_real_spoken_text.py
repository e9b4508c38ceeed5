"""Texts cleaned of what is not spoken, and texts that two models agree on."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.real.labels import agreed, labelled
from experiments.real.spoken_text import spoken, spoken_text
from streaming_asr.utterance import TimedWord, Utterance


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("of aggression-in Korea", "of aggression in Korea"),
        ("the Nation-Finland-has paid", "the Nation Finland has paid"),
        ("inflation-inflation is", "inflation inflation is"),
        ("just-a moment, sleep--my love", "just a moment, sleep my love"),
        ("state-of-the-art, twenty-one", "state-of-the-art, twenty-one"),
        ("today, To-day and to-morrow.", "today, Today and tomorrow."),
        ("a well-known mother-in-law", "a well-known mother-in-law"),
        ("Valley – Rathdrum - far-reaching", "Valley Rathdrum far-reaching"),
        ("one—two… three...four", "one two three four"),
        ("cut- Africa-", "cut Africa"),
        ('the "right-wing", “far-right” one', "the right-wing, far-right one"),
        ("he said 'no way' and 'yes'.", "he said no way and yes."),
        ("the dogs' bowl and ’tis o'clock", "the dogs' bowl and 'tis o'clock"),
        ("``so'' it `is'", "so it is"),
        ("Generations (Of Gospel Music).", "Generations Of Gospel Music."),
        ("well [door slams] then <unk> go", "well then go"),
        ("* what * ever _", "what ever"),
        ("Don't stop; it's 3.5!", "Don't stop; it's 3.5!"),
        ("- - ...", ""),
    ],
)
def test_what_is_not_spoken_goes(written, said):
    assert spoken_text(written) == said


def utterance(text="", words=None, duration_s=4.0):
    return Utterance("a", text, lambda: np.zeros(64_000, np.float32), duration_s, words=words)


def test_words_told_apart_share_the_time_by_their_letters():
    timed = (
        TimedWord("-", 0.0, 0.1),
        TimedWord("quarter-of", 1.0, 1.9),
        TimedWord("it.", 2.0, 2.2),
    )
    found = spoken(utterance("- quarter-of it.", timed))
    assert found.text == "quarter of it."
    assert [word.text for word in found.words] == ["quarter", "of", "it."]
    times = [time for word in found.words for time in (word.start, word.end)]
    assert times == pytest.approx([1.0, 1.7, 1.7, 1.9, 2.0, 2.2])


@pytest.mark.parametrize(
    ("text", "other", "agree"),
    [
        ("Mrs. Lynde is here.", "mrs lynde is here", True),
        (
            "we all saw the old red fox run over it",
            "we all saw the old red fox run over",
            True,
        ),
        ("we saw the old fox", "we saw the old box", False),
        ("", "", False),
    ],
)
def test_models_agree_where_one_word_in_ten_differs_at_most(text, other, agree):
    assert agreed(text, other) is agree


HEARD = [
    [" So", 0.2, 0.5, 0.9],
    [" it", 0.5, 0.8, 0.9],
    [" goes", 0.8, 1.3, 0.8],
    [" on.", 1.3, 2, 0.9],
]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"other": "So it was"}, False),
        ({"compression": 2.5}, False),
        ({"words": []}, False),
        ({"words": [[w, a, b, 0.5] for w, a, b, _ in HEARD]}, False),
        ({"words": HEARD[:1], "other": "So"}, False),  # too few for four seconds
        ({"words": [*HEARD[:3], [" on.", 1.3, 3.9, 0.9]]}, False),  # no word lasts so long
    ],
)
def test_a_text_is_kept_where_both_models_hear_it_and_base_is_sure(changes, kept):
    row = {"words": HEARD, "compression": 1.2, "other": "so it goes on"} | changes
    found = labelled(utterance(), row)
    assert (found is not None) == kept
    if found is not None:
        assert found.text == "So it goes on."
        assert found.words[2] == TimedWord("goes", 0.8, 1.3)
