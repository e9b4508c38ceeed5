"""B-WER and U-WER: the errors of the words on an utterance's list, and those of all others.

As Le et al. 2021 (arXiv 2104.02194) count them in fbai-speech, is21_deep_bias: an inserted word
counts by its own spelling, any other error by the reference word. The alignment is theirs too, so
that the two may share a few more errors than WER counts.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from streaming_asr.metrics.accuracy import Errors
from streaming_asr.metrics.trace import Trace, ratio

RATES = ("b_wer", "u_wer")
COLUMNS = ("wer", *RATES)
GAP, SUBSTITUTION = 3, 4  # costs of the alignment; an equal pair costs nothing


def figures(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return both rates over a corpus, None where no utterance has a list."""
    values: dict[str, float | None] = {}
    for name in RATES:
        counts = [pairs(trace)[name] for trace in traces]
        values[name] = ratio(sum(c.errors for c in counts), sum(c.words for c in counts), 100.0)
    return values


def pairs(trace: Trace) -> dict[str, Errors]:
    """Return a trace's errors and words for each rate, computed once; zeros without a list."""
    if "biasing" not in trace.derived:
        counts = (Errors(0, 0), Errors(0, 0))
        if trace.biasing is not None:
            words = trace.normalise.words
            listed = {word for entry in trace.biasing for word in words(entry)}
            counts = biased_errors(words(trace.reference), words(trace.hypothesis), listed)
        trace.derived["biasing"] = dict(zip(RATES, counts, strict=True))
    of_trace: dict[str, Errors] = trace.derived["biasing"]
    return of_trace


def biased_errors(
    reference: Sequence[str], hypothesis: Sequence[str], listed: Set[str]
) -> tuple[Errors, Errors]:
    """Return the errors and the reference words of those that are `listed`, and of the others."""
    wrong = []
    for i, j in _aligned(reference, hypothesis):
        if i is not None and (j is None or reference[i] != hypothesis[j]):
            wrong.append(reference[i])
        elif i is None and j is not None:
            wrong.append(hypothesis[j])
    n_listed = sum(word in listed for word in reference)
    n_wrong = sum(word in listed for word in wrong)
    return Errors(n_wrong, n_listed), Errors(len(wrong) - n_wrong, len(reference) - n_listed)


def _aligned(
    reference: Sequence[str], hypothesis: Sequence[str]
) -> list[tuple[int | None, int | None]]:
    """Return the pairs of word numbers of the cheapest alignment, the last first; None: no partner.

    Of equally cheap ones, read from the end, a pair is preferred, then an insertion.
    """
    n, m = len(reference), len(hypothesis)
    ids = {word: number for number, word in enumerate(dict.fromkeys([*reference, *hypothesis]))}
    written = np.array([ids[word] for word in hypothesis], dtype=np.int64)
    gaps = GAP * np.arange(m + 1)
    row = gaps
    choices = np.zeros((n + 1, m + 1), dtype=np.int8)  # 0: a pair, 1: an insertion, 2: a deletion
    choices[0] = 1
    for i, word in enumerate(reference, start=1):
        deleted = row + GAP
        paired = row[:-1] + np.where(written == ids[word], 0, SUBSTITUTION)
        best = deleted.copy()
        np.minimum(best[1:], paired, out=best[1:])
        # row[j] = min(best[j], row[j - 1] + GAP): a running minimum of what is without the gaps.
        row = np.minimum.accumulate(best - gaps) + gaps
        choices[i] = 2
        choices[i, 1:][row[:-1] + GAP == row[1:]] = 1
        choices[i, 1:][paired == row[1:]] = 0
    aligned: list[tuple[int | None, int | None]] = []
    i, j = n, m
    while i or j:
        choice = choices[i, j]
        i, j = i - (choice != 1), j - (choice != 2)
        aligned.append((None if choice == 1 else i, None if choice == 2 else j))
    return aligned
