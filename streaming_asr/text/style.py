"""A reference in the style of a recogniser: its case and punctuation, the reference's words.

Corpora as LibriSpeech are written in one case and without punctuation. A model that was trained on
written text learns from them to stop writing it, so references take the style of what the model
itself outputs.
"""

from __future__ import annotations

import re

from rapidfuzz.distance import Levenshtein

from streaming_asr.text.normalise import Normaliser, light_key, normaliser
from streaming_asr.text.units import unit_of

ENDS = (".", "?", "!")  # of a sentence
ELLIPSIS = re.compile(r"(?:\.{2,}|…)(\s*$)?")


def in_style(reference: str, output: str, language: str | None = None) -> str:
    """Return `reference` as a recogniser writes it that has made `output` of the same recording.

    A reference in two cases stays. Where both texts have the same normalised words it is the
    output. Else the words of the reference take case and punctuation from the words of the output
    that they are aligned with; those without one are in lower case. A sentence begins with a
    capital, and the text ends with a full stop unless it has another end.
    """
    if not (reference.isupper() or reference.islower()) or unit_of(language or "en") != "word":
        return reference
    normalise = normaliser(language)
    # Where a recording ends within a sentence Whisper writes three dots, which count as a word.
    output = ELLIPSIS.sub(lambda dots: "" if dots[1] is None else ".", output)
    text = _styled(reference, output, language, normalise)
    is_same = normalise.words(text) == normalise.words(reference)
    return text if is_same else _styled(reference, "", language, normalise)


def _styled(reference: str, output: str, language: str | None, normalise: Normaliser) -> str:
    """Return `in_style` of a reference in one case; its numbers may come apart by a wrong word."""
    if normalise.words(reference) == normalise.words(output):
        return " ".join(output.split())
    spoken, written = reference.lower().split(), output.split()
    keys = [[light_key(word) for word in words] for words in (spoken, written)]
    words: list[str] = []
    for block in Levenshtein.opcodes(*keys):
        ours = spoken[block.src_start : block.src_end]
        theirs = written[block.dest_start : block.dest_end]
        begins_in_output = not block.dest_start or written[block.dest_start - 1].endswith(ENDS)
        if len(ours) == len(theirs):
            pairs = zip(ours, theirs, strict=True)
            ours = [_like(word, other, normalise) for word, other in pairs]
        elif theirs and normalise.words(" ".join(ours)) == normalise.words(" ".join(theirs)):
            ours = theirs  # "200" for "two hundred"
        if not ours:
            continue
        if not words or (words[-1].endswith(ENDS) and not theirs):
            ours = [_capital(ours[0]), *ours[1:]]
        elif begins_in_output and not words[-1].endswith(ENDS):
            ours = [ours[0][:1].lower() + ours[0][1:], *ours[1:]]
        words += ours
    if (language or "en").startswith("en"):
        words = [_capital(w) if light_key(w).partition("'")[0] == "i" else w for w in words]
    text = " ".join(words)
    return text if text.endswith(ENDS) else text.rstrip(",;:") + "."


def _like(word: str, other: str, normalise: Normaliser) -> str:
    """Return `other` where it is the same word, else `word` with its capital and the punctuation
    at its end."""
    if light_key(word) == light_key(other) or normalise.words(word) == normalise.words(other):
        return other
    bare = other.rstrip("".join(ENDS) + ",;:")
    return (_capital(word) if bare[:1].isupper() else word) + other[len(bare) :]


def _capital(word: str) -> str:
    """Return the word with a capital as its first letter."""
    return word[:1].upper() + word[1:]
