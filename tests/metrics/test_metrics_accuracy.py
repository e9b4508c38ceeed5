"""Error rates on cases counted by hand, and against jiwer."""

import random

import jiwer
import pytest
from rapidfuzz.distance import Levenshtein
from traces import a_trace

from streaming_asr.metrics import compute
from streaming_asr.metrics.accuracy import (
    AlignedWordErrors,
    Distances,
    Errors,
    character_errors,
    count,
    formatted_word_errors,
    real_time_word_errors,
    total,
    word_errors,
)
from streaming_asr.text.growing import Growing
from streaming_asr.text.normalise import normaliser

ENGLISH = normaliser("en")


def test_wer_counts_normalised_words_and_wer_formatted_counts_them_as_written():
    # Normalised: "the color is red" against "the color is read": one substitution of four.
    # As written: The/the, colour/color and red./read differ: three of four.
    trace = a_trace("The colour is red.", [(1.0, 0.0, "the color is read", "")])
    assert word_errors(trace, ENGLISH) == Errors(1, 4)
    assert formatted_word_errors(trace) == Errors(3, 4)


def test_cer_counts_characters_and_the_spaces_between_words():
    # "the cat" has 7 characters; "a cat" is 3 characters away from it (t, h, e -> a).
    trace = a_trace("The cat.", [(1.0, 0.0, "a cat", "")])
    assert character_errors(trace, ENGLISH) == Errors(3, 7)
    assert jiwer.cer("the cat", "a cat") == 3 / 7


def test_error_rates_are_pooled_not_averaged():
    # 1 of 1 and 0 of 3: 25 %, where the mean over utterances would be 50 %.
    traces = [
        a_trace("Yes.", [(1.0, 0.0, "Bad", "")]),
        a_trace("The cat sat.", [(1.0, 0.0, "The cat sat.", "")]),
    ]
    assert compute(traces)["wer"] == 25.0


def test_words_said_into_silence_are_errors_and_silence_alone_has_no_rate():
    # An empty reference adds its insertions to the errors and nothing to the words.
    hallucinated = a_trace("", [(1.0, 0.0, "Thank you.", "")])
    spoken = a_trace("The cat sat here.", [(1.0, 0.0, "The cat sat here.", "")])
    assert compute([hallucinated])["wer"] is None
    assert compute([hallucinated, spoken])["wer"] == 50.0


def test_a_failed_utterance_stays_in_wer_with_an_empty_hypothesis():
    failed = a_trace("The cat sat.", [], ends=(0.3, 0.6, 0.9), error="out of memory")
    good = a_trace("The dog.", [(1.0, 0.0, "The dog.", "")], ends=(0.4, 0.9))
    figures = compute([failed, good])
    assert figures["wer"] == 60.0  # 3 deletions of 5 words
    assert figures["word_latency_coverage"] == 40.0  # 2 hits of 5 words
    # On the grid the failed one owes 1 word at 0.4 ... 0.6, 2 at 0.7 ... 0.9 and 3 at 1.0, and
    # shows none: 12 of 12. The good one, shown only at 1.0 s, owes 1 at 0.5 ... 0.9 and 2 at 1.0,
    # which are there: 5 of 7.
    assert figures["arwer_grid_cu"] == pytest.approx(100 * 17 / 19)


def test_rwer_compares_each_display_with_equally_many_words_of_the_reference():
    trace = a_trace(
        "The cat sat down.",
        [
            (1.0, 0.0, "", ""),  # nothing shown: adds nothing
            (2.0, 0.0, "", "The cat"),  # 0 of 2
            (3.0, 0.0, "The", "hat sat"),  # 1 of 3
            (4.0, 0.0, "The cat sat down now.", ""),  # 1 insertion, of the 4 there are
        ],
    )
    assert real_time_word_errors(trace, ENGLISH) == Errors(2, 9)
    # Committed alone: "", "", "the" (0 of 1), all (1 of 4).
    assert real_time_word_errors(trace, ENGLISH, committed=True) == Errors(1, 5)


def test_rwer_counts_an_unchanged_display_at_every_step():
    steps = [(1.0, 0.0, "", "The hat"), (2.0, 0.0, "", "The hat"), (3.0, 0.0, "The cat", "")]
    assert real_time_word_errors(a_trace("The cat.", steps), ENGLISH) == Errors(2, 6)


def test_rwer_cuts_the_reference_after_normalising_it():
    # "twenty one" is one word, 21: the display of one word is compared with it.
    trace = a_trace("Twenty one cats.", [(1.0, 0.0, "21", "")])
    assert real_time_word_errors(trace, ENGLISH) == Errors(0, 1)


def test_a_system_that_never_shows_anything_has_no_rwer():
    silent = a_trace("The cat.", [(1.0, 0.0, "", ""), (2.0, 0.0, "", "")], ends=(0.5, 0.9))
    figures = compute([silent])
    assert figures["rwer"] is None
    assert figures["rwer_committed"] is None
    assert figures["wer"] == 100.0
    assert figures["arwer_cu"] == 100.0  # two words are owed at each step


def test_arwer_takes_the_words_that_ended_strictly_before_each_step():
    trace = a_trace(
        "The cat sat.",
        [
            (1.0, 0.6, "", "The"),  # cu: no word ended before 1.0: an insertion, of 0 words
            (2.0, 0.6, "The", "hat"),  # cu: "the" alone ended before 2.0: an insertion, of 1
            (3.1, 0.6, "The cat sat", ""),  # cu: all three ended: 0 of 3
        ],
        ends=(1.0, 2.0, 3.0),
    )
    aligned = AlignedWordErrors(trace, ENGLISH)
    assert aligned.per_step("cu") == Errors(2, 4)
    # Committed: "" (0 of 0), "the" (0 of 1), all (0 of 3).
    assert aligned.per_step("cu", committed=True) == Errors(0, 4)
    # f = 1.6, 2.6, 3.7: "the" (0 of 1), "the hat" (1 of 2), all (0 of 3).
    assert aligned.per_step("ca") == Errors(1, 6)
    assert aligned.per_step("ca", committed=True) == Errors(2, 6)


