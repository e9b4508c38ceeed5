"""Whisper's English normaliser, applied to pieces of the text: same words, a fraction of the time.

EnglishTextNormalizer runs some sixty substitutions over the whole text, and scoring normalises the
displayed text of every step. Its first rules apply across any words: they remove what is in
brackets, some fillers, and blanks before apostrophes. Here, too, they run over the whole text; a
second time they change nothing. Every later rule that looks at more than one word names the words
(numbers, units, contractions), or needs digits or punctuation. Any other word is "plain": it splits
the text, and the pieces before and after it can be normalised by themselves. The same pieces occur
again and again, so their results are cached.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from whisper_normalizer.english import EnglishTextNormalizer

from streaming_asr.text.tokens import common_prefix

MARK = "zz"  # a plain word, which takes the place of the one before or after a piece
_BRACKETS = re.compile(r"[<\[][^>\]]*[>\]]")
_PARENTHESES = re.compile(r"\(([^)]+?)\)")
_BEFORE_APOSTROPHE = re.compile(r"\s+'")


class Scan(NamedTuple):
    """A text and its normalised words up to each plain word: where its blank ends, and how many
    words there are by then."""

    text: str
    words: list[str]
    ends: list[int]
    n_words: list[int]


class EnglishPieces:
    """Normalises lower-case text to a tuple of words, the same as EnglishTextNormalizer's."""

    def __init__(self) -> None:
        self._normaliser = EnglishTextNormalizer()
        self._spelling = self._normaliser.standardize_spellings.mapping
        self._ignored = re.compile(self._normaliser.ignore_patterns)
        self._named_words = _named_words(self._normaliser)
        self._scans: tuple[Scan, ...] = (Scan("", [], [], []),) * 3
        self._normalised = lru_cache(maxsize=65_536)(self._normalise_piece)

    def __call__(self, text: str) -> tuple[str, ...]:
        """Return the normalised words of a lower-case text."""
        text = _BEFORE_APOSTROPHE.sub("'", self._ignored.sub("", without_brackets(text)))
        # The texts of a stream grow: what ends with a plain word has the words that it had before.
        scans = self._scans
        shared = [common_prefix(text, scan.text) for scan in scans]
        nearest = max(range(len(scans)), key=shared.__getitem__)
        n_kept = bisect_right(scans[nearest].ends, shared[nearest])
        ends, n_words = scans[nearest].ends[:n_kept], scans[nearest].n_words[:n_kept]
        end = ends[-1] if ends else 0
        words = scans[nearest].words[: n_words[-1] if n_words else 0]
        piece: list[str] = []  # consecutive words that are not plain
        before = MARK if ends else ""  # MARK once a plain word is before the piece
        # Two blanks, as removed brackets leave them, give an empty word, which belongs to a piece:
        # some rules need both blanks.
        for word in text[end:].split(" "):
            end += len(word) + 1
            is_plain = word.isascii() and word.isalpha() and word not in self._named_words
            if not is_plain:
                piece.append(word)
                continue
            if piece:
                words += self._normalised(" ".join(piece), before, MARK)
                piece = []
            words.append(self._spelling.get(word, word))
            before = MARK
            ends.append(end)
            n_words.append(len(words))
        # Of the texts of one stream, which take turns, each has its scan. Another text takes the
        # place of the oldest.
        is_other = shared[nearest] < len(scans[nearest].text) // 2
        gone = 0 if is_other else nearest
        self._scans = (*scans[:gone], *scans[gone + 1 :], Scan(text, words, ends, n_words))
        if piece:
            return (*words, *self._normalised(" ".join(piece), before, ""))
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
    return _PARENTHESES.sub("", _BRACKETS.sub("", text))


def _named_words(normaliser: EnglishTextNormalizer) -> frozenset[str]:
    """Return every word that a rule of the normaliser names."""
    patterns = [normaliser.ignore_patterns, *normaliser.replacers]
    words = re.findall("[a-z]+", " ".join(patterns).replace(r"\b", " "))
    in_code = "a", "half", "st", "nd", "rd", "th", "s"  # of "and a half" and "3 rd"
    return frozenset((*words, *in_code, *normaliser.standardize_numbers.words))
