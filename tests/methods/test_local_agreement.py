"""LocalAgreement-n without a recogniser, beside what the reference does in the same place."""

from __future__ import annotations

import pytest

from streaming_asr.method import Word
from streaming_asr.methods.ufal.reference import ReferenceAgreement
from streaming_asr.whisper.agreement import LocalAgreement, key, n_said


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
    assert n_said(hypothesis, committed) == n


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
