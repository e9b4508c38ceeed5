"""LocalAgreement-n without a recogniser, beside what the reference does in the same place."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_asr.method import Word
from streaming_asr.methods.ufal.reference import ReferenceAgreement
from streaming_asr.text.numerals import cardinal, readings, spoken
from streaming_asr.whisper.agreement import LocalAgreement, key, n_repeated, words_after


def say(text: str, start_s: float = 0.0, word_s: float = 1.0) -> list[Word]:
    """Words of equal length, one right after the other."""
    return [
        Word(" " + word, start_s + i * word_s, start_s + (i + 1) * word_s)
        for i, word in enumerate(text.split())
    ]


def text(words: list[Word] | tuple[Word, ...]) -> str:
    return "".join(word.text for word in words).strip()


def hear(agreement: LocalAgreement, *hypotheses: list[Word]) -> list[str]:
    """What each hypothesis made final."""
    return [text(agreement.observe(hypothesis)) for hypothesis in hypotheses]


def test_two_hypotheses_commit_the_prefix_they_share() -> None:
    for agreement in (LocalAgreement(2), ReferenceAgreement()):
        assert hear(agreement, say("a b x"), say("a b c d"), say("a b c d e")) == ["", "a b", "c d"]
        assert text(agreement.partial) == "e"
        assert text(agreement.finish()) == "e"
        assert agreement.partial == ()


def test_n_hypotheses_in_a_row_must_agree() -> None:
    three = LocalAgreement(3)
    assert hear(three, say("a b"), say("a b"), say("a b c"), say("a b c"), say("a b c")) == [
        "",
        "",
        "a b",
        "",
        "c",
    ]
    assert hear(LocalAgreement(1), say("a"), say("a b")) == ["a", "b"]


def test_a_hypothesis_between_two_that_agree_starts_the_count_again() -> None:
    assert hear(LocalAgreement(2), say("a"), say("b"), say("a"), say("a")) == ["", "", "", "a"]


def test_punctuation_and_case_block_the_reference_for_ever_and_not_the_default() -> None:
    flips = [say("Hello world"), say("hello, world"), say("Hello world")] * 2
    assert hear(ReferenceAgreement(), *flips)[:3] == ["", "", ""]
    assert hear(LocalAgreement(2), *flips)[:3] == ["", "hello, world", ""]


def test_a_word_without_letters_is_compared_as_it_is() -> None:
    assert key(" Don't!") == "dont" and key(" -") == "-" and key(" Ärger") == "ärger"
    assert hear(LocalAgreement(2), say("a - b"), say("a & b")) == ["", "a"]


def test_a_repeated_word_said_again_is_doubled_by_the_reference_alone() -> None:
    said, again = say("the the"), say("the the cat", start_s=1.95)
    assert hear(ReferenceAgreement(), said, said, again, again) == ["", "the the", "", "the cat"]
    assert hear(LocalAgreement(2), said, said, again, again) == ["", "the the", "", "cat"]


def test_words_that_drift_by_more_than_a_second_are_doubled_by_the_reference_alone() -> None:
    said, drifted = say("a b"), say("a b c", start_s=3.5)
    assert hear(ReferenceAgreement(), said, said, drifted, drifted)[3] == "a b c"
    assert hear(LocalAgreement(2), said, said, drifted, drifted)[3] == "c"


def test_a_word_said_twice_loses_its_second_half_in_the_reference_alone() -> None:
    said = say("no", 0.0)
    twice = [*said, Word(" no", 1.2, 2.0), Word(" way", 2.0, 3.0)]
    assert hear(ReferenceAgreement(), said, said, twice, twice)[3] == "way"
    assert hear(LocalAgreement(2), said, said, twice, twice)[3] == "no way"


@pytest.mark.parametrize(
    ("hypothesis", "committed", "n"),
    [
        (say("a b c d"), say("a b c"), 3),
        (say("a b"), say("a b c"), 2),  # shorter than what was committed
        (say("a x c d"), say("a b c"), 3),  # a word changed
        (say("a b b2 c d"), say("a b c"), 4),  # a word was added in the middle
        (say("b c d", 1.0), say("a b c"), 2),  # the first one is gone
        (say("no no no"), say("no"), 1),
        (say("no no no"), say("no no"), 2),
        (say("a b x"), say("a b c"), 3),  # the last one changed: time says it is the same
        ([], say("a b"), 0),
        (say("x y z w"), say("a b c"), 3),  # nothing is the same: time decides
    ],
)
def test_the_committed_words_are_found_at_the_hypothesis_start(
    hypothesis: list[Word], committed: list[Word], n: int
) -> None:
    assert n_repeated(hypothesis, committed) == n


@pytest.mark.parametrize(
    ("committed", "hypothesis", "rest"),
    [
        ("one thousand two", "$1,234.50 more", "hundred thirty four dollars fifty more"),
        ("four nine zero", "4, 9, 0, 4, 3", "4, 3"),  # as a hush word of tiny.en transcribed it
        ("4 9 0", "four nine zero four three", "four three"),
        ("490", "four nine oh four", "four"),
        ("5, 7,", "573 by", "3 by"),
        ("five seven", "573 by", "three by"),
        ("in nineteen ninety", "in 1990 we", "we"),
        ("in 1990", "in nineteen ninety we", "we"),
        ("twenty", "25 people", "five people"),
        ("one hundred and five", "105 people", "people"),
        ("thirty-four", "34 of", "of"),
        ("1,002", "one thousand two people", "people"),
        ("five percent", "5% of", "of"),
        ("two point", "2.5 of", "five of"),
        ("a 7 b", "a seven b c", "c"),
        # Not a number in another notation: the place is that of the plain comparison.
        ("one two", "1 3 4", "4"),
        ("a b", "a x 7", "7"),
    ],
)
def test_a_number_in_another_notation_is_not_said_twice(
    committed: str, hypothesis: str, rest: str
) -> None:
    assert text(words_after(say(hypothesis), say(committed))) == rest
    plain = [Word(word.text) for word in say(hypothesis)]
    assert text(words_after(plain, [Word(word.text) for word in say(committed)])) == rest


@pytest.mark.parametrize("seed", range(30))
def test_any_number_goes_on_where_its_committed_words_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(20, 10 ** int(rng.integers(2, 10))))
    words = cardinal(number)
    n_committed = int(rng.integers(1, len(words) + 1))
    committed = say(" ".join(["they", "sold", *words[:n_committed]]))
    for written in (str(number), f"{number:,}"):
        rest = words_after(say(f"they sold {written} tickets"), committed)
        assert text(rest) == " ".join([*words[n_committed:], "tickets"])
        starts = [word.start or 0.0 for word in rest]
        assert starts == sorted(starts)
    digits = [spoken_digit for digit in str(number) for spoken_digit in cardinal(int(digit))]
    read_out = say(" ".join(["they", "sold", *digits[:n_committed]]))
    rest = words_after(say(f"they sold {number} tickets"), read_out)
    assert text(rest).endswith(" tickets") or text(rest) == "tickets"
    if n_committed >= len(digits):
        assert text(rest) == "tickets"


def test_an_agreement_says_each_part_of_a_number_once() -> None:
    said, written = say("one thousand two"), say("$1,234.50 more")
    assert hear(LocalAgreement(2), said, said, written, written) == [
        "", "one thousand two", "", "hundred thirty four dollars fifty more"
    ]  # fmt: skip


def test_numerals_are_read_in_words_digits_and_pairs() -> None:
    assert readings("573,") == [
        ["five", "hundred", "seventy", "three"], ["five", "seven", "three"]
    ]  # fmt: skip
    assert readings("1990")[2] == ["nineteen", "ninety"]
    assert readings("10,000,000")[0] == ["ten", "million"]
    assert readings("$2.50")[0] == ["two", "dollars", "fifty"]
    assert readings("0") == [["zero"], ["zero"]]
    for text_ in ("word", "8th", "1A", "1,23", "", "-", "12:30", "½"):
        assert readings(text_) == []
    assert readings("٣")[0] == ["three"]
    assert spoken(" Thirty-four.") == ["thirty", "four"] and spoken("well-known") == ["wellknown"]


def test_words_without_times_agree_too() -> None:
    def plain(words: str) -> list[Word]:
        return [Word(" " + word) for word in words.split()]

    agreement = LocalAgreement(2)
    assert hear(agreement, plain("a b"), plain("a b c"), plain("a x c d"), plain("a b c d")) == [
        "",
        "a b",
        "c",
        "d",
    ]


def test_the_reference_wants_times() -> None:
    with pytest.raises(ValueError, match="goes by times"):
        ReferenceAgreement().observe([Word(" a")])


def test_words_that_left_the_buffer_are_not_looked_for() -> None:
    for agreement in (LocalAgreement(2), ReferenceAgreement()):
        hear(agreement, say("a b c"), say("a b c"))
        agreement.forget(2.0)
        assert text(agreement.committed) == "c"
        assert hear(agreement, say("c d", 2.0), say("c d", 2.0)) == ["", "d"]


def test_unconfirmed_words_can_be_made_final_up_to_a_time() -> None:
    agreement = LocalAgreement(2)
    agreement.observe(say("a b c"))
    assert text(agreement.commit_until(2.0)) == "a b"
    assert text(agreement.partial) == "c"
    assert hear(agreement, say("a b c d")) == ["c"]


def test_committed_and_partial_together_are_the_newest_hypothesis() -> None:
    sentence = "to be or not to be that is the the question to be"
    for agreement in (LocalAgreement(2), LocalAgreement(3), LocalAgreement(1)):
        final = ""
        for n in range(1, len(sentence.split()) + 1):
            heard = say(sentence)[:n]
            heard[-1] = Word(heard[-1].text[:2], heard[-1].start, heard[-1].end)
            final = f"{final} {text(agreement.observe(heard))}".strip()
            assert sentence.startswith(final) or agreement.n == 1
        if agreement.n > 1:
            assert f"{final} {text(agreement.finish())}".split()[:-1] == sentence.split()[:-1]
