"""What holds of every reference: its text and the times of its words, of any corpus or log.

Corpora check it before a recording is processed, and logs before anything is computed from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rapidfuzz.distance import Levenshtein

from streaming_asr.text.normalise import light_key
from streaming_asr.text.units import Unit, unit_of, units, written_units
from streaming_asr.utterance import LENGTH_TOLERANCE_S, TimedWord, Utterance

ALIKE = 0.5  # of the letters; two texts that have nothing to do with each other share a quarter
MOST_PER_S: dict[Unit, int] = {"word": 20, "character": 40}  # units; nobody says as many
MOST_LETTERS_PER_S = 60  # the fastest speakers reach 25
LEAST_S = 0.01  # of a word


def problems(utterance: Utterance) -> Iterator[str]:
    """Yield what is wrong with the reference of an utterance, as its text and word times have it.

    A duration of 0 is unknown, and bounds nothing.
    """
    text, words, unit = utterance.text, utterance.words or (), unit_of(utterance.language)
    yield from rate(text, utterance.duration_s, unit)
    yield from order(words, utterance.duration_s)
    yield from spelling(text, words, unit)
    yield from speakable(words)


def rate(text: str, duration_s: float, unit: Unit) -> Iterator[str]:
    """Yield a fault where the text has more units than fit into `duration_s` seconds of speech."""
    n = len(units(text, unit))
    if duration_s and n > 5 + MOST_PER_S[unit] * duration_s:
        yield f"{n} {unit}s in {duration_s:g} s; is the duration in other units?"


def order(words: Sequence[TimedWord], duration_s: float) -> Iterator[str]:
    """Yield each word whose times are not in order, or not in the recording."""
    for word, start, end in words:
        if start < 0:
            yield f"the word {word!r} starts at {start} s, before the recording"
        if start > end:
            yield f"the word {word!r} runs from {start} to {end} s, and ends before it starts"
        # A recording that cannot be read may have no length; then nothing of it is received either.
        if duration_s and end > duration_s + LENGTH_TOLERANCE_S:
            yield f"the word {word!r} ends at {end} s of {duration_s:g} s"
    for before, after in pairwise(words):
        if after.start < before.start:
            yield f"the word {after.text!r} at {after.start} s comes after that at {before.start}"


def spelling(text: str, words: Sequence[TimedWord], unit: Unit) -> Iterator[str]:
    """Yield one fault where the timed words are not those of the text, in number and order.

    They may be spelled otherwise ("4" for "four"), as long as most letters are the same.
    """
    if not words:
        return
    timed, spoken = _letters("".join(word.text for word in words)), _letters(text)
    if Levenshtein.normalized_similarity(timed, spoken, score_cutoff=ALIKE) < ALIKE:
        yield f"the `words` are of another text: {words[0].text!r} ... of {text!r}"
        return
    if unit == "character":  # one word may hold several
        parts = [each for word in words for each in written_units(word.text, unit)]
    else:
        parts = [word.text for word in words if light_key(word.text)]
    written = written_units(text, unit)
    if len(parts) != len(written):
        yield f"{len(parts)} {unit}s have times, the text has {len(written)}"
        return
    pairs = [(_letters(a), _letters(b)) for a, b in zip(parts, written, strict=True)]
    differing = [(a, b) for a, b in pairs if a != b]
    # A word that is in the text, but in the place of another, has that one's time.
    moved = Counter(a for a, _ in differing) & Counter(b for _, b in differing)
    if word := next((a for a, _ in differing if a and moved[a]), None):
        yield f"the `words` are not in the order of the text: {word!r} has another place in it"


def speakable(words: Sequence[TimedWord]) -> Iterator[str]:
    """Yield whether nobody can say the words in their times."""
    if not words:
        return
    n_letters = sum(len(_letters(word.text)) for word in words)
    span_s = max(word.end for word in words) - min(word.start for word in words)
    spoken_s = min(span_s, sum(max(word.end - word.start, 0.0) for word in words))
    n_short = sum(word.end - word.start < LEAST_S for word in words if light_key(word.text))
    if n_letters > 5 + MOST_LETTERS_PER_S * spoken_s:  # an aligner may cut one word short
        yield (
            f"the `words` take {spoken_s:g} s for {n_letters} letters, which nobody can speak; are "
            "their times in other units?"
        )
    elif 2 * n_short > len(words):
        problem = f"{n_short} of {len(words)} `words` last less than {LEAST_S:g} s"
        yield f"{problem}, which nobody can speak"


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())
