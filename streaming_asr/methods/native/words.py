"""Words of tokens that are final as they come: a word is whole where the next one begins."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from streaming_asr.method import Word
from streaming_asr.text.scripts import UNSPACED_SCRIPTS
from streaming_asr.text.tokens import UNSPACED

TAG = re.compile(r"<\|?[a-z]{2,3}(-[A-Z]{2})?\|?>")
"""A language tag in the text, as <en-US>; it is no word."""
SPACES = ("▁", "Ġ", " ")  # what a token that begins a word begins with


class Writer:
    """The text of one stream."""

    def __init__(
        self,
        spell: Callable[[Sequence[int]], str],
        begins: Callable[[int], bool],
        language: str | None,
    ) -> None:
        """spell: the text of tokens. begins: whether a token begins a word, where words are spaced.

        language: a code, or None where the model finds it out.
        """
        self._spell, self._begins, self._language = spell, begins, language
        self._open: list[int] = []
        self._start_s: float | None = None
        self._end_s: float | None = None
        self._last_s = 0.0  # where the last word with times ends

    def push(
        self, token: int, heard_s: float, start_s: float | None = None, end_s: float | None = None
    ) -> list[Word]:
        """Take in a token and its time, if there is one; return the word that it completes, or [].

        heard_s: audio received so far, the latest that a word can end.
        """
        complete: list[Word] = []
        if self._open and self._is_next(token):
            complete += self.finish(heard_s)
        if not self._open:
            self._start_s = start_s
        self._open.append(token)
        self._end_s = end_s
        return complete

    def partial(self, heard_s: float) -> tuple[Word, ...]:
        """Return the word that may still grow, () where there is none."""
        return self._word(heard_s) if self._open else ()

    def finish(self, heard_s: float) -> tuple[Word, ...]:
        """Return the open word as final, () where there is none; the next token begins another."""
        words = self.partial(heard_s)
        self._open = []
        for word in words:
            self._last_s = word.end or self._last_s
        return words

    def _is_next(self, token: int) -> bool:
        """Return whether a token begins a word; in an unspaced script every character is one."""
        if self._begins(token):
            return True
        text = self._text()
        is_part_of_character = text.endswith("\ufffd")  # which may have several tokens
        if not text or is_part_of_character or self._language not in (None, *UNSPACED):
            return False
        return self._language in UNSPACED or _is_unspaced(text[-1])

    def _text(self) -> str:
        return TAG.sub("", self._spell(self._open)).strip()

    def _word(self, heard_s: float) -> tuple[Word, ...]:
        """Return the word of the open tokens, () where they spell nothing."""
        text = self._text().rstrip("\ufffd")
        if not text:
            return ()
        if self._language not in UNSPACED and not _is_unspaced(text[0]):
            text = f" {text}"
        if self._start_s is None or self._end_s is None:
            return (Word(text),)
        # Not after the audio received: silence that pads the last block has time too.
        start_s = min(max(self._start_s, self._last_s), heard_s)
        end_s = min(max(self._end_s, start_s), heard_s)
        return (Word(text, start_s, end_s),)


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").split(" ")[0] in UNSPACED_SCRIPTS
