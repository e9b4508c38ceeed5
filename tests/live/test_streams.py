"""Many streams on one device from single-stream logs: the virtual queue, and how many keep up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from two_words import a_cell

from streaming_asr.errors import UserError
from streaming_asr.score.retime import recordings_of
from streaming_asr.score.streams import RecordingSteps, capacity, lags, serve


def recording(*compute_s: float) -> RecordingSteps:
    """A step a second, of these compute times."""
    n = len(compute_s)
    compute = np.rint(np.array(compute_s) * 1e9).astype(np.int64)
    return RecordingSteps(np.arange(1, n + 1) * 10**9, compute, n * 10**9)


def lags_s(streams: list[list[RecordingSteps]], offsets_s: list[float]) -> list[float]:
    return (lags(streams, [round(offset * 1e9) for offset in offsets_s]) / 1e9).tolist()


def test_one_stream_lags_as_its_own_queue_does() -> None:
    # Ends at 1.5, 3.5, 4.0: the second takes 1.5 s, so the third waits half a second.
    assert lags_s([[recording(0.5, 1.5, 0.5)]], [0.0]) == [0.5, 1.5, 1.0]


def test_the_device_serves_steps_in_the_order_of_their_audio() -> None:
    # Arrivals 1, 2 and 1.25, 2.25; each takes 0.5 s: ends 1.5, 2.5 and 2.0, 3.0.
    two = [[recording(0.5, 0.5)], [recording(0.5, 0.5)]]
    assert lags_s(two, [0.0, 0.25]) == [0.5, 0.5, 0.75, 0.75]
    # At the same moment the stream named first goes first.
    assert lags_s(two, [0.0, 0.0]) == [0.5, 0.5, 1.0, 1.0]


def test_a_stream_plays_its_recordings_one_after_another() -> None:
    # The second begins at 2 s, with arrivals at 3 and 4; the last step of the first ends at 3.5.
    found = lags_s([[recording(0.5, 1.5), recording(0.5, 0.5)]], [10.0])
    assert found == [0.5, 1.5, 1.0, 0.5]


def test_load_and_lag_grow_with_the_streams_and_the_seed_decides() -> None:
    made = [recording(0.1, 0.1, 0.1), recording(0.1, 0.1, 0.1, 0.1, 0.1)]
    alone, eight = serve(made, 1), serve(made, 8)
    assert alone.load == pytest.approx(0.1) and eight.load == pytest.approx(0.8)
    assert alone.p95 == 0.1
    assert eight.p95 > 0.1
    assert serve(made, 8) == eight
    assert serve(made, 8, seed=1) != eight


def test_the_capacity_is_the_most_streams_that_keep_up() -> None:
    made = [recording(*[0.1] * 20)]
    found = capacity(made, 0.3)
    assert found is not None and 1 <= found.n < 10  # a load of 1 is at 10
    assert found.p95 < 0.3
    more = serve(made, found.n + 1)
    assert more.p95 >= 0.3 or more.load >= 1
    # A step longer than the chunk keeps up with nothing; at a chunk of 2 s the limit is 1 s.
    assert capacity([recording(0.4, 0.4)], 0.3) is None
    assert capacity([recording(*[0.9] * 9)], 2.0) is not None
    assert capacity([recording(*[1.1] * 9)], 2.0) is None


def test_a_log_of_failures_and_one_of_shared_steps_have_no_streams(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run it again with batch=1"):
        recordings_of(a_cell(tmp_path / "a", 1, 1, 1, 1, batch=4))
    failed = a_cell(tmp_path / "b", 1, 1, 1, 1, status="failed", error="no sound")
    with pytest.raises(UserError, match="no utterance of the log succeeded"):
        recordings_of(failed)
