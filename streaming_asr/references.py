"""Checks of a reference: its text and the times of its words, from any corpus or log.

Corpora are checked before a recording is processed, logs before anything is computed from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from rapidfuzz.distance import Levenshtein

from streaming_asr.text.normalise import light_key
from streaming_asr.text.units import Unit, unit_of, units, written_units
from streaming_asr.utterance import LENGTH_TOLERANCE_S, TimedWord, Utterance

ALIKE = 0.5  # of the letters; two unrelated texts share a quarter
MOST_PER_S: dict[Unit, int] = {"word": 20, "character": 40}  # units; nobody speaks as many
MOST_LETTERS_PER_S = 60  # the fastest speakers reach 25
LEAST_S = 0.01  # of a word
MOST_AT_ONCE = 1.5  # words, on average; one speaker speaks one at a time


def problems(utterance: Utterance) -> Iterator[str]:
    """Yield a message for each fault in the text and the word times of an utterance.

    A duration of 0 is unknown, and nothing is compared with it.
    """
    text, words, unit = utterance.text, utterance.words or (), unit_of(utterance.language)
    yield from rate(text, utterance.duration_s, unit)
    yield from order(words, utterance.duration_s)
    yield from spelling(text, words, unit)
    yield from speakable(words)


def rate(text: str, duration_s: float, unit: Unit) -> Iterator[str]:
    """Yield a message where the text has more units than anyone speaks in `duration_s` seconds."""
    n = len(units(text, unit))
    if duration_s and n > 5 + MOST_PER_S[unit] * duration_s:
        yield f"{n} {unit}s in {duration_s:g} s; is the duration in other units?"


def order(words: Sequence[TimedWord], duration_s: float) -> Iterator[str]:
    """Yield a message for each word whose times are not in order, or not in the recording."""
    for word, start, end in words:
        if start < 0:
            yield f"the word {word!r} starts at {start} s, before the recording"
        if start > end:
            yield f"the word {word!r} runs from {start} to {end} s, and ends before it starts"
        # A recording that cannot be read may have no duration; then none of it is used either.
        if duration_s and end > duration_s + LENGTH_TOLERANCE_S:
            yield f"the word {word!r} ends at {end} s of {duration_s:g} s"
    for before, after in pairwise(words):
        if after.start < before.start:
            yield f"the word {after.text!r} at {after.start} s comes after that at {before.start}"


def spelling(text: str, words: Sequence[TimedWord], unit: Unit) -> Iterator[str]:
    """Yield a message where the timed words are not those of the text, in number and order: at most
    one, for the first fault.

    A word may be spelled differently ("4" for "four"), as long as most letters of the whole text
    are the same.
    """
    if not words:
        return
    timed_letters, text_letters = _letters("".join(word.text for word in words)), _letters(text)
    similarity = Levenshtein.normalized_similarity(timed_letters, text_letters, score_cutoff=ALIKE)
    if similarity < ALIKE:
        yield f"the `words` are of another text: {words[0].text!r} ... of {text!r}"
        return
    if unit == "character":  # one word may have several
        timed_units = [each for word in words for each in written_units(word.text, unit)]
    else:  # pure punctuation has no time
        timed_units = [word.text for word in words if light_key(word.text)]
    text_units = written_units(text, unit)
    if len(timed_units) != len(text_units):
        yield f"{len(timed_units)} {unit}s have times, the text has {len(text_units)}"
        return
    pairs = [(_letters(a), _letters(b)) for a, b in zip(timed_units, text_units, strict=True)]
    differing = [(timed, written) for timed, written in pairs if timed != written]
    # Another spelling is in one of the two only. A word that is in both, at different places, has
    # the time of another word.
    in_another_place = Counter(a for a, _ in differing) & Counter(b for _, b in differing)
    if word := next((timed for timed, _ in differing if timed and in_another_place[timed]), None):
        yield f"the `words` are not in the order of the text: {word!r} has another place in it"


def speakable(words: Sequence[TimedWord]) -> Iterator[str]:
    """Yield a message where nobody can speak the words in their times."""
    if not words:
        return
    n_letters = sum(len(_letters(word.text)) for word in words)
    span_s = max(word.end for word in words) - min(word.start for word in words)
    # Words may overlap, so their sum can exceed the time from the first to the last.
    sum_s = sum(max(word.end - word.start, 0.0) for word in words)
    spoken_s = min(span_s, sum_s)
    n_short = sum(word.end - word.start < LEAST_S for word in words if light_key(word.text))
    if n_letters > 5 + MOST_LETTERS_PER_S * spoken_s:  # 5: an aligner may cut one word short
        yield (
            f"the `words` take {spoken_s:g} s for {n_letters} letters, which nobody can speak; are "
            "their times in other units?"
        )
    elif 2 * n_short > len(words):
        problem = f"{n_short} of {len(words)} `words` last less than {LEAST_S:g} s"
        yield f"{problem}, which nobody can speak"
    elif sum_s > MOST_AT_ONCE * span_s:
        at_once = f"{sum_s / span_s:.1f} at a time, as if all were spoken at once"
        yield f"the {len(words)} `words` overlap, {at_once}; give each its own times"


def _letters(text: str) -> str:
    return "".join(map(_letters_of_word, text.split()))


@lru_cache(maxsize=65_536)  # the same words come again in every recording and every run
def _letters_of_word(word: str) -> str:
    return "".join(c for c in word.casefold() if c.isalnum())
