"""What goes wrong on ordinary audio: words on silence, lost or invented ends, loops, memory.

Words are the normalised ones of WER, whose hyphens are split first; a lone sign is no word. All of
it reads the final text, and of the steps when its words were first displayed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_asr.metrics.trace import Trace, mean, ratio
from streaming_asr.text.normalise import Normaliser
from streaming_asr.text.tokens import common_prefix

MIB = 2**20
MARGIN_S = 0.5  # around each spoken word: what lies outside of all of them is non-speech
LEAST_S = 1.0  # of a stretch of it; where it is shorter, a word inserted there may be of speech
LONG_S = 60.0  # a shorter recording shows no growth: memory comes in large pieces
HYPHENS = dict.fromkeys(map(ord, "-‐‑"), " ")


@dataclass(frozen=True)
class Ordinary:
    """The counts of one recording; None where its log or its reference lacks the data."""

    n_words: int  # of the reference
    nonspeech_words: int | None
    nonspeech_s: float | None
    dropped: int | None  # last words; None without reference words
    invented: int | None
    repeated: int
    memory_growth: float | None  # MiB per minute of audio


def ordinary(trace: Trace) -> Ordinary:
    """Return the counts of a trace, computed once."""
    if "ordinary" not in trace.derived:
        reference = words_of(trace.reference, trace.normalise)
        hypothesis = words_of(trace.hypothesis, trace.normalise)
        placed = place(reference, hypothesis)
        nonspeech_words, nonspeech_s = on_nonspeech(trace, hypothesis)
        dropped, invented = last_words(reference, hypothesis, placed)
        trace.derived["ordinary"] = Ordinary(
            len(reference),
            nonspeech_words,
            nonspeech_s,
            dropped if reference else None,
            invented if reference else None,
            repeated_words(hypothesis, placed),
            memory_growth(trace),
        )
    counts: Ordinary = trace.derived["ordinary"]
    return counts


def figures(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the metrics of this file over a corpus."""
    counts = [ordinary(trace) for trace in traces]
    quiet = [c for c in counts if c.nonspeech_words is not None and c.nonspeech_s is not None]
    spoken = [c for c in counts if c.n_words]
    growths = [c.memory_growth for c in counts if c.memory_growth is not None]
    return {
        "words_on_nonspeech_per_min": ratio(
            sum(c.nonspeech_words or 0 for c in quiet), sum(c.nonspeech_s or 0.0 for c in quiet), 60
        ),
        "last_words_dropped": ratio(sum(bool(c.dropped) for c in spoken), len(spoken), 100),
        "last_words_invented": ratio(sum(bool(c.invented) for c in spoken), len(spoken), 100),
        "repeated_words_per_100": ratio(
            sum(c.repeated for c in counts), sum(c.n_words for c in counts), 100
        ),
        "memory_growth_mib_per_min": mean(growths),
    }


def line(trace: Trace) -> dict[str, Any]:
    """Return the fields of utterances.jsonl for one recording."""
    counts = ordinary(trace)
    return {
        "words_on_nonspeech": counts.nonspeech_words,
        "nonspeech_s": counts.nonspeech_s,
        "last_words_dropped": counts.dropped,
        "last_words_invented": counts.invented,
        "repeated_words": counts.repeated,
        "memory_growth_mib_per_min": counts.memory_growth,
    }


def words_of(text: str, normalise: Normaliser) -> tuple[str, ...]:
    """Return the normalised words of `text`, its hyphens split, without lone signs."""
    split = normalise.words(text.translate(HYPHENS))
    return tuple(word for word in split if any(map(str.isalnum, word)))


# -- the alignment ------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordPlace:
    """The place of a word of the text in the reference: `n_before` reference words precede it."""

    n_before: int
    is_right: bool
    is_inserted: bool


