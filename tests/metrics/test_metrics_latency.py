"""When words appear, on cases timed by hand, and against SimulEval and OmniSTEval."""

import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from places import FIXTURES
from rapidfuzz.distance import LCSseq
from traces import a_trace

from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.metrics import Trace, clocks, compute, trace
from streaming_asr.metrics.latency import (
    WordLatency,
    WordTimes,
    average_lagging,
    average_proportion,
    commit_delays_ms,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    summary,
    yet_another_average_lagging,
)
from streaming_asr.text.tokens import common_prefix
from streaming_asr.utterance import TimedWord


def the_cat_sat():
    """Words end at 0.5, 1.0, 1.6 s; f = 0.7, 1.3, 2.6, 2.7 (the last step waits for the third)."""
    steps = [
        (0.6, 0.1, "", "The"),
        (1.2, 0.1, "", "The hat"),
        (1.8, 0.8, "The", "cat sat"),
        (2.0, 0.1, "The cat sat.", ""),
    ]
    return a_trace("The cat sat.", steps, ends=(0.5, 1.0, 1.6))


def test_word_latency_is_first_shown_stable_since_and_committed_minus_the_end():
    words = WordLatency(the_cat_sat())
    assert words.latencies("shown", "cu") == pytest.approx([0.1, 0.8, 0.2])
    assert words.latencies("stable", "cu") == pytest.approx([0.1, 0.8, 0.2])
    assert words.latencies("committed", "cu") == pytest.approx([1.3, 1.0, 0.4])
    assert words.latencies("shown", "ca") == pytest.approx([0.2, 1.6, 1.0])
    assert words.latencies("committed", "ca") == pytest.approx([2.1, 1.7, 1.1])


def test_the_corpus_figures_pool_the_words():
    figures = compute([the_cat_sat()])
    assert figures["word_latency_committed_mean_cu_s"] == pytest.approx(0.9)
    assert figures["word_latency_committed_p50_cu_s"] == pytest.approx(1.0)
    # Linear between the 2nd (1.0) and 3rd (1.3) of three values: 1.0 + 0.8 * 0.3.
    assert figures["word_latency_committed_p90_cu_s"] == pytest.approx(1.24)
    assert figures["word_latency_shown_p50_ca_s"] == pytest.approx(1.0)
    assert figures["word_latency_coverage"] == 100.0


def test_a_word_that_vanished_is_stable_only_since_it_came_back():
    texts = ["The", "A", "The", "The"]
    steps = [(k + 1.0, 0.0, "The" if k == 3 else "", text) for k, text in enumerate(texts)]
    steps[3] = (4.0, 0.0, "The", "")
    times = WordTimes(a_trace("The", steps))
    assert (times.shown, times.stable, times.committed) == ([0], [2], [3])


def test_a_word_stays_shown_when_one_is_inserted_before_it():
    steps = [(1.0, 0.0, "", "cat sat"), (2.0, 0.0, "The cat sat", "")]
    times = WordTimes(a_trace("The cat sat", steps))
    assert times.shown == times.stable == [1, 0, 0]


def test_a_repeated_word_is_first_seen_in_its_first_place():
    steps = [
        (1.0, 0.0, "", "A the"),
        (2.0, 0.0, "", "The cat"),
        (3.0, 0.0, "The cat the", ""),
    ]
    assert WordTimes(a_trace("The cat the", steps)).shown == [0, 1, 2]


def test_case_and_punctuation_at_a_words_edge_do_not_make_it_another_word():
    steps = [(1.0, 0.0, "", "hello"), (2.0, 0.0, "", "Hello,"), (3.0, 0.0, "Hello.", "")]
    assert WordTimes(a_trace("Hello", steps)).stable == [0]


def test_a_retracted_word_is_committed_when_it_is_committed_for_good():
    steps = [
        (1.0, 0.0, "The cat", ""),
        (2.0, 0.0, "The", "hat"),  # the method took "cat" back
        (3.0, 0.0, "The cat", ""),
    ]
    trace = a_trace("The cat", steps)
    assert WordTimes(trace).committed == [0, 2]
    assert commit_delays_ms(trace, "cu") == [1000.0, 3000.0]


def test_a_word_that_replaces_another_has_its_own_time():
    steps = [
        (1.0, 0.0, "The hat", ""),
        (2.0, 0.0, "The cat sat", ""),  # took "hat" back and committed two words
        (3.0, 0.0, "the cat sat.", ""),  # case and a full stop make no other word
    ]
    trace = a_trace("The cat sat.", steps)
    assert commit_delays_ms(trace, "cu") == [1000.0, 2000.0, 2000.0]
    assert WordTimes(trace).committed == [0, 1, 1]
    # On 3 s of audio the oracle says a word a second: lags of 1000, 1000 and 0 ms.
    assert compute([trace])["al_cu_ms"] == pytest.approx(2000 / 3)


