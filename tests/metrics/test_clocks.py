from __future__ import annotations

import math

import numpy as np
import pytest

from streaming_asr.events.log import Step
from streaming_asr.metrics import clocks


def step(audio_samples: int = 0, wall_ns: int = 0, **fields: object) -> Step:
    return Step("audio", audio_samples, {"wall": wall_ns}, **fields)  # type: ignore[arg-type]


SLOW = [step(16_000 * k, 1_500_000_000) for k in (1, 2, 3, 4)]  # 1 s chunks, 1.5 s compute


@pytest.mark.parametrize(
    ("clock", "times_s"),
    [
        ("cu", [1.0, 2.0, 3.0, 4.0]),
        ("ca", [2.5, 4.0, 5.5, 7.0]),
        ("simuleval", [2.5, 5.0, 7.5, 10.0]),
        ("fbk", [2.5, 3.5, 4.5, 5.5]),
    ],
)
def test_one_second_chunks_with_a_second_and_a_half_of_compute(
    clock: str, times_s: list[float]
) -> None:
    assert clocks.step_times(SLOW, clock).tolist() == times_s


def test_the_queue_empties_and_fills_again() -> None:
    a = np.array([1.0, 2.0, 3.0, 6.0, 6.5])
    c = np.array([1.75, 0.5, 0.5, 1.0, 0.25])
    assert clocks.fifo(a, c).tolist() == [2.75, 3.25, 3.75, 7.0, 7.25]
    assert clocks.queue_wait(a, c).tolist() == [0.0, 0.75, 0.25, 0.0, 0.5]


def test_the_closed_form_equals_the_recursion() -> None:
    rng = np.random.default_rng(0)
    a, c = np.cumsum(rng.uniform(0, 1, 500)), rng.uniform(0, 1.1, 500)
    f, expected = 0.0, []
    for arrival, compute in zip(a, c, strict=True):
        f = max(arrival, f) + compute
        expected.append(f)
    np.testing.assert_allclose(clocks.fifo(a, c), expected, rtol=1e-12)


def test_without_compute_both_clocks_agree() -> None:
    a = np.array([0.6, 0.9, 1.0])
    assert clocks.fifo(a, np.zeros(3)).tolist() == a.tolist()


def test_no_steps_give_no_times() -> None:
    assert clocks.step_times([], "ca").tolist() == []
    assert clocks.queue_wait(np.zeros(0), np.zeros(0)).tolist() == []


def test_a_queue_that_loses_half_a_second_per_second_grows_by_a_half() -> None:
    a, c = clocks.audio_times(SLOW * 1), clocks.compute_times(SLOW)
    assert clocks.queue_wait(a, c).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert clocks.queue_growth(a, c) == 0.5


def test_one_late_chunk_is_no_growth() -> None:
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
def test_a_shorter_last_piece_is_a_wait_and_no_growth(
    last_s: tuple[float, ...], room: float, n: int, first_s: float
) -> None:
    a = np.cumsum([first_s, *[1.0] * (n - 1), *last_s])
    c = np.full(len(a), 0.08)
    assert clocks.whole_steps(a) == n
    assert clocks.queue_growth(a, c) == 0.0
    assert clocks.headroom([(a, c)]) == pytest.approx(room, rel=2e-3)


def test_a_queue_that_grows_is_seen_whatever_the_last_piece() -> None:
    a, c = np.arange(1.0, 9.0), np.full(9, 1.5)
    for last_s in (0.011, 0.5, 1.0):
        assert clocks.queue_growth(np.append(a, 8.0 + last_s), c) == pytest.approx(0.5)


def test_headroom_is_the_chunk_over_its_compute() -> None:
    a, c = 0.3 * np.arange(1, 201), np.full(200, 0.03)
    assert clocks.headroom([(a, c)]) == pytest.approx(10.0, rel=2e-3)
    assert clocks.headroom([(a, c), (a, 4 * c)]) == pytest.approx(2.5, rel=2e-3)


def test_headroom_ends_where_one_wait_passes_the_budget() -> None:
    a, c = np.arange(1.0, 41.0), np.full(40, 0.01)
    c[20] = 1.0  # at a slowdown of s the next chunk waits s - 1 seconds
    assert clocks.headroom([(a, c)], budget_s=1.0) == pytest.approx(2.0, rel=1e-3)
    assert clocks.headroom([(a, c)], budget_s=0.5) == pytest.approx(1.5, rel=1e-3)


def test_headroom_is_below_one_where_the_machine_does_not_keep_up() -> None:
    a, c = np.arange(1.0, 41.0), np.full(40, 1.25)
    assert clocks.headroom([(a, c)]) == pytest.approx(0.8, rel=2e-3)


def test_headroom_is_infinite_where_nothing_takes_time() -> None:
    assert clocks.headroom([(np.arange(1.0, 9.0), np.zeros(8))]) == math.inf


def test_the_median_trace_is_taken_step_by_step() -> None:
    traces = [np.array([1.0, 5.0]), np.array([3.0, 1.0]), np.array([2.0, 9.0])]
    assert clocks.median_trace(traces).tolist() == [2.0, 5.0]
