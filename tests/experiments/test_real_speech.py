"""Natural speech to train on: packages, sentences, words' times, voices, resuming."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.real import speech
from experiments.real.packages import Package, obtain
from experiments.real.sentences import (
    addresses,
    examples,
    for_training,
    reserved,
    said_as_written,
    split,
    words_of,
)
from experiments.real.synthesis import (
    RATE,
    Clip,
    Unmatched,
    draw_voice,
    heard,
    joined,
    parse_voice,
    with_output,
    word_times,
)
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError


def package(content: bytes, registry: str = "PyPI", name: str = "spoken") -> Package:
    return Package(registry, name, "1.0", hashlib.sha256(content).hexdigest(), "free")


def wheel(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"spoken/{name}", text)
    return made.getvalue()


class Registry:
    """Gives the same bytes for every package and counts how often."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, self.name, self.asked = content, name, 0

    def __call__(self, package: Package, folder: Path) -> Path:
        self.asked += 1
        file = folder / self.name
        file.write_bytes(self.content)
        return file


def test_a_package_is_unpacked_into_the_cache_and_downloaded_once(tmp_path: Path) -> None:
    content = wheel(word="hello")
    registry = Registry(content, "spoken-1.0-py3-none-any.whl")
    for _ in range(2):
        folder = obtain(package(content), tmp_path, registry)
        assert (folder / "spoken/word").read_text() == "hello"
    assert registry.asked == 1
    assert [file.name for file in tmp_path.iterdir()] == ["spoken-1.0"]


def test_an_archive_of_npm_is_unpacked_too(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/word")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    content = made.getvalue()
    wanted = package(content, "npm", "@scope/spoken")
    folder = obtain(wanted, tmp_path, Registry(content, "scope-spoken-1.0.tgz"))
    assert folder == tmp_path / "scope-spoken-1.0"
    assert (folder / "package/word").read_text() == "hello"
    assert wanted.command == ["npm", "pack", "--silent", "@scope/spoken@1.0"]


def test_a_package_with_another_hash_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    registry = Registry(wheel(word="other"), "spoken-1.0-py3-none-any.whl")
    with pytest.raises(UserError, match="the registry gave another file"):
        obtain(package(wheel(word="hello")), tmp_path, registry)
    assert list(tmp_path.iterdir()) == []


def test_running_text_is_split_into_sentences_with_dashes_as_commas() -> None:
    assert split("Mr. Hill spoke. It’s late -- he left — now.  Why? He was ill.") == [
        "Mr. Hill spoke.",
        "It's late, he left, now.",
        "Why?",
        "He was ill.",
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "Mr. Hill, I can't stay until noon.",
        "A mother's work is never done; is it?",
        "We the People of America are strong.",
    ],
)
def test_a_plain_sentence_is_said_as_it_is_written(sentence: str) -> None:
    assert said_as_written(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "We spent 12 dollars on it.",
        "We spent $ on it all.",
        "They met with NATO last year.",
        "It was Title IX of it.",
        "He lives in the U.S. of America.",
        "It was led by Gen.",
        "It was led by George B.",
        'He said "go" to all of us.',
        "This is well-known to all of us.",
        "Go away now.",
        "and this goes on without a start.",
        "It ends without a stop",
        "It was (as ever) a long day.",
        "We ask you, Mr.",
    ],
)
def test_a_sentence_that_may_be_read_otherwise_is_left_out(sentence: str) -> None:
    assert not said_as_written(sentence)


def test_which_sentences_are_kept_for_tests_depends_on_their_words_alone() -> None:
    sentences = [
        f"The {noun} is old and {state}." for noun in "abcdefghij" for state in "klmnopqrst"
    ]
    kept = [sentence for sentence in sentences if reserved(sentence)]
    assert 0 < len(kept) < 15  # one in twenty of 100
    assert all(reserved(sentence.upper().replace(".", "!")) for sentence in kept)
    assert words_of("It's the END, friend!") == "it's the end friend"