def test_a_word_shown_before_it_ended_has_a_negative_latency_which_is_kept():
    trace = a_trace("Hello", [(0.5, 0.0, "Hello", ""), (1.0, 0.0, "Hello", "")], ends=(0.9,))
    assert compute([trace])["word_latency_committed_p50_cu_s"] == pytest.approx(-0.4)


def test_only_right_words_have_a_latency_and_coverage_says_how_many():
    trace = a_trace("The cat sat", [(2.0, 0.0, "The bad sat", "")], ends=(0.5, 1.0, 1.5))
    assert WordLatency(trace).latencies("committed", "cu") == pytest.approx([1.5, 0.5])
    assert compute([trace])["word_latency_coverage"] == pytest.approx(200 / 3)


def test_first_token_latency_has_three_zero_points_in_both_clocks():
    # First display at 0.6 (cu), 0.7 (ca); the first word is spoken from 0.3 to 0.5.
    figures = compute([the_cat_sat()])
    assert figures["first_token_start_cu_s"] == pytest.approx(0.6)
    assert figures["first_token_word_start_cu_s"] == pytest.approx(0.3)
    assert figures["first_token_word_end_cu_s"] == pytest.approx(0.1)
    assert figures["first_token_start_ca_s"] == pytest.approx(0.7)
    assert figures["first_token_word_end_ca_s"] == pytest.approx(0.2)


def test_a_hallucination_wins_first_token_but_not_first_correct_word():
    steps = [(0.3, 0.0, "", "Bye"), (1.0, 0.0, "", "The"), (2.0, 0.0, "The cat", "")]
    figures = compute([a_trace("The cat", steps, ends=(0.8, 1.4))])
    assert figures["first_token_start_cu_s"] == pytest.approx(0.3)
    assert figures["first_correct_word_start_cu_s"] == pytest.approx(1.0)
    assert figures["first_correct_word_word_end_cu_s"] == pytest.approx(0.2)


def test_finalisation_is_the_flushs_compute_the_last_commit_and_the_tail():
    figures = compute([the_cat_sat()])
    assert figures["finalise_compute_s"] == pytest.approx(0.1)
    assert figures["finalise_last_word_cu_s"] == pytest.approx(0.4)  # 2.0 - 1.6
    assert figures["finalise_last_word_ca_s"] == pytest.approx(1.1)  # 2.7 - 1.6
    assert figures["finalise_tail_s"] == pytest.approx(0.7)  # 2.7 - 2.0


def test_nothing_shown_gives_no_latency_rather_than_zero():
    figures = compute([a_trace("The cat", [(1.0, 0.1, "", "")], ends=(0.4, 0.8))])
    for name in (
        "first_token_start_cu_s",
        "first_correct_word_start_ca_s",
        "word_latency_shown_p50_cu_s",
        "finalise_last_word_cu_s",
        "al_cu_ms",
        "laal_ca_ms",
        "dal_cu_ms",
        "ap_cu",
    ):
        assert figures[name] is None, name
    assert figures["word_latency_coverage"] == 0.0
    assert figures["finalise_tail_s"] == pytest.approx(0.1)


def test_percentiles_of_nothing_are_none():
    assert summary([]) == {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None}


# -- the lagging family --------------------------------------------------------------------------


def test_lagging_of_one_word_per_second_is_one_second():
    delays = [1000.0, 2000.0, 3000.0, 4000.0]
    assert average_lagging(delays, 4, 4000.0) == 1000.0
    assert length_adaptive_average_lagging(delays, 4, 4000.0) == 1000.0
    assert differentiable_average_lagging(delays, 4000.0) == 1000.0
    assert average_proportion(delays, 4, 4000.0) == 0.625


def test_laal_does_not_reward_too_many_words():
    delays = [600.0, 900.0, 1200.0, 1200.0, 1200.0, 1500.0]
    # AL at 600 ms per word: 600 + 300 + 0 - 600 - 1200 - 1500, over 6.
    assert average_lagging(delays, 3, 1800.0) == -400.0
    # LAAL at 300 ms per word: 600 + 600 + 600 + 300 + 0 + 0, over 6.
    assert length_adaptive_average_lagging(delays, 3, 1800.0) == 350.0


