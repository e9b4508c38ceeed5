"""The worked examples of docs/metrics.md: what the page says is what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traces import a_step

from streaming_asr.metrics import Trace, TraceStep, compute, queued
from streaming_asr.utterance import TimedWord

WORDS = (TimedWord("the", 0.1, 0.5), TimedWord("cat", 0.6, 1.0), TimedWord("sat", 1.1, 1.5))


def trace(steps: list[TraceStep], *, duration_s: float, reference: str = "the cat sat") -> Trace:
    return Trace(
        utt="u",
        reference=reference,
        duration_s=duration_s,
        words=WORDS if reference == "the cat sat" else None,
        steps=tuple(queued(steps)),
        language="en",
    )


def cat(first: str, last: str) -> Trace:
    """Chunks of 1 s, 0.4 s of compute each; "the" is committed by the first step."""
    steps = [
        a_step(1.0, 0.4, "the", first),
        a_step(2.0, 0.4, last, last),
    ]
    return trace(steps, duration_s=2.0)


def test_accuracy() -> None:
    found = compute([cat("the hat", "the cat sad")])
    expected = {
        "wer": 100 / 3,
        "rwer": 40,
        "arwer_cu": 50,
        "arwer_ca": 40,
        "rwer_committed": 25,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_latency() -> None:
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
def test_stability(second: str, erasure: float, unstable: float) -> None:
    shown = ["cat", second, "the cat sat"]
    steps = [a_step(k + 1.0, 0.1, "", text) for k, text in enumerate(shown)]
    found = compute([trace(steps, duration_s=3.0)])
    assert found["normalised_erasure"] == pytest.approx(erasure)
    assert found["unstable_words_per_word"] == pytest.approx(unstable)
    assert found["commit_violations"] == found["retracted_words"] == 0


def test_cost() -> None:
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
    assert (found["headroom"] or 9) < 1


@pytest.mark.parametrize(("shown", "on_nonspeech"), [("the cat", 3), ("the cat you", 2)])
def test_ordinary(shown: str, on_nonspeech: int) -> None:
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
