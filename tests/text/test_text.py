"""The normalisers and the light key."""

from __future__ import annotations

import random

import pytest

from streaming_asr.text.normalise import light_key, light_words, normaliser


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("Mr. Smith can't pay.", "mister smith can not pay"),
        ("It costs four dollars, and fifty cents!", "it costs $4.50"),
        ("twenty one", "21"),
        ("The colour [laughs] of it", "the color of it"),
        ("um, well", "well"),
        ("", ""),
    ],
)
def test_english_is_normalised_as_whisper_does(written: str, normalised: str) -> None:
    assert normaliser("en")(written) == normalised


def test_the_normaliser_is_not_prefix_monotone_which_is_why_the_light_key_exists() -> None:
    assert normaliser("en").words("one oh") == ("10",)
    assert normaliser("en").words("one oh one") == ("101",)
    assert light_words("one oh one")[:2] == light_words("one oh")


def test_other_languages_get_the_basic_normaliser_and_say_so() -> None:
    german = normaliser("de")
    assert german("Zwanzig Äpfel, bitte!") == "zwanzig äpfel bitte"
    assert german.name == "whisper_normalizer.BasicTextNormalizer"
    assert normaliser("zh").words("你好吗") == ("你", "好", "吗")


def test_a_corpus_without_a_language_is_english_and_names_its_normaliser() -> None:
    assert normaliser(None).name == "whisper_normalizer.EnglishTextNormalizer"
    assert normaliser(None).version == normaliser("en").version != ""


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ('"Hello,', "hello"),
        ("$4.50.", "$4.50"),
        ("5%,", "5%"),
        ("o'clock", "o'clock"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("--", ""),
    ],
)
def test_the_light_key_folds_case_and_strips_punctuation_at_the_edges(word: str, key: str) -> None:
    assert light_key(word) == key


def test_tokens_of_pure_punctuation_are_no_words() -> None:
    assert light_words(" Well - yes . ") == ("well", "yes")


# What Whisper's rules name, or reaches across words.
ODD = """
he's don't they'd 'em um's $5 $ $$ 5% % %% 3.50 ... .. . , - -- 3rd 4 th 1s 1960s $2 ¢7
and a half £0.12 twenty-one mr. café œuvre ½ … “quoted” (x) [y] <z> 's 10,000 x2 been
been got done per cent double point oh hundred dollars – um, & @ #1 ? ٣ €7
"""
FAR = "( ) [ ] < > (( () ' um' um( 'tis (laughs) [ one] <um >"


def test_a_text_in_pieces_is_normalised_as_the_whole() -> None:
    from whisper_normalizer.english import EnglishTextNormalizer

    from streaming_asr.text.english import EnglishPieces

    whole, pieces = EnglishTextNormalizer(), EnglishPieces()
    named = sorted(pieces._named_words)
    plain = ["cat", "the", "colour", "harbour", "organise"]
    odd = [*ODD.split(), *FAR.split(), "", "\n"]
    rng = random.Random(5)
    for _ in range(1500):
        words = rng.choices((named, odd, plain), weights=(1, 2, 2), k=rng.randint(1, 12))
        text = " ".join(rng.choice(each) for each in words)
        assert list(pieces(text)) == whole(text).split(), text


@pytest.mark.parametrize("kind", ["whisper", "whisper_marks"])
@pytest.mark.parametrize("language", ["de", "hi", "th", "zh", "el"])
def test_words_are_normalised_one_by_one_as_in_their_text(language: str, kind: str) -> None:
    from whisper_normalizer.basic import BasicTextNormalizer

    has_marks = kind == "whisper_marks"
    whole = BasicTextNormalizer(split_letters=language in ("th", "zh"), preserve_marks=has_marks)
    words = normaliser(language, kind).words
    scripts = "Straße ΟΔΟΣ Σ İI ı हिन्दी की ที่นี่ 今天，好。 Ⓐ℡ ½"
    marks = "é e\u0301 \u0301x a\u00a8 \u3000 한국 \u200d"
    odd = [*scripts.split(" "), *marks.split(" "), *FAR.split(), "", "\n", "\t"]
    rng = random.Random(7)
    for _ in range(300):
        text = " ".join(rng.choices(odd, k=rng.randint(1, 12)))
        assert list(words(text)) == whole(text).split(), text


def test_the_mark_of_a_piece_is_a_word_that_no_rule_names() -> None:
    from streaming_asr.text.english import MARK, EnglishPieces

    assert MARK not in EnglishPieces()._named_words
    assert EnglishPieces()(f"{MARK} um {MARK}") == (MARK, MARK)
