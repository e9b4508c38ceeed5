"""U2's rows of the benchmark: both sides of each answer the same, and each part is timed once."""

from __future__ import annotations

import itertools
import time

import pytest
from tiny import tiny_folder

from experiments.bench.u2 import measure


def test_both_sides_of_u2s_rows_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(step=1_000_000)  # each reading a millisecond after the one before
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(ticks))
    stream = measure(str(tiny_folder(context_frames=300)), 262, seconds=4, repeats=1)
    assert stream.same_texts and stream.same_frames
    # From the second chunk on.
    assert stream.search_ms == stream.plain_ms == [1.0, 1.0, 1.0]
    assert stream.encode_ms == [3.0, 3.0, 3.0]  # made ready, run with others' parts, kept
    assert min(stream.step_ms) >= 9.0  # its begin and end, and both parts' within
    assert stream.whole_ms == 1.0