def test_training_has_each_sentence_once_and_none_that_is_kept_for_tests() -> None:
    sentences = [f"Take {n} of them now." for n in ("one", "two", "three", "four", "five", "six")]
    sentences += [f"Give {n} of them now." for n in "abcdefghijklmnopqrstuvwxyz"]
    chosen = for_training([*sentences, *(s.replace(" of", ", of") for s in sentences)])
    assert {words_of(s) for s in chosen} == {words_of(s) for s in sentences if not reserved(s)}
    assert len(chosen) == len({words_of(s) for s in chosen}) < len(sentences)


def test_the_packages_sentences_are_read_as_they_lie_there(tmp_path: Path) -> None:
    spoken = tmp_path / "package/data/1962_john_f_kennedy_d.txt"
    spoken.parent.mkdir(parents=True)
    spoken.write_text("We meet again this week. In 1961 we did so. Peace is our only aim.")
    data = tmp_path / "package/dict/data.noun"
    data.parent.mkdir()
    lines = ('a pet; "the cat sat on the mat"; "a cat - Poe"', 'it; "did he go home at last?"')
    data.write_text("".join(f"1 n 02 cat 0 | {line}\n" for line in lines))
    assert addresses(tmp_path) == {1962: ["We meet again this week.", "Peace is our only aim."]}
    assert examples(tmp_path) == ["The cat sat on the mat.", "Did he go home at last?"]


VOCABULARY = {symbol: i for i, symbol in enumerate(" ,.—ˈabcdː", start=1)}


def test_a_words_time_is_that_of_its_sounding_phonemes() -> None:
    #            pad  ˈ  a  ,     b  c  .  pad   in units of 25 ms
    durations = [10, 2, 4, 6, 2, 3, 5, 8, 4]
    assert word_times("ˈa, bc.", durations, "Ah, bee.", VOCABULARY) == [
        ("Ah,", 0.2, 0.35),
        ("bee.", 0.55, 0.75),
    ]


def test_symbols_without_an_id_have_no_duration_and_a_lone_dash_is_no_word() -> None:
    durations = [3, 1, 1, 1, 1, 1, 1, 1]
    assert word_times("a? — b.", durations, "Ah be.", {**VOCABULARY}) == [
        ("Ah", 0.025, 0.05),
        ("be.", 0.125, 0.15),
    ]


@pytest.mark.parametrize(
    ("phonemes", "durations", "sentence", "message"),
    [
        ("a b", [1, 1, 1, 1, 1], "One two three", "3 words written, 2 spoken"),
        ("a b", [1, 1, 1, 1, 1], "Twelve", "1 words written, 2 spoken"),
        ("ab", [1, 1, 1], "Ab", "2 phonemes, 3 durations"),
    ],
)
def test_words_that_do_not_match_are_refused(
    phonemes: str, durations: list[int], sentence: str, message: str
) -> None:
    with pytest.raises(Unmatched, match=message):
        word_times(phonemes, durations, sentence, VOCABULARY)


def test_a_word_before_a_pause_ends_where_it_is_last_heard() -> None:
    samples = np.zeros(16_000, np.float32)
    samples[3_200:6_400] = 0.5  # 0.2 to 0.4 s
    samples[6_400:8_000] = 0.004  # below -40 dB
    samples[9_600:12_800] = 0.5  # 0.6 to 0.8 s
    words = [("One", 0.1, 0.3), ("two,", 0.3, 0.5), ("three", 0.55, 0.7), ("four.", 0.7, 0.95)]
    assert heard([*words, ("Five.", 0.95, 1.0)], samples) == [
        ("One", 0.2, 0.3),
        ("two,", 0.3, 0.4),
        ("three", 0.6, 0.7),
        ("four.", 0.7, 0.8),
        ("Five.", 0.95, 1.0),
    ]
    steady = np.full(16_000, 0.5, np.float32)
    assert heard(words, steady) == words


