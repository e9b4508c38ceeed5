"""Language tags: every usual spelling of a language as the one code that Whisper has for it.

Corpora, logs and clients write a language as a code of ISO 639-1, -2 or -3 ("en", "eng"), as a tag
of BCP 47 or POSIX ("en-US", "zh_Hans_CN", "de_DE.UTF-8"), or as its English name ("English").
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

_CODES = """
af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi
hr ht hu hy id is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn
no oc pa pl ps pt ro ru sa sd si sk sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi
yi yo yue zh
"""
LANGUAGES = frozenset(_CODES.split())  # Whisper's; its large models from v3 on have yue too
UNNAMED = frozenset({"", "und"})  # tags of no language, the latter of BCP 47
_OF_WHISPER = {"jv": "jw", "nb": "no", "fil": "tl"}  # its codes where the standard has others


@lru_cache(maxsize=4096)
def language_code(tag: str) -> str:
    """Return Whisper's code of a language in any usual spelling: "EN", "en-US", "eng" and "English"
    are "en"; "zh_Hans_CN", "cmn" and "Mandarin" are "zh".

    A tag's script, region and variants are dropped. For a language that Whisper lacks, the first
    part of its tag is returned in lower case ("ga-IE" is "ga"); other text is returned in lower
    case. So compare with LANGUAGES where the language must be one of Whisper's.
    """
    text = " ".join(tag.lower().split())
    if text in LANGUAGES or text in UNNAMED:
        return text
    import langcodes  # takes a tenth of a second: only for what is no code of Whisper's

    def of_whisper(standard: str) -> str:
        language = langcodes.get(langcodes.standardize_tag(standard, macro=True)).language or ""
        return _OF_WHISPER.get(language, language)

    first, *_ = re.split(r"[-_.@]", text)
    if re.fullmatch("[a-z]{2,3}", first):
        try:
            code = of_whisper("-".join(re.split(r"[-_]", re.split(r"[.@]", text)[0])[:2]))
        except langcodes.LanguageTagError:
            code = of_whisper(first)
        return code if code in LANGUAGES else first
    # "Spanish (Mexico)", "Chinese, Simplified", "Brazilian Portuguese", "English-US"
    name = re.split(r"[(,;/\-_]", text)[0].strip()
    words = name.split() or [""]
    for candidate in (text, name, words[-1], words[0]):
        if not re.sub("[ ()]", "", candidate).isalpha():
            continue
        with suppress(LookupError):
            language = langcodes.find(candidate, "en")
            english = language.language_name("en").lower()
            # `find` also takes a word that only begins with a name, as "germanic".
            is_longer = candidate.startswith(english) and candidate[len(english) :][:1].isalpha()
            if not is_longer and (code := of_whisper(language.to_tag())) in LANGUAGES:
                return code
    return text
