"""Token ids to whole words."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tiny import tiny_folder

from streaming_asr.whisper.load import load_whisper


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


def encode(whisper, text):
    return whisper.text_tokens(text)


@pytest.mark.parametrize(
    "text", [" the quick brown fox", "Bitte noch ein Stück Käse", " $12.50, a “pen”", " 你好 и €"]
)
def test_words_spell_the_text_and_cover_its_tokens(whisper, text):
    ids = encode(whisper, text)
    words = whisper.detokenizer.words(ids)
    assert "".join(word.text for word in words) == text
    assert [word.text.strip() for word in words] == text.split()
    assert words[0].start == 0 and words[-1].stop == len(ids)
    assert all(a.stop == b.start for a, b in pairwise(words))


def test_a_word_is_complete_when_its_successor_has_begun(whisper):
    ids = encode(whisper, " umbrella over")
    over = whisper.detokenizer.words(ids)[1].start
    assert over > 1
    assert whisper.detokenizer.words(ids[: over + 1])[0].text == " umbrella"
    assert [w.stop for w in whisper.detokenizer.words(ids[:over])] == [over]


def test_bytes_of_half_a_character_are_held_back(whisper):
    ids = encode(whisper, " a 你")
    texts = [[w.text for w in whisper.detokenizer.words(ids[:k])] for k in range(1, len(ids) + 1)]
    assert texts[-1] == [" a", " 你"]
    assert not any("\ufffd" in text for step in texts for text in step)


def test_languages_without_spaces_break_at_characters(whisper):
    ids = encode(whisper, "你好")
    assert [w.text for w in whisper.detokenizer.words(ids, language="zh")] == ["你", "好"]
    assert [w.text for w in whisper.detokenizer.words(ids, language="en")] == ["你好"]


def test_control_tokens_spell_nothing(whisper):
    ids = [*whisper.prompt(), *encode(whisper, " dog"), whisper.eot]
    assert [w.text for w in whisper.detokenizer.words(ids)] == [" dog"]
    assert whisper.detokenizer.words([]) == []
