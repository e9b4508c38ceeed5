"""The Pareto front of runs: fewest word errors against soonest words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.score.results import Result

LATENCY = "word_latency_committed_p50_{}_s"  # on the clock "ca" or "cu"
FRONT = (LATENCY.format("ca"), "wer")  # the axes of the Pareto front


def clock_of(results: Sequence[Result]) -> str:
    """Return the clock on which these runs have latencies: "ca", with compute; or "cu", audio only,
    if no log has compute times."""

    def has_latency(clock: str) -> bool:
        return any(result.metrics.get(LATENCY.format(clock)) is not None for result in results)

    return "cu" if has_latency("cu") and not has_latency("ca") else "ca"


def front(results: Sequence[Result], clock: str = "ca") -> dict[Path, bool]:
    """Return, by folder, whether a run is on the Pareto front of WER and latency: no other run of
    the same data is lower in one and no higher in the other. Runs without WER or latency and odd
    ones are left out."""
    is_on_front: dict[Path, bool] = {}
    for split in {result.split for result in results}:
        points: dict[Path, tuple[float, float]] = {}
        for result in results:
            point = place(result, clock)
            if result.split == split and not result.is_odd and point is not None:
                points[result.folder] = point
        for folder, (latency, wer) in points.items():
            is_on_front[folder] = not any(
                other_latency <= latency
                and other_wer <= wer
                and (other_latency, other_wer) != (latency, wer)
                for other_latency, other_wer in points.values()
            )
    return is_on_front


def ceiling(results: Sequence[Result], axis: int = 1, clock: str = "ca") -> float | None:
    """Return the end of an axis of the figure, so that a few runs far above the rest do not stretch
    it: these are drawn at its edge, with their number. None: draw all runs in place.

    axis: 1 for WER (%), 0 for latency (s), which a busy machine makes long.
    """
    points = [place(result, clock) for result in results]
    values = sorted(point[axis] for point in points if point is not None)
    if len(values) < 4:  # of three runs none is clearly apart from the rest
        return None
    # The third quartile, which a few high runs do not raise.
    end = 1.5 * values[(3 * len(values) - 1) // 4]
    return end if values[-1] > 1.5 * end > 0 else None


def place(result: Result, clock: str = "ca") -> tuple[float, float] | None:
    """Return (latency in s, WER in %) of a run; None if it lacks one of them."""
    latency, wer = result.metrics.get(LATENCY.format(clock)), result.metrics.get("wer")
    return None if latency is None or wer is None else (latency, wer)
