"""From a logged utterance to what the metrics read."""

from __future__ import annotations

import pytest

from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.metrics import compute, trace
from streaming_asr.utterance import TimedWord


def a_log(**fields: object) -> UtteranceLog:
    steps = [
        Step("audio", 9_600, {"wall": 100_000_000, "encode": 60_000_000}, partial=["The"]),
        Step("audio", 14_400, {"wall": 600_000_000}, committed=["The", " hat"], partial=[" s"]),
        Step("flush", 16_000, {"wall": 50_000_000}, committed=[" cat", " sat."], retracted=1),
    ]
    log = UtteranceLog("u1", "The cat sat.", 16_000, [TimedWord("The", 0.1, 0.2)], steps=steps)
    for name, value in fields.items():
        setattr(log, name, value)
    return log


def test_texts_are_joined_as_the_method_spelt_them() -> None:
    steps = trace(a_log()).steps
    assert [step.displayed for step in steps] == ["The", "The hat s", "The cat sat."]
    assert [step.committed for step in steps] == ["", "The hat", "The cat sat."]


def test_times_follow_the_queue() -> None:
    steps = trace(a_log()).steps
    assert [step.audio_s for step in steps] == [0.6, 0.9, 1.0]
    assert [step.finished_s for step in steps] == pytest.approx([0.7, 1.5, 1.55])
    assert [step.wait_s for step in steps] == pytest.approx([0.0, 0.0, 0.5])


def test_retracted_words_leave_the_committed_text_and_are_counted() -> None:
    made = trace(a_log())
    assert made.hypothesis == "The cat sat."
    assert compute([made])["retracted_words"] == 1


def test_the_text_of_a_failed_utterance_is_not_looked_at() -> None:
    made = trace(a_log(status="failed", error="out of memory"))
    assert made.steps == () and made.hypothesis == "" and made.error == "out of memory"
    assert trace(a_log(status="failed")).error  # a failure without a message is still one


def test_a_display_that_runs_into_the_committed_text_still_has_word_times() -> None:
    # A partial text without its space: "The" is on screen as "Then", so it counts when committed.
    steps = [
        Step("audio", 16_000, {"wall": 0}, committed=["The"], partial=["n"]),
        Step("flush", 32_000, {"wall": 0}, partial=["n"]),
    ]
    log = UtteranceLog("u1", "The", 32_000, [TimedWord("The", 0.1, 0.4)], steps=steps)
    figures = compute([trace(log)])
    assert figures["word_latency_shown_p50_cu_s"] == pytest.approx(0.6)
    assert figures["word_latency_stable_p50_cu_s"] == pytest.approx(0.6)
