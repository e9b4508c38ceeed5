"""One text normaliser for every method, and the light key that latency and stability use.

Error rates compare normalised words: Whisper's own normalisers (Radford et al. 2022, appendix C),
whose name and version are recorded with every score. Outside of English, Whisper's normaliser drops
the marks of Unicode, and with them the vowel signs of many scripts; "whisper_marks" keeps them.
Latency and stability compare words by a light key instead. Under Whisper's English normaliser a
text that only grows would seem to change: "one oh" becomes 10, "one oh one" becomes 101.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from importlib.metadata import version
from itertools import chain

from streaming_asr.errors import check_one_of
from streaming_asr.text.growing import PAIR, Rules
from streaming_asr.text.languages import language_code
from streaming_asr.text.units import Unit, is_mark, unit_of, units

NORMALISERS = ("whisper", "whisper_marks", "identity")
# Languages whose words hold marks that no composed letter has: vowel signs of scripts of South and
# South-East Asia, vowel points of Arabic and Hebrew script, tones on dotted letters, and the dot
# of the Turkish capital İ. Whisper's normaliser puts a blank in the place of each.
_MARKED = (
    "ar as az bn bo ckb div dv dz fa gu he hi km kn ks ln lo mai ml mni mr my ne or ori ory pa ps"
    " sa sd si ta te th tr ug ur yi yo"
)
MARKED = frozenset(_MARKED.split())
LONG = 4_000  # letters of a text whose normalised words are soon forgotten
TURKIC = frozenset({"az", "tr"})  # I and ı, İ and i are their pairs of capital and small letter


class Normaliser:
    """A named, versioned text normaliser: text -> tuple of normalised words.

    Results are cached, because the texts of a streaming log repeat. keeps_case: whether `words` is
    called with the text as it is, instead of in lower case.
    """

    def __init__(
        self,
        name: str,
        package_version: str,
        words: Callable[[str], tuple[str, ...]],
        rules: Rules,
        *,
        keeps_case: bool = False,
    ) -> None:
        self.name = name
        self.version = package_version
        self.rules = rules  # for texts that grow
        self._words = lru_cache(maxsize=2_048)(words)
        self._words_of_long = lru_cache(maxsize=8)(words)  # hundreds of kilobytes each
        self._keeps_case = keeps_case

    def words(self, text: str) -> tuple[str, ...]:
        """Return the normalised words of `text`; empty text has none."""
        if not text:
            return ()
        # Whisper's English normaliser starts with it, so texts that differ in case share a result.
        words = self._words if len(text) < LONG else self._words_of_long
        return words(text if self._keeps_case else text.lower())

    def __call__(self, text: str) -> str:
        """Return `text` normalised, its words joined by one space."""
        return " ".join(self.words(text))


def default_kind(languages: Iterable[str | None]) -> str:
    """Return the kind of normaliser for a corpus in these languages, for settings that name none:
    "whisper_marks" where any is one of MARKED."""
    is_marked = any(language and language_code(language) in MARKED for language in languages)
    return "whisper_marks" if is_marked else "whisper"


def normaliser(language: str | None, kind: str | None = None) -> Normaliser:
    """Return the normaliser of a language in any spelling; None is taken as English.

    kind: `whisper` is Whisper's EnglishTextNormalizer for English and its BasicTextNormalizer for
    any other language. `whisper_marks` is the same, with BasicTextNormalizer's preserve_marks.
    `identity` has the language's units as written. None takes that of `default_kind`.
    Raises UserError for another kind, and ImportError for a missing package: scores of different
    normalisers cannot be compared, so none takes its place.
    """
    kind = kind or default_kind({language})
    check_one_of(NORMALISERS, normaliser=kind)
    return _normaliser(language_code(language or "en"), kind)


@cache  # so that one kind of one language is one object
def _normaliser(code: str, kind: str) -> Normaliser:
    """Return the normaliser of one of Whisper's codes of languages; see `normaliser`."""
    unit = unit_of(code)
    if kind == "identity":
        name = "identity" if unit == "word" else "identity(characters)"
        return Normaliser(
            name, "1", lambda text: tuple(units(text, unit)), WRITTEN[unit], keeps_case=True
        )
    package_version = version("whisper-normalizer")
    with warnings.catch_warnings():  # Python 3.12 warns of an escape in the package's docstring
        warnings.simplefilter("ignore")
        from whisper_normalizer.basic import BasicTextNormalizer

        from streaming_asr.text.english import EnglishPieces, without_brackets
    if code == "en":
        name, pieces = "whisper_normalizer.EnglishTextNormalizer", EnglishPieces()
        return Normaliser(name, package_version, pieces, pieces.rules)
    has_marks = kind == "whisper_marks"
    basic = BasicTextNormalizer(split_letters=unit == "character", preserve_marks=has_marks)
    options = []
    if unit == "character":
        options.append("split_letters")
    if has_marks:
        options.append("preserve_marks")
    name = "whisper_normalizer.BasicTextNormalizer"
    if options:
        name += f"({', '.join(options)})"
    lower = _turkic_lower if has_marks and code in TURKIC else str.lower
    # No rule applies across a blank, except the one for brackets: so words are normalised one by
    # one, each different word once.
    normalised_word = lru_cache(maxsize=65_536)(lambda word: tuple(basic(word).split()))

    def words(text: str) -> tuple[str, ...]:
        parts = without_brackets(lower(text)).split()
        return tuple(chain.from_iterable(map(normalised_word, parts)))

    return Normaliser(name, package_version, words, Rules(words, PAIR[unit]), keeps_case=True)


def _turkic_lower(text: str) -> str:
    """Return `text` in lower case by the rules of Turkish: I is ı, and İ is i without a mark."""
    return text.replace("I", "ı").replace("İ", "i").lower()


@lru_cache(maxsize=65_536)
def light_key(word: str) -> str:
    """Return `word` case-folded, without punctuation at both ends: '"Hello,' -> 'hello', '$4.50.'
    -> '$4.50'. A percent sign is part of the number and stays. Pure punctuation gives ''.

    A letter with marks gives the same, whether it is one character of Unicode or several.
    """
    if not word.isascii():
        word = unicodedata.normalize("NFC", word)
    first, last = 0, len(word)
    while first < last and is_mark(word[first]):
        first += 1
    while last > first and is_mark(word[last - 1]):
        last -= 1
    return word[first:last].casefold()


def light_words(text: str, unit: Unit = "word") -> tuple[str, ...]:
    """Return the light keys of the units of `text`, without those of pure punctuation."""
    return tuple(key for each in units(text, unit) if (key := light_key(each)))


LIGHT: dict[Unit, Rules] = {
    unit: Rules(partial(light_words, unit=unit), pair, has_brackets=False)
    for unit, pair in PAIR.items()
}
WRITTEN: dict[Unit, Rules] = {
    unit: Rules(partial(units, unit=unit), pair, has_brackets=False) for unit, pair in PAIR.items()
}
