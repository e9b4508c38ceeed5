"""Stability, compute, queue and encoder work on cases counted by hand."""

from dataclasses import replace

import msgspec
import pytest
from traces import a_step, a_trace

from streaming_asr.metrics import METRICS, Trace, compute, queued
from streaming_asr.utterance import TimedWord


def test_erasure_counts_words_behind_the_first_difference_and_lost_words_only_those_gone():
    steps = [
        (1.0, 0.0, "", "cat sat"),
        (2.0, 0.0, "", "the cat sat"),  # both words rewritten, none lost
        (3.0, 0.0, "", "the hat sat"),  # "cat sat" rewritten, "cat" lost
        (4.0, 0.0, "the hat sat down", ""),
    ]
    figures = compute([a_trace("the hat sat down", steps)])
    assert figures["normalised_erasure"] == 4 / 4
    assert figures["unstable_words_per_word"] == 1 / 4


def test_a_text_that_only_grows_has_no_erasure_whatever_its_case_and_commas():
    steps = [(1.0, 0.0, "", "one"), (2.0, 0.0, "", "One, oh"), (3.0, 0.0, "One oh one.", "")]
    figures = compute([a_trace("One oh one.", steps)])
    assert figures["light_erasure"] == 0.0
    # As published, words are compared as written: "one", then "oh", then both again.
    assert figures["normalised_erasure"] == 3 / 3
    assert figures["unstable_words_per_word"] == 0.0


def test_a_display_that_is_wiped_is_lost():
    steps = [(1.0, 0.0, "", "the cat"), (2.0, 0.0, "", ""), (3.0, 0.0, "the cat", "")]
    assert compute([a_trace("the cat", steps)])["unstable_words_per_word"] == 1.0


def test_erasure_of_a_corpus_without_final_words_is_none():
    steps = [(1.0, 0.0, "", "the"), (2.0, 0.0, "", "")]
    assert compute([a_trace("the cat", steps)])["normalised_erasure"] is None


def test_three_real_time_factors_each_by_its_name():
    # c = 0.3, 0.06, 0.1 on 0.6, 0.3, 0.1 s of audio, then 0.04 s on none.
    steps = [(0.6, 0.3, "", ""), (0.9, 0.06, "", ""), (1.0, 0.1, "", ""), (1.0, 0.04, "a", "")]
    figures = compute([a_trace("a", steps)])
    assert figures["rtf_total"] == pytest.approx(0.5)
    assert figures["rtfx"] == pytest.approx(2.0)
    assert figures["rtf_chunk"] == pytest.approx((0.5 + 0.2 + 1.0) / 3)
    assert figures["rtf_cpu"] is None


def test_the_real_time_factor_in_cpu_time_needs_the_cpu_time_of_every_step():
    trace = a_trace("a", [(1.0, 0.3, "", ""), (2.0, 0.1, "a", "")])
    times_ns = (
        {"wall": 300_000_000, "cpu": 900_000_000},
        {"wall": 100_000_000, "cpu": 100_000_000},
    )
    steps = [
        replace(step, step=msgspec.structs.replace(step.step, compute_ns=each))
        for step, each in zip(trace.steps, times_ns, strict=True)
    ]
    assert compute([replace(trace, steps=tuple(steps))])["rtf_cpu"] == pytest.approx(0.5)
    part = replace(trace, steps=(steps[0], trace.steps[1]))
    assert compute([part])["rtf_cpu"] is None


def test_step_times_are_in_milliseconds_over_all_steps():
    steps = [(k + 1.0, c, "", "") for k, c in enumerate((0.010, 0.020, 0.030, 0.060))]
    figures = compute([a_trace("a", steps)])
    assert figures["step_mean_ms"] == pytest.approx(30.0)
    assert figures["step_p50_ms"] == pytest.approx(25.0)
    assert figures["step_p90_ms"] == pytest.approx(51.0)  # 30 + 0.7 * 30


