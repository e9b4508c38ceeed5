"""One text normaliser for every method, and the light key that latency and stability use.

Error rates compare normalised words: Whisper's own normalisers (Radford et al. 2022, appendix C),
whose name and version stand beside every score. Latency and stability compare raw words under a
light key instead, because Whisper's English normaliser is not prefix-monotone ("one oh" becomes
10, "one oh one" becomes 101) and would manufacture flicker out of a text that only grows.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.metadata import version

from streaming_asr.errors import check_one_of
from streaming_asr.text.tokens import UNSPACED

NORMALISERS = ("whisper", "identity")
ENGLISH = frozenset({"en", "english"})


class Normaliser:
    """A named, versioned text normaliser: text -> tuple of normalised words.

    The answers of one text are remembered: a streaming log shows the same prefix again and again.
    """

    def __init__(
        self,
        name: str,
        package_version: str,
        words: Callable[[str], tuple[str, ...]],
        *,
        keeps_case: bool = False,
    ) -> None:
        self.name = name
        self.version = package_version
        self._words = lru_cache(maxsize=16_384)(words)
        self._keeps_case = keeps_case

    def words(self, text: str) -> tuple[str, ...]:
        """Return the normalised words of `text`; empty text has none."""
        # Whisper's start by lower-casing, so texts that differ in case share an entry.
        return self._words(text if self._keeps_case else text.lower()) if text else ()

    def __call__(self, text: str) -> str:
        """Return `text` normalised, its words joined by one space."""
        return " ".join(self.words(text))


@cache  # so that one kind of one language is one object
def normaliser(language: str | None, kind: str = "whisper") -> Normaliser:
    """Return the normaliser of a language; a corpus that names no language is taken as English.

    With `kind` whisper, English gets Whisper's EnglishTextNormalizer, every other language its
    BasicTextNormalizer. A missing package is an ImportError, never a silent second choice: scores
    under two normalisers cannot be compared. With `kind` identity, words are whitespace tokens as
    written. Raises UserError for another `kind`.
    """
    check_one_of(NORMALISERS, normaliser=kind)
    if kind == "identity":
        return Normaliser("identity", "1", lambda text: tuple(text.split()), keeps_case=True)
    package_version = version("whisper-normalizer")
    code = (language or "en").lower()
    with warnings.catch_warnings():  # Python 3.12 warns of an escape in the package's docstring
        warnings.simplefilter("ignore")
        from whisper_normalizer.basic import BasicTextNormalizer
    if code in ENGLISH:
        from streaming_asr.text.english import EnglishPieces

        return Normaliser(
            "whisper_normalizer.EnglishTextNormalizer", package_version, EnglishPieces()
        )
    name = "whisper_normalizer.BasicTextNormalizer"
    if code in UNSPACED:
        name += "(split_letters)"
    basic = BasicTextNormalizer(split_letters=code in UNSPACED)
    return Normaliser(name, package_version, lambda text: tuple(basic(text).split()))


@lru_cache(maxsize=65_536)
def light_key(word: str) -> str:
    """Return `word` case-folded, without punctuation at its edges: '"Hello,' -> 'hello', '$4.50.'
    -> '$4.50'. A percent sign is part of the number and stays. Pure punctuation gives ''."""
    first, last = 0, len(word)
    while first < last and _is_edge(word[first]):
        first += 1
    while last > first and _is_edge(word[last - 1]):
        last -= 1
    return word[first:last].casefold()


def light_words(text: str) -> tuple[str, ...]:
    """Return the light keys of the tokens of `text`, without those of pure punctuation."""
    return tuple(key for word in text.split() if (key := light_key(word)))


def _is_edge(character: str) -> bool:
    return character != "%" and unicodedata.category(character).startswith("P")
