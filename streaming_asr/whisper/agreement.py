"""LocalAgreement-n (Liu et al. 2020, Macháček et al. 2023): final is what n hypotheses agree on.

The recogniser below is anybody's: each step hands over its newest hypothesis of the audio in the
buffer, as words, and gets back the words that became final. The first words of a hypothesis are
those committed before, as long as their audio is in the buffer; finding where they end is half of
the work, since the recogniser moves, respells and repeats them.

`LocalAgreement` aligns the hypothesis with the committed words by edit distance over their
letters; times only break ties. A numeral is compared as it is spoken, since a model writes the same
number in words and in digits by turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from streaming_asr.method import Word
from streaming_asr.text.numerals import NUMBER_WORDS, in_digits, readings, spoken
from streaming_asr.text.tokens import common_prefix


def key(text: str) -> str:
    """Return the part of a word that must agree: its letters and digits, whatever their case.

    A word of neither (a dash, a note) is compared as it is.
    """
    return "".join(c for c in text.casefold() if c.isalnum()) or text.strip()


def n_said(hypothesis: Sequence[Word], committed: Sequence[Word]) -> int:
    """Return how many words at the hypothesis' start are the committed ones, repeated.

    The prefix of the smallest edit distance to them; among equals one that ends with the same
    word, then the one that leaves the least time of words on the wrong side of where that ended.
    """
    old, new = [key(w.text) for w in committed], [key(w.text) for w in hypothesis]
    # Nearly always; the edit distance is for the rest.
    if new[: len(old)] == old:
        return len(old)
    costs = _distances(old, new)
    least = min(costs)
    border_s = committed[-1].end

    def rank(k: int) -> tuple[bool, float, int, int]:
        wrong_s = 0.0
        if border_s is not None:
            if k and (end := hypothesis[k - 1].end) is not None:
                wrong_s += max(0.0, end - border_s)
            if k < len(new) and (start := hypothesis[k].start) is not None:
                wrong_s += max(0.0, border_s - start)
        other_end = k == 0 or new[k - 1] != old[-1]
        return other_end, wrong_s, abs(k - len(old)), -k

    return min((k for k, cost in enumerate(costs) if cost == least), key=rank)


def _distances(words: Sequence[str], new: Sequence[str]) -> list[int]:
    """Return the edit distances of `words` to every prefix of `new`."""
    costs = list(range(len(new) + 1))
    for i, word in enumerate(words, start=1):  # one row of the table at a time
        diagonal, costs[0] = costs[0], i
        for j, other in enumerate(new, start=1):
            change = diagonal + (word != other)
            diagonal = costs[j]
            costs[j] = min(change, costs[j] + 1, costs[j - 1] + 1)
    return costs


def unsaid(hypothesis: Sequence[Word], committed: Sequence[Word]) -> list[Word]:
    """Return the words of the hypothesis after the committed ones.

    Where it writes a number otherwise than the committed words do, the two are compared as they are
    spoken: after "one thousand two" a hypothesis "$1,234" goes on with "hundred thirty four
    dollars". Where this finds no better agreement than `n_said`, that place is used.
    """
    n = n_said(hypothesis, committed) if committed else 0
    keys, new = [key(w.text) for w in committed], [key(w.text) for w in hypothesis]
    if new[:n] == keys or not any(readings(word.text) for word in (*committed, *hypothesis)):
        return list(hypothesis[n:])
    # A committed numeral is read in one way, the same for all of them.
    ways = [readings(word.text) or [spoken(word.text)] for word in committed]
    least, rest = min(_distances(keys, new)), list(hypothesis[n:])
    for i in range(max(map(len, ways))):
        old = _without_and([unit for way in ways for unit in way[min(i, len(way) - 1)]])
        ends_in_digits = bool(readings(committed[-1].text))
        costs, cost, place = _spoken_place(hypothesis, old, ends_in_digits)
        if cost < min(least, costs[n]):
            least, rest = cost, place
    return rest


def _spoken_place(
    hypothesis: Sequence[Word], old: Sequence[str], ends_in_digits: bool
) -> tuple[list[int], int, list[Word]]:
    """Return the edit distance of `old`, spoken words, to each whole prefix of the hypothesis, the
    least to any prefix, which may end inside a numeral, and the words after that one.

    ends_in_digits: the rest of a numeral that is read digit by digit is written in digits.
    """
    row = list(range(len(old) + 1))  # of what was read so far to each prefix of `old`
    costs, least, rest = [row[-1]], row[-1], list(hypothesis)
    for k, word in enumerate(hypothesis):
        rows = []
        numerals = readings(word.text)
        for way in numerals or [spoken(word.text)]:
            reached = row
            for n_read, unit in enumerate(way, start=1):
                reached = _after(reached, unit, old)
                if numerals and n_read < len(way) and reached[-1] < least:
                    least = reached[-1]
                    written = in_digits(way) if ends_in_digits else way
                    rest = [*_rest_of(word, written, n_read), *hypothesis[k + 1 :]]
            rows.append(reached)
            ends_alike = way[-1:] == old[-1:]
        row = [min(costs_to) for costs_to in zip(*rows, strict=True)]
        costs.append(row[-1])
        if row[-1] < least or (row[-1] == least and ends_alike):
            least, rest = row[-1], list(hypothesis[k + 1 :])
    return costs, least, rest


def _after(row: Sequence[int], unit: str, old: Sequence[str]) -> list[int]:
    """Return the next row of the table of edit distances."""
    after = [row[0] + 1]
    for j, other in enumerate(old):
        after.append(min(row[j] + (unit != other), row[j + 1] + 1, after[j] + 1))
    return after


def _rest_of(word: Word, way: Sequence[str], n_read: int) -> list[Word]:
    """Return the words of a numeral's reading after the first `n_read`, its time shared."""
    start, end = word.start, word.end
    if start is None or end is None:
        return [replace(word, text=f" {unit}") for unit in way[n_read:]]
    cuts = [start + (end - start) * i / len(way) for i in range(len(way) + 1)]
    return [
        replace(word, text=f" {way[i]}", start=cuts[i], end=cuts[i + 1])
        for i in range(n_read, len(way))
    ]