def test_words_after_the_first_at_the_end_do_not_count_for_al():
    # 1000 - 0 and 4000 - 1000; the two that follow are left out.
    assert average_lagging([1000.0, 4000.0, 4000.0, 4000.0], 4, 4000.0) == 2000.0


def test_a_first_word_after_the_end_is_its_own_al():
    assert average_lagging([5000.0, 6000.0], 4, 4000.0) == 5000.0


def test_dal_spaces_words_that_come_at_once():
    # Three words at 600 ms of 1800: moved to 600, 1200, 1800 against 0, 600, 1200.
    assert differentiable_average_lagging([600.0, 600.0, 600.0], 1800.0) == 600.0


def test_lagging_against_an_empty_reference_is_none_where_it_has_no_pace():
    assert average_lagging([500.0], 0, 1000.0) is None
    assert average_proportion([500.0], 0, 1000.0) is None
    assert length_adaptive_average_lagging([500.0], 0, 1000.0) == 500.0


def test_the_lagging_of_a_trace_uses_its_commit_times():
    # Committed at 1.8, 2.0, 2.0 s (cu) of 2 s, three words: pace 666.7 ms. AL stops at the first
    # word at the end: (1800 + 2000 - 666.7) / 2.
    figures = compute([the_cat_sat()])
    assert figures["al_cu_ms"] == pytest.approx((1800 + 2000 - 2000 / 3) / 2)
    assert figures["ap_cu"] == pytest.approx(5800 / 6000)
    assert figures["al_ca_ms"] == pytest.approx(2600.0)  # the first word comes after the end


def load_simuleval():
    text = (FIXTURES / "simuleval_latency.json").read_text(encoding="utf-8")
    cases = json.loads(text)["cases"]
    return cases


@pytest.mark.parametrize("case", load_simuleval())
def test_lagging_equals_what_simuleval_printed(case):
    delays, n, duration = case["delays_ms"], case["n_reference"], case["duration_ms"]
    assert average_lagging(delays, n, duration) == pytest.approx(case["AL"])
    assert length_adaptive_average_lagging(delays, n, duration) == pytest.approx(case["LAAL"])
    assert differentiable_average_lagging(delays, duration) == pytest.approx(case["DAL"])
    assert average_proportion(delays, n, duration) == pytest.approx(case["AP"])


def test_lagging_equals_omnisteval_on_random_delays():
    from omnisteval import scoring

    rng = random.Random(11)
    for _ in range(200):
        duration = rng.uniform(500, 9000)
        n_words, n_reference = rng.randint(1, 25), rng.randint(1, 25)
        delays = sorted(rng.uniform(50, duration + 500) for _ in range(n_words))
        instance = SimpleNamespace(
            emission_cu=delays,
            source_length=duration,
            reference="given",
            reference_length=n_reference,
        )
        assert average_lagging(delays, n_reference, duration) == pytest.approx(
            scoring.ALScorer()([instance])
        )
        assert length_adaptive_average_lagging(delays, n_reference, duration) == pytest.approx(
            scoring.LAALScorer()([instance])
        )
        assert differentiable_average_lagging(delays, duration) == pytest.approx(
            scoring.DALScorer()([instance])
        )
        assert average_proportion(delays, n_reference, duration) == pytest.approx(
            scoring.APScorer()([instance])
        )


def test_words_of_pure_punctuation_in_the_reference_are_not_spoken():
    words = (TimedWord("Well", 0.1, 0.4), TimedWord("-", 0.4, 0.4), TimedWord("yes.", 0.5, 0.8))
    step = a_trace("x", [(1.0, 0.0, "Well, yes", "")]).steps
    trace = Trace("u1", "Well - yes.", 1.0, step, words=words)
    assert compute([trace])["word_latency_coverage"] == 100.0


@pytest.mark.parametrize(
    ("delays", "n_reference", "recording_end", "expected"),
    [
        ([1000.0, 2000.0, 4000.0], 4, None, (1000.0 + 2000.0 - 1000.0) / 2),  # 4000 is at the end
        ([4000.0], 4, None, None),
        ([], 4, None, None),
        ([1000.0, 5000.0, 9000.0], 2, 8000.0, (1000.0 + 5000.0 - 4000.0 / 3) / 2),
        ([1000.0, 5000.0], 2, math.inf, (1000.0 + 5000.0 - 2000.0) / 2),
    ],
)
def test_yaal_counts_the_words_before_the_end_as_omnisteval_does(
    delays, n_reference, recording_end, expected
):
    ours = yet_another_average_lagging(delays, n_reference, 4000.0, recording_end)
    assert ours == (None if expected is None else pytest.approx(expected))
    from omnisteval import scoring

    theirs = scoring.YAALScorer(is_longform=recording_end is not None).compute(
        SimpleNamespace(
            emission_cu=delays,
            reference="x",
            reference_length=n_reference,
            source_length=4000.0,
            longform=None,
            time_to_recording_end=recording_end,
        )
    )
    assert ours == (None if theirs is None else pytest.approx(theirs))


