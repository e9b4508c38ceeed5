"""Whisper's English normaliser, one piece of the text at a time: same words, a fraction of the
time.

EnglishTextNormalizer runs some sixty substitutions over the whole text, and scoring asks for every
display of every step. Its first rules reach across any words: they take out what is in brackets,
some fillers, and blanks before apostrophes. They run over the whole text here too, and find
nothing when they run again. All later rules that look at more than one word do so through words
they name (numbers, units, contractions), digits or punctuation. A word that is none of these splits
the text: what is before and after it is normalised as if the other were not there. Such pieces
come back again and again, and are remembered.
"""

from __future__ import annotations

import re
from functools import lru_cache

from whisper_normalizer.english import EnglishTextNormalizer

MARK = "zz"  # a word that no rule names: replaces the plain word before or after a piece
_BRACKETS = re.compile(r"[<\[][^>\]]*[>\]]")
_PARENTHESES = re.compile(r"\(([^)]+?)\)")
_BEFORE_APOSTROPHE = re.compile(r"\s+'")


class EnglishPieces:
    """Lower-case text -> tuple of normalised words, as EnglishTextNormalizer gives them."""

    def __init__(self) -> None:
        self._whole = EnglishTextNormalizer()
        self._spelling = self._whole.standardize_spellings.mapping
        self._ignored = re.compile(self._whole.ignore_patterns)
        self._named = _named_words(self._whole)
        self._piece = lru_cache(maxsize=65_536)(self._normalise_piece)

    def __call__(self, text: str) -> tuple[str, ...]:
        text = _BEFORE_APOSTROPHE.sub("'", self._ignored.sub("", without_brackets(text)))
        words: list[str] = []
        piece: list[str] = []  # neighbours that are not plain
        before = ""
        # A second blank, as brackets leave one, is an empty word of a piece: some rules want one.
        for word in text.split(" "):
            if word in self._named or not (word.isascii() and word.isalpha()):
                piece.append(word)
                continue
            if piece:
                words += self._piece(" ".join(piece), before, MARK)
                piece = []
            words.append(self._spelling.get(word, word))
            before = MARK
        if piece:
            words += self._piece(" ".join(piece), before, "")
        return tuple(words)

    def _normalise_piece(self, piece: str, before: str, after: str) -> tuple[str, ...]:
        words = self._whole(f"{before} {piece} {after}".strip()).split()
        return tuple(words[len(before) > 0 : len(words) - (len(after) > 0)])


def without_brackets(text: str) -> str:
    """Return `text` without what is in brackets or parentheses, as Whisper's normalisers do."""
    return _PARENTHESES.sub("", _BRACKETS.sub("", text))


def _named_words(whole: EnglishTextNormalizer) -> frozenset[str]:
    """Return every word that a rule of the normaliser names."""
    patterns = [whole.ignore_patterns, *whole.replacers]
    named = re.findall("[a-z]+", " ".join(patterns).replace(r"\b", " "))
    suffixes = "a", "half", "st", "nd", "rd", "th", "s"  # of "and a half" and "3 rd"
    return frozenset((*named, *suffixes, *whole.standardize_numbers.words))
