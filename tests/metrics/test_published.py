"""Published latencies, by hand from their formulas."""

from __future__ import annotations

import pytest
from traces import a_trace

from streaming_asr.metrics.published import DEFINITIONS, value

# Words end at 0.5, 1.1 and 1.6 s. Texts come at 1.2 s ("the"), 2.3 s ("the cat", "the" final) and
# 3.1 s (all final); chunks are sent at 1, 2 and 2.5 s, and the audio lasts 2.5 s.
STEPS = [(1.0, 0.2, "", "the"), (2.0, 0.3, "the", "cat"), (2.5, 0.6, "the cat sat", "")]
TRACE = a_trace("the cat sat", STEPS, ends=(0.5, 1.1, 1.6))
SECONDS = {
    # From 1, 2 and 2 s, when the chunks with the words' ends were sent.
    "picovoice_word_emission": (0.2 + 0.3 + 1.1) / 3,
    "assemblyai_emission": 0.3,
    "assemblyai_ttct": 3.1 - 2.0,
    # Least and most: 1.2 - 0.5 and 1.2; 2.3 - 1.1 and 2.3 - 0.5; 2.5 - 1.6 and 2.5 - 1.1 s;
    # the new words last 0.2 s each.
    "openbench_streaming": ((0.7 + 1.2) / 2 + (1.2 + 1.8) / 2 + (0.9 + 1.4) / 2) / 3,
    # "the" at 2.3 s: 1.8 and 2.3 s, 0.2 s long. "cat sat" from 0.9 to 1.6 s: 0.9 and 2.0 s.
    "openbench_confirmed": (0.2 * (1.8 + 2.3) / 2 + 0.7 * (0.9 + 2.0) / 2) / 0.9,
    "coval_ttft": 1.2,
    "coval_audio_to_final": 3.1,
    "coval_ttfs": 1.5,
    "pipecat_ttfs": 1.5,
    "livekit_transcription_delay": 1.5,
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_definition_gives_what_its_formula_gives(name: str) -> None:
    assert value(name, [TRACE]) == pytest.approx(SECONDS[name], abs=1e-6)


def test_words_before_their_audio_are_left_out_or_count_0_or_less() -> None:
    """The text is final at 0.5 s, its last word ends at 0.9 s."""
    early = a_trace("a b", [(0.5, 0.0, "a b", ""), (1.0, 0.0, "a b", "")], ends=(0.4, 0.9))
    assert value("assemblyai_emission", [early]) == 0.0  # of "a"
    assert value("picovoice_word_emission", [early]) == pytest.approx((0.0 - 0.5) / 2)
    assert value("assemblyai_ttct", [early]) is None
    assert value("coval_ttfs", [early]) is None
    assert value("pipecat_ttfs", [early]) == pytest.approx(-0.4)
    assert value("livekit_transcription_delay", [early]) == 0.0


def test_a_failed_recording_has_no_latency() -> None:
    failed = a_trace("a b", [], ends=(0.4, 0.9), error="broken")
    assert {value(name, [failed]) for name in DEFINITIONS} == {None}
