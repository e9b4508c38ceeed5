"""The texts of a stream, of which nearly all begin as its last text does, and their words.

Where each text is kept, cut and normalised by itself, time and memory grow with the square of the
recording. Here a text is its difference from the last one, and so are its words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import Unit

S = TypeVar("S", str, tuple[str, ...])

BRACKETS = re.compile(r"[<\[][^>\]]*[>\]]")
PARENTHESES = re.compile(r"\(([^)]+?)\)")
_OPENING = re.compile(r"[<\[(]")
BRACKET, PARENTHESIS = 1, 2  # bits of a set of kinds
_KINDS = {  # what opens, and what closes
    BRACKET: ("[<", re.compile(r"[>\]]")),
    PARENTHESIS: ("(", re.compile(r"\)")),
}
# Two words, or the second and third of three characters of Chinese and Japanese.
_HAN = "\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff"
PAIR: dict[Unit, re.Pattern[str]] = {
    "word": re.compile(r"(?<!\S)(\S+) (?=(\S+) )"),
    "character": re.compile(
        rf"(?<!\S)((?![{_HAN}])\w[^\s{_HAN}]*) (?=([^\s{_HAN}]+) )"
        rf"|(?<=[{_HAN}])([{_HAN}])(?=([{_HAN}]))"
    ),
}


@dataclass(frozen=True, slots=True)
class Growing(Generic[S]):
    """A text, or its words: the first `n` letters (words) of `whole`, and `rest`.

    `n` is the most that both share, so of one `whole` equal texts are equal objects.
    """

    whole: S
    n: int
    rest: S

    @classmethod
    def of(cls, text: S, whole: S | None = None) -> Growing[S]:
        """Return `text` as a difference from `whole`, which may be any."""
        whole = text[:0] if whole is None else whole
        return cls(whole, 0, whole[:0]).plus(text)

    def __len__(self) -> int:
        return self.n + len(self.rest)

    def all(self) -> S:
        """Return the text, or all words; both take a copy."""
        return self.whole[: self.n] + self.rest

    def behind(self, begin: int) -> S:
        """Return what follows the first `begin` letters (words)."""
        return self.whole[begin : self.n] + self.rest[max(begin - self.n, 0) :]

    def first(self, size: int) -> Growing[S]:
        """Return the first `size` letters (words)."""
        return Growing(self.whole, min(self.n, size), self.rest[: max(size - self.n, 0)])

    def plus(self, more: S) -> Growing[S]:
        """Return this and `more` behind it."""
        if self.rest:
            return Growing(self.whole, self.n, self.rest + more)
        n_same = common_prefix(more, self.whole[self.n : self.n + len(more)])
        return Growing(self.whole, self.n + n_same, more[n_same:])

    def shared(self, other: Growing[S]) -> int:
        """Return how many first letters (words) both have."""
        if self.whole is not other.whole:
            return common_prefix(self.all(), other.all())
        if self.n != other.n:
            return min(self.n, other.n)
        return self.n + common_prefix(self.rest, other.rest)


Text: TypeAlias = Growing[str]
Words: TypeAlias = Growing[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Rules:
    """How a text becomes words, and where it can be cut: both parts then have the words that they
    have in the text.

    words: of a text. pair: matches a word before which a text can be cut if the word and the one
    behind it stay. named: words in lower case that are no such words. has_brackets: what is in
    brackets gives no words; there no text can be cut.
    """

    words: Callable[[str], Sequence[str]]
    pair: re.Pattern[str] = PAIR["word"]
    named: frozenset[str] = frozenset()
    has_brackets: bool = True


class Beginnings:
    """Gives the words of texts that begin as `whole`: only what is behind a cut is cut again."""

    def __init__(self, whole: str, rules: Rules) -> None:
        self._whole, self._rules = whole, rules
        self._words = tuple(rules.words(whole))
        # Of each cut: where it is, how many letters have to stay for it, the kinds of brackets, as
        # bits, that are open there and that nothing behind may close, and the words before it.
        self._cuts, self._settled, self._opened, self._n_words = [0], [0], [0], [0]
        sizes: dict[str, int] = {}  # number of words of a word
        closed = 0  # up to here a bracket is open
        word_before = ""
        for match in rules.pair.finditer(whole):
            begin, cut, opened = self._cuts[-1], match.start(), self._opened[-1]
            if cut < closed or (
                rules.named and not rules.named.isdisjoint(map(str.lower, match.groups()))
            ):
                continue
            piece = whole[begin:cut]
            if rules.has_brackets and _OPENING.search(piece):
                # Parentheses may hold an open bracket: what closes that removes their end too.
                rest, never_closed = BRACKETS.sub("", piece), 0
                for kind, (openings, closing) in _KINDS.items():
                    if kind == PARENTHESIS:
                        rest = PARENTHESES.sub("", rest)
                    if any(opening in rest for opening in openings):
                        if (closer := closing.search(whole, cut)) is not None:
                            closed = closer.end()
                        else:
                            never_closed |= kind
                if cut < closed:
                    continue
                opened |= never_closed
            last = match.lastindex or 2
            word = match[last - 1]
            if word not in sizes:
                sizes[word] = len(rules.words(word))
            if piece.rstrip(" ") == word_before:
                n_words = sizes.get(word_before, 0)
            else:
                n_words = len(rules.words(piece + word)) - sizes[word]
            self._n_words.append(self._n_words[-1] + n_words)
            self._cuts.append(cut)
            self._settled.append(match.end(last) + 1)
            self._opened.append(opened)
            word_before = word

    def words(self, text: Text) -> Words:
        """Return the words of a text that is a difference from `whole`."""
        i = bisect_right(self._settled, text.n) - 1
        for kind, (_, closing) in _KINDS.items():
            if self._opened[i] & kind and closing.search(text.rest):
                i = next(k for k, kinds in enumerate(self._opened) if kinds & kind) - 1
        rest = self._rules.words(self._whole[self._cuts[i] : text.n] + text.rest)
        return Growing(self._words, self._n_words[i], ()).plus(tuple(rest))
