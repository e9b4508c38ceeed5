"""What WhisperRT on real Whisper is trained and chosen on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors import safe_open

import streaming_asr
from experiments.real.training_set import as_sentence, main, voices_of, well_aligned
from streaming_asr.data.corpora.speechocean762 import frozen_speakers
from streaming_asr.data.shards import read_shards
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


def test_held_out_voices_and_dev_speakers_are_not_trained_on(tmp_path, capsys):
    def clips(folder, names):
        folder.mkdir()
        rows = []
        for i, name in enumerate(names):
            audio = np.random.default_rng(i).normal(0, 0.1, 6 * 16_000)
            soundfile.write(folder / f"{i}.wav", audio, 16_000)
            row = {"audio_filepath": f"{i}.wav", "text": "so it is", "speaker": name}
            words = [["so", 0.5, 1.0], ["it", 1.0, 1.5], ["is", 1.5, 2.0]]
            rows.append({**row, "duration": 6.0, "words": words})
        return "".join(json.dumps(row) + "\n" for row in rows)

    voices = ["am_adam", "af_sky*0.5+am_adam", "af_river", "hibari_heart", "af_sky*1+af_river"]
    speech = clips(tmp_path / "speech", voices)
    (tmp_path / "speech" / "manifest.jsonl").write_text(speech)
    dev_speaker = min(frozen_speakers()["dev"])
    human = clips(tmp_path / "human", ["so0001", dev_speaker, dev_speaker, dev_speaker])
    (tmp_path / "human" / "train.jsonl").write_text(human)
    manifest = str(tmp_path / "speech" / "manifest.jsonl")
    out = ["--speechocean762", str(tmp_path / "human"), "--out", str(tmp_path / "out")]
    main(["--speech", manifest, *out])
    items = read_shards(tmp_path / "out" / "shards")
    assert [item.speaker for item in items] == ["am_adam", "hibari_heart", "so0001"]
    assert items[-1].text == "So it is."
    rows = [json.loads(row) for row in (tmp_path / "out" / "dev.jsonl").read_text().splitlines()]
    assert [row["speaker"] for row in rows] == [dev_speaker, "af_sky*0.5+am_adam"]
    assert rows[0]["text"] == "So it is. So it is." and 12.3 <= rows[0]["duration"] <= 12.8


def committed():
    return sorted((Path(streaming_asr.__file__).parent / "data/weights").rglob("*.safetensors"))


@pytest.mark.parametrize("file", committed(), ids=lambda file: "-".join(file.parts[-4:-1]))
def test_committed_weights_are_low_rank_updates_alone_in_float16(file):
    with safe_open(file, "np") as tensors:
        names = list(tensors.keys())
        assert all(".lora_A." in name or ".lora_B." in name for name in names)
        assert {tensors.get_slice(name).get_dtype() for name in names} == {"F16"}
    assert 100_000 < file.stat().st_size < 16e6
    card = json.loads(file.with_name("training.json").read_text())
    assert len(card["base"]) == 16 and card["reached"]["dev/wer"]
