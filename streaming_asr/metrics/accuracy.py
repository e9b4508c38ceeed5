"""Error rates: of the final text, and of what was displayed while the speaker spoke.

jiwer counts the errors of final texts. What was displayed is counted by rapidfuzz, with which jiwer
counts too: there are many displays, and jiwer's alignment would take 40 times as long. Every rate
pools errors and reference words over the corpus (micro average) and is None where there is no
reference word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics.trace import Text, Trace, ratio
from streaming_asr.text.normalise import Normaliser
from streaming_asr.text.tokens import common_prefix
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
    import jiwer

    counts: jiwer.WordOutput | jiwer.CharacterOutput
    if isinstance(reference, str):
        counts = jiwer.process_characters(reference, str(hypothesis))
    else:
        counts = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
    return Errors(counts.substitutions + counts.deletions + counts.insertions, len(reference))


class Distances:
    """Edit distances of a growing text to the beginnings of one reference.

    Myers' bit-parallel columns (1999) over the whole reference, one for each word of the text: bit
    i of `plus` is set where the distance to i + 1 reference words is one more than that to i words,
    of `minus` where it is one less. The columns of the text before are kept, so that only words
    behind the first change are computed.
    """

    MOST = 2_000  # columns that are kept; a text that changes before them begins again

    def __init__(self, reference: Sequence[str]) -> None:
        self._where: dict[str, int] = {}  # the bits of a word's places in the reference
        for i, word in enumerate(reference):
            self._where[word] = self._where.get(word, 0) | 1 << i
        self._all = (1 << len(reference)) - 1
        self._words: tuple[str, ...] = ()
        self._first = 0  # number of words before the first column that is kept
        self._columns = [(self._all, 0)]  # (plus, minus), after `_first` words and on

    def to_first(self, n: int, words: tuple[str, ...]) -> int:
        """Return the distance of `words` to the first `n` words of the reference."""
        n_same = common_prefix(words, self._words)
        if n_same < self._first:
            n_same, self._first, self._columns = 0, 0, [(self._all, 0)]
        del self._columns[n_same - self._first + 1 :]
        plus, minus = self._columns[-1]
        for word in words[n_same:]:
            where = self._where.get(word, 0)
            straight = (((where & plus) + plus) ^ plus) | where
            across_plus = minus | (self._all & ~(straight | plus))
            across_minus = plus & straight
            across_plus = (across_plus << 1 | 1) & self._all
            across_minus = across_minus << 1 & self._all
            where |= minus
            plus = across_minus | (self._all & ~(where | across_plus))
            minus = across_plus & where
            self._columns.append((plus, minus))
        if len(self._columns) > 2 * self.MOST:
            self._first += self.MOST
            del self._columns[: self.MOST]
        self._words = words
        among = (1 << n) - 1
        return len(words) + (plus & among).bit_count() - (minus & among).bit_count()


def _distance(reference: Sequence[str], display: Sequence[str]) -> Errors:
    return Errors(Levenshtein.distance(reference, display), len(reference))


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
            display = normalise.words(str(text))
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
        # Steps and grid points share many texts: every pair is normalised and aligned once.
        self._counts: dict[tuple[int, Text], Errors] = {}
        texts = [word.text for word in trace.words]
        self._all_spoken = joined(texts, trace.unit)
        # Where each first so many words end. Characters may join: their texts are made one by one.
        self._spoken_ends = list(accumulate((len(text) + 1 for text in texts), initial=0))
        self._reference = normalise.words(self._all_spoken)
        self._distances = Distances(self._reference)
        # By the number of words that have ended: their normalised words, or only how many they are
        # where these are the reference's first ones.
        self._ended: dict[int, int | tuple[str, ...]] = {}

    def per_step(self, clock: str, *, committed: bool = False) -> Errors:
        """Return the errors at the time of each step: a_k on "cu" (the paper), f_k on "ca"."""
        texts = _texts(self._trace, committed)
        times = self._trace.times(clock)
        return total([self._at(t, text) for t, text in zip(times, texts, strict=True)])

    def on_grid(self, clock: str) -> Errors:
        """Return the errors of the display every 100 ms from 0.1 s to the end of the audio,
        whatever the chunk.

        The display at t is the last one at or before t. A word that is late is missing until it is
        shown, and counts as a deletion at each of these times.
        """
        texts = _texts(self._trace, False)
        times = self._trace.times(clock)
        nothing = Text.of("", texts[0].whole if texts else "")
        counts = []
        n_steps = 0  # that happened by t
        # A duration of whole ticks, counted in samples, may be just below it as a float.
        n_ticks = int(self._trace.duration_s * GRID_PER_S + 1e-6)
        for tick in range(1, n_ticks + 1):
            t = tick / GRID_PER_S
            while n_steps < len(times) and times[n_steps] <= t:
                n_steps += 1
            counts.append(self._at(t, texts[n_steps - 1] if n_steps else nothing))
        return total(counts)

    def _spoken(self, n: int) -> str:
        """Return the first `n` words of the reference as one text."""
        if self._trace.unit == "word":
            return self._all_spoken[: max(self._spoken_ends[n] - 1, 0)]
        return joined((word.text for word in self._words[:n]), self._trace.unit)

    def _at(self, t: float, text: Text) -> Errors:
        """Return the errors of the displayed `text` against the words that ended before `t` s."""
        n_ended = bisect_left(self._ends, t)
        key = (n_ended, text)
        if key not in self._counts:
            display = self._normalise.words(str(text))
            if n_ended not in self._ended:
                words = self._normalise.words(self._spoken(n_ended))
                is_first = words == self._reference[: len(words)]
                self._ended[n_ended] = len(words) if is_first else words
            spoken = self._ended[n_ended]
            if isinstance(spoken, int):
                self._counts[key] = Errors(self._distances.to_first(spoken, display), spoken)
            else:
                self._counts[key] = _distance(spoken, display)
        return self._counts[key]


def _texts(trace: Trace, committed: bool) -> list[Text]:
    return [step.committed_text if committed else step.displayed_text for step in trace.steps]
