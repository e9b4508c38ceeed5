"""Text without a letter or digit is not a word."""

from __future__ import annotations

import pytest

from streaming_asr.method import Update, Word, display_text
from streaming_asr.text.spoken import WordsAlone, is_word, whole_words
from streaming_asr.text.subtitles import cues, segments

WORDS = ("a", "7", "½", "雨", "ไ", "\u0e34", "नि", "Ⅳ", "é", "٣", "I.", "$5", "o'clock", "ʻ")
MARKS = (".", "—", " -", "♪", "…", "。", "?", "«", "%", "$", "", " ", "👍", "¿", "\u200b")


@pytest.mark.parametrize("text", WORDS)
def test_letters_marks_and_numbers_of_any_script_make_a_word(text: str) -> None:
    assert is_word(text)


@pytest.mark.parametrize("text", MARKS)
def test_punctuation_and_symbols_make_none(text: str) -> None:
    assert not is_word(text)


def timed(*texts: str) -> list[Word]:
    return [Word(text, float(i), i + 0.9) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ([" Ça", " va", " ?", " Oui"], [(" Ça", 0.0), (" va ?", 1.0), (" Oui", 3.0)]),
        ([" a", " «", " b", " »"], [(" a", 0.0), (" « b »", 2.0)]),
        ([" —", " Yes"], [(" — Yes", 1.0)]),
        ([" so", " ("], [(" so (", 0.0)]),
        ([" .", " ♪"], []),
        ([], []),
    ],
)
def test_it_belongs_to_a_word_whose_times_stay(
    texts: list[str], whole: list[tuple[str, float]]
) -> None:
    found = whole_words(timed(*texts))
    assert [(word.text, word.start) for word in found] == whole
    assert all(word.end == (word.start or 0.0) + 0.9 for word in found)


def test_subtitles_and_segments_hold_words_alone() -> None:
    assert cues(timed(" .")) == [] and segments(timed(" .")) == []
    (cue,) = cues([Word(" va", 0.0, 1.0), Word(" ?", 1.0, 1.0)])
    assert (cue.text, cue.start, cue.end) == ("va ?", 0.0, 1.0)


def test_a_stretch_without_a_word_has_no_text() -> None:
    """Each update: what a method commits, and whether a stretch ends with it."""
    stream = WordsAlone()
    given = [
        ([" ."], False),
        ([" -", " Yes", " !"], True),
        ([" ."], True),
        ([" …"], False),
        ([" no", " —"], True),
    ]
    words: list[Word] = []
    for texts, ends in given:
        words += stream.of(Update(tuple(map(Word, texts)), endpoint=ends)).committed
    assert display_text(words) == "Yes ! no —"
    assert stream.of(Update(partial=(Word(" ."),))).partial == ()
    assert stream.of(Update(partial=(Word(" ."), Word(" So")))).partial != ()


def test_what_is_taken_back_counts_the_words_that_came_out() -> None:
    stream = WordsAlone()
    assert stream.of(Update((Word(" ."), Word(" a"), Word(" b")))).committed == tuple(
        map(Word, (" a", " b"))
    )
    update = stream.of(Update((Word(" c"),), retracted=3))
    assert (update.retracted, update.committed) == (2, (Word(" c"),))
    assert stream.of(Update(retracted=5)).retracted == 5  # is refused where it is applied