def test_the_grid_makes_a_perfect_recogniser_pay_for_long_chunks():
    # Ten words, one per second, each ending 50 ms before the full second; chunks of 5 s, each
    # showing exactly the words that ended. Sampled per step there is no error at all.
    words = [f"word{c}" for c in "abcdefghij"]
    ends = [i + 0.95 for i in range(10)]
    steps = [(5.0, 0.0, " ".join(words[:5]), ""), (10.0, 0.0, " ".join(words), "")]
    trace = a_trace(" ".join(words), steps, ends=ends)
    aligned = AlignedWordErrors(trace, ENGLISH)
    assert aligned.per_step("cu") == Errors(0, 15)
    # The grid 0.1, 0.2 ... 10.0: j words are owed at the ten ticks j.0 ... j.9, ten at 10.0:
    # 10 * (1 + ... + 9) + 10 = 460. Missing: all of them before 5.0, 10 * (1 + 2 + 3 + 4), and
    # then those since 5.0, again 10 * (1 + 2 + 3 + 4): 200.
    assert aligned.on_grid("cu") == Errors(200, 460)
    # With chunks of 1 s none is ever missing at a tick: words end just before the second.
    fine = [(float(k), 0.0, " ".join(words[:k]), "") for k in range(1, 11)]
    assert AlignedWordErrors(a_trace(" ".join(words), fine, ends=ends), ENGLISH).on_grid("cu") == (
        Errors(0, 460)
    )


def test_the_grid_in_the_compute_clock_waits_for_the_computation():
    # One word ending at 0.25 s, T = 1 s, shown by the step of 0.5 s, which computes 0.2 s: it is
    # owed at 0.3 ... 1.0 (8 ticks), missing at 0.3 0.4 (cu) and also at 0.5 0.6 (ca).
    steps = [(0.5, 0.2, "Hello", ""), (1.0, 0.0, "Hello", "")]
    aligned = AlignedWordErrors(a_trace("Hello", steps, ends=(0.25,)), ENGLISH)
    assert aligned.on_grid("cu") == Errors(2, 8)
    assert aligned.on_grid("ca") == Errors(4, 8)


def test_times_that_binary_fractions_cannot_hold_still_compare_as_written():
    # A word ending at 0.3 has not ended strictly before the tick 0.3 (3 * 0.1 > 0.3 in floats).
    steps = [(0.3, 0.0, "", ""), (0.4, 0.0, "Hi", "")]
    aligned = AlignedWordErrors(a_trace("Hi", steps, ends=(0.3,)), ENGLISH)
    assert aligned.on_grid("cu") == Errors(0, 1)
    assert aligned.per_step("cu") == Errors(0, 1)


def test_without_word_times_there_is_no_aligned_rate():
    trace = a_trace("The cat.", [(1.0, 0.0, "The cat.", "")])
    figures = compute([trace])
    assert figures["arwer_cu"] is None and figures["arwer_grid_ca"] is None
    with pytest.raises(ValueError, match="no word times"):
        AlignedWordErrors(trace, ENGLISH)


def test_counting_agrees_with_jiwer_over_random_prefixes():
    rng = random.Random(3)
    references, hypotheses, counts = [], [], []
    for _ in range(300):
        reference = [rng.choice("abcde") for _ in range(rng.randint(0, 12))]
        hypothesis = [rng.choice("abcde") for _ in range(rng.randint(0, 12))]
        references.append(" ".join(reference))
        hypotheses.append(" ".join(hypothesis))
        counts.append(count(reference, hypothesis))
        assert counts[-1].errors == Levenshtein.distance(reference, hypothesis)
        letters = "".join(reference), "ü".join(hypothesis)
        assert count(*letters) == (Levenshtein.distance(*letters), len(reference))
    pooled = total(counts)
    assert pooled.errors / pooled.words == pytest.approx(
        jiwer.wer(references, hypotheses), abs=1e-12
    )


def test_rwer_agrees_with_jiwer_on_lists_of_prefixes():
    reference = ["the", "old", "man", "and", "the", "small", "sea", "of", "stars"]
    texts = ["the", "the cold", "the old man in", "the old man and a sea", " ".join(reference)]
    steps = [(k + 1.0, 0.0, "", text) for k, text in enumerate(texts)]
    errors = real_time_word_errors(a_trace(" ".join(reference), steps), ENGLISH)
    prefixes = [" ".join(reference[: len(text.split())]) for text in texts]
    assert errors.errors / errors.words == pytest.approx(jiwer.wer(prefixes, texts), abs=1e-12)


def test_distances_of_a_growing_text_are_those_of_whole_alignments(monkeypatch):
    """Texts grow, change and are taken back, also before the columns that are kept."""
    monkeypatch.setattr(Distances, "MOST", 5)
    rng = random.Random(0)
    for _ in range(60):
        reference = rng.choices("abcd", k=rng.randrange(70))
        distances, text = Distances(reference), []
        for _ in range(30):
            if text and rng.random() < 0.3:
                del text[rng.randrange(len(text)) :]
            text += rng.choices("abcde", k=rng.randrange(4))
            n = rng.randrange(len(reference) + 1)
            expected = Levenshtein.distance(reference[:n], text)
            assert distances.to_first(n, Growing.of(tuple(text), tuple(reference))) == expected
    assert Distances(list("abcd")).to_first(3, Growing.of(("a", "x", "c", "d"))) == 2
