"""The unit of a language: what latency, stability and unnormalised error rates count.

Most languages are counted in words, which blanks separate. Six are written without spaces, and
their unit is the character. A character is a grapheme: a Thai letter and the vowel sign above it
are one. A run of Latin letters in such a text counts as one, since it is one word: "Amy 今天" has
three units. Every digit and every mark of punctuation counts, as in SimulEval's character unit.
Every metric and every format of another tool cuts texts here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, TypeAlias

import regex

from streaming_asr.text.languages import language_code
from streaming_asr.text.tokens import UNSPACED

Unit: TypeAlias = Literal["word", "character"]

_LATIN = r"\p{Latin}[\p{Latin}\p{M}]*(?:['’\-][\p{Latin}\p{M}]+)*"
_CHARACTERS = regex.compile(rf"{_LATIN}|\X")


@lru_cache(maxsize=1024)
def unit_of(language: str | None) -> Unit:
    """Return the unit of a language in any spelling of its tag; None is taken as English."""
    return "character" if language_code(language or "en") in UNSPACED else "word"


def units(text: str, unit: Unit) -> list[str]:
    """Return the words of `text`, or its characters without blanks and invisible ones."""
    if unit == "word":
        return text.split()
    return [each for each in _CHARACTERS.findall(text) if not _is_blank(each)]


def written_units(text: str, unit: Unit) -> list[str]:
    """Return the spoken units of `text`, those that have times. A character includes the
    punctuation next to it, as a word does.

    "Well - yes." gives "Well", "yes."; "「好」吧。" gives "「好」", "吧。".
    """
    parts: list[str] = []
    opening = ""
    for piece in units(text, unit):
        if not is_punctuation(piece):
            parts.append(opening + piece)
            opening = ""
        elif unit == "character" and parts and unicodedata.category(piece[0]) not in ("Ps", "Pi"):
            parts[-1] += piece
        elif unit == "character":
            opening += piece
    return parts


def joined(parts: Iterable[str], unit: Unit) -> str:
    """Return the text of these parts, with a blank between words. For characters, a blank is only
    put where parts would become one unit without it, as two runs of Latin letters."""
    if unit == "word":
        return " ".join(parts)
    text: list[str] = []
    latest: list[str] = []  # parts since the last blank; at most two before may join with the next
    for part in filter(None, parts):
        latest = [*latest[-2:], part]
        separate_units = [each for one in latest for each in units(one, unit)]
        if units("".join(latest), unit) != separate_units:
            text.append(" ")
            latest = [part]
        text.append(part)
    return "".join(text)


def timed_units(
    words: Iterable[tuple[str, float, float]], unit: Unit
) -> list[tuple[str, float, float]]:
    """Return (text, start, end) of each unit of the timed words: the characters of one word share
    its time equally. Times are in seconds.

    A mark of punctuation takes no time: it begins and ends where the character before it ends.
    """
    if unit == "word":
        return list(words)
    return [timed for word in words for timed in _timed_characters(*word)]


def _timed_characters(text: str, start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield (character, start, end) for one word, as `timed_units` states. Text of punctuation only
    is one entry."""
    characters = units(text, "character")
    n_spoken = sum(not is_punctuation(each) for each in characters)
    if len(characters) < 2 or not n_spoken:
        yield text, start, end
        return
    bounds = [start + (end - start) * i / n_spoken for i in range(n_spoken)] + [end]
    i = 0  # spoken characters so far
    for character in characters:
        character_start = bounds[i]
        if not is_punctuation(character):
            i += 1
        yield character, character_start, bounds[i]


def _is_blank(character: str) -> bool:
    # Zero-width spaces separate words in some texts and are no character of them.
    return all(each.isspace() or unicodedata.category(each) == "Cf" for each in character)


def is_punctuation(part: str) -> bool:
    """Return whether `part` has nothing but punctuation."""
    return all(map(is_mark, part))


def is_mark(character: str) -> bool:
    """Return whether it is a mark of punctuation; a percent sign is part of its number."""
    return character != "%" and unicodedata.category(character).startswith("P")
