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


def n_repeated(hypothesis: Sequence[Word], committed: Sequence[Word]) -> int:
    """Return how many words at the start of the hypothesis repeat the committed ones.

    Of all prefixes of the hypothesis: the one with the smallest edit distance to the committed
    words; among equals one that ends with the last committed word, then the one whose border lies
    nearest in time to the end of that word. `committed` must not be empty.
    """
    old, new = [key(w.text) for w in committed], [key(w.text) for w in hypothesis]
    # Nearly always; the edit distance is for the rest.
    if new[: len(old)] == old:
        return len(old)
    distances = _distances(old, new)
    committed_end_s = committed[-1].end

    def tie_break(n: int) -> tuple[bool, float, int, int]:
        """Return the sort key of the prefix of `n` words: the smallest is the best."""
        misplaced_s = 0.0  # prefix after the end of the committed words, or the rest before it
        if committed_end_s is not None:
            if n and (end_s := hypothesis[n - 1].end) is not None:
                misplaced_s += max(0.0, end_s - committed_end_s)
            if n < len(new) and (start_s := hypothesis[n].start) is not None:
                misplaced_s += max(0.0, committed_end_s - start_s)
        ends_otherwise = n == 0 or new[n - 1] != old[-1]
        return ends_otherwise, misplaced_s, abs(n - len(old)), -n

    least = min(distances)
    nearest = [n for n, distance in enumerate(distances) if distance == least]
    return min(nearest, key=tie_break)


def _distances(words: Sequence[str], new: Sequence[str]) -> list[int]:
    """Return the edit distances of `words` to every prefix of `new`, the empty one first."""
    row = list(range(len(new) + 1))
    for word in words:
        row = _next_row(row, word, new)
    return row


def words_after(hypothesis: Sequence[Word], committed: Sequence[Word]) -> list[Word]:
    """Return the words of the hypothesis after the committed ones.

    Where the two write a number in different ways, they are compared as they are spoken: after "one
    thousand two" a hypothesis "$1,234" goes on with "hundred thirty four dollars". The words come
    from that comparison only where it agrees better than the spellings do (`n_repeated`).
    """
    n = n_repeated(hypothesis, committed) if committed else 0
    rest = list(hypothesis[n:])
    old, new = [key(w.text) for w in committed], [key(w.text) for w in hypothesis]
    has_numerals = any(readings(word.text) for word in (*committed, *hypothesis))
    if new[:n] == old or not has_numerals:
        return rest
    least = min(_distances(old, new))
    # 573 may be "five hundred ..." or "five seven three": a speaker reads all numerals in one way,
    # so reading i of every committed numeral is tried together.
    by_word = [readings(word.text) or [spoken(word.text)] for word in committed]
    ends_in_digits = bool(readings(committed[-1].text))
    for i in range(max(len(ways) for ways in by_word)):
        chosen = [ways[min(i, len(ways) - 1)] for ways in by_word]
        units = _without_and([unit for way in chosen for unit in way])
        distances, distance, spoken_rest = _after_spoken(hypothesis, units, ends_in_digits)
        if distance < min(least, distances[n]):
            least, rest = distance, spoken_rest
    return rest


def _after_spoken(
    hypothesis: Sequence[Word], old: Sequence[str], ends_in_digits: bool
) -> tuple[list[int], int, list[Word]]:
    """Return how far the spoken words `old` reach into the hypothesis, by edit distance:

    the distance of `old` to each prefix of whole words, the empty one first; the least distance to
    any prefix, which may end inside a numeral; and the words after the prefix of that distance.
    ends_in_digits: the rest of a numeral that is read digit by digit is written in digits.
    """
    row = list(range(len(old) + 1))  # distances of the prefix so far to each prefix of `old`
    distances, least, rest = [row[-1]], row[-1], list(hypothesis)
    for i, word in enumerate(hypothesis):
        following = hypothesis[i + 1 :]
        numeral_readings = readings(word.text)
        ways = numeral_readings or [spoken(word.text)]
        rows = []  # at the end of the word, one for each way to speak it
        for way in ways:
            way_row = row
            for n_read, unit in enumerate(way, start=1):
                way_row = _next_row(way_row, unit, old)
                is_inside = bool(numeral_readings) and n_read < len(way)
                if is_inside and way_row[-1] < least:
                    least = way_row[-1]
                    written = in_digits(way) if ends_in_digits else way
                    rest = [*_rest_of_numeral(word, written, n_read), *following]
            rows.append(way_row)
        row = [min(column) for column in zip(*rows, strict=True)]
        distances.append(row[-1])
        # Among equals the later prefix, if it ends with the last committed unit.
        ends_alike = ways[-1][-1:] == old[-1:]
        if row[-1] < least or (row[-1] == least and ends_alike):
            least, rest = row[-1], list(following)
    return distances, least, rest


def _next_row(row: Sequence[int], unit: str, others: Sequence[str]) -> list[int]:
    """Return the row of a table of edit distances that follows `row`, one unit later.

    row[j]: the distance of the units so far to the first j of `others`.
    """
    after = [row[0] + 1]
    for j, other in enumerate(others):
        after.append(min(row[j] + (unit != other), row[j + 1] + 1, after[j] + 1))
    return after


def _rest_of_numeral(word: Word, way: Sequence[str], n_read: int) -> list[Word]:
    """Return the spoken words `way` of a numeral without the first `n_read`, as words that divide
    the numeral's time evenly."""
    start_s, end_s = word.start, word.end
    if start_s is None or end_s is None:
        return [replace(word, text=f" {unit}") for unit in way[n_read:]]
    cuts_s = [start_s + (end_s - start_s) * i / len(way) for i in range(len(way) + 1)]
    return [
        replace(word, text=f" {way[i]}", start=cuts_s[i], end=cuts_s[i + 1])
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
        """The words after the committed ones, of each of the last n hypotheses or fewer."""

    @property
    def partial(self) -> tuple[Word, ...]:
        """Return the words of the newest hypothesis after the final ones."""
        return tuple(self._tails[-1]) if self._tails else ()

    def observe(self, hypothesis: Sequence[Word]) -> list[Word]:
        """Take in the newest transcript of the whole buffer, with times in seconds of the stream.

        Return the words that became final, in their newest spelling.
        """
        newest = words_after(hypothesis, self.committed)
        self._tails = [*self._tails, newest][-self.n :]
        n_agreed = 0
        if len(self._tails) == self.n:  # fewer at the stream's start
            keys = [[key(word.text) for word in tail] for tail in self._tails]
            n_agreed = min(common_prefix(keys[0], other) for other in keys)
        return self._commit(n_agreed)

    def finish(self) -> list[Word]:
        """Make the partial words final and return them."""
        return self._commit(len(self.partial))

    def commit_until(self, end_s: float) -> list[Word]:
        """Make final, unconfirmed as they are, the partial words that end by `end_s`."""
        ended = takewhile(lambda w: w.end is not None and w.end <= end_s, self.partial)
        return self._commit(len(list(ended)))

    def forget(self, before_s: float) -> None:
        """Drop committed words that end by `before_s`, the second where the buffer now begins."""
        self.committed = [w for w in self.committed if w.end is None or w.end > before_s]

    def _commit(self, n_words: int) -> list[Word]:
        """Make the first `n_words` partial words final and return them."""
        agreed = list(self.partial[:n_words])
        self.committed += agreed
        self._tails = [tail[n_words:] for tail in self._tails]
        return agreed
