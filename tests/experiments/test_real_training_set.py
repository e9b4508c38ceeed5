"""What WhisperRT on real Whisper is trained and chosen on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors import safe_open

import streaming_asr
from experiments.real.dev import people, surroundings
from experiments.real.packages import AUSTEN, DICKENS
from experiments.real.readers import readers
from experiments.real.training_set import as_sentence, program, voices_of, well_aligned
from streaming_asr.corpora.shards import read_shards
from streaming_asr.corpora.speechocean762 import frozen_speakers
from streaming_asr.utterance import TimedWord, Utterance


def utterance(text, words=None, speaker=None):
    return Utterance("a", text, lambda: np.zeros(0, np.float32), 1.0, words=words, speaker=speaker)


def test_lower_case_becomes_a_sentence_and_keeps_its_times():
    words = tuple(TimedWord(w, i, i + 0.5) for i, w in enumerate(["so", "i'm", "in"]))
    found = as_sentence(utterance("so i'm in", words))
    assert found.text == "So I'm in."
    assert found.words == (("So", 0, 0.5), ("I'm", 1, 1.5), ("in.", 2, 2.5))


def test_a_word_of_three_seconds_is_no_good_alignment():
    assert well_aligned(utterance("a", (TimedWord("a", 0.0, 2.0),)))
    assert not well_aligned(utterance("a", (TimedWord("a", 0.0, 3.0),)))


@pytest.mark.parametrize(
    ("speaker", "voices"),
    [("am_puck*0.65+bm_daniel", {"am_puck", "bm_daniel"}), ("hibari_heart", set()), (None, set())],
)
def test_a_blend_is_two_voices(speaker, voices):
    assert voices_of(utterance("a", speaker=speaker)) == voices


def clips(folder, name, speakers):
    """A manifest of clips of noise of 6 s that say "so it is"."""
    folder.mkdir()
    rows = []
    for i, speaker in enumerate(speakers):
        audio = np.random.default_rng(i).normal(0, 0.1, 6 * 16_000)
        soundfile.write(folder / f"{i}.wav", audio, 16_000)
        row = {"audio_filepath": f"{i}.wav", "text": "so it is", "speaker": speaker}
        words = [["so", 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
        rows.append({**row, "duration": 6.0, "words": words})
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_held_out_voices_and_dev_speakers_are_not_trained_on(tmp_path):
    voices = ["am_adam", "af_sky*0.5+am_adam", "af_river", "hibari_heart", "af_sky*1+af_river"]
    speech = clips(tmp_path / "speech", "manifest.jsonl", voices) / "manifest.jsonl"
    dev_speaker = min(frozen_speakers()["dev"])
    human = clips(tmp_path / "human", "train.jsonl", ["so0001", dev_speaker, dev_speaker])
    given = ["--speech", str(speech), "--speechocean762", str(human)]
    program([*given, "--out", str(tmp_path / "out")])
    items = read_shards(tmp_path / "out" / "shards")
    assert [item.speaker for item in items] == ["am_adam", "hibari_heart", "so0001"]
    assert items[-1].text == "So it is."


def test_sound_has_what_has_no_times_or_no_text_too(tmp_path, capsys):
    speech = clips(tmp_path / "speech", "manifest.jsonl", ["a", "b"]) / "manifest.jsonl"
    rows = [json.loads(line) for line in speech.read_text().splitlines()]
    rows[1]["words"] = None
    speech.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sound = clips(tmp_path / "sound", "train.jsonl", ["174", "c"]) / "train.jsonl"
    rows = [json.loads(line) for line in sound.read_text().splitlines()]
    rows = [{**row, "text": "", "words": None} for row in rows]
    rows[0]["id"] = "174-50561-0000"  # of a test reader
    sound.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--speech", str(speech), "--sound", str(sound), "--out", str(tmp_path / "out")]
    program(given)
    assert [item.speaker for item in read_shards(tmp_path / "out" / "shards")] == ["a"]
    heard = read_shards(tmp_path / "out" / "sound")
    assert [(item.speaker, len(item.words)) for item in heard] == [("a", 3), ("b", 0), ("c", 0)]
    assert "3 utterances in the shards of sound" in capsys.readouterr().out


def test_a_reading_that_two_sources_hold_is_taken_once_and_none_of_a_test_reader(tmp_path, capsys):
    manifests = []
    for name in ("first", "second"):
        folder = clips(tmp_path / name, "train.jsonl", ["19", "174", "x"])
        manifests.append(folder / "train.jsonl")
        rows = [json.loads(line) for line in manifests[-1].read_text().splitlines()]
        # 174 is a test reader; an id of another form may name another recording
        for row, key in zip(rows, ("19-198-0000", "174-50561-0000", "sample-000000"), strict=True):
            words = [[name, 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
            row |= {"id": key, "text": f"{name} it is", "words": words}
        manifests[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--speech", *map(str, manifests), "--out", str(tmp_path / "out")]
    program(given)
    items = read_shards(tmp_path / "out" / "shards")
    assert [(item.id, item.words[0][0]) for item in items] == [
        ("19-198-0000", "First"),
        ("sample-000000", "First"),
        ("sample-000000", "Second"),
    ]
    printed = capsys.readouterr()
    assert "1 that an earlier source holds" in printed.out
    assert "left out: 1 utterances that the test list" in printed.err and "174" in printed.err


def test_texts_are_cleaned_and_what_no_model_can_have_said_is_left_out(tmp_path, capsys):
    folder = clips(tmp_path / "speech", "manifest.jsonl", ["a", "b", "c", "d"])
    manifest = folder / "manifest.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[0] |= {"text": "SO IT - IS", "words": [["SO", 0.5, 1], ["IT", 1, 1.5], ["IS", 1.5, 2]]}
    rows[1] |= {"text": 'So "it" is.', "words": None}  # timed in a file of its own
    rows[2] |= {"words": [["so", 0.5, 3], ["it", 3, 3.5], ["is", 3.5, 4]]}  # "so" lasts 2.5 s
    rows[3] |= {"words": None}
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = tmp_path / "times.jsonl"
    words = [["So", 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
    times.write_text(json.dumps({"id": "1", "words": words}) + "\n")
    given = ["--speech", str(manifest), "--alignments", str(times)]
    program([*given, "--out", str(tmp_path / "out")])
    items = read_shards(tmp_path / "out" / "shards")
    assert [item.text for item in items] == ["So it is.", "So it is."]
    assert items[0].words == (("So", 0.5, 1.0), ("it", 1.0, 1.5), ("is.", 1.5, 2.0))
    told = capsys.readouterr().out
    assert "2 utterances with word times, 0.00 h of sound, 2 speakers; left out: 1 with" in told
    assert "2 utterances in shards; left out: 1 without word times, 0 of more than 30 s" in told


def test_dev_has_ten_speakers_of_whom_each_says_one_recording_of_15_s(tmp_path):
    speakers = [name for name in sorted(frozen_speakers()["dev"]) for _ in range(3)]
    found = people(str(clips(tmp_path / "human", "train.jsonl", ["so0001", *speakers])))
    assert len({each.speaker for each in found} & frozen_speakers()["dev"]) == len(found) == 10
    assert {each.text for each in found} == {"So it is. So it is."}
    assert all(12.3 <= each.duration_s <= 12.8 for each in found)


def test_a_quarter_of_dev_is_heard_through_a_telephone_and_a_quarter_in_a_room():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, 16_000).astype(np.float32)
    found = [surroundings(i, random.Random(i)) for i in range(4)]
    assert [name for name, _ in found] == ["near", "telephone", "near", "room"]
    near, telephone, _, room = (through(noise) for _, through in found)
    assert np.array_equal(near, noise)
    band = np.abs(np.fft.rfft(telephone))
    assert band[5_000:].mean() < 0.02 * band[1_000:3_000].mean()
    assert len(room) == len(noise) and not np.allclose(room, noise, atol=0.01)


def committed():
    folder = Path(streaming_asr.__file__).parent / "data/weights"
    return sorted(folder.rglob("adapter_model.safetensors"))


@pytest.mark.parametrize("file", committed(), ids=lambda file: "-".join(file.parts[-4:-1]))
def test_committed_weights_are_low_rank_updates_alone_in_float16(file):
    with safe_open(file, "np") as tensors:
        names = list(tensors.keys())
        assert all(".lora_A." in name or ".lora_B." in name for name in names)
        assert {tensors.get_slice(name).get_dtype() for name in names} == {"F16"}
    assert 100_000 < file.stat().st_size < 16e6
    card = json.loads(file.with_name("training.json").read_text())
    assert len(card["base"]) == 16 and card["reached"]["dev/wer"]


def test_readers_say_what_their_packages_transcript_and_the_novel_say(tmp_path):
    austen = tmp_path / AUSTEN.folder / AUSTEN.holds_at
    dickens = tmp_path / DICKENS.folder / DICKENS.holds_at
    for file in (austen / "one.wav", dickens / "two_cities.wav"):
        file.parent.mkdir(parents=True)
        soundfile.write(file, np.zeros(8000, np.float32), 16_000)
    (austen / "transcription").write_text("<s> he was not ill disposed </s> (one)\n\n")
    one, other = readers(tmp_path)
    assert (one.id, one.text, one.duration_s) == ("one", "he was not ill disposed", 0.5)
    assert other.id == "two_cities" and len(other.text.split()) == 119
