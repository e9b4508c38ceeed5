"""The embedded natural speech: what `data=voices` holds, and that no training has heard it."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.real import dev, voices
from experiments.real.packages import ADDRESSES, WORDNET
from experiments.real.sentences import reserved, said_as_written, split, words_of
from experiments.real.speech import HELD_OUT
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.data.check import check
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import Utterance

NAMES = [first + rest for first in ("T", "B", "R", "M") for rest in ("om", "en", "ob", "ay")]


@pytest.fixture(scope="module")
def utterances() -> list[Utterance]:
    """The clips, each decoded once for all tests."""
    found = build(compose_raw(["data=voices"]).data).utterances()
    return [replace(each, audio=functools.cache(each.audio)) for each in found]


def test_there_are_60_clips_ten_of_each_held_out_voice(utterances: list[Utterance]) -> None:
    held_out = json.loads(HELD_OUT.read_text("utf-8"))
    assert Counter(u.speaker for u in utterances) == dict.fromkeys(held_out["test"], 10)
    assert Counter(name[:2] for name in held_out["test"]) == {"af": 2, "am": 2, "bf": 1, "bm": 1}
    assert not set(held_out["test"]) & set(held_out["dev"])


def test_nothing_is_wrong_with_a_file(utterances: list[Utterance]) -> None:
    corpus = build(compose_raw(["data=voices"]).data)
    assert (corpus.name, corpus.split) == ("voices", "test")
    assert check(corpus).problems == []
    for utterance in utterances:
        n_samples = len(utterance.load())
        assert n_samples == pytest.approx(utterance.duration_s * SAMPLE_RATE, abs=2)


def test_clips_last_3_to_21_seconds_and_some_are_long(utterances: list[Utterance]) -> None:
    lengths_s = [u.duration_s for u in utterances]
    assert min(lengths_s) > 3.0 and max(lengths_s) < 21.0
    assert sum(length_s > 10 for length_s in lengths_s) >= 10


def test_every_word_has_its_time_in_order_within_the_audio(utterances: list[Utterance]) -> None:
    for utterance in utterances:
        words = utterance.words
        assert words is not None and [w.text for w in words] == utterance.text.split()
        times = [time for word in words for time in (word.start, word.end)]
        assert times == sorted(times) and times[-1] <= utterance.duration_s
        assert all(word.start < word.end for word in words)


def test_words_are_heard_where_their_times_say(utterances: list[Utterance]) -> None:
    for utterance in utterances:
        samples, words = utterance.load(), utterance.words
        assert words is not None
        audible = 0.05 * np.sqrt(np.mean(samples**2))  # the faintest last word has 0.08
        for word in words:
            span = samples[int(word.start * SAMPLE_RATE) : int(word.end * SAMPLE_RATE)]
            assert np.sqrt(np.mean(span**2)) > audible, (utterance.id, word)
        lead = samples[: int((words[0].start - 0.03) * SAMPLE_RATE)]
        assert np.sqrt(np.mean(lead**2)) < audible, utterance.id


def test_a_voice_has_three_clips_of_two_sentences_with_a_pause(utterances: list[Utterance]) -> None:
    doubles = [u for u in utterances if len(split(u.text)) == 2]
    assert Counter(u.speaker for u in doubles) == {u.speaker: 3 for u in utterances}
    for utterance in doubles:
        words = utterance.words
        assert words is not None
        n_first = len(split(utterance.text)[0].split())
        assert words[n_first].start - words[n_first - 1].end > 0.4


def test_each_sentence_is_kept_from_training_and_occurs_once(utterances: list[Utterance]) -> None:
    said = [sentence for u in utterances for sentence in split(u.text)]
    assert len(said) == len({words_of(sentence) for sentence in said}) == 78
    assert all(reserved(sentence) and said_as_written(sentence) for sentence in said)


def test_the_audio_takes_3_mb_at_most_and_every_file_is_named(utterances: list[Utterance]) -> None:
    folder = HELD_OUT.parents[2] / "streaming_asr/data/voices/audio"
    files = list(folder.iterdir())
    assert sum(file.stat().st_size for file in files) < 3e6
    assert {str(file) for file in files} == {u.audio_path for u in utterances}


def test_sentences_are_taken_by_length_two_of_one_year_and_never_twice() -> None:
    left = [(1990, "a b c"), (1991, "d e"), (1992, "f g h"), (1990, "i j k"), (1992, "l m n")]
    assert voices.take(left, 1, 2, 2) == ("d e",)
    assert voices.take(left, 2, 3, 9) == ("a b c", "i j k")
    assert left == [(1992, "f g h"), (1992, "l m n")]
    with pytest.raises(UserError, match="fewer than 2 sentences of 1 to 2 words"):
        voices.take(left, 2, 1, 2)


def test_the_order_of_sentences_depends_on_their_words_and_takes_each_once() -> None:
    kept = [s for s in (f"Word {a}{b}." for a in "abcdefgh" for b in "abcdefgh") if reserved(s)]
    years = {1970: kept, 1971: [*kept[:1], "Not kept."]}
    found = [sentence for _, sentence in voices.ordered(years, "salt")]
    assert sorted(found) == sorted(kept) != []
    assert found == [sentence for _, sentence in voices.ordered({1970: kept[::-1]}, "salt")]


def test_dev_says_no_sentence_of_these_clips_and_none_from_before_1961(
    tmp_path: Path, utterances: list[Utterance]
) -> None:
    (said,) = (u.text for u in utterances if u.id == "af_river-0")
    new = [f"We said so to {a} and {b}." for a in NAMES for b in NAMES]
    kept = [sentence for sentence in new if reserved(sentence)]
    (tmp_path / ADDRESSES.folder / "package/data").mkdir(parents=True)
    (tmp_path / WORDNET.folder / "package/dict").mkdir(parents=True)
    for year, sentences in ((1950, new), (1970, [said]), (1980, new[::2])):
        file = tmp_path / ADDRESSES.folder / f"package/data/{year}.txt"
        file.write_text(" ".join(sentences))
    gloss = "; ".join(f'"{each[:-1]}"' for each in (said, *new))
    (tmp_path / WORDNET.folder / "package/dict/data.noun").write_text(f"0 | it; {gloss}")
    of_addresses, of_wordnet = dev.sentences(tmp_path)
    late = [sentence for sentence in new[::2] if reserved(sentence)]
    assert sorted(of_addresses) == sorted((1980, sentence) for sentence in late) != []
    assert sorted(of_wordnet) == sorted((0, sentence) for sentence in kept)
