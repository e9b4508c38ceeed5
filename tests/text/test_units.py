"""The unit of a language, normalisers that keep marks, and scripts that do not fit their tag."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming_asr.text.normalise import default_kind, light_key, light_words, normaliser
from streaming_asr.text.scripts import mismatch
from streaming_asr.text.units import (
    joined,
    timed_units,
    unit_of,
    unit_pieces,
    units,
    written_units,
)


@pytest.mark.parametrize(
    "tag", ["zh", "zh-CN", "Chinese", "cmn", "ja_JP", "th", "lao", "my", "yue"]
)
def test_a_language_without_spaces_is_counted_in_characters(tag: str) -> None:
    assert unit_of(tag) == "character"


@pytest.mark.parametrize("tag", [None, "en", "English", "ko", "vi-VN", "km", "de"])
def test_every_other_language_is_counted_in_words(tag: str | None) -> None:
    assert unit_of(tag) == "word"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("我们去公园。", ["我", "们", "去", "公", "园", "。"]),
        ("Amy 今天心情很好", ["Amy", "今", "天", "心", "情", "很", "好"]),
        ("don't去New York", ["don't", "去", "New", "York"]),
        ("café，24年", ["café", "，", "2", "4", "年"]),
        ("cafe\u0301", ["cafe\u0301"]),
        ("ที่นี่ กำ", ["ที่", "นี่", "กำ"]),  # a letter and its vowel sign and tone
        ("ပြည်\u200bသူ", ["ပြ", "ည်", "သူ"]),  # a zero-width space is no character
        ("か\u3099", ["か\u3099"]),
        ("  ", []),
    ],
)
def test_characters_are_graphemes_and_runs_of_latin_letters(text: str, parts: list[str]) -> None:
    assert units(text, "character") == parts


GRAPHEMES = [*"今天我Amyé，。 '2", "ที่", "นี่", "เ"]


@example("A 'A")  # joined without a blank they would be one word
@example("A- A")
@given(st.lists(st.sampled_from(GRAPHEMES), max_size=30).map("".join))
def test_pieces_keep_every_character_that_units_count(text: str) -> None:
    pieces = unit_pieces(text, "character")
    assert units("".join(pieces), "character") == units(text, "character")
    again = joined(units(text, "character"), "character")
    assert units(again, "character") == units(text, "character")


def test_units_are_joined_with_a_blank_between_latin_words_only() -> None:
    assert joined(["Amy", "Lee", "今", "天", "，", "New", "York"], "character") == (
        "Amy Lee今天，New York"
    )
    assert joined(["the", "cat"], "word") == "the cat"
    assert unit_pieces("Amy 今天 New York", "character") == ("Amy", " 今", "天", " New", " York")


def test_the_characters_of_a_timed_word_share_its_time_and_punctuation_takes_none() -> None:
    words = [("今天，", 0.0, 1.0), ("Amy", 1.0, 2.0), ("。", 2.0, 2.5)]
    assert timed_units(words, "character") == [
        ("今", 0.0, 0.5),
        ("天", 0.5, 1.0),
        ("，", 1.0, 1.0),
        ("Amy", 1.0, 2.0),
        ("。", 2.0, 2.5),
    ]
    assert timed_units(words, "word") == words


def test_what_times_stand_for_has_its_punctuation() -> None:
    assert written_units("「好」吧。Amy走", "character") == ["「好」", "吧。", "Amy", "走"]
    assert written_units("Well - yes . 5 %", "word") == ["Well", "yes", "5", "%"]


HINDI = "किताब मेरी मेज़ पर"


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "n_words"),
    [
        ("hi", "की", "का", 1),
        ("ta", "கீ", "கா", 1),
        ("bn", "কি", "কা", 1),
        ("ar", "كَتَبَ", "كُتُبِ", 1),
        ("he", "סֵפֶר", "סַפָּר", 1),
        ("th", "ที่", "ทุ", 1),
        ("my", "ကို", "ကာ", 1),
        ("yo", "ọ̀rọ̀", "ọ́rọ́", 1),
    ],
)
def test_marks_tell_words_apart(
    language: str, reference: str, hypothesis: str, n_words: int
) -> None:
    words = normaliser(language).words  # none is named
    assert len(words(reference)) == n_words
    assert words(reference) != words(hypothesis)
    assert normaliser(language).name.endswith("preserve_marks)")
    as_published = normaliser(language, "whisper").words
    assert as_published(reference) == as_published(hypothesis)


def test_four_wrong_words_of_hindi_are_four_errors() -> None:
    reference, hypothesis = "की से मे को", "का सी मा के"
    words = normaliser("hi-IN", "whisper_marks").words
    assert [a != b for a, b in zip(words(reference), words(hypothesis), strict=True)] == [True] * 4
    published = normaliser("hi", "whisper").words
    assert published(reference) == published(hypothesis)


def test_turkish_capitals_are_those_of_turkish() -> None:
    assert normaliser("tr").words("İstanbul ISPARTA") == ("istanbul", "ısparta")
    # As published the dot of İ is a blank.
    assert normaliser("tr", "whisper").words("İstanbul") == ("i", "stanbul")


def test_the_kind_that_is_taken_where_none_is_named() -> None:
    assert default_kind({"en", None, "zh-TW", "de"}) == "whisper"
    assert default_kind({"hi_IN"}) == "whisper_marks"
    assert normaliser("English").name == "whisper_normalizer.EnglishTextNormalizer"
    assert normaliser("en", "whisper_marks") is not None
    text = "We don't colour 2 things"
    assert normaliser("eng", "whisper_marks")(text) == normaliser("en-US", "whisper")(text)
    assert normaliser("zh", "identity").words("今天Amy") == ("今", "天", "Amy")


def test_a_letter_has_one_light_key_however_it_is_composed() -> None:
    assert light_key("Cafe\u0301,") == light_key("café") == "café"
    assert light_words("今天，好", "character") == ("今", "天", "好")


@pytest.mark.parametrize(
    ("language", "text", "fits"),
    [
        (None, "hello there", True),
        ("en-GB", "hello 今天 there", True),
        (None, "今天心情很好", False),
        ("en", "привет мир", False),
        ("zh", "今天 Amy", True),
        ("zh", "hello there", False),
        ("ja", "今日はカメラ", True),
        ("de", "สวัสดี", False),
        ("ko", "안녕 漢字", True),
        ("fr", "12 345 !", True),
        ("hi", HINDI, True),
    ],
)
def test_a_script_that_does_not_fit_its_language_is_remarked(
    language: str | None, text: str, fits: bool
) -> None:
    told = mismatch(language, [text])
    assert (told is None) == fits
    if told is not None:
        assert "name the language" in told
