"""The Pareto front of runs: fewest word errors against soonest words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.score.results import Result

LATENCY = "word_latency_committed_p50_{}_s"  # on the clock "ca" or "cu"
FRONT = (LATENCY.format("ca"), "wer")  # the axes of the Pareto front


def clock_of(results: Sequence[Result]) -> str:
    """Return the clock on which these runs have latencies: "ca", with compute; "cu", audio only,
    where no log knows how long computing took."""
    has = {
        clock: any(result.metrics.get(LATENCY.format(clock)) is not None for result in results)
        for clock in ("ca", "cu")
    }
    return "cu" if has["cu"] and not has["ca"] else "ca"


def front(results: Sequence[Result], clock: str = "ca") -> dict[Path, bool]:
    """Return, by folder, whether no other run of the same data is lower in WER or latency and no
    higher in the other; of the cells that have both and can be compared."""
    is_on_front: dict[Path, bool] = {}
    for split in {result.split for result in results}:
        points = {
            result.folder: point
            for result in results
            if result.split == split
            and not result.is_odd
            and (point := place(result, clock)) is not None
        }
        for folder, (x, y) in points.items():
            is_on_front[folder] = not any(
                a <= x and b <= y and (a, b) != (x, y) for a, b in points.values()
            )
    return is_on_front


def ceiling(results: Sequence[Result], axis: int = 1, clock: str = "ca") -> float | None:
    """Return where an axis ends so that a few runs far beyond the rest do not stretch it: those are
    drawn at its edge, with their number. None means that all are drawn in place.

    axis: 1 for WER (%), 0 for latency (s), which a busy machine makes long.
    """
    rates = sorted(point[axis] for result in results if (point := place(result, clock)) is not None)
    # Of three runs none can be told to lie far above the rest.
    if len(rates) < 4:
        return None
    # From most of them, so that one high run alone does not make room for itself.
    top = 1.5 * rates[(3 * len(rates) - 1) // 4]
    return top if rates[-1] > 1.5 * top > 0 else None


def place(result: Result, clock: str = "ca") -> tuple[float, float] | None:
    """Return where a cell lies between latency (s) and WER (%)."""
    x, y = (result.metrics.get(name) for name in (LATENCY.format(clock), "wer"))
    return None if x is None or y is None else (x, y)
