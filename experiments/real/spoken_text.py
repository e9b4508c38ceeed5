"""Texts as they are spoken: without dashes, quotation marks, brackets and what has no sound.

A model that learns `aggression-in Korea` writes it. Words that keep no letter go, words that were
run together by a dash are separated, and their times with them. Round brackets go and what is
in them stays, since readers read it; what is in square or angle brackets goes with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from streaming_asr.utterance import TimedWord, Utterance

# A hyphen before or behind one of these is a dash, as in `aggression-in` and `just-a`, except
# where three words or more are one (`state-of-the-art`).
_JOINING = (
    "a an and are as at but for had has have he her his in is it its of or our she that the their "
    "they this to was we were which who with"
)
FUNCTION_WORDS = frozenset(_JOINING.split())
ELISIONS = ("'tis", "'twas", "'em", "'cause", "'til", "'bout", "'round")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "´": "'", **dict.fromkeys('"“”„«»', "")})
_DASH = re.compile(r"--+|[–—―]+|\.{2,}|…")


def spoken_text(text: str) -> str:
    """`text` as it is spoken."""
    return " ".join(word for words in _spoken(text.split()) for word in words)


def spoken(utterance: Utterance) -> Utterance:
    """The utterance with its text as it is spoken; a word that becomes several shares its time
    among them by their letters."""
    if utterance.words is None:
        return replace(utterance, text=spoken_text(utterance.text))
    timed: list[TimedWord] = []
    pieces = _spoken([word.text for word in utterance.words])
    for (_, start, end), words in zip(utterance.words, pieces, strict=True):
        share = (end - start) / max(1, sum(map(len, words)))
        for word in words:
            end = start + share * len(word)
            timed.append(TimedWord(word, start, end))
            start = end
    text = " ".join(word.text for word in timed)
    return replace(utterance, text=text, words=tuple(timed))


def _spoken(written: Iterable[str]) -> list[list[str]]:
    """What is spoken of each written word: none, one or several words."""
    inside = False  # of square or angle brackets
    quoted = False  # by a single quotation mark
    groups: list[list[str]] = []
    for word in written:
        plain = ""
        for character in word:
            if character in "[<":
                inside = True
            elif character in "]>":
                inside = False
            elif not inside and character not in "(){}*_":
                plain += character
        plain = plain.translate(_QUOTES).replace("‑", "-").replace("''", "")
        if plain.startswith("'") and not plain.lower().startswith(ELISIONS):
            plain, quoted = plain[1:], True
        if quoted and (closed := re.fullmatch(r"(.*)'([.,;:!?]*)", plain)):
            plain, quoted = closed[1] + closed[2], False
        parts = (part for piece in _DASH.split(plain) for part in _hyphens(piece.strip("-")))
        groups.append([part for part in parts if any(map(str.isalnum, part))])
    return groups


def _hyphens(word: str) -> list[str]:
    """The words of one with hyphens: one, unless a hyphen is a dash."""
    word = re.sub(r"(?i)^(to)-(day|night|morrow)\b", r"\1\2", word)
    parts = word.split("-")
    plain = [part.strip(".,;:!?").lower() for part in parts]
    outer = plain[0] in FUNCTION_WORDS or plain[-1] in FUNCTION_WORDS
    if len(parts) > 1 and (outer or len(set(plain)) == 1):
        return parts
    return [word]