def _without_and(units: Sequence[str]) -> list[str]:
    """Return spoken words without the "and" inside a number."""
    return [
        unit
        for i, unit in enumerate(units)
        if unit != "and" or i == 0 or units[i - 1] not in NUMBER_WORDS
    ]


class LocalAgreement:
    """Commits the longest prefix that the last `n` hypotheses share."""

    def __init__(self, n: int = 2) -> None:
        """Begin without words. n: hypotheses that must agree; 1 commits every hypothesis whole."""
        self.n = n
        self.committed: list[Word] = []
        """Final words whose audio is still in the buffer."""
        self._tails: list[list[Word]] = []
        """Of the last n - 1 hypotheses or fewer: the words after the committed ones."""

    @property
    def partial(self) -> tuple[Word, ...]:
        """Return the newest hypothesis after the final words."""
        return tuple(self._tails[-1]) if self._tails else ()

    def observe(self, hypothesis: Sequence[Word]) -> list[Word]:
        """Take in the newest transcript of the whole buffer, with times in seconds of the stream.

        Return the words that became final, in their newest spelling.
        """
        new = unsaid(hypothesis, self.committed)
        # n - 1 earlier ones and the new one.
        tails = [*self._tails, new][-self.n :]
        n_agreed = 0
        if len(tails) == self.n:
            keys = [[key(word.text) for word in tail] for tail in tails]
            n_agreed = min(common_prefix(keys[0], each) for each in keys)
        self._tails = tails
        return self._commit(n_agreed)

    def finish(self) -> list[Word]:
        """Make the partial words final and return them."""
        return self._commit(len(self.partial))

    def commit_until(self, end_s: float) -> list[Word]:
        """Make final, unconfirmed as they are, the partial words that end by `end_s`."""
        ended = takewhile(lambda w: w.end is not None and w.end <= end_s, self.partial)
        return self._commit(len(list(ended)))

    def forget(self, before_s: float) -> None:
        """Let go of words that end by `before_s`, where the buffer now begins."""
        self.committed = [w for w in self.committed if w.end is None or w.end > before_s]

    def _commit(self, n_words: int) -> list[Word]:
        agreed = list(self.partial[:n_words])
        self.committed += agreed
        self._tails = [tail[n_words:] for tail in self._tails]
        return agreed
