"""Words lost at pauses, speech without text and partial text, by hand."""

from __future__ import annotations

import pytest
from traces import a_trace

from streaming_asr.metrics import METRICS, compute
from streaming_asr.metrics.live import COLUMNS, RATES, dropped


@pytest.mark.parametrize(
    ("reference", "text", "lost"),
    [
        ("the cat sat", "the cat sat", ""),
        ("the cat sat", "cat sat", "the"),
        ("the cat sat", "the sat", "cat"),
        ("the cat sat", "the cat", "sat"),
        ("the cat sat", "", "the cat sat"),
        ("the cat sat", "a cat sat", ""),  # another word is in its place
        ("the cat sat", "bat sat", "the"),  # "bat" stands for "cat"
        ("a cat sat down", "a caste down", ""),  # both are there, in another form
        ("ice cream now", "icecream now", ""),
        ("icecream now", "ice cream now", ""),
        ("went in the house", "wend house", "in the"),  # "wend" stands for "went"
        ("the dog the cat", "the dog cat", "the"),
        ("", "the cat", ""),
    ],
)
def test_dropped_words(reference, text, lost):
    spoken = reference.split()
    assert [spoken[i] for i in sorted(dropped(spoken, text.split()))] == lost.split()


def test_of_many_dropped_words_all_that_are_too_many_are_found():
    spoken = [f"w{i}" for i in range(60)]
    lost = dropped(spoken, [*spoken[:20], "wrong", *spoken[50:]])
    assert len(lost) == 29 and lost < set(range(20, 50))


ENDS = (0.5, 0.9, 1.3, 3.0, 3.3, 7.5)  # each word lasts 0.2 s: two pauses of half a second or more


@pytest.mark.parametrize(
    ("text", "first", "after", "before"),
    [
        ("the cat sat on a mat", 0, 0, 0),
        ("cat sat on a mat", 100, 0, 50),  # the first stretch lasts a second, so each end has "the"
        ("the cat sat a mat", 0, 50, 50),
        ("the cat sat on a", 0, 50, 0),
        ("", 100, 100, 100),
    ],
)
def test_words_dropped_at_pauses(text, first, after, before):
    figures = compute([a_trace("the cat sat on a mat", [(8.0, 0.1, text, "")], ends=ENDS)])
    assert figures["first_words_dropped"] == first
    assert figures["words_dropped_after_pauses"] == after
    assert figures["words_dropped_before_pauses"] == before


@pytest.mark.parametrize(
    ("lost", "first", "after", "before"),
    [("b", 1, 0, 0), ("c", 0, 0, 0), ("d", 0, 0, 1), ("g", 0, 1, 0), ("h", 0, 0, 0)],
)
def test_only_a_second_of_speech_is_at_a_pause(lost, first, after, before):
    words = [f"ka{letter}" for letter in "abcdefghij"]
    ends = [0.5 * k for k in range(1, 6)] + [5.0 + 0.5 * k for k in range(1, 6)]
    text = " ".join(word for word in words if word != f"ka{lost}")
    figures = compute([a_trace(" ".join(words), [(9.0, 0.1, text, "")], ends=ends)])
    shares = [figures[name] for name in RATES[:3]]
    assert shares == [100.0 * share for share in (first, after, before)]


def test_speech_without_text_counts_new_words_only_and_no_pauses():
    # Speech from 0.3 to 1.3, 2.8 to 3.3 and 7.3 to 7.5 s. New words come at 1.1 and 7.6 s (7.5).
    steps = [(1.0, 0.1, "", "the"), (2.0, 0.1, "", "The,"), (3.0, 0.1, "", "")]
    trace = a_trace("the cat sat on a mat", [*steps, (7.5, 0.1, "the cat", "")], ends=ENDS)
    figures = compute([trace])
    # From 1.1 to 7.6 s 0.2 + 0.5 + 0.2 s are spoken; up to 1.1 s only 0.8 s.
    assert figures["textless_speech_ca_s"] == pytest.approx(0.9)
    assert figures["textless_speech_cu_s"] == pytest.approx(1.0)
    assert figures["textless_over_5s_ca"] == 0.0


def test_a_recording_without_any_text_is_without_text_for_all_its_speech():
    ends = [0.5 * k for k in range(1, 13)]
    silent = a_trace("a b c d e f g h i j k l", [(6.5, 0.1, "", "")], ends=ends)
    failed = a_trace("a b c d e f g h i j k l", [], ends=ends, error="broken")
    for trace in (silent, failed):
        assert compute([trace])["textless_speech_ca_s"] == pytest.approx(5.7)  # 0.3 to 6.0 s
        assert compute([trace])["textless_over_5s_ca"] == 100.0


def test_a_partial_text_that_is_the_final_one_is_a_gain():
    # The last word ends at 1.0 s. "a b" is shown at 1.15 s and final at 1.9 s.
    steps = [(1.1, 0.05, "", "A b."), (1.8, 0.1, "a b", "")]
    early = a_trace("a b", steps, ends=(0.5, 1.0))
    late = a_trace("a b", [(1.1, 0.05, "a", ""), (1.8, 0.1, "a b", "")], ends=(0.5, 1.0))
    figures = compute([early, late])
    assert [figures[f"final_shown_{ms}ms_ca"] for ms in (200, 500, 1000)] == [50, 50, 100]
    gains = [figures[f"final_gain_{ms}ms_ca_s"] for ms in (200, 500, 1000)]
    assert gains == pytest.approx([0.7, 0.4, 0.0])
    # "a" and "b" of the first had been there since 1.15 s when they were committed at 1.9 s.
    assert figures["stable_before_commit_mean_ca_s"] == pytest.approx((0.75 + 0.75) / 4)
    assert figures["stable_before_commit_p50_ca_s"] == pytest.approx(0.375)


def test_an_empty_text_is_nothing_to_act_on():
    figures = compute([a_trace("a b", [(1.5, 0.0, "", "")], ends=(0.5, 1.0))])
    assert figures["final_shown_1000ms_ca"] == 0.0
    assert figures["final_gain_1000ms_ca_s"] is None


def test_without_word_times_there_is_none_of_it():
    figures = compute([a_trace("a b", [(1.5, 0.0, "a b", "")])])
    assert {name for name in RATES if figures[name] is not None} == set()
    assert set(COLUMNS) <= set(METRICS)
