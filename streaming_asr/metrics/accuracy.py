"""Error rates: of the final text, and of what was displayed while the speaker spoke.

rapidfuzz counts the errors of final texts, as it does for jiwer. Every rate pools errors and
reference words over the corpus (micro average) and is None where there is no reference word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics.table import CLOCKS
from streaming_asr.metrics.trace import Trace, ratio
from streaming_asr.text.growing import Growing, Text, Words
from streaming_asr.text.normalise import Normaliser
from streaming_asr.text.units import joined

GRID_PER_S = 10  # arwer_grid looks at the screen every 100 ms


class Errors(NamedTuple):
    """Substitutions, deletions and insertions, and the reference words they are counted against."""

    errors: int
    words: int

    def percent(self) -> float | None:
        """Return the error rate in percent, None without reference words."""
        return ratio(self.errors, self.words, 100.0)


def total(counts: Sequence[Errors]) -> Errors:
    """Return the sum over utterances."""
    return Errors(sum(c.errors for c in counts), sum(c.words for c in counts))


def count(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    """Return the errors of two lists of units (or of two strings: of characters)."""
    return Errors(Levenshtein.distance(reference, hypothesis), len(reference))


def next_column(plus: int, minus: int, where: int, among: int) -> tuple[int, int, int]:
    """Return (plus, minus, straight) after one more word of the text: Myers' bit-parallel column
    (1999) over the words of a reference.

    Bit i of `plus` is set where the distance to i + 1 reference words is one more than that to i
    words, of `minus` where it is one less; of `straight` where it is that of i reference words and
    the text before. where: the bits of the word's places in the reference; among: all bits.
    """
    straight = (((where & plus) + plus) ^ plus) | where
    across_plus = minus | (among & ~(straight | plus))
    across_minus = plus & straight
    straight |= minus
    across_plus = (across_plus << 1 | 1) & among
    across_minus = across_minus << 1 & among
    where |= minus
    return across_minus | (among & ~(where | across_plus)), across_plus & where, straight


def places_of(words: Iterable[str]) -> dict[str, int]:
    """Return the bits of each word's places."""
    where: dict[str, int] = {}
    for i, word in enumerate(words):
        where[word] = where.get(word, 0) | 1 << i
    return where


class Distances:
    """Edit distances of a growing text to the beginnings of one reference.

    The columns of the text before are kept (`next_column`), so that only words behind the first
    change are computed.
    """

    MOST = 2_000  # columns that are kept; a text that changes before them begins again

    def __init__(self, reference: Sequence[str]) -> None:
        self._where = places_of(reference)
        self._all = (1 << len(reference)) - 1
        self._words: Words = Growing.of(())
        self._first = 0  # number of words before the first column that is kept
        self._columns = [(self._all, 0)]  # (plus, minus), after `_first` words and on

    def to_first(self, n: int, words: Words) -> int:
        """Return the distance of `words` to the first `n` words of the reference."""
        n_same = words.shared(self._words)
        if n_same < self._first:
            n_same, self._first, self._columns = 0, 0, [(self._all, 0)]
        del self._columns[n_same - self._first + 1 :]
        plus, minus = self._columns[-1]
        for word in words.behind(n_same):
            plus, minus, _ = next_column(plus, minus, self._where.get(word, 0), self._all)
            self._columns.append((plus, minus))
        if len(self._columns) > 2 * self.MOST:
            self._first += self.MOST
            del self._columns[: self.MOST]
        self._words = words
        among = (1 << n) - 1
        return len(words) + (plus & among).bit_count() - (minus & among).bit_count()


def word_errors(trace: Trace, normalise: Normaliser) -> Errors:
    """Return the errors of WER, those of the normalised committed text after the last step."""
    return count(normalise.words(trace.reference), normalise.words(trace.hypothesis))


def character_errors(trace: Trace, normalise: Normaliser) -> Errors:
    """Return the errors of characters and of the single spaces between words (as jiwer.cer); a
    language without spaces has none."""
    between = " " if trace.unit == "word" else ""
    reference, hypothesis = (
        between.join(normalise.words(text)) for text in (trace.reference, trace.hypothesis)
    )
    return count(reference, hypothesis)


def formatted_word_errors(trace: Trace) -> Errors:
    """Return the errors of the language's units as written: case and punctuation must be right."""
    return count(trace.units(trace.reference), trace.units(trace.hypothesis))


def real_time_word_errors(
    trace: Trace, normalise: Normaliser, *, committed: bool = False
) -> Errors:
    """Return the errors of RWER: the sum over all steps of the errors of the displayed words
    against equally many first words of the reference.

    sum_k ED(ref[:len D_k], D_k) over sum_k len(ref[:len D_k]), both normalised first. A method that
    outputs nothing has no reference word to count and so no RWER (None), not 0. committed: take
    the committed text, without the partial one.
    """
    reference = normalise.words(trace.reference)
    distances = Distances(reference)
    errors = words = 0
    text_before, of_step = None, Errors(0, 0)
    for text in _texts(trace, committed):
        if text != text_before:  # most steps change nothing on screen, yet each counts
            display = trace.words_by(normalise.rules, text)
            n = min(len(display), len(reference))
            of_step = Errors(distances.to_first(n, display), n)
            text_before = text
        errors += of_step.errors
        words += of_step.words
    return Errors(errors, words)