def place(reference: Sequence[str], hypothesis: Sequence[str]) -> list[WordPlace]:
    """Return the place of each word of `hypothesis` in a Levenshtein alignment with `reference`.

    Of several best alignments it is, from the start on, the one that puts a word for a word before
    it leaves one out, and leaves one out before it inserts one: of a phrase spoken once and written
    twice the second is inserted. (rapidfuzz, which counts the errors of WER, promises no choice.)
    """
    n, m = len(reference), len(hypothesis)
    ids: dict[str, int] = {}
    spoken, written = (
        np.array([ids.setdefault(word, len(ids)) for word in words], dtype=np.int32)
        for words in (reference, hypothesis)
    )
    columns = np.arange(m + 1, dtype=np.int32)
    below = m - columns  # the distances of the reference's rest, here of nothing, to the text's
    pairs: list[np.ndarray[Any, Any]] = []  # by row from the last, bits: a pair of words is best
    skips: list[np.ndarray[Any, Any]] = []  # leaving the reference's word out is
    for word in spoken[::-1]:
        row = below + 1
        paired = below[1:] + (written != word)
        row[:-1] = np.minimum(row[:-1], paired)
        row = np.minimum.accumulate((row + columns)[::-1])[::-1] - columns  # insertions
        pairs.append(np.packbits(row[:-1] == paired))
        skips.append(np.packbits(row == below + 1))
        below = row
    places: list[WordPlace] = []
    i = 0
    while (j := len(places)) < m:
        if i < n and _bit(pairs[n - 1 - i], j):
            places.append(WordPlace(i, bool(spoken[i] == written[j]), False))
            i += 1
        elif i < n and _bit(skips[n - 1 - i], j):
            i += 1
        else:
            places.append(WordPlace(i, False, True))
    return places