def counted():
    """Two seconds: 50 real frames of 75 computed, then 50 of 125."""
    first = {"frames_real": 50, "frames_computed": 75, "encoder_flops": 3e9}
    second = {"frames_real": 50, "frames_computed": 125, "encoder_flops": 5e9}
    return queued(
        (
            a_step(1.0, 0.1, "", "", decode_steps=4, beam_sum=4, **first),
            a_step(2.0, 0.1, "", "", decode_steps=2, beam_sum=10, **second),
        )
    )


def test_encoder_work_is_per_second_of_audio_and_beam_width_per_decoder_step():
    figures = compute([replace(a_trace("a", []), steps=counted(), duration_s=2.0)])
    assert figures["encoder_gflops_per_s"] == pytest.approx(4.0)
    assert figures["reencoding"] == pytest.approx(2.0)  # 200 frames of 20 ms in 2 s
    assert figures["padding_share"] == pytest.approx(0.5)
    # WhisperFlow's relation at widths 5 and 1: mean = 5 - 4 * share; here 14/6 and 4/6.
    assert figures["mean_beam"] == pytest.approx(14 / 6)
    assert figures["beam1_share"] == pytest.approx(4 / 6)


def test_what_a_method_does_not_count_is_none_not_zero():
    figures = compute([a_trace("a", [(1.0, 0.1, "a", "")])])
    for name in ("encoder_gflops_per_s", "reencoding", "padding_share", "mean_beam"):
        assert figures[name] is None, name
    assert figures["beam1_share"] is None and figures["memory_peak_mib"] is None


def test_memory_is_the_largest_peak_and_violations_add_up():
    one = a_trace("a", [(1.0, 0.1, "a", "")], memory_peak_bytes=3 * 2**20, commit_violations=2)
    two = a_trace("a", [(1.0, 0.1, "a", "")], memory_peak_bytes=5 * 2**20, commit_violations=1)
    two = replace(
        two,
        steps=(
            replace(two.steps[0], step=msgspec.structs.replace(two.steps[0].step, retracted=4)),
        ),
    )
    figures = compute([one, two])
    assert figures["memory_peak_mib"] == 5.0
    assert figures["commit_violations"] == 3
    assert figures["retracted_words"] == 4


def test_an_empty_corpus_has_every_metric_and_none_of_them_a_value():
    figures = compute([])
    assert list(figures) == list(METRICS)
    counts = {"commit_violations", "retracted_words"}
    assert {name for name, value in figures.items() if value is not None} == counts


def test_a_batched_run_reports_no_latency_but_its_accuracy_and_throughput():
    trace = a_trace("a b", [(0.5, 0.1, "", "a"), (1.0, 0.1, "a b", "")], ends=(0.4, 0.8))
    alone, batched = compute([trace]), compute([replace(trace, batch=8)])
    for name in METRICS:
        assert batched[name] == (None if METRICS[name].alone else alone[name]), name
    for name in ("wer", "rwer", "arwer_cu", "arwer_grid_cu", "rtf_total", "rtfx", "reencoding"):
        assert not METRICS[name].alone, name
    for name in (
        "arwer_ca",
        "arwer_grid_ca",
        "first_token_start_cu_s",
        "word_latency_shown_p50_cu_s",
        "finalise_tail_s",
        "al_cu_ms",
        "ap_ca",
        "rtf_chunk",
        "step_p50_ms",
        "queue_max_s",
        "headroom",
    ):
        assert METRICS[name].alone, name


def test_every_metric_has_a_unit_that_its_name_agrees_with():
    for name, metric in METRICS.items():
        assert metric.name == name and metric.definition and metric.source
        if name.endswith("_ms"):
            assert metric.unit == "ms", name
        if name.endswith("_s") and not name.endswith("per_s"):
            assert metric.unit == "s", name


# -- The worked examples of docs/metrics.md: what the page says is what comes out --


WORDS = (TimedWord("the", 0.1, 0.5), TimedWord("cat", 0.6, 1.0), TimedWord("sat", 1.1, 1.5))


