"""Language tags: each usual spelling gives Whisper's code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_asr.text.languages import LANGUAGES, language_code

SPELLINGS = {
    "en": "en EN eng ENG English english ENGLISH en-US en_US en-us en_GB.UTF-8 en-Latn-US eng-USA "
    "en-IND en-029 en-x-private English(US) English-US",
    "zh": "zh zho chi cmn zh-CN zh_Hans_CN zh-Hant-TW cmn_hans_cn cmn-Hans-CN zh-HK Chinese "
    "Mandarin zho_Hans zh-cmn-Hans-CN",
    "yue": "yue YUE zh-yue zh-yue-HK yue_hant_hk yue-Hant-HK Cantonese",
    "de": "de deu ger de-DE de-AT de_DE@euro de-CH-1996 deu-DEU German",
    "he": "he iw heb he-IL iw_IL",
    "id": "id in ind id-ID Indonesian",
    "jw": "jw jv jav jv_ID Javanese",
    "no": "no nb nob nor nb-NO nb_no Norwegian",
    "nn": "nn nno nn-NO Nynorsk",
    "tl": "tl tgl fil fil_PH Filipino Tagalog",
    "ro": "ro ron rum mo ro-MD Moldovan",
    "fa": "fa fas per pes fa-IR Farsi Persian pes_Arab",
    "sr": "sr srp sr-Latn-RS",
    "haw": "haw haw-US Hawaiian",
}
PHRASES = {
    " en ": "en",
    "English (United States)": "en",
    "British English": "en",
    "Spanish (Mexico)": "es",
    "Latin American Spanish": "es",
    "Brazilian Portuguese": "pt",
    "Haitian Creole": "ht",
    "Norwegian Bokmål": "no",
    "Norwegian Nynorsk": "nn",
    "Serbian (Latin)": "sr",
    "Chinese, Simplified": "zh",
    "Mandarin Chinese": "zh",
    "Chinese (Cantonese)": "yue",
    "Tibetan": "bo",
}
# In no table of Whisper's: the first part of a tag, other text as it stands.
OTHERS = {"ga-IE": "ga", "GA": "ga", "nan-tw": "nan", "eo": "eo", "xx": "xx"} | {
    "Klingon": "klingon",
    "Old Norse": "old norse",
    "": "",
    "auto": "auto",
    "detect": "detect",
    "12": "12",
}


@pytest.mark.parametrize(
    ("tag", "code"),
    [(tag, code) for code, tags in SPELLINGS.items() for tag in tags.split()]
    + [*PHRASES.items(), *OTHERS.items()],
)
def test_a_spelling_gives_one_code(tag: str, code: str) -> None:
    assert language_code(tag) == code


def test_whisper_s_own_names_and_codes_give_its_codes() -> None:
    tokenization = pytest.importorskip("transformers.models.whisper.tokenization_whisper")
    assert set(tokenization.LANGUAGES) == LANGUAGES
    for name, code in tokenization.TO_LANGUAGE_CODE.items():
        assert language_code(name) == language_code(code) == code


def test_iso_639_by_cldr() -> None:
    """CLDR's aliases, which Babel has: three-letter codes and replaced codes."""
    core = pytest.importorskip("babel.core")
    aliases = core.get_global("language_aliases")
    usual = {alias: code for alias, code in aliases.items() if len(alias) in (2, 3)}
    rare = {"drh", "prp", "cls"}  # of one member of a macrolanguage, or withdrawn
    pairs = [(a, c) for a, c in usual.items() if c in LANGUAGES and a not in rare]
    assert len(pairs) > 100
    assert {alias: language_code(alias) for alias, _ in pairs} == dict(pairs)


TAGS = st.builds(
    lambda code, script, region, cut, case: case(cut.join(filter(None, (code, script, region)))),
    st.sampled_from(sorted(LANGUAGES)),
    st.sampled_from(["", "Latn", "Hans", "Cyrl", "Arab"]),
    st.sampled_from(["", "US", "GB", "IND", "419", "CN"]),
    st.sampled_from("-_"),
    st.sampled_from([str, str.upper, str.lower, str.title]),
)


@given(TAGS)
def test_script_region_and_case_do_not_matter(tag: str) -> None:
    assert language_code(tag) == tag.replace("_", "-").split("-")[0].lower()


@given(st.text(max_size=12) | TAGS)
def test_a_code_is_its_own_code(tag: str) -> None:
    code = language_code(tag)
    assert language_code(code) == code
