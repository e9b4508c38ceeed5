"""Which part of a text is spoken: a word has a letter or a digit; other text belongs to a word."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from streaming_asr.method import Update, Word


def is_word(text: str) -> bool:
    """Return whether `text` has a letter, a mark or a number of any script."""
    return any(unicodedata.category(character)[0] in "LMN" for character in text)


def whole_words(words: Sequence[Word]) -> list[Word]:
    """Return the words; text without a letter or digit is appended to the word before it.

    Opening brackets and quotes, and text before the first word, are put before the word after
    them. The times of a word stay. Text without any word gives [].
    """
    result: list[Word] = []
    opening = ""  # text for the next word
    for word in words:
        if is_word(word.text):
            result.append(replace(word, text=opening + word.text) if opening else word)
            opening = ""
        elif opening or not result or _is_opening(word.text):
            opening += word.text
        else:
            result[-1] = replace(result[-1], text=result[-1].text + word.text)
    if result and opening:
        result[-1] = replace(result[-1], text=result[-1].text + opening)
    return result


def _is_opening(text: str) -> bool:
    """Return whether all characters are opening brackets, opening quotes or ¿ and ¡."""
    return all(unicodedata.category(c) in ("Ps", "Pi") or c in "¿¡" for c in text.strip())


class WordsAlone:
    """Removes from one stream's updates the text before the first word of each segment, such as the
    full stop that a method outputs for a segment without speech."""

    def __init__(self) -> None:
        self._before_first_word = True  # of a segment: since the start or the last endpoint
        self._passed: list[bool] = []  # for each word that the method committed: was it returned?

    def of(self, update: Update) -> Update:
        """Return the stream's next update without such text. Its `retracted` counts only words that
        were returned before."""
        n_remaining = len(self._passed) - update.retracted
        if n_remaining < 0:
            return update  # the method's mistake, which `method.revise` reports
        n_retracted = sum(self._passed[n_remaining:])
        del self._passed[n_remaining:]
        committed = []
        for word in update.committed:
            if is_word(word.text):
                self._before_first_word = False
            self._passed.append(not self._before_first_word)
            if not self._before_first_word:
                committed.append(word)
        partial = update.partial
        if self._before_first_word and not any(is_word(word.text) for word in partial):
            partial = ()
        if update.endpoint:
            self._before_first_word = True
        return replace(update, committed=tuple(committed), partial=partial, retracted=n_retracted)