def trace(steps, *, duration_s, reference="the cat sat"):
    return Trace(
        utt="u",
        reference=reference,
        duration_s=duration_s,
        words=WORDS if reference == "the cat sat" else None,
        steps=tuple(queued(steps)),
        language="en",
    )


def cat(first, last):
    """Chunks of 1 s, 0.4 s of compute each; "the" is committed by the first step."""
    steps = [
        a_step(1.0, 0.4, "the", first),
        a_step(2.0, 0.4, last, last),
    ]
    return trace(steps, duration_s=2.0)


def test_accuracy():
    found = compute([cat("the hat", "the cat sad")])
    expected = {
        "wer": 100 / 3,
        "rwer": 40,
        "arwer_cu": 50,
        "arwer_ca": 40,
        "rwer_committed": 25,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_latency():
    found = compute([cat("the cat", "the cat sat")])
    expected = {
        "word_latency_shown_mean_ca_s": (0.9 + 0.4 + 0.9) / 3,
        "word_latency_committed_mean_ca_s": (0.9 + 1.4 + 0.9) / 3,
        "word_latency_committed_mean_cu_s": (0.5 + 1.0 + 0.5) / 3,
        "word_latency_coverage": 100,
        "first_token_start_ca_s": 1.4,
        # "cat" waits 1.0 s for the policy; "the" and "sat" 0.5 s each for their chunk to fill
        "word_latency_fill_mean_ca_s": 1.0 / 3,
        "word_latency_lookahead_mean_ca_s": 0.0,
        "word_latency_policy_mean_ca_s": 1.0 / 3,
        "word_latency_queue_mean_ca_s": 0.0,
        "word_latency_compute_mean_ca_s": 0.4,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("second", "erasure", "unstable"), [("the cat", 1 / 3, 0.0), ("the hat", 2 / 3, 2 / 3)]
)
def test_stability(second, erasure, unstable):
    shown = ["cat", second, "the cat sat"]
    steps = [a_step(k + 1.0, 0.1, "", text) for k, text in enumerate(shown)]
    found = compute([trace(steps, duration_s=3.0)])
    assert found["normalised_erasure"] == pytest.approx(erasure)
    assert found["unstable_words_per_word"] == pytest.approx(unstable)
    assert found["commit_violations"] == found["retracted_words"] == 0


def test_cost():
    steps = [
        a_step(
            k + 1.0,
            1.5,
            "",
            "",
            frames_real=200 if k == 3 else 0,
            frames_computed=3000 if k == 3 else 0,
        )
        for k in range(4)
    ]
    # Steps of 1 s end at 2.5, 4, 5.5 and 7 s: waits are 0, 0.5, 1 and 1.5.
    found = compute([trace(steps, duration_s=4.0, reference="")])
    expected = {
        "rtf_total": 1.5,
        "rtfx": 1 / 1.5,
        "rtf_chunk": 1.5,
        "queue_max_s": 1.5,
        "queue_final_s": 1.5,
        "queue_growth": 0.5,
        "reencoding": 15,
        "padding_share": 1 - 200 / 3000,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert found["headroom"] == pytest.approx(2 / 3, rel=1e-2)


@pytest.mark.parametrize(("shown", "on_nonspeech"), [("the cat", 3), ("the cat you", 2)])
def test_ordinary(shown, on_nonspeech):
    texts = [(1.4, shown), (4.0, "the cat you"), (12.0, "the cat you sat sat sat")]
    steps = [a_step(a_s, 0.1, text if a_s == 12.0 else "", text) for a_s, text in texts]
    paused = (*WORDS[:1], TimedWord("cat", 0.7, 1.0), TimedWord("sat", 9.0, 9.2))
    found = compute([replace(trace(steps, duration_s=12.0), words=paused)])
    expected = {
        "words_on_nonspeech_per_min": on_nonspeech / (9.3 / 60),
        "last_words_invented": 100,
        "last_words_dropped": 0,
        "repeated_words_per_100": 200 / 3,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