# -- From a logged utterance to what the metrics read --


def a_log(**fields):
    steps = [
        Step("audio", 9_600, {"wall": 100_000_000, "encode": 60_000_000}, partial=["The"]),
        Step("audio", 14_400, {"wall": 600_000_000}, committed=["The", " hat"], partial=[" s"]),
        Step("flush", 16_000, {"wall": 50_000_000}, committed=[" cat", " sat."], retracted=1),
    ]
    log = UtteranceLog("u1", "The cat sat.", 16_000, [TimedWord("The", 0.1, 0.2)], steps=steps)
    for name, value in fields.items():
        setattr(log, name, value)
    return log


def test_texts_are_joined_as_the_method_spelt_them():
    steps = trace(a_log()).steps
    assert [step.displayed for step in steps] == ["The", "The hat s", "The cat sat."]
    assert [step.committed for step in steps] == ["", "The hat", "The cat sat."]


def test_times_follow_the_queue():
    steps = trace(a_log()).steps
    assert [step.audio_s for step in steps] == [0.6, 0.9, 1.0]
    assert [step.finished_s for step in steps] == pytest.approx([0.7, 1.5, 1.55])
    assert [step.wait_s for step in steps] == pytest.approx([0.0, 0.0, 0.5])


def test_retracted_words_leave_the_committed_text_and_are_counted():
    made = trace(a_log())
    assert made.hypothesis == "The cat sat."
    assert compute([made])["retracted_words"] == 1


def test_the_text_of_a_failed_utterance_is_not_looked_at():
    made = trace(a_log(status="failed", error="out of memory"))
    assert made.steps == () and made.hypothesis == "" and made.error == "out of memory"
    assert trace(a_log(status="failed")).error  # a failure without a message is still one


def test_a_display_that_runs_into_the_committed_text_still_has_word_times():
    # A partial text without its space: "The" is on screen as "Then", so it counts when committed.
    steps = [
        Step("audio", 16_000, {"wall": 0}, committed=["The"], partial=["n"]),
        Step("flush", 32_000, {"wall": 0}, partial=["n"]),
    ]
    log = UtteranceLog("u1", "The", 32_000, [TimedWord("The", 0.1, 0.4)], steps=steps)
    figures = compute([trace(log)])
    assert figures["word_latency_shown_p50_cu_s"] == pytest.approx(0.6)
    assert figures["word_latency_stable_p50_cu_s"] == pytest.approx(0.6)


# --  --


def step(audio_samples=0, wall_ns=0, **fields):
    return Step("audio", audio_samples, {"wall": wall_ns}, **fields)


SLOW = [step(16_000 * k, 1_500_000_000) for k in (1, 2, 3, 4)]  # 1 s chunks, 1.5 s compute


@pytest.mark.parametrize(
    ("clock", "times_s"),
    [
        ("cu", [1.0, 2.0, 3.0, 4.0]),
        ("ca", [2.5, 4.0, 5.5, 7.0]),
    ],
)
def test_one_second_chunks_with_a_second_and_a_half_of_compute(clock, times_s):
    assert trace(UtteranceLog("u", "", 64_000, steps=SLOW)).times(clock) == times_s


def test_the_queue_empties_and_fills_again():
    a = np.array([1.0, 2.0, 3.0, 6.0, 6.5])
    c = np.array([1.75, 0.5, 0.5, 1.0, 0.25])
    assert clocks.fifo(a, c).tolist() == [2.75, 3.25, 3.75, 7.0, 7.25]
    assert clocks.queue_wait(a, c).tolist() == [0.0, 0.75, 0.25, 0.0, 0.5]


def test_the_closed_form_equals_the_recursion():
    rng = np.random.default_rng(0)
    a, c = np.cumsum(rng.uniform(0, 1, 500)), rng.uniform(0, 1.1, 500)
    f, expected = 0.0, []
    for arrival, needed in zip(a, c, strict=True):
        f = max(arrival, f) + needed
        expected.append(f)
    np.testing.assert_allclose(clocks.fifo(a, c), expected, rtol=1e-12)


