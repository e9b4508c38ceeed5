"""Whisper's English normaliser, applied to pieces of the text: same words, a fraction of the time.

EnglishTextNormalizer runs some sixty substitutions over the whole text, and scoring normalises the
displayed text of every step. Its first rules apply across any words: they remove what is in
brackets, some fillers, and blanks before apostrophes. A second time they change nothing. Every
later rule that looks at more than one word names the words (numbers, units, contractions), or needs
digits or punctuation. Any other word is "plain": it splits the text, and the pieces before and
after it can be normalised by themselves. The same pieces occur again and again, so their results
are cached. Between two plain words no rule reaches across: there a growing text can be cut.
"""

from __future__ import annotations

import re
from functools import lru_cache

from whisper_normalizer.english import EnglishTextNormalizer

from streaming_asr.text.growing import BRACKETS, PARENTHESES, Rules

MARK = "zz"  # a plain word, which takes the place of the one before or after a piece
_BEFORE_APOSTROPHE = re.compile(r"\s+'")
_PAIR = re.compile(r"(?<![^ ])([A-Za-z]+) (?=([A-Za-z]+) )")


class EnglishPieces:
    """Normalises lower-case text to a tuple of words, the same as EnglishTextNormalizer's."""

    def __init__(self) -> None:
        self._normaliser = EnglishTextNormalizer()
        self._spelling = self._normaliser.standardize_spellings.mapping
        self._ignored = re.compile(self._normaliser.ignore_patterns)
        self._named_words = _named_words(self._normaliser)
        self._normalised = lru_cache(maxsize=65_536)(self._normalise_piece)

    @property
    def rules(self) -> Rules:
        """How texts that go on are cut: before two plain words."""
        return Rules(lambda text: self(text.lower()), _PAIR, self._named_words)

    def __call__(self, text: str) -> tuple[str, ...]:
        """Return the normalised words of a lower-case text."""
        text = _BEFORE_APOSTROPHE.sub("'", self._ignored.sub("", without_brackets(text)))
        words: list[str] = []
        before = ""  # MARK after a plain word
        piece: list[str] = []  # consecutive words that are not plain
        # Two blanks, as removed brackets leave them, give an empty word, which belongs to a piece:
        # some rules need both blanks.
        for word in text.split(" "):
            is_plain = word.isascii() and word.isalpha() and word not in self._named_words
            if not is_plain:
                piece.append(word)
                continue
            if piece:
                words += self._normalised(" ".join(piece), before, MARK)
                piece = []
            words.append(self._spelling.get(word, word))
            before = MARK
        if piece:
            words += self._normalised(" ".join(piece), before, "")
        return tuple(words)

    def _normalise_piece(self, piece: str, before: str, after: str) -> tuple[str, ...]:
        """Return the words of a piece. before, after: MARK where a plain word is next to it, else
        ""; some rules differ at the ends of the text."""
        words = self._normaliser(f"{before} {piece} {after}".strip()).split()
        begin = 1 if before else 0
        end = len(words) - 1 if after else len(words)
        return tuple(words[begin:end])


def without_brackets(text: str) -> str:
    """Return `text` without what is in brackets or parentheses, as Whisper's normalisers do."""
    return PARENTHESES.sub("", BRACKETS.sub("", text))


def _named_words(normaliser: EnglishTextNormalizer) -> frozenset[str]:
    """Return every word that a rule of the normaliser names."""
    patterns = [normaliser.ignore_patterns, *normaliser.replacers]
    words = re.findall("[a-z]+", " ".join(patterns).replace(r"\b", " "))
    in_code = "a", "half", "st", "nd", "rd", "th", "s"  # of "and a half" and "3 rd"
    return frozenset((*words, *in_code, *normaliser.standardize_numbers.words))
