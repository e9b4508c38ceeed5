"""Which runs of the page differ in errors: every pair of the best, corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from streaming_asr.metrics.intervals import LEVEL, clusters, flip, holm, sums
from streaming_asr.score.document import Line, lines_of
from streaming_asr.score.results import Result

MOST = 8  # runs of a matrix


def matrix(results: Sequence[Result]) -> dict[str, Any] | None:
    """Return the differences in WER between the runs of one data, the best MOST of them in order.

    labels: of the runs. differences: by row and column, [points of the row less those of the
    column, whether p by Holm is below 0.05], None on the diagonal and where there is no test. None
    for fewer than two runs of the same utterances, and where their intervals were drawn over
    recordings, which utterances.jsonl does not name.
    """
    able = [each for each in results if each.metrics.get("wer") is not None and not each.is_odd]
    able = sorted(able, key=lambda each: each.or_last("wer"))[:MOST]
    lines = [sorted(lines_of(each.folder), key=lambda line: line.utt) for each in able]
    if len(able) < 2 or len({tuple(line.utt for line in of_run) for of_run in lines}) > 1:
        return None
    if not lines[0]:
        return None
    drawn = clusters([line.speaker for line in lines[0]], [None for _ in lines[0]])
    kinds = {(each.document.get("intervals") or {}).get("drawn") for each in able}
    if kinds != {drawn.kind} or len({_words(each) for each in lines}) > 1:
        return None
    words = sums([line.n_words for line in lines[0]], drawn)
    errors = [sums([line.errors for line in of_run], drawn) for of_run in lines]
    pairs = list(combinations(range(len(able)), 2))
    estimates = [flip(100 * (errors[a] - errors[b]), words) for a, b in pairs]
    adjusted = holm([None if each is None else each.p_value for each in estimates])
    table: list[list[list[float | bool] | None]] = [[None] * len(able) for _ in able]
    for (a, b), estimate, p_value in zip(pairs, estimates, adjusted, strict=True):
        if estimate is not None:
            is_sure = p_value is not None and p_value < 1 - LEVEL
            table[a][b] = [estimate.value, is_sure]
            table[b][a] = [-estimate.value, is_sure]
    return {"labels": [f"{r.label} {r.chunk}".strip() for r in able], "differences": table}


def _words(lines: Sequence[Line]) -> tuple[int, ...]:
    return tuple(line.n_words for line in lines)
