"""Checks that a text fits its language tag: a wrong tag selects another language's normaliser and
unit."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from streaming_asr.text.languages import language_code
from streaming_asr.text.tokens import UNSPACED

LEAST_OF_UNSPACED = 0.1  # of the letters, in languages without spaces: their texts have much Latin
N_LETTERS = 20_000  # enough to find the script of a corpus
HAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"})
# The scripts of languages that have a normaliser or a unit of their own.
SCRIPTS: dict[str, frozenset[str]] = {
    "en": frozenset({"LATIN"}),
    "zh": HAN,
    "yue": HAN,
    "ja": HAN,
    "th": frozenset({"THAI"}),
    "lo": frozenset({"LAO"}),
    "my": frozenset({"MYANMAR"}),
}
UNSPACED_SCRIPTS = HAN | {"THAI", "LAO", "MYANMAR"}
LIKELY = {"CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "THAI": "th", "LAO": "lo"}
LIKELY |= {"MYANMAR": "my", "CYRILLIC": "ru", "DEVANAGARI": "hi", "ARABIC": "ar", "HANGUL": "ko"}


def scripts(texts: Iterable[str]) -> Counter[str]:
    """Return how many of the first N_LETTERS letters of `texts` are of each script. A script is a
    word of the letters' names in Unicode, as "LATIN"."""
    letters = (character for text in texts for character in text if character.isalpha())
    n_of_letter = Counter(islice(letters, N_LETTERS))
    n_of_script: Counter[str] = Counter()
    for letter, n in n_of_letter.items():
        # "LATIN SMALL LETTER A", "CJK UNIFIED IDEOGRAPH-4ECA", "FULLWIDTH LATIN ..."
        first, second, *_ = [*unicodedata.name(letter, "").split(), "", ""]
        script = second if first in ("FULLWIDTH", "HALFWIDTH") else first
        n_of_script[script] += n
    return n_of_script


def mismatch(language: str | None, texts: Iterable[str]) -> str | None:
    """Return a warning where too few letters of `texts` are of a script of `language`: half, or
    LEAST_OF_UNSPACED in a language without spaces; None where they fit, and without letters."""
    n_of_script = scripts(texts)
    if not n_of_script:
        return None
    code = language_code(language or "en")
    # Other languages, of which the scripts are not listed, have spaces.
    fitting = set(SCRIPTS.get(code, n_of_script.keys() - UNSPACED_SCRIPTS))
    if code == "ko":
        fitting |= HAN
    share = sum(n_of_script[script] for script in fitting) / n_of_script.total()
    if share >= (LEAST_OF_UNSPACED if code in UNSPACED else 0.5):
        return None
    named = f"language {language!r}" if language else ""
    subject = named or "no language is named, which counts as English"
    unit = "characters" if code in UNSPACED else "words"
    main_script, _ = n_of_script.most_common(1)[0]
    hint = f", as {LIKELY[main_script]}" if main_script in LIKELY else ""
    return (
        f"{subject}, but the references are written in {main_script.title()} script; error rates "
        f"and latencies are then of another language's {unit}: name the language{hint}"
    )
