"""Which runs of the page differ in errors: every pair of the best, corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from streaming_asr.metrics.intervals import LEVEL, clusters, flip, holm, sums
from streaming_asr.score.document import lines_of
from streaming_asr.score.results import Result

MOST = 8  # runs of a matrix


def matrix(results: Sequence[Result]) -> dict[str, Any] | None:
    """Return the differences in WER between the MOST best runs of one data, the best first.

    labels: of the runs. differences: by row and column, [WER of the row minus that of the column in
    points, whether p by Holm is below 0.05], None on the diagonal and without a test. The result is
    None for fewer than two runs, for runs of different utterances or reference words, and if their
    intervals were drawn over recordings, which utterances.jsonl does not name.
    """
    runs = [each for each in results if each.metrics.get("wer") is not None and not each.is_odd]
    runs = sorted(runs, key=lambda each: each.or_last("wer"))[:MOST]
    lines = [sorted(lines_of(run.folder), key=lambda line: line.utt) for run in runs]
    references = {tuple((line.utt, line.n_words) for line in of_run) for of_run in lines}
    if len(runs) < 2 or len(references) > 1 or not lines[0]:
        return None
    drawn = clusters([line.speaker for line in lines[0]], [None for _ in lines[0]])
    kinds = {(run.document.get("intervals") or {}).get("drawn") for run in runs}
    if kinds != {drawn.kind}:
        return None
    words = sums([line.n_words for line in lines[0]], drawn)
    errors = [sums([line.errors for line in of_run], drawn) for of_run in lines]
    pairs = list(combinations(range(len(runs)), 2))
    estimates = [flip(100 * (errors[a] - errors[b]), words) for a, b in pairs]
    adjusted = holm([None if each is None else each.p_value for each in estimates])
    table: list[list[list[float | bool] | None]] = [[None] * len(runs) for _ in runs]
    for (a, b), estimate, p_value in zip(pairs, estimates, adjusted, strict=True):
        if estimate is not None:
            is_significant = p_value is not None and p_value < 1 - LEVEL
            table[a][b] = [estimate.value, is_significant]
            table[b][a] = [-estimate.value, is_significant]
    return {"labels": [f"{run.label} {run.chunk}".strip() for run in runs], "differences": table}