def test_without_compute_both_clocks_agree():
    a = np.array([0.6, 0.9, 1.0])
    assert clocks.fifo(a, np.zeros(3)).tolist() == a.tolist()


def test_no_steps_give_no_times():
    assert trace(UtteranceLog("u", "", 0)).times("ca") == []
    assert clocks.queue_wait(np.zeros(0), np.zeros(0)).tolist() == []


def test_one_late_chunk_is_no_growth():
    a, c = np.arange(1.0, 41.0), np.full(40, 0.1)
    c[35] = 1.5
    assert clocks.queue_wait(a, c).max() == pytest.approx(0.5)
    assert clocks.queue_growth(a, c) == 0.0


@pytest.mark.parametrize("first_s", [1.0, 1.0125, 0.3, 2.0])
@pytest.mark.parametrize("n", [4, 8, 40])
@pytest.mark.parametrize(
    ("last_s", "room"),
    [
        ((), 12.5),
        ((0.011,), 12.5),
        ((0.5,), 12.5),
        ((0.0,), 12.5),
        # The second of two short pieces waits for two steps: 2 * 0.08 s - 0.5 s is at most 1 s.
        ((0.5, 0.0), 9.375),
        ((0.011, 0.0), 6.319),
    ],
)
def test_a_shorter_last_piece_is_a_wait_and_no_growth(last_s, room, n, first_s):
    a = np.cumsum([first_s, *[1.0] * (n - 1), *last_s])
    c = np.full(len(a), 0.08)
    assert clocks.whole_steps(a) == n
    assert clocks.queue_growth(a, c) == 0.0
    assert clocks.headroom([(a, c)]) == pytest.approx(room, rel=2e-3)


def test_a_queue_that_grows_is_seen_whatever_the_last_piece():
    a, c = np.arange(1.0, 9.0), np.full(9, 1.5)
    for last_s in (0.011, 0.5, 1.0):
        assert clocks.queue_growth(np.append(a, 8.0 + last_s), c) == pytest.approx(0.5)


def test_headroom_is_the_chunk_over_its_compute():
    a, c = 0.3 * np.arange(1, 201), np.full(200, 0.03)
    assert clocks.headroom([(a, c)]) == pytest.approx(10.0, rel=2e-3)
    assert clocks.headroom([(a, c), (a, 4 * c)]) == pytest.approx(2.5, rel=2e-3)


def test_headroom_ends_where_one_wait_passes_the_budget():
    a, c = np.arange(1.0, 41.0), np.full(40, 0.01)
    c[20] = 1.0  # at a slowdown of s the next chunk waits s - 1 seconds
    assert clocks.headroom([(a, c)], budget_s=1.0) == pytest.approx(2.0, rel=1e-3)
    assert clocks.headroom([(a, c)], budget_s=0.5) == pytest.approx(1.5, rel=1e-3)


def test_headroom_is_below_one_where_the_machine_does_not_keep_up():
    a, c = np.arange(1.0, 41.0), np.full(40, 1.25)
    assert clocks.headroom([(a, c)]) == pytest.approx(0.8, rel=2e-3)


def test_headroom_is_infinite_where_nothing_takes_time():
    assert clocks.headroom([(np.arange(1.0, 9.0), np.zeros(8))]) == math.inf


# -- texts that grow ----------------------------------------------------------------------------


def test_a_display_has_the_words_that_an_alignment_with_all_of_the_text_finds() -> None:
    """Only words of both are aligned, and only what changed is looked at."""
    rng = random.Random(3)
    for _ in range(300):
        final = rng.choices("abcd", k=rng.randint(1, 9))
        texts = [" ".join(rng.choices("abcde", k=rng.randint(0, 9))) for _ in range(4)]
        steps = [(k + 1.0, 0.0, "", text) for k, text in enumerate(texts)]
        trace = a_trace(" ".join(final), [*steps, (5.0, 0.0, " ".join(final), "")])
        stable = [-1] * len(final)
        for k, step in enumerate(trace.steps):
            has = _displayed(step.displayed.split(), final)
            stable = [(k if s < 0 else s) if h else -1 for s, h in zip(stable, has, strict=True)]
        assert WordTimes(trace).stable == stable, (texts, final)


def _displayed(display: list[str], final: list[str]) -> list[bool]:
    n = common_prefix(display, final)
    has = [True] * n + [False] * (len(final) - n)
    for block in LCSseq.opcodes([*display[n:], "\0"], [*final[n:], "\1"]):
        if block.tag == "equal":
            has[n + block.dest_start : n + block.dest_end] = [True] * (
                block.dest_end - block.dest_start
            )
    return has