def _bit(packed: np.ndarray[Any, Any], at: int) -> bool:
    return bool(packed[at // 8] >> (7 - at % 8) & 1)


# -- the metrics --------------------------------------------------------------------------------


def nonspeech(trace: Trace) -> list[tuple[int, float, float]] | None:
    """Return (spoken words before it, start, end) of each stretch of non-speech, in seconds.

    Where the reference is empty, that is the whole recording; None where its words have no times.
    """
    if not trace.words:
        return None if trace.reference.strip() else [(0, 0.0, trace.duration_s)]
    spans_s = [(word.start - MARGIN_S, word.end + MARGIN_S) for word in trace.words]
    stretches, heard_s = [], 0.0
    for i, (start_s, end_s) in enumerate([*spans_s, (trace.duration_s, 0.0)]):
        if start_s - heard_s >= LEAST_S:
            stretches.append((i, heard_s, start_s))
        heard_s = max(heard_s, end_s)
    return stretches


def on_nonspeech(trace: Trace, hypothesis: Sequence[str]) -> tuple[int, float] | tuple[None, None]:
    """Return the words that the text puts on non-speech, and the non-speech in seconds.

    A word is on a stretch of non-speech where the alignment inserts it between the words spoken
    before the stretch and those after, and it was not on the screen when the stretch began
    (by a_k, the audio clock). (None, None) for a failed recording and without word times.
    """
    places = inserted_on_nonspeech(trace, hypothesis)
    if places is None:
        return None, None
    return len(places), sum(end_s - start_s for _, start_s, end_s in nonspeech(trace) or ())


def inserted_on_nonspeech(trace: Trace, hypothesis: Sequence[str]) -> set[int] | None:
    """Return the places in the text of the words that it puts on non-speech (`on_nonspeech`)."""
    stretches = nonspeech(trace)
    if stretches is None or trace.error is not None:
        return None
    spoken = [word.text for word in trace.words or ()]
    # Each stretch of speech is normalised apart, so that its words stay separate.
    reference: list[str] = []
    starts: dict[int, float] = {}  # of non-speech, by the normalised words before it
    cuts = [0, *(n_before for n_before, _, _ in stretches), len(spoken)]
    for k, (_, start_s, _) in enumerate(stretches):
        reference += words_of(" ".join(spoken[cuts[k] : cuts[k + 1]]), trace.normalise)
        starts.setdefault(len(reference), start_s)
    reference += words_of(" ".join(spoken[cuts[-2] :]), trace.normalise)
    standing = {n: _standing(trace, hypothesis, start_s) for n, start_s in starts.items()}
    return {
        j
        for j, each in enumerate(place(reference, hypothesis))
        if each.is_inserted and each.n_before in starts and j >= standing[each.n_before]
    }


def _standing(trace: Trace, hypothesis: Sequence[str], time_s: float) -> int:
    """Return how many words of the text were on the screen at `time_s` of the audio clock."""
    display = ""
    for step in trace.steps:
        if step.audio_s > time_s:
            break
        display = step.displayed
    return common_prefix(words_of(display, trace.normalise), tuple(hypothesis))


def last_words(
    reference: Sequence[str], hypothesis: Sequence[str], places: Sequence[WordPlace]
) -> tuple[int, int]:
    """Return how many last words were dropped and invented: behind the last right word, how many
    more the reference has than the text, and the text than the reference."""
    right = [(j, each.n_before) for j, each in enumerate(places) if each.is_right]
    j, i = right[-1] if right else (-1, -1)
    surplus = (len(hypothesis) - 1 - j) - (len(reference) - 1 - i)
    return max(-surplus, 0), max(surplus, 0)


def repeated_words(hypothesis: Sequence[str], places: Sequence[WordPlace]) -> int:
    """Return the words that are in a copy of the phrase right before them and are not right.

    The text is read from its start. Of the phrases that begin at a word and come again at once,
    that with the most words in copies is taken (of several the shortest), and reading goes on
    behind its last whole copy. A word of a copy that the alignment finds in the reference is the
    reference's own.
    """
    return sum(
        not each.is_right for begin, end, _ in copies(hypothesis) for each in places[begin:end]
    )


def copies(hypothesis: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (begin, end, words of the phrase) of what is copied from the phrase right before it, as
    `repeated_words` reads the text."""
    repeats = _Repeats(hypothesis)
    begin = 0
    while begin < len(hypothesis):
        most, end, words = 0, begin + 1, 0
        for again in repeats.of(begin):
            size = again - begin
            in_copies = repeats.n_same(begin, again) // size * size
            if in_copies > most:
                most, end, words = in_copies, again + in_copies, size
        if most:
            yield end - most, end, words
        begin = end


class _Repeats:
    """Where the phrases of a text come again, without comparing every word with every other.

    Level k numbers the phrases of 2 ** k words, so that equal ones have one number (prefix
    doubling, Manber and Myers 1990). The levels end where no phrase comes twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        ids: dict[str, int] = {}
        numbers = np.array([ids.setdefault(word, len(ids)) for word in words], dtype=np.int64)
        n_kinds = len(ids)
        self._levels: list[list[int]] = []
        self._places: list[list[list[int]]] = []  # by level and number, in the order of the text
        size = 1
        while n_kinds < len(numbers):
            by_number: list[list[int]] = [[] for _ in range(n_kinds)]
            level = numbers.tolist()
            for place, number in enumerate(level):
                by_number[number].append(place)
            self._levels.append(level)
            self._places.append(by_number)
            pairs = numbers[:-size] * n_kinds + numbers[size:]
            kinds, numbers = np.unique(pairs, return_inverse=True)
            n_kinds = len(kinds)
            size *= 2

    def of(self, begin: int) -> Iterator[int]:
        """Yield, in order, where the phrase that begins at `begin` may come again right behind its
        end: of a phrase of n words the first 2 ** k do, 2 ** k being at most n and above n / 2."""
        for k, (level, places) in enumerate(zip(self._levels, self._places, strict=True)):
            if begin >= len(level):
                return
            same = places[level[begin]]
            first = bisect_left(same, begin + 2**k)
            yield from same[first : bisect_left(same, begin + 2 ** (k + 1))]

    def n_same(self, a: int, b: int) -> int:
        """Return how many words from `a` on are as those from `b` on, a < b."""
        n = 0
        for k in reversed(range(len(self._levels))):
            level = self._levels[k]
            while b + n < len(level) and level[a + n] == level[b + n]:
                n += 2**k
        return n


def memory_growth(trace: Trace) -> float | None:
    """Return the slope of memory over the second half of a recording, in MiB per minute of audio.

    That is the line of least squares through the memory after each step. None for a recording of
    less than LONG_S, where streams shared their steps, and where the log holds no memory.
    """
    if trace.duration_s < LONG_S or trace.batch > 1:
        return None
    points = [
        (step.audio_s / 60.0, step.step.memory_bytes / MIB)
        for step in trace.steps
        if step.step.memory_bytes is not None and step.audio_s >= trace.duration_s / 2
    ]
    if not points:
        return None
    minutes, mib = (np.array(points) - np.mean(points, axis=0)).T
    return ratio(float(minutes @ mib), float(minutes @ minutes))
