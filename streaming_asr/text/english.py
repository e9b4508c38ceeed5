"""Whisper's English normaliser, applied to pieces of the text: same words, a fraction of the time.

EnglishTextNormalizer runs some sixty substitutions over the whole text, and scoring normalises the
displayed text of every step. Its first rules apply across any words: they remove what is in
brackets, some fillers, and blanks before apostrophes. A second time they change nothing. Every
later rule that looks at more than one word names the words (numbers, units, contractions), or needs
digits or punctuation. Any other word is "plain": it splits the text, and the pieces before and
after it can be normalised by themselves. The same pieces occur again and again, so their results
are cached. Between two plain words no rule reaches across, so a text that goes on from the one
before is normalised from there on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from whisper_normalizer.english import EnglishTextNormalizer

from streaming_asr.text.tokens import common_prefix

MARK = "zz"  # a plain word, which takes the place of the one before or after a piece
_BRACKETS = re.compile(r"[<\[][^>\]]*[>\]]")
_PARENTHESES = re.compile(r"\(([^)]+?)\)")
_BEFORE_APOSTROPHE = re.compile(r"\s+'")
_OPENING = re.compile(r"[<\[(]")
BRACKET, PARENTHESIS = 1, 2  # bits of a set of kinds
_KINDS = {  # what opens, and what closes
    BRACKET: ("[<", re.compile(r"[>\]]")),
    PARENTHESIS: ("(", re.compile(r"\)")),
}
_PAIR = re.compile(r"(?<![^ ])([A-Za-z]+) (?=([A-Za-z]+) )")


@dataclass
class Scan:
    """A text that was normalised, up to each place where it can be cut.

    ends: where the text can be cut. settled: how many letters have to stay for that. opened: the
    kinds of brackets, as bits, that are open there; nothing behind may close them. n_words: how
    many of `words` there are by then.
    """

    text: str = ""
    words: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    n_words: list[int] = field(default_factory=list)

    def copy(self) -> Scan:
        """Return a scan that can go on in another way."""
        places = (each.copy() for each in (self.ends, self.settled, self.opened, self.n_words))
        return Scan(self.text, self.words.copy(), *places)

    def keep(self, text: str, n_letters: int) -> tuple[int, int]:
        """Keep what another text, which shares its first letters, leaves settled; return where the
        rest begins, and the kinds of brackets that are open there."""
        n = bisect_right(self.settled, n_letters)
        for kind, (_, closing) in _KINDS.items():
            if n and self.opened[n - 1] & kind and closing.search(text, n_letters):
                n = next(i for i, kinds in enumerate(self.opened) if kinds & kind)
        del self.ends[n:], self.settled[n:], self.opened[n:], self.n_words[n:]
        del self.words[self.n_words[-1] if n else 0 :]
        self.text = text
        return (self.ends[-1], self.opened[-1]) if n else (0, 0)


class EnglishPieces:
    """Normalises lower-case text to a tuple of words, the same as EnglishTextNormalizer's."""

    def __init__(self) -> None:
        self._normaliser = EnglishTextNormalizer()
        self._spelling = self._normaliser.standardize_spellings.mapping
        self._ignored = re.compile(self._normaliser.ignore_patterns)
        self._named_words = _named_words(self._normaliser)
        self._scans = [Scan(), Scan(), Scan()]
        self._normalised = lru_cache(maxsize=65_536)(self._normalise_piece)

    def __call__(self, text: str) -> tuple[str, ...]:
        """Return the normalised words of a lower-case text."""
        # The texts of a stream grow: what is before a cut has the words that it had before. Of the
        # texts of one stream, which take turns, each has its scan.
        shared = [common_prefix(text, scan.text) for scan in self._scans]
        sizes = [len(scan.text) for scan in self._scans]
        # Of two that the text goes on from, the shorter one: a second reading of a recording has
        # its own.
        nearest = max(range(len(shared)), key=lambda i: (shared[i], -sizes[i]))
        scan = self._scans.pop(nearest)
        if shared[nearest] < sizes[nearest] // 2:  # another text, in place of the oldest
            self._scans = [*self._scans[1:], scan]
            scan = scan.copy()
        self._scans.append(scan)
        begin, opened = scan.keep(text, shared[nearest])
        for cut, settled, opened_there in self._cuts(text, begin, opened):
            scan.words += self._words(text[begin : cut - 1], MARK if begin else "")
            scan.ends.append(cut)
            scan.settled.append(settled)
            scan.opened.append(opened_there)
            scan.n_words.append(len(scan.words))
            begin = cut
        return (*scan.words, *self._words(text[begin:], MARK if begin else ""))

    def _cuts(self, text: str, begin: int, opened: int) -> Iterator[tuple[int, int, int]]:
        """Yield (cut, settled, opened) of each place between two plain words behind `begin`: how
        many letters are before the second word, and up to the blank behind it, and the kinds of
        brackets that are open and never closed."""
        closed = 0  # up to here a bracket is open
        for pair in _PAIR.finditer(text, begin):
            cut = pair.end()
            if cut < closed or not self._named_words.isdisjoint(pair.groups()):
                continue
            before = text[begin:cut]
            if _OPENING.search(before):
                # Parentheses may hold an open bracket: what closes that removes their end too.
                rest, never_closed = _BRACKETS.sub("", before), 0
                for kind, (openings, closing) in _KINDS.items():
                    if kind == PARENTHESIS:
                        rest = _PARENTHESES.sub("", rest)
                    if any(opening in rest for opening in openings):
                        if (match := closing.search(text, cut)) is not None:
                            closed = match.end()
                        else:
                            never_closed |= kind
                if cut < closed:
                    continue
                opened |= never_closed
            yield cut, pair.end(2) + 1, opened
            begin = cut

    def _words(self, text: str, before: str) -> list[str]:
        """Return the normalised words of a text between two cuts. before: MARK after a cut."""
        text = _BEFORE_APOSTROPHE.sub("'", self._ignored.sub("", without_brackets(text)))
        words: list[str] = []
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
        return [*words, *self._normalised(" ".join(piece), before, "")] if piece else words

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
