"""The normalisers and the light key."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming_asr.method import Update, Word, display_text
from streaming_asr.text.growing import Beginnings, Growing
from streaming_asr.text.languages import LANGUAGES, language_code
from streaming_asr.text.normalise import LIGHT, default_kind, light_key, light_words, normaliser
from streaming_asr.text.scripts import mismatch
from streaming_asr.text.spoken import WordsAlone, is_word, whole_words
from streaming_asr.text.style import in_style
from streaming_asr.text.subtitles import cues
from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import (
    joined,
    timed_units,
    unit_of,
    units,
    written_units,
)


@pytest.mark.parametrize(
    ("written", "normalised"),
    [
        ("Mr. Smith can't pay.", "mister smith can not pay"),
        ("It costs four dollars, and fifty cents!", "it costs $4.50"),
        ("twenty one", "21"),
        ("The colour [laughs] of it", "the color of it"),
        ("um, well", "well"),
        ("", ""),
    ],
)
def test_english_is_normalised_as_whisper_does(written, normalised):
    assert normaliser("en")(written) == normalised


def test_the_normaliser_is_not_prefix_monotone_which_is_why_the_light_key_exists():
    assert normaliser("en").words("one oh") == ("10",)
    assert normaliser("en").words("one oh one") == ("101",)
    assert light_words("one oh one")[:2] == light_words("one oh")


def test_a_normaliser_is_named_and_without_a_language_is_that_of_english():
    german = normaliser("de")
    assert german("Zwanzig Äpfel, bitte!") == "zwanzig äpfel bitte"
    assert german.name == "whisper_normalizer.BasicTextNormalizer"
    assert normaliser("zh").words("你好吗") == ("你", "好", "吗")
    assert normaliser(None).name == "whisper_normalizer.EnglishTextNormalizer"
    assert normaliser(None).version == normaliser("en").version != ""


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ('"Hello,', "hello"),
        ("$4.50.", "$4.50"),
        ("5%,", "5%"),
        ("o'clock", "o'clock"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("--", ""),
    ],
)
def test_the_light_key_folds_case_and_strips_punctuation_at_the_edges(word, key):
    assert light_key(word) == key


def test_tokens_of_pure_punctuation_are_no_words():
    assert light_words(" Well - yes . ") == ("well", "yes")


# What Whisper's rules name, or reaches across words.
ODD = """
he's don't they'd 'em um's $5 $ $$ 5% % %% 3.50 ... .. . , - -- 3rd 4 th 1s 1960s $2 ¢7
and a half £0.12 twenty-one mr. café œuvre ½ … “quoted” (x) [y] <z> 's 10,000 x2 been
been got done per cent double point oh hundred dollars – um, & @ #1 ? ٣ €7
"""
FAR = "( ) [ ] < > (( () ' um' um( 'tis (laughs) [ one] <um >"


def test_a_text_in_pieces_is_normalised_as_the_whole():
    from whisper_normalizer.english import EnglishTextNormalizer

    from streaming_asr.text.english import EnglishPieces

    whole, pieces = EnglishTextNormalizer(), EnglishPieces()
    named = sorted(pieces._named_words)
    plain = ["cat", "the", "colour", "harbour", "organise"]
    odd = [*ODD.split(), *FAR.split(), "", "\n"]
    rng = random.Random(5)
    for _ in range(1500):
        words = rng.choices((named, odd, plain), weights=(1, 2, 2), k=rng.randint(1, 12))
        text = " ".join(rng.choice(each) for each in words)
        assert list(pieces(text)) == whole(text).split(), text


@pytest.mark.parametrize("kind", ["whisper", "whisper_marks"])
@pytest.mark.parametrize("language", ["de", "hi", "th", "zh", "el"])
def test_words_are_normalised_one_by_one_as_in_their_text(language, kind):
    from whisper_normalizer.basic import BasicTextNormalizer

    has_marks = kind == "whisper_marks"
    whole = BasicTextNormalizer(split_letters=language in ("th", "zh"), preserve_marks=has_marks)
    words = normaliser(language, kind).words
    scripts = "Straße ΟΔΟΣ Σ İI ı हिन्दी की ที่นี่ 今天，好。 Ⓐ℡ ½"
    marks = "é e\u0301 \u0301x a\u00a8 \u3000 한국 \u200d"
    odd = [*scripts.split(" "), *marks.split(" "), *FAR.split(), "", "\n", "\t"]
    rng = random.Random(7)
    for _ in range(300):
        text = " ".join(rng.choices(odd, k=rng.randint(1, 12)))
        assert list(words(text)) == whole(text).split(), text


def test_the_mark_of_a_piece_is_a_word_that_no_rule_names():
    from streaming_asr.text.english import MARK, EnglishPieces

    assert MARK not in EnglishPieces()._named_words
    assert EnglishPieces()(f"{MARK} um {MARK}") == (MARK, MARK)


# -- Text without a letter or digit is not a word --


WORDS = ("a", "7", "½", "雨", "ไ", "\u0e34", "नि", "Ⅳ", "é", "٣", "I.", "$5", "o'clock", "ʻ")
MARKS = (".", "—", " -", "♪", "…", "。", "?", "«", "%", "$", "", " ", "👍", "¿", "\u200b")


@pytest.mark.parametrize("text", WORDS + MARKS)
def test_letters_marks_and_numbers_of_any_script_make_a_word(text):
    assert is_word(text) == (text in WORDS)


def timed(*texts):
    return [Word(text, float(i), i + 0.9) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ([" Ça", " va", " ?", " Oui"], [(" Ça", 0.0), (" va ?", 1.0), (" Oui", 3.0)]),
        ([" a", " «", " b", " »"], [(" a", 0.0), (" « b »", 2.0)]),
        ([" —", " Yes"], [(" — Yes", 1.0)]),
        ([" so", " ("], [(" so (", 0.0)]),
        ([" .", " ♪"], []),
        ([], []),
    ],
)
def test_it_belongs_to_a_word_whose_times_stay(texts, whole):
    found = whole_words(timed(*texts))
    assert [(word.text, word.start) for word in found] == whole
    assert all(word.end == (word.start or 0.0) + 0.9 for word in found)


def test_subtitles_hold_words_alone():
    assert cues(timed(" .")) == []
    (cue,) = cues([Word(" va", 0.0, 1.0), Word(" ?", 1.0, 1.0)])
    assert (cue.text, cue.start, cue.end) == ("va ?", 0.0, 1.0)


def test_a_stretch_without_a_word_has_no_text():
    """Each update: what a method commits, and whether a stretch ends with it."""
    stream = WordsAlone()
    given = [
        ([" ."], False),
        ([" -", " Yes", " !"], True),
        ([" ."], True),
        ([" …"], False),
        ([" no", " —"], True),
    ]
    words = []
    for texts, ends in given:
        words += stream.of(Update(tuple(map(Word, texts)), endpoint=ends)).committed
    assert display_text(words) == "Yes ! no —"
    assert stream.of(Update(partial=(Word(" ."),))).partial == ()
    assert stream.of(Update(partial=(Word(" ."), Word(" So")))).partial != ()


def test_what_is_taken_back_counts_the_words_that_came_out():
    stream = WordsAlone()
    assert stream.of(Update((Word(" ."), Word(" a"), Word(" b")))).committed == tuple(
        map(Word, (" a", " b"))
    )
    update = stream.of(Update((Word(" c"),), retracted=3))
    assert (update.retracted, update.committed) == (2, (Word(" c"),))
    assert stream.of(Update(retracted=5)).retracted == 5  # is refused where it is applied


# -- The unit of a language, normalisers that keep marks, and scripts that do not fit their tag --


UNSPACED = ("zh", "zh-CN", "Chinese", "cmn", "ja_JP", "th", "lao", "my", "yue")


@pytest.mark.parametrize("tag", [*UNSPACED, None, "en", "English", "ko", "vi-VN", "km", "de"])
def test_a_language_without_spaces_is_counted_in_characters_any_other_in_words(tag):
    assert unit_of(tag) == ("character" if tag in UNSPACED else "word")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("我们去公园。", ["我", "们", "去", "公", "园", "。"]),
        ("Amy 今天心情很好", ["Amy", "今", "天", "心", "情", "很", "好"]),
        ("don't去New York", ["don't", "去", "New", "York"]),
        ("café，24年", ["café", "，", "2", "4", "年"]),
        ("cafe\u0301", ["cafe\u0301"]),
        ("ที่นี่ กำ", ["ที่", "นี่", "กำ"]),  # a letter and its vowel sign and tone
        ("ပြည်\u200bသူ", ["ပြ", "ည်", "သူ"]),  # a zero-width space is no character
        ("か\u3099", ["か\u3099"]),
        ("  ", []),
    ],
)
def test_characters_are_graphemes_and_runs_of_latin_letters(text, parts):
    assert units(text, "character") == parts


GRAPHEMES = [*"今天我Amyé，。 '2", "ที่", "นี่", "เ"]


@example("A 'A")  # joined without a blank they would be one word
@example("A- A")
@given(st.lists(st.sampled_from(GRAPHEMES), max_size=30).map("".join))
def test_joined_units_are_the_same_units(text):
    again = joined(units(text, "character"), "character")
    assert units(again, "character") == units(text, "character")


def test_units_are_joined_with_a_blank_between_latin_words_only():
    assert joined(["Amy", "Lee", "今", "天", "，", "New", "York"], "character") == (
        "Amy Lee今天，New York"
    )
    assert joined(["the", "cat"], "word") == "the cat"


def test_the_characters_of_a_timed_word_share_its_time_and_punctuation_takes_none():
    words = [("今天，", 0.0, 1.0), ("Amy", 1.0, 2.0), ("。", 2.0, 2.5)]
    assert timed_units(words, "character") == [
        ("今", 0.0, 0.5),
        ("天", 0.5, 1.0),
        ("，", 1.0, 1.0),
        ("Amy", 1.0, 2.0),
        ("。", 2.0, 2.5),
    ]
    assert timed_units(words, "word") == words


def test_what_times_stand_for_has_its_punctuation():
    assert written_units("「好」吧。Amy走", "character") == ["「好」", "吧。", "Amy", "走"]
    assert written_units("Well - yes . 5 %", "word") == ["Well", "yes", "5", "%"]


HINDI = "किताब मेरी मेज़ पर"


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "n_words"),
    [
        ("hi", "की", "का", 1),
        ("ta", "கீ", "கா", 1),
        ("bn", "কি", "কা", 1),
        ("ar", "كَتَبَ", "كُتُبِ", 1),
        ("he", "סֵפֶר", "סַפָּר", 1),
        ("th", "ที่", "ทุ", 1),
        ("my", "ကို", "ကာ", 1),
        ("yo", "ọ̀rọ̀", "ọ́rọ́", 1),
    ],
)
def test_marks_tell_words_apart(language, reference, hypothesis, n_words):
    words = normaliser(language).words  # none is named
    assert len(words(reference)) == n_words
    assert words(reference) != words(hypothesis)
    assert normaliser(language).name.endswith("preserve_marks)")
    as_published = normaliser(language, "whisper").words
    assert as_published(reference) == as_published(hypothesis)


def test_four_wrong_words_of_hindi_are_four_errors():
    reference, hypothesis = "की से मे को", "का सी मा के"
    words = normaliser("hi-IN", "whisper_marks").words
    assert [a != b for a, b in zip(words(reference), words(hypothesis), strict=True)] == [True] * 4
    published = normaliser("hi", "whisper").words
    assert published(reference) == published(hypothesis)


def test_turkish_capitals_are_those_of_turkish():
    assert normaliser("tr").words("İstanbul ISPARTA") == ("istanbul", "ısparta")
    # As published the dot of İ is a blank.
    assert normaliser("tr", "whisper").words("İstanbul") == ("i", "stanbul")


def test_the_kind_that_is_taken_where_none_is_named():
    assert default_kind({"en", None, "zh-TW", "de"}) == "whisper"
    assert default_kind({"hi_IN"}) == "whisper_marks"
    assert normaliser("English").name == "whisper_normalizer.EnglishTextNormalizer"
    assert normaliser("en", "whisper_marks") is not None
    text = "We don't colour 2 things"
    assert normaliser("eng", "whisper_marks")(text) == normaliser("en-US", "whisper")(text)
    assert normaliser("zh", "identity").words("今天Amy") == ("今", "天", "Amy")


def test_a_letter_has_one_light_key_however_it_is_composed():
    assert light_key("Cafe\u0301,") == light_key("café") == "café"
    assert light_words("今天，好", "character") == ("今", "天", "好")


@pytest.mark.parametrize(
    ("language", "text", "fits"),
    [
        (None, "hello there", True),
        ("en-GB", "hello 今天 there", True),
        (None, "今天心情很好", False),
        ("en", "привет мир", False),
        ("zh", "今天 Amy", True),
        ("zh", "hello there", False),
        ("ja", "今日はカメラ", True),
        ("de", "สวัสดี", False),
        ("ko", "안녕 漢字", True),
        ("fr", "12 345 !", True),
        ("hi", HINDI, True),
    ],
)
def test_a_script_that_does_not_fit_its_language_is_remarked(language, text, fits):
    told = mismatch(language, [text])
    assert (told is None) == fits
    if told is not None:
        assert "name the language" in told


# -- Tests of references written in the style of a recogniser's output --


@pytest.mark.parametrize(
    "reference, output, text",
    [
        # The same words: the output as it is.
        (
            "MISTER KARA HAS TWO HUNDRED SHEEP",
            " Mr.  Kara has 200 sheep.",
            "Mr. Kara has 200 sheep.",
        ),
        # A wrong word: its case and punctuation are taken, not its letters.
        ("YES KARA FOLDED IT", "Yes, Cara folded it!", "Yes, Kara folded it!"),
        ("he read the letter twice", "He read the Lettre, twice.", "He read the Letter, twice."),
        # Words that the output lacks are in lower case, those it adds are left out.
        ("THE OLD MAN SAT DOWN", "The man sat down.", "The old man sat down."),
        ("the man sat down", "The man, he, sat down.", "The man, sat down."),
        # Other forms of the same words inside a text with an error.
        ("MISTER BROWN CAME AT TEN", "Mr. Browne came at 10.", "Mr. Brown came at 10."),
        ("MISTER AND MISSUS DAY SAT", "Mr. and Mrs. Dey sat.", "Mr. and Mrs. Day sat."),
        # A sentence of the output that begins later in the reference.
        ("AND SO THE MAN SAT", "The man sat.", "And so the man sat."),
        # Two words for one take neither.
        ("she had a shamrock there", "She had a Sham rock there.", "She had a shamrock there."),
        # A sentence that ends begins another one.
        ("GO AWAY THEN COME", "Go way. Then gum", "Go away. Then come."),
        ("i think i'm late says i", "", "I think I'm late says I."),
        ("one two", "One, too,", "One, two."),
        # Three dots are no words, and a number that would come apart stays.
        ("AND SO HE SAT", "And so he sat...", "And so he sat."),
        ("AND SO HE SAT", "And... so he set", "And so he sat."),
        ("KNIT TWO FOURTH ROW SEAMED", "Knit 2 4th row seemed", "Knit two fourth row seamed."),
        # In two cases already.
        ("He went to Rome", "he went to rome.", "He went to Rome"),
        ("HE WENT", "He went", "He went"),
    ],
)
def test_a_reference_takes_the_case_and_punctuation_of_the_output(reference, output, text):
    assert in_style(reference, output) == text


@pytest.mark.parametrize("output", ["", "Wholly other words.", "The cat; the DOG sat, on a mat?"])
def test_the_words_stay_those_of_the_reference(output):
    reference = "THE CAT AND THE DOG SAT ON THE MAT"
    words = normaliser("en").words
    assert words(in_style(reference, output)) == words(reference)


def test_a_language_without_blanks_or_english_i_keeps_its_words():
    assert in_style("I GATTI SONO QUI", "Gatti sono qui.", "it") == "I gatti sono qui."
    assert in_style("si e i gatti", "Si, e gatti.", "it") == "Si, e i gatti."
    assert in_style("你好", "你好。", "zh") == "你好"


@pytest.mark.parametrize("kind", ["en", "de", "el", "tr", "zh", "th", "light", "character"])
def test_texts_that_begin_alike_have_the_words_that_each_has_by_itself(kind):
    """Texts that share any beginning with another one, by every way to cut a text into words."""
    rules = {"light": LIGHT["word"], "character": LIGHT["character"]}.get(kind)
    rules = rules or normaliser(kind, "whisper_marks").rules
    rng = random.Random(0)
    odd = "twenty five one oh can't it's $5 [a b] (c) half 3 rd 's i'm um - a percent İ Σ ½ I"
    kinds = [
        odd.split(),
        FAR.split(),
        ["the", "cat", "Colour", "FAR", "今天", "気か\u3099", "\u0301x"],
    ]
    blanks = ["", " "] if kind in ("zh", "character") else [" ", " ", " ", "  ", "\n", ""]

    def drawn(n):
        words = rng.choices(kinds, weights=(3, 1, 9), k=n)
        return "".join(rng.choice(blanks) + rng.choice(each) for each in words)

    for _ in range(60):
        whole = drawn(rng.randrange(30))
        beginnings, before = Beginnings(whole, rules), Growing.of(())
        for _ in range(20):
            text = Growing.of(whole).first(rng.randrange(len(whole) + 1)).plus(drawn(3)).all()
            words = beginnings.words(Growing.of(text, whole))
            assert words.all() == tuple(rules.words(text)), (whole, text)
            assert words.shared(before) == common_prefix(words.all(), before.all())
            assert words.behind(1) == words.all()[1:]
            before = words


# -- Languages --


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
def test_a_spelling_gives_one_code(tag, code):
    assert language_code(tag) == code


def test_whisper_s_own_names_and_codes_give_its_codes():
    tokenization = pytest.importorskip("transformers.models.whisper.tokenization_whisper")
    assert set(tokenization.LANGUAGES) == LANGUAGES
    for name, code in tokenization.TO_LANGUAGE_CODE.items():
        assert language_code(name) == language_code(code) == code


def test_iso_639_by_cldr():
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
def test_script_region_and_case_do_not_matter(tag):
    assert language_code(tag) == tag.replace("_", "-").split("-")[0].lower()


@given(st.text(max_size=12) | TAGS)
def test_a_code_is_its_own_code(tag):
    code = language_code(tag)
    assert language_code(code) == code
