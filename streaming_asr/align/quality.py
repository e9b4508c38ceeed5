"""How good an alignment is: words placed, and their errors where true times are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streaming_asr.align.result import Aligned, is_timed
from streaming_asr.corpora.alignments import match
from streaming_asr.text.units import unit_of, written_units

LONG_S = 2.0
N_REASONS = 10


@dataclass(frozen=True)
class Quality:
    """The figures of a report. Errors are over starts and ends; None without true times."""

    n_utterances: int
    n_aligned: int
    n_words: int
    n_placed: int
    n_long: int
    n_compared: int
    n_untimed: int
    tolerance_ms: float
    reasons: tuple[str, ...]
    median_ms: float | None = None
    start_median_ms: float | None = None
    end_median_ms: float | None = None
    mean_ms: float | None = None
    p95_ms: float | None = None
    within: float | None = None  # percent

    @property
    def placed(self) -> float:
        """Return the share of the words that have a time, percent."""
        return 100 * self.n_placed / max(1, self.n_words)


def measure(results: Sequence[Aligned], tolerance_s: float) -> Quality:
    """Return the quality of all `results`. The true times are those of the utterances' `words`.

    A word counts as placed if its end is after its start and it does not overlap the word before.
    tolerance_s: the error up to which a start or an end counts as `within`.
    """
    n_words = n_placed = n_long = n_untimed = 0
    start_errors_s: list[float] = []
    end_errors_s: list[float] = []
    for result in results:
        utterance = result.utterance
        unit = unit_of(utterance.language)
        n_words += len(written_units(utterance.text, unit))
        if result.words is None:
            continue
        before_s = 0.0
        n_untimed += sum(not is_timed(word) for word in result.words)
        for word in filter(is_timed, result.words):
            n_placed += word.end > word.start >= before_s - 1e-6
            n_long += word.end - word.start > LONG_S
            before_s = max(before_s, word.end)
        true_words = match(utterance.text, utterance.words or (), unit) or ()
        if [word.text for word in true_words] != [word.text for word in result.words]:
            continue  # no true times, or those of another text
        for word, true in zip(result.words, true_words, strict=True):
            if is_timed(word):
                start_errors_s.append(word.start - true.start)
                end_errors_s.append(word.end - true.end)
    errors_ms = 1000 * np.abs(np.array([start_errors_s, end_errors_s]))  # (2, words)
    figures: dict[str, float] = {}
    if start_errors_s:
        start_ms, end_ms = map(float, np.median(errors_ms, axis=1))
        figures = {
            "median_ms": float(np.median(errors_ms)),
            "start_median_ms": start_ms,
            "end_median_ms": end_ms,
            "mean_ms": float(errors_ms.mean()),
            "p95_ms": float(np.percentile(errors_ms, 95)),
            "within": float(100 * (errors_ms <= 1000 * tolerance_s + 1e-6).mean()),
        }
    return Quality(
        n_utterances=len(results),
        n_aligned=sum(result.words is not None for result in results),
        n_words=n_words,
        n_placed=n_placed,
        n_long=n_long,
        n_compared=len(start_errors_s),
        n_untimed=n_untimed,
        tolerance_ms=1000 * tolerance_s,
        reasons=tuple(result.reason for result in results if result.words is None),
        **figures,
    )


def lines(quality: Quality) -> Iterator[str]:
    """Yield the lines of the report, with the first ten failures."""
    q = quality
    yield f"  utterances  {q.n_aligned} of {q.n_utterances} aligned"
    yield f"  words       {q.n_placed} of {q.n_words} placed ({q.placed:.1f} %)"
    if q.n_untimed:
        yield (
            f"  untimed     {q.n_untimed} words are not in the aligner's dictionary; aligner.g2p= "
            "names a model that pronounces them. Their utterances are used without word times"
        )
    if q.n_long:
        yield f"  longer than {LONG_S:g} s: {q.n_long} words; listen to them"
    if q.median_ms is None:
        yield "  error       the corpus has no word times of its own to compare with"
    else:
        yield (
            f"  error       median {q.median_ms:.0f} ms (starts {q.start_median_ms:.0f}, ends "
            f"{q.end_median_ms:.0f}), mean {q.mean_ms:.0f}, 95th percentile {q.p95_ms:.0f}; "
            f"{q.within:.1f} % within {q.tolerance_ms:g} ms; {q.n_compared} words"
        )
    more = [f"and {len(q.reasons) - N_REASONS} more"] if len(q.reasons) > N_REASONS else []
    for reason in (*q.reasons[:N_REASONS], *more):
        yield f"  failed      {reason}"