class AlignedWordErrors:
    """ARWER of one utterance: the display against the words spoken by then.

    The reference at time t is the words whose end is strictly before t, normalised apart from the
    display. Raises ValueError for an utterance without word times.
    """

    def __init__(self, trace: Trace, normalise: Normaliser) -> None:
        if trace.words is None:
            raise ValueError(f"{trace.utt} has no word times; aligned errors need them")
        self._trace = trace
        self._normalise = normalise
        self._words = trace.words
        self._ends = sorted(word.end for word in trace.words)
        texts = [word.text for word in trace.words]
        self._all_spoken = joined(texts, trace.unit)
        self._spoken_ends = [0]  # where each first so many words end
        for text in texts:
            end = self._spoken_ends[-1]
            has_blank = bool(end) and not self._all_spoken.startswith(text, end)
            self._spoken_ends.append(end + has_blank + len(text))
        self._distances = Distances(self._spoken(len(texts)).all())
        self._ended: dict[int, Words] = {}  # normalised, by the number of words that have ended

    def per_step(self, clock: str, *, committed: bool = False) -> Errors:
        """Return the errors at the time of each step: a_k on "cu" (the paper), f_k on "ca"."""
        counts = self._committed if committed else self._displayed
        return total([counts[pair] for pair in self._steps(clock)])

    def on_grid(self, clock: str) -> Errors:
        """Return the errors of the display every 100 ms from 0.1 s to the end of the audio,
        whatever the chunk.

        The display at t is the last one at or before t. A word that is late is missing until it is
        shown, and counts as a deletion at each of these times.
        """
        return total([self._displayed[pair] for pair in self._grid(clock)])

    def _steps(self, clock: str) -> Iterator[tuple[int, int]]:
        """Yield (step, number of words that ended before its time) for each step."""
        for k, t in enumerate(self._trace.times(clock)):
            yield k, bisect_left(self._ends, t)

    def _grid(self, clock: str) -> Iterator[tuple[int, int]]:
        """Yield (step, number of words that ended) for each point of the grid; -1 before the first
        step."""
        times = self._trace.times(clock)
        n_steps = 0  # that happened by t
        # A duration of whole ticks, counted in samples, may be just below it as a float.
        n_ticks = int(self._trace.duration_s * GRID_PER_S + 1e-6)
        for tick in range(1, n_ticks + 1):
            t = tick / GRID_PER_S
            while n_steps < len(times) and times[n_steps] <= t:
                n_steps += 1
            yield n_steps - 1, bisect_left(self._ends, t)

    @cached_property
    def _displayed(self) -> dict[tuple[int, int], Errors]:
        """The errors of each pair of `_steps` and `_grid`, on both clocks."""
        pairs = (self._steps, self._grid)
        return self._counts(False, chain.from_iterable(of(c) for of in pairs for c in CLOCKS))

    @cached_property
    def _committed(self) -> dict[tuple[int, int], Errors]:
        return self._counts(True, chain.from_iterable(map(self._steps, CLOCKS)))

    def _counts(
        self, committed: bool, pairs: Iterable[tuple[int, int]]
    ) -> dict[tuple[int, int], Errors]:
        """Return the errors of each pair, in the order of the steps: each text is normalised once,
        and its columns go on from the text before."""
        texts = _texts(self._trace, committed)
        counts: dict[tuple[int, int], Errors] = {}
        display: Words = Growing.of(())
        text_before: Text | None = None
        for k, n_ended in sorted(set(pairs)):
            if k >= 0 and texts[k] != text_before:
                text_before = texts[k]
                display = self._trace.words_by(self._normalise.rules, text_before)
            counts[k, n_ended] = self._errors(n_ended, display)
        return counts

    def _spoken(self, n: int) -> Words:
        """Return the first `n` words of the reference, normalised."""
        text = Growing(self._all_spoken, self._spoken_ends[n], "")
        return self._trace.words_by(self._normalise.rules, text)

    def _errors(self, n_ended: int, display: Words) -> Errors:
        """Return the errors of the display against the first `n_ended` words."""
        if n_ended not in self._ended:
            self._ended[n_ended] = self._spoken(n_ended)
        spoken = self._ended[n_ended]
        errors = self._distances.to_first(spoken.n, display)
        if spoken.rest:  # as the end of a number that goes on; the hint is for speed only
            hint = errors + len(spoken.rest)
            errors = Levenshtein.distance(spoken.all(), display.all(), score_hint=hint)
        return Errors(errors, len(spoken))


def aligned(trace: Trace) -> AlignedWordErrors:
    """Return the aligned errors of a trace by its own normaliser, computed once."""
    if "aligned" not in trace.derived:
        trace.derived["aligned"] = AlignedWordErrors(trace, trace.normalise)
    errors: AlignedWordErrors = trace.derived["aligned"]
    return errors


def _texts(trace: Trace, committed: bool) -> list[Text]:
    return [step.committed_text if committed else step.displayed_text for step in trace.steps]
