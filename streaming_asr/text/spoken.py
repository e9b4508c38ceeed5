"""What of a text is spoken: words have a letter or a digit, other text belongs to a word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from streaming_asr.method import Update, Word


def is_word(text: str) -> bool:
    """Return whether `text` has a letter, a mark or a number of any script."""
    return any(unicodedata.category(character)[0] in "LMN" for character in text)


def whole_words(words: Sequence[Word]) -> list[Word]:
    """Return the words, text without a letter or digit joined to the word before it.

    Opening brackets and quotes, and what is before the first word, join the word after. A joined
    text changes no times. Where no word is, none comes out.
    """
    whole: list[Word] = []
    waiting = ""
    for word in words:
        if is_word(word.text):
            whole.append(replace(word, text=waiting + word.text) if waiting else word)
            waiting = ""
        elif waiting or not whole or _opens(word.text):
            waiting += word.text
        else:
            whole[-1] = replace(whole[-1], text=whole[-1].text + word.text)
    if whole and waiting:
        whole[-1] = replace(whole[-1], text=whole[-1].text + waiting)
    return whole


def _opens(text: str) -> bool:
    return all(unicodedata.category(c) in ("Ps", "Pi") or c in "¿¡" for c in text.strip())


class WordsAlone:
    """One stream's updates without text that follows no word: a stretch of speech whose text is a
    full stop has no word."""

    def __init__(self) -> None:
        self._opens = True  # whether no word came yet since the start or the last endpoint
        self._kept: list[bool] = []  # of each committed word

    def of(self, update: Update) -> Update:
        """Return the next update, what it takes back counted in the words that came out."""
        n_left = len(self._kept) - update.retracted
        if n_left < 0:
            return update  # the method's mistake is reported by those who apply it
        retracted = sum(self._kept[n_left:])
        del self._kept[n_left:]
        flags = [self._is_kept(word) for word in update.committed]
        self._kept += flags
        committed = [word for word, is_kept in zip(update.committed, flags, strict=True) if is_kept]
        partial = update.partial
        if self._opens and not any(is_word(word.text) for word in partial):
            partial = ()
        self._opens = self._opens or update.endpoint
        return replace(update, committed=tuple(committed), partial=partial, retracted=retracted)

    def _is_kept(self, word: Word) -> bool:
        self._opens = self._opens and not is_word(word.text)
        return not self._opens
