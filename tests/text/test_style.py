"""Tests of references written in the style of a recogniser's output."""

from __future__ import annotations

import pytest

from streaming_asr.text.normalise import normaliser
from streaming_asr.text.style import in_style


@pytest.mark.parametrize(
    "reference, output, text",
    [
        # The same words: the output as it is.
        (
            "MISTER KARA HAS TWO HUNDRED SHEEP",
            " Mr.  Kara has 200 sheep.",
            "Mr. Kara has 200 sheep.",
        ),
        # A wrong word: its case and punctuation are taken, not its letters.
        ("YES KARA FOLDED IT", "Yes, Cara folded it!", "Yes, Kara folded it!"),
        ("he read the letter twice", "He read the Lettre, twice.", "He read the Letter, twice."),
        # Words that the output lacks are in lower case, those it adds are left out.
        ("THE OLD MAN SAT DOWN", "The man sat down.", "The old man sat down."),
        ("the man sat down", "The man, he, sat down.", "The man, sat down."),
        # Other forms of the same words inside a text with an error.
        ("MISTER BROWN CAME AT TEN", "Mr. Browne came at 10.", "Mr. Brown came at 10."),
        ("MISTER AND MISSUS DAY SAT", "Mr. and Mrs. Dey sat.", "Mr. and Mrs. Day sat."),
        # A sentence of the output that begins later in the reference.
        ("AND SO THE MAN SAT", "The man sat.", "And so the man sat."),
        # Two words for one take neither.
        ("she had a shamrock there", "She had a Sham rock there.", "She had a shamrock there."),
        # A sentence that ends begins another one.
        ("GO AWAY THEN COME", "Go way. Then gum", "Go away. Then come."),
        ("i think i'm late says i", "", "I think I'm late says I."),
        ("one two", "One, too,", "One, two."),
        # In two cases already.
        ("He went to Rome", "he went to rome.", "He went to Rome"),
        ("HE WENT", "He went", "He went"),
    ],
)
def test_a_reference_takes_the_case_and_punctuation_of_the_output(reference, output, text):
    assert in_style(reference, output) == text


@pytest.mark.parametrize("output", ["", "Wholly other words.", "The cat; the DOG sat, on a mat?"])
def test_the_words_stay_those_of_the_reference(output):
    reference = "THE CAT AND THE DOG SAT ON THE MAT"
    words = normaliser("en").words
    assert words(in_style(reference, output)) == words(reference)


def test_a_language_without_blanks_or_english_i_keeps_its_words():
    assert in_style("I GATTI SONO QUI", "Gatti sono qui.", "it") == "I gatti sono qui."
    assert in_style("si e i gatti", "Si, e gatti.", "it") == "Si, e i gatti."
    assert in_style("你好", "你好。", "zh") == "你好"
