"""Ends of turns: the worked example of docs/metrics.md, and what is passed over."""

from __future__ import annotations

import pytest
from traces import a_step

from streaming_asr.metrics import Trace, TraceStep, compute, queued
from streaming_asr.utterance import TimedWord

# Two turns with four seconds between them.
WORDS = (TimedWord("the", 0.2, 0.5), TimedWord("cat", 0.6, 1.0), TimedWord("sat", 5.0, 5.4))
NAMES = (
    *("turns_cut_off", "turns_missed", "turn_end_delay_p50_ca_s", "turn_end_delay_p90_ca_s"),
    *("turn_final_natural_ca_s", "turn_final_forced_ca_s"),
)
EARLY = a_step(0.6, 0.1, "the", "the", kind="endpoint")
RIGHT = a_step(1.8, 0.1, "the cat", "the cat", kind="endpoint")
LAST = a_step(6.0, 0.1, "the cat sat", "the cat sat", kind="endpoint")
FLUSH = a_step(6.0, 0.1, "the cat sat", "the cat sat", kind="flush")


def found(*steps: TraceStep, duration_s: float = 6.0) -> list[float | None]:
    trace = Trace("u", "the cat sat", duration_s, tuple(queued(steps)), words=WORDS, language="en")
    figures = compute([trace])
    return [figures[name] for name in NAMES]


def test_an_end_told_in_a_turn_cuts_it_off_and_one_behind_it_has_a_delay() -> None:
    # Told at 0.7 and 1.9 s; the first turn ends at 1.0. The second ends 0.6 s before the recording
    # and no end of it was told, so it is not judged; its text is final at 6.1 s.
    assert found(EARLY, RIGHT, FLUSH) == pytest.approx([100, 0, 0.9, 0.9, None, 0.7])


def test_a_last_turn_whose_end_is_told_counts_and_ends_naturally() -> None:
    # Told at 6.1 s, 0.7 s after the word.
    assert found(EARLY, RIGHT, LAST, FLUSH) == pytest.approx([50, 0, 0.8, 0.88, 0.7, None])


def test_an_end_that_is_told_when_the_next_turn_has_begun_is_missed_and_cuts_that_one_off() -> None:
    late = a_step(5.1, 0.1, "the cat", "the cat", kind="endpoint")
    assert found(late, FLUSH) == pytest.approx([0, 100, None, None, None, 0.7])
    # With two seconds behind the last word that turn is judged too.
    flush = a_step(7.5, 0.1, "the cat sat", "the cat sat", kind="flush")
    cut_off, missed, *_ = found(late, flush, duration_s=7.5)
    assert (cut_off, missed) == (50, 100)


def test_a_pause_below_two_seconds_is_the_speakers_own() -> None:
    words = (TimedWord("the", 0.2, 0.5), TimedWord("cat", 2.4, 2.8))
    told = a_step(1.2, 0.1, "the", "the", kind="endpoint")
    flush = a_step(5.0, 0.1, "the cat", "the cat", kind="flush")
    trace = Trace("u", "the cat", 5.0, tuple(queued([told, flush])), words=words, language="en")
    assert compute([trace])["turns_cut_off"] == 100


def test_a_method_that_tells_no_ends_has_no_figures_of_turns() -> None:
    assert found(FLUSH)[:5] == [None] * 5
    silent = a_step(6.0, 0.1, "", "", kind="flush")
    assert found(silent) == [None] * 6
