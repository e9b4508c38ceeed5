"""Does a text fit its language tag? A wrong tag takes another language's normaliser and unit."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from streaming_asr.text.languages import language_code
from streaming_asr.text.tokens import UNSPACED

LEAST_OF_UNSPACED = 0.1
N_LETTERS = 20_000  # so many show what a corpus is written in
HAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"})
# What the languages are written in whose normaliser or unit is their own.
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
    """Return how many letters of `texts` are of each script, by the names of Unicode."""
    letters = (c for text in texts for c in text if c.isalpha())
    n_each = Counter(islice(letters, N_LETTERS))
    counts: Counter[str] = Counter()
    for letter, n in n_each.items():
        # "LATIN SMALL LETTER A", "CJK UNIFIED IDEOGRAPH-4ECA", "FULLWIDTH LATIN ..."
        words = unicodedata.name(letter, "").split()
        name = words[1] if words[:1] in (["FULLWIDTH"], ["HALFWIDTH"]) else "".join(words[:1])
        counts[name] += n
    return counts


def mismatch(language: str | None, texts: Iterable[str]) -> str | None:
    """Return what is wrong where the letters of `texts` are of a script that the normaliser and the
    unit of `language` are not for; None where they fit. Chinese and its like may hold much Latin.
    """
    counts = scripts(texts)
    if not counts:
        return None
    code = language_code(language or "en")
    script, _ = counts.most_common(1)[0]
    fitting = SCRIPTS.get(code, counts.keys() - UNSPACED_SCRIPTS) | (HAN if code == "ko" else set())
    share = sum(counts[each] for each in fitting) / counts.total()
    if share >= (LEAST_OF_UNSPACED if code in UNSPACED else 0.5):
        return None
    lang = f"language {language!r}" if language else "no language is named, which counts as English"
    unit = "characters" if code in UNSPACED else "words"
    likely = f", as {LIKELY[script]}" if script in LIKELY else ""
    return (
        f"{lang}, but the references are written in {script.title()} script; error rates and "
        f"latencies are then of another language's {unit}: name the language{likely}"
    )
