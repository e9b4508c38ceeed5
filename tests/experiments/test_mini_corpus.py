"""The committed splits of mini, its noise, and the rule that keeps test sentences out of train."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
from places import ROOT

from experiments.mini import corpus, text, voices
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.noise import KINDS, mix
from streaming_asr.corpora.shards import read_shards
from streaming_asr.errors import UserError

MINI = ROOT / "streaming_asr/data/mini"
SPLITS = ("dev", "clean", "other", "finance")


def rows(split: str) -> list[dict]:
    return [json.loads(line) for line in (MINI / f"{split}.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("split", "n", "n_speakers"),
    [("dev", 200, 16), ("clean", 240, 16), ("other", 240, 16), ("finance", 120, 8)],
)
def test_a_split_has_enough_utterances_and_speakers(split: str, n: int, n_speakers: int) -> None:
    found = rows(split)
    assert len(found) >= n
    assert len({row["speaker"] for row in found}) >= n_speakers
    assert len({row["text"] for row in found}) == len(found)


@pytest.mark.parametrize("split", SPLITS)
def test_utterances_are_as_long_as_the_manifest_says_and_hold_their_words(split: str) -> None:
    for row in rows(split):
        info = soundfile.info(MINI / row["audio_filepath"])
        assert info.samplerate == 16_000 and info.channels == 1
        assert row["duration"] == info.frames / 16_000
        assert 2.0 <= row["duration"] <= 9.0
        assert [word for word, _, _ in row["words"]] == row["text"].split()
        assert row["words"][0][1] >= 0.0 and row["words"][-1][2] <= row["duration"]
        for _, start, end in row["words"]:
            assert end - start >= 0.02
        for before, after in zip(row["words"], row["words"][1:], strict=False):
            assert after[1] >= before[2] - 0.02  # engines place frames on grids of 5-10 ms


def test_words_lie_where_the_energy_is() -> None:
    for row in rows("clean")[::16] + rows("other")[::16]:
        audio, _ = soundfile.read(MINI / row["audio_filepath"])
        overall = np.sqrt(np.mean(audio**2))
        for word, start, end in row["words"]:
            span = audio[int(start * 16_000) : int(end * 16_000)]
            assert np.sqrt(np.mean(span**2)) > 0.1 * overall, (row["id"], word)
        lead = audio[: max(0, int((row["words"][0][1] - 0.05) * 16_000))]
        assert lead.size < 160 or np.sqrt(np.mean(lead**2)) < 0.1 * overall, row["id"]


def test_no_speaker_of_other_is_heard() -> None:
    other = {row["speaker"] for row in rows("other")}
    heard = {row["speaker"] for split in ("dev", "clean", "finance") for row in rows(split)}
    trained = {*voices.ESPEAK_HEARD, *voices.FLITE_HEARD, *voices.FLITE_TRAIN_ONLY}
    trained |= {*voices.FESTIVAL_FAST, *voices.FESTIVAL_SLOW}
    assert not other & trained
    assert heard <= trained


def test_other_has_every_kind_of_noise_at_5_to_15_db() -> None:
    noises = [row["noise"] for row in rows("other")]
    assert {noise["kind"] for noise in noises} == set(KINDS)
    assert all(5 <= noise["snr_db"] <= 15 for noise in noises)
    assert max(noise["snr_db"] for noise in noises) - min(noise["snr_db"] for noise in noises) > 5


def test_all_audio_takes_14_mb_at_most_and_every_file_is_named() -> None:
    files = {path for path in (MINI / "audio").rglob("*") if path.is_file()}
    assert sum(path.stat().st_size for path in files) <= 14e6
    assert files == {MINI / row["audio_filepath"] for split in SPLITS for row in rows(split)}


def test_each_sentence_of_dev_and_test_is_reserved_and_occurs_once() -> None:
    seen: set[str] = set()
    for split in SPLITS:
        for row in rows(split):
            for sentence in row["sentences"]:
                assert corpus.reserved(sentence), sentence
                assert sentence not in seen, sentence
                seen.add(sentence)
    n_heldout = sum(row["heldout"] for row in rows("clean") + rows("other"))
    assert 40 <= n_heldout <= 110  # 15 % of 498 are 75


def test_the_training_generator_draws_no_reserved_sentence() -> None:
    rng, n_reserved = random.Random(1), 0
    for _ in range(2000):
        sentences = corpus.spoken_sentences(text.sentence(rng).units)
        n_reserved += any(corpus.reserved(s) for s in sentences)
    assert 60 <= n_reserved <= 220  # one in 20 sentences, with 1.3 sentences per utterance
    assert corpus.reserved("") is True  # crc32 of nothing is 0
    assert corpus.reserved("the bank is open") and not corpus.reserved("turn left")


def test_an_utterance_of_two_sentences_is_taken_apart_for_the_rule() -> None:
    units = [
        text.Unit("Wake", ("wake",)),
        text.Unit("at", ("at",)),
        text.Unit("7", ("seven",)),
        text.Unit("a.m.", ("eigh", "em")),
        text.Unit("tomorrow.", ("tomorrow",)),
        text.Unit("Why?", ("why",)),
    ]
    assert corpus.spoken_sentences(units) == ["wake at seven eigh em tomorrow", "why"]


def test_long_recordings_last_a_minute_by_one_voice_and_one_lasts_ten() -> None:
    found = read_manifest(MINI / "long.jsonl")
    assert len(found) >= 8
    assert all(utterance.duration_s >= 60 for utterance in found)
    speakers = {row["audio_filepath"]: row["speaker"] for row in rows("clean")}
    for row in rows("long"):
        assert {speakers[part["audio_filepath"]] for part in row["parts"]} == {row["speaker"]}
        assert all(0.2 <= part["gap_s"] <= 2.0 for part in row["parts"])
    (memory,) = read_manifest(MINI / "long600.jsonl")
    assert 600 <= memory.duration_s < 620


def test_a_long_recording_has_its_words_where_its_parts_have_them() -> None:
    row, utterance = rows("long")[0], read_manifest(MINI / "long.jsonl")[0]
    audio = utterance.load()
    assert len(audio) == round(row["duration"] * 16_000)
    parts = {part["audio_filepath"]: part for part in rows("clean")}
    words, start_s = [], 0.0
    for part in row["parts"]:
        one = parts[part["audio_filepath"]]
        words += [(w, a + start_s, b + start_s) for w, a, b in one["words"]]
        start_s += one["duration"] + part["gap_s"]
    assert [w for w, _, _ in words] == row["text"].split()
    for (_, start, end), (_, stored_start, stored_end) in zip(words, row["words"], strict=True):
        assert stored_start == pytest.approx(start, abs=1e-3)
        assert stored_end == pytest.approx(end, abs=1e-3)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("snr_db", [-5.0, 5.0, 15.0])
def test_noise_reaches_the_ratio_asked_for_and_is_deterministic(kind: str, snr_db: float) -> None:
    t = np.arange(32_001) / 16_000
    signal = (0.05 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
    mixed = mix(signal, kind, snr_db, 3)
    assert mixed.dtype == np.float32 and mixed.shape == signal.shape
    noise = mixed.astype(np.float64) - signal
    measured_db = 10 * np.log10(np.mean(signal.astype(np.float64) ** 2) / np.mean(noise**2))
    assert measured_db == pytest.approx(snr_db, abs=0.01)
    assert np.array_equal(mixed, mix(signal, kind, snr_db, 3))
    assert not np.array_equal(mixed, mix(signal, kind, snr_db, 4))


def test_loud_noise_stays_within_full_scale() -> None:
    signal = np.full(1600, 0.9, dtype=np.float32)
    assert np.abs(mix(signal, "white", 0.0, 0)).max() == pytest.approx(1.0, abs=1e-6)


def test_silence_and_nothing_come_back_as_they_are() -> None:
    assert not mix(np.zeros(100, dtype=np.float32), "pink", 10.0, 0).any()
    assert mix(np.zeros(0, dtype=np.float32), "pink", 10.0, 0).size == 0


def test_an_unknown_kind_of_noise_names_those_there_are() -> None:
    with pytest.raises(UserError, match="noise='rain': one of babble, hum, pink, white"):
        mix(np.ones(10, dtype=np.float32), "rain", 10.0, 0)


NEEDS = (
    "no synthesiser here: apt install espeak-ng flite festival festvox-kallpc16k "
    "festvox-kdlpc16k festvox-us-slt-hts"
)


@pytest.mark.parametrize("name", ["espeak-en-US+f3", "flite-rms-w95", "festival-kal"])
def test_a_speaker_says_each_word_at_its_time(name: str) -> None:
    engine = {"espeak": voices.espeak, "flite": voices.flite, "festival": voices.festival}
    if not engine[name.split("-")[0]].available():
        pytest.skip(NEEDS)
    words = [
        "there",
        "were",
        "twenty",
        "five",
        "boats",
        "in",
        "the",
        "garden",
        "at",
        "five",
        "o'clock",
    ]
    spoken = voices.speak(words, voices.voice(name), 1, frozenset({3}))
    assert spoken is not None
    assert len(spoken.times) == len(words)
    assert spoken.samples.dtype == np.float32
    assert 2.0 < len(spoken.samples) / 16_000 < 7.0
    overall = np.sqrt(np.mean(spoken.samples**2))
    for word, (start, end) in zip(words, spoken.times, strict=True):
        assert 0.03 < end - start < 1.2, word
        span = spoken.samples[int(start * 16_000) : int(end * 16_000)]
        assert np.sqrt(np.mean(span**2)) > 0.1 * overall, word
    for (_, end), (start, _) in zip(spoken.times, spoken.times[1:], strict=False):
        assert start >= end - 0.012


def test_training_shards_are_written_and_read_back(tmp_path: Path) -> None:
    if not all(e.available() for e in (voices.espeak, voices.flite, voices.festival)):
        pytest.skip(NEEDS)
    corpus.train(tmp_path, hours=0.01, workers=1, seed=5, domain="general")
    items = read_shards(tmp_path)
    assert sum(item.n_samples for item in items) >= 0.01 * 3600 * 16_000
    assert (tmp_path / "DONE").exists()
    for item in items:
        assert item.text.split() == [word for word, _, _ in item.words]
        audio = item.samples()
        assert audio.shape == (item.n_samples,) and 0.005 < np.abs(audio).max() <= 1.0
        assert item.words[-1][2] <= item.n_samples / 16_000
