"""What goes wrong on ordinary audio: words on silence, lost or invented ends, loops, memory.

Words are the normalised ones of WER, whose hyphens are split first; a lone sign is no word. All of
it reads the final text, and of the steps when its words were first displayed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice, pairwise
from math import isqrt
from typing import Any

import numpy as np

from streaming_asr.metrics.accuracy import next_column, places_of
from streaming_asr.metrics.trace import Trace, mean, ratio
from streaming_asr.text.growing import Growing, Rules
from streaming_asr.text.normalise import Normaliser

MIB = 2**20
MARGIN_S = 0.5  # around each spoken word: what lies outside of all of them is non-speech
LEAST_S = 1.0  # shortest non-speech; a word inserted in a shorter pause may be of the speech
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
        hypothesis = trace.words_by(_rules(trace.normalise), trace.final).all()
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
    # `or 0`: a recording without word times adds neither words nor seconds.
    nonspeech_words = sum(c.nonspeech_words or 0 for c in counts)
    nonspeech_s = sum(c.nonspeech_s or 0.0 for c in counts)
    with_words = [c for c in counts if c.n_words]
    n, n_dropped = len(with_words), sum(bool(c.dropped) for c in with_words)
    n_invented = sum(bool(c.invented) for c in with_words)
    growths = [c.memory_growth for c in counts if c.memory_growth is not None]
    return {
        "words_on_nonspeech_per_min": ratio(nonspeech_words, nonspeech_s, 60),
        "last_words_dropped": ratio(n_dropped, n, 100),
        "last_words_invented": ratio(n_invented, n, 100),
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
    """Return the normalised words of `text`, split at hyphens, without words of only signs."""
    split = normalise.words(text.translate(HYPHENS))
    return tuple(word for word in split if any(map(str.isalnum, word)))


@cache
def _rules(normalise: Normaliser) -> Rules:
    """Return the rules of `words_of`."""
    return replace(normalise.rules, words=lambda text: words_of(text, normalise))


# -- the alignment ------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordPlace:
    """The place of a word of the text in the reference: `n_before` reference words precede it."""

    n_before: int
    is_right: bool
    is_inserted: bool


def place(reference: Sequence[str], hypothesis: Sequence[str]) -> list[WordPlace]:
    """Return the place of each word of `hypothesis` in a Levenshtein alignment with `reference`.

    There may be several best alignments. This one is read from the start and prefers a pair of
    words to a deletion and a deletion to an insertion: of a phrase spoken once and written twice
    the second is inserted. (rapidfuzz, which counts the errors of WER, promises no choice.)
    """
    # Columns are computed from the text's last word up, over the reference from its last word up,
    # so that the second pass can read the choices from the start: the lowest bit is of the last
    # reference word. One column for each block is kept; a block is computed again when the second
    # pass comes to it.
    n, m = len(reference), len(hypothesis)
    where, among = places_of(reversed(reference)), (1 << n) - 1
    size = isqrt(m) + 1
    columns: list[tuple[int, int]] = []  # (plus, minus) behind each block, of the last one first
    plus, minus = among, 0
    for begin in range((m - 1) // size * size, -1, -size):
        columns.append((plus, minus))
        for word in reversed(hypothesis[begin : begin + size]):
            plus, minus, _ = next_column(plus, minus, where.get(word, 0), among)
    places: list[WordPlace] = []
    i = 0
    for begin in range(0, m, size):
        plus, minus = columns.pop()
        choices = []  # of each word: where it is right, pairing it is best, or deleting before it
        for word in reversed(hypothesis[begin : begin + size]):
            right = where.get(word, 0)
            plus, minus, straight = next_column(plus, minus, right, among)
            choices.append((right, right | ~straight, plus))
        for right, paired, deleted in reversed(choices):
            while i < n and not paired >> n - 1 - i & 1 and deleted >> n - 1 - i & 1:
                i += 1
            if i < n and paired >> n - 1 - i & 1:
                places.append(WordPlace(i, bool(right >> n - 1 - i & 1), False))
                i += 1
            else:
                places.append(WordPlace(i, False, True))
    return places


# -- the metrics --------------------------------------------------------------------------------


def nonspeech(trace: Trace) -> list[tuple[int, float, float]] | None:
    """Return (n_before, start_s, end_s) of each stretch of non-speech: how many spoken words
    precede it, and its times in seconds.

    Non-speech is LEAST_S or more in which no word is nearer than MARGIN_S. Without a reference it
    is the whole recording. None if the words of the reference have no times.
    """
    if not trace.words:
        return None if trace.reference.strip() else [(0, 0.0, trace.duration_s)]
    spans_s = [(word.start - MARGIN_S, word.end + MARGIN_S) for word in trace.words]
    spans_s.append((trace.duration_s, trace.duration_s))  # for the stretch after the last word
    stretches, speech_end_s = [], 0.0
    for i, (start_s, end_s) in enumerate(spans_s):
        if start_s - speech_end_s >= LEAST_S:
            stretches.append((i, speech_end_s, start_s))
        speech_end_s = max(speech_end_s, end_s)  # words may overlap
    return stretches


def on_nonspeech(trace: Trace, hypothesis: Sequence[str]) -> tuple[int, float] | tuple[None, None]:
    """Return how many words the text has on non-speech, and the seconds of non-speech.

    A word is on a stretch of non-speech if the alignment inserts it between the words spoken before
    the stretch and those after, and it was not on the screen when the stretch began (by a_k, the
    audio clock). (None, None) for a failed recording and without word times.
    """
    places = inserted_on_nonspeech(trace, hypothesis)
    if places is None:
        return None, None
    return len(places), sum(end_s - start_s for _, start_s, end_s in nonspeech(trace) or ())


def inserted_on_nonspeech(trace: Trace, hypothesis: Sequence[str]) -> set[int] | None:
    """Return the indices in `hypothesis`, the normalised words, of those on non-speech
    (`on_nonspeech`); None for a failed recording and without word times."""
    stretches = nonspeech(trace)
    if stretches is None or trace.error is not None:
        return None
    spoken = [word.text for word in trace.words or ()]
    # Each stretch of speech is normalised by itself, so that no word is joined across a pause.
    reference: list[str] = []
    n_on_screen: dict[int, int] = {}  # as the stretch begins, by the normalised words before it
    n_normalised = 0
    for n_before, start_s, _ in stretches:
        reference += words_of(" ".join(spoken[n_normalised:n_before]), trace.normalise)
        n_normalised = n_before
        if len(reference) not in n_on_screen:
            n_on_screen[len(reference)] = _words_on_screen(trace, hypothesis, start_s)
    reference += words_of(" ".join(spoken[n_normalised:]), trace.normalise)
    return {
        j
        for j, word in enumerate(place(reference, hypothesis))
        if word.is_inserted and j >= n_on_screen.get(word.n_before, len(hypothesis))
    }


def _words_on_screen(trace: Trace, hypothesis: Sequence[str], time_s: float) -> int:
    """Return how many first words of the final text were on the screen at `time_s` of the audio
    clock."""
    n_steps = bisect_right(trace.audio_times, time_s)
    display = trace.steps[n_steps - 1].displayed_text if n_steps else Growing.of("")
    words = trace.words_by(_rules(trace.normalise), display)
    return words.shared(Growing(tuple(hypothesis), len(hypothesis), ()))


def last_words(
    reference: Sequence[str], hypothesis: Sequence[str], places: Sequence[WordPlace]
) -> tuple[int, int]:
    """Return (dropped, invented): after the last right word, by how many words the reference is
    longer than the text, and by how many the text is longer. One of them is 0.

    places: of each word of `hypothesis` in the reference.
    """
    i = j = -1  # the last right word in the reference and in the text
    for index, word in enumerate(places):
        if word.is_right:
            i, j = word.n_before, index
    surplus = (len(hypothesis) - 1 - j) - (len(reference) - 1 - i)
    return max(-surplus, 0), max(surplus, 0)


def repeated_words(hypothesis: Sequence[str], places: Sequence[WordPlace]) -> int:
    """Return how many words are in a copy of the phrase right before them (`copies`) and are not
    right: a phrase that the speaker repeats too is no error."""
    return sum(
        not word.is_right for begin, end, _ in copies(hypothesis) for word in places[begin:end]
    )


def copies(hypothesis: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (begin, end, phrase_size) of each stretch of words that consists of whole copies of the
    phrase right before it; the phrase has `phrase_size` words.

    The text is read from its start. Of the phrases that begin at a word, the one with the most
    words in copies is taken (of several the shortest), and reading goes on after its last copy.
    """
    words = list(hypothesis)
    places: dict[tuple[str, str], list[int]] = {}  # of each two words, in ascending order
    for i, pair in enumerate(pairwise(words)):
        places.setdefault(pair, []).append(i)
    begin = 0
    while begin < len(words):
        most_copied, end, phrase_size = 0, begin + 1, 0
        # Of a phrase of one word the copy comes next; of a longer one two words come again.
        seconds = [begin + 1] if words[begin : begin + 1] == words[begin + 1 : begin + 2] else []
        of_pair = places.get((words[begin], words[begin + 1]), []) if begin + 1 < len(words) else []
        for second in chain(seconds, islice(of_pair, bisect_right(of_pair, begin + 1), None)):
            size, n_left = second - begin, len(words) - second
            # No later copy can be longer, and a phrase needs room for a whole copy.
            if n_left <= most_copied or n_left < size:
                break
            if words[second - 1] != words[second + size - 1]:
                continue  # the phrase's last word
            n_same = 1
            while n_same < n_left and words[begin + n_same] == words[second + n_same]:
                n_same += 1
            n_copied = n_same // size * size  # only whole copies
            if n_copied > most_copied:
                most_copied, end, phrase_size = n_copied, second + n_copied, size
        if most_copied:
            yield end - most_copied, end, phrase_size
        begin = end


def memory_growth(trace: Trace) -> float | None:
    """Return the slope of memory over the second half of a recording, in MiB per minute of audio.

    It is that of the least-squares line through the memory after each step. None for a recording
    shorter than LONG_S, if streams shared their steps, and if the log has no memory.
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
    minutes, mib = (np.array(points) - np.mean(points, axis=0)).T  # deviations from the means
    return ratio(float(minutes @ mib), float(minutes @ minutes))
