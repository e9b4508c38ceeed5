"""The sentence generator of the mini corpus."""

from __future__ import annotations

import hashlib
import random
import re

import pytest

from experiments.mini import spoken_numbers as say
from experiments.mini import text, words


def draw(n, *, seed=0, **kind):
    rng = random.Random(seed)
    return [text.sentence(rng, **kind) for _ in range(n)]


def written_words(sentences):
    return {text._letters_only(u.written) for s in sentences for u in s.units}


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ({}, "1053792c93a9cbe8"),
        ({"heldout": True}, "e2b607cc9dfa32f1"),
        ({"domain": "finance"}, "fe02244e9af536c7"),
        (None, "d1e5048b14b7690e"),
    ],
    ids=["general", "held-out", "finance", "scrambled"],
)
def test_the_texts_are_those_the_committed_corpus_and_model_were_made_of(kind, digest):
    """A hash that differs means that a rebuild would train on other sentences."""
    rng, told = random.Random(7), hashlib.sha256()
    for _ in range(300):
        s = text.scrambled(rng) if kind is None else text.sentence(rng, **kind)
        told.update(f"{s.template}: {s.written} | {s.spoken}\n".encode())
    assert told.hexdigest()[:16] == digest


def test_vocabulary_and_templates_reach_the_sizes_promised():
    assert len(text.vocabulary()) >= 1500
    assert len(text.TRAIN) >= 60
    assert len(text.HELD_OUT) >= 10
    assert len(text.vocabulary(heldout=True)) >= 150
    assert len(text.FINANCE) >= 15


def test_held_out_word_lists_never_meet_training():
    listed = {w.lower() for entries in words.HELD_OUT.values() for e in entries for w, _ in e}
    assert not listed & text.vocabulary()
    assert not listed & written_words(draw(5000))


def test_every_held_out_sentence_has_a_held_out_template_or_word():
    train = text.vocabulary() | {"am", "pm", "a", "an"}
    for s in draw(1000, heldout=True):
        assert s.heldout
        new = {
            text._letters_only(u.written) for u in s.units if not re.search(r"\d", u.written)
        } - train
        assert new or s.template.startswith("h"), s.written
    assert not any(s.heldout or "h" in s.template for s in draw(1000))


def draw_scrambled(n):
    rng = random.Random(0)
    return [text.scrambled(rng) for _ in range(n)]


def test_scrambled_sentences_hold_nothing_that_is_held_out_or_of_finance():
    kept_out = text.vocabulary(heldout=True) | (text.vocabulary("finance") - text.vocabulary())
    further = {w.lower() for w in (*words.SCRAMBLED_WORDS, *words.SCRAMBLED_NAMES)}
    assert len(further) == len(words.SCRAMBLED_WORDS) + len(words.SCRAMBLED_NAMES) > 5000
    assert not further & (kept_out | text.vocabulary())
    assert not kept_out & written_words(draw_scrambled(5000))


def test_scrambled_sentences_are_one_sentence_of_lexicon_words_and_ordinary_pieces():
    drawn = draw_scrambled(3000)
    assert drawn == draw_scrambled(3000)
    found = written_words(drawn)
    assert len(found & {w.lower() for w in words.SCRAMBLED_WORDS}) > 3000
    assert len(found & text.vocabulary()) > 2000
    for s in drawn:
        assert s.template == text.SCRAMBLED and not s.heldout
        # a point within only where it belongs to the word
        ends = [u.written for u in s.units[:-1] if u.written[-1] in ".,?!"]
        assert all(end.lower() in text.ABBREVIATIONS for end in ends), s.written


def test_finance_has_its_own_templates_and_company_names():
    companies = {w.lower() for entry in words.FINANCE["company"] for w, _ in entry}
    assert not companies & (text.vocabulary() | text.vocabulary(heldout=True))
    assert companies & written_words(draw(300, domain="finance"))
    assert not companies & written_words(draw(3000))
    assert len(text.vocabulary("finance") - text.vocabulary()) >= 100


@pytest.mark.parametrize(
    ("voiced", "expected"),
    [
        (say.cardinal(0), "zero"),
        (say.cardinal(10), "ten"),
        (say.cardinal(347), "three hundred forty seven"),
        (say.cardinal(2350), "two thousand three hundred fifty"),
        (say.cardinal(20_000), "twenty thousand"),
        (say.ordinal(3), "third"),
        (say.ordinal(12), "twelfth"),
        (say.ordinal(20), "twentieth"),
        (say.ordinal(31), "thirty first"),
        (say.year(1984), "nineteen eighty four"),
        (say.year(1905), "nineteen oh five"),
        (say.year(1900), "nineteen hundred"),
        (say.year(2004), "two thousand four"),
        (say.year(2016), "twenty sixteen"),
        (say.decade(1980), "nineteen eighties"),
        (say.clock(7, 45), "seven forty five"),
        (say.clock(12, 5), "twelve oh five"),
        (say.digits("555-0142"), "five five five oh one four two"),
        (say.decimal(35), "three point five"),
        (say.decimal(7), "zero point seven"),
        (say.money(4, 50), "four dollars and fifty cents"),
        (say.money(1, 1), "one dollar and one cent"),
        (say.money(1200), "one thousand two hundred dollars"),
    ],
)
def test_numbers_are_voiced_as_people_say_them(voiced, expected):
    assert " ".join(voiced) == expected


def test_numbers_are_written_as_whisper_writes_them():
    assert [say.write_cardinal(n) for n in (2, 9, 10, 2350)] == ["two", "nine", "10", "2,350"]
    assert [say.write_ordinal(n) for n in (11, 12, 21, 22, 23, 30)] == (
        ["11th", "12th", "21st", "22nd", "23rd", "30th"]
    )
    assert say.write_money(4, 5) == "$4.05"
    assert say.write_money(1200) == "$1,200"


def test_the_article_follows_the_sound_of_the_next_word():
    heard = [text._article(w) for w in ("umbrella", "uniform", "honest", "hat", "eight", "one")]
    assert heard == ["an", "a", "an", "a", "an", "a"]
    for s in draw(3000):
        for unit, following in zip(s.units, s.units[1:], strict=False):
            if unit.written.lower() in ("a", "an"):
                assert unit.written.lower() == text._article(following.spoken[0])