def test_sentences_are_joined_with_their_pause() -> None:
    one = (np.ones(RATE, np.float32), [("one", 0.1, 0.9)])
    two = (np.ones(RATE // 2, np.float32), [("two", 0.2, 0.4)])
    samples, words = joined([one, two], [0.25])
    assert len(samples) == RATE * 1.75
    assert not samples[RATE : RATE * 5 // 4].any() and samples[RATE * 5 // 4 :].all()
    assert words == [("one", 0.1, 0.9), ("two", 1.45, 1.65)]


def test_a_voice_is_a_name_or_a_blend_of_two() -> None:
    assert parse_voice("af_sky") == {"af_sky": 1.0}
    assert parse_voice("a*0.75+b") == {"a": 0.75, "b": 0.25}
    assert parse_voice("a*1+b") == {"a": 1.0}
    for wrong in ("a+b", "a*0+b", "a*2+b", "a*x+b", "a*0.5+", "a*0.5+a", "a*0.5+b+c"):
        with pytest.raises(UserError, match="write a name, or a blend"):
            parse_voice(wrong)


def test_drawn_voices_are_blends_as_often_as_wished() -> None:
    rng = random.Random(0)
    drawn = [draw_voice(rng, ("a", "b", "c"), 0.5) for _ in range(200)]
    assert 70 < sum("+" in voice for voice in drawn) < 130
    assert {name for voice in drawn for name in parse_voice(voice)} == {"a", "b", "c"}
    assert {draw_voice(rng, ("a", "b"), 0.0) for _ in range(20)} == {"a", "b"}
    assert draw_voice(rng, ("a",), 1.0) == "a"


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """A message of protobuf with short fields."""
    made = b""
    for number, value in fields:
        if isinstance(value, int):
            made += bytes([number << 3, value])
        else:
            made += bytes([number << 3 | 2, len(value)]) + value
    return made


def test_an_inner_tensor_of_a_network_becomes_its_last_output() -> None:
    import onnxruntime

    def value(name: bytes) -> bytes:  # float32 (1,)
        shape = message((1, message((1, 1))))
        return message((1, name), (2, message((1, message((1, 1), (2, shape))))))

    def node(kind: bytes, source: bytes, target: bytes) -> bytes:
        return message((1, source), (2, target), (4, kind))

    graph = message(
        (1, node(b"Neg", b"x", b"inner")),
        (1, node(b"Exp", b"inner", b"y")),
        (2, b"g"),
        (11, value(b"x")),
        (12, value(b"y")),
    )
    model = message((1, 8), (7, graph), (8, message((2, 13))))
    session = onnxruntime.InferenceSession(with_output(model, "inner"))
    y, inner = session.run(None, {"x": np.array([2.0], np.float32)})
    assert inner.tolist() == [-2.0]
    assert y == pytest.approx(np.exp(-2.0))


SETTINGS = speech.SpeechSettings(
    seed=3, kokoro=0.5, voices=("af_heart", "am_adam"), blended=0.5, speed=(0.9, 1.1)
)
TEXTS = [f"Sentence {i}." for i in range(400)]


def test_a_clip_depends_on_seed_and_index_alone() -> None:
    again = [speech.clip(i, SETTINGS, TEXTS) for i in reversed(range(100))][::-1]
    clips = [speech.clip(i, SETTINGS, TEXTS) for i in range(100)]
    assert clips == again
    others = [speech.clip(i, replace(SETTINGS, seed=4), TEXTS) for i in range(100)]
    assert sum(a == b for a, b in zip(clips, others, strict=True)) < 5


def test_clips_mix_engines_voices_lengths_and_speeds_and_repeat_no_sentence() -> None:
    clips = [speech.clip(i, SETTINGS, TEXTS) for i in range(200)]
    assert 75 < sum(each.engine == "kokoro" for each in clips) < 125
    assert {each.voice for each in clips if each.engine == "hibari"} == {"hibari_heart"}
    assert 30 < sum(len(each.sentences) == 2 for each in clips) < 70
    assert all(len(each.pauses_s) == len(each.sentences) - 1 for each in clips)
    assert all(0.9 <= each.speed <= 1.1 for each in clips)
    said = [sentence for each in clips for sentence in each.sentences]
    assert len(set(said)) == len(said)


def test_no_clip_has_a_held_out_voice_not_even_in_a_blend() -> None:
    there = ["af_heart", "af_river", "af_sky", "am_adam", "bm_lewis"]
    assert speech.allowed(None, there) == ("af_heart", "am_adam")
    assert speech.allowed("af_heart,am_adam*0.5+af_heart", there)[1] == "am_adam*0.5+af_heart"
    for wanted in ("af_river", "af_heart*0.8+af_sky", "bm_lewis*0.5+am_adam"):
        with pytest.raises(UserError, match="is held out"):
            speech.allowed(wanted, there)
    with pytest.raises(UserError, match="no voice 'af_none'; there are af_heart"):
        speech.allowed("af_none", there)


def rows_from(out: Path, stop_after: int | None = None) -> speech.Rows:
    """Clips of 60 s each, of which every fourth is skipped; stopped as by ctrl-c."""

    def rows(index: int) -> Iterator[dict[str, Any]]:
        made = 0
        while True:
            if made == stop_after:
                raise KeyboardInterrupt
            name = f"audio/{index:06d}.ogg"
            if index % 4 == 3:
                yield {"index": index, "text": "x", "speaker": "a", "skipped": "1 words, 2 spoken"}
            else:
                (out / name).write_bytes(b"")
                row = {"index": index, "text": "One.", "speaker": "a", "id": f"c{index}"}
                row |= {"audio_filepath": name, "duration": 60.0, "words": [["One.", 0.0, 1.0]]}
                yield row
            index += 1
            made += 1

    return rows


def test_speech_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    speech.speak(rows_from(whole), SETTINGS, 0.1, whole)
    with pytest.raises(KeyboardInterrupt):
        speech.speak(rows_from(broken, stop_after=4), SETTINGS, 0.1, broken)
    with (broken / "manifest.jsonl").open("a") as file:
        file.write('{"index": 4, "text": "cut o')
    (broken / "audio/000099.ogg").write_bytes(b"")
    made, skipped = speech.speak(rows_from(broken), SETTINGS, 0.1, broken)
    speech.remove_surplus(made, broken)
    for name in ("manifest.jsonl", "skipped.jsonl", "settings.json"):
        assert (broken / name).read_text() == (whole / name).read_text()
    assert [row["index"] for row in made] == [0, 1, 2, 4, 5, 6]
    assert [row["index"] for row in skipped] == [3]
    assert len(read_manifest(broken / "manifest.jsonl")) == len(list((broken / "audio").iterdir()))


def test_a_folder_of_other_settings_is_refused_and_more_hours_are_not(tmp_path: Path) -> None:
    speech.speak(rows_from(tmp_path), SETTINGS, 0.01, tmp_path)
    with pytest.raises(UserError, match="begun with other settings"):
        speech.speak(rows_from(tmp_path), replace(SETTINGS, seed=4), 0.01, tmp_path)
    made, _ = speech.speak(rows_from(tmp_path), SETTINGS, 0.04, tmp_path)
    assert len(made) == 3


class FakeSpeaker:
    """Says a second of a tone, or fails on what has a digit."""

    def say(self, clip: Clip) -> tuple[np.ndarray, list[tuple[str, float, float]]]:
        if any(symbol.isdigit() for symbol in clip.text):
            raise Unmatched("2 words written, 3 spoken")
        tone = 0.5 * np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE)
        return tone.astype(np.float32), [("Hello", 0.1, 0.4), ("there.", 0.5, 0.9)]


def test_a_clip_becomes_opus_and_a_line_of_the_manifest_or_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "_speaker", FakeSpeaker())
    (tmp_path / "audio").mkdir()
    row = speech.make(7, Clip("kokoro", "af_heart", 1.0, ("Hello there.",)), tmp_path)
    (tmp_path / "manifest.jsonl").write_text(json.dumps(row))
    (said,) = read_manifest(tmp_path / "manifest.jsonl")
    assert (said.text, said.speaker, said.duration_s) == ("Hello there.", "af_heart", 1.0)
    assert said.words is not None and said.words[1].start == 0.5
    samples = said.load()
    assert len(samples) == 16_000
    assert 0.3 < np.sqrt(np.mean(samples**2)) < 0.4  # a sine of 0.5: 0.354
    lost = speech.make(8, Clip("kokoro", "af_heart", 1.0, ("Room 12.",)), tmp_path)
    assert lost["skipped"] == "2 words written, 3 spoken" and lost["index"] == 8


@pytest.mark.parametrize(
    "wrong", [["--kokoro", "2"], ["--blended", "-1"], ["--hours", "0"], ["--processes", "0"]]
)
def test_settings_out_of_range_are_refused(wrong: list[str]) -> None:
    with pytest.raises(UserError, match=wrong[0]):
        speech.arguments_of(["--hours", "1", "--out", "x", *wrong])
