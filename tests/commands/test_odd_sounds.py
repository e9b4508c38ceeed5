"""Recordings that a microphone or an editor has spoilt: each is answered, none is silently lost."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile

from streaming_asr.commands import transcribe
from streaming_asr.corpora import Mini
from streaming_asr.corpora.audio import doubts, load_audio
from streaming_asr.method import SAMPLE_RATE, Samples

RATE = SAMPLE_RATE


def tone(peak: float = 0.5, offset: float = 0.0) -> Samples:
    return (peak * np.sin(np.arange(RATE) * 0.3) + offset).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        (np.zeros(RATE, np.float32), "is silent: all of its samples are 0"),
        (tone(5e-4), "is almost silent, its peak is -66 dB"),
        (np.clip(tone(3.0), -1, 1), "is clipped: 79 % of its samples are at full scale"),
        (tone(0.3, 0.2), "has a DC offset of 0.20"),
        (tone(), None),
        (tone(0.3, 0.05), None),
        (np.array([0.1], np.float32)[:1] * 0 + 0.05, None),
    ],
)
def test_what_is_wrong_with_a_sound_is_said_in_words(samples: Samples, told: str | None) -> None:
    found = doubts(samples)
    assert found is told if told is None or found is None else found.startswith(told)


def test_a_stereo_file_in_antiphase_is_heard_by_its_first_channel_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tone()
    for name, right in (("anti", -left), ("wide", tone(0.1)), ("half", 0 * left)):
        soundfile.write(tmp_path / f"{name}.wav", np.stack([left, right], 1), RATE, "FLOAT")
    assert np.array_equal(load_audio(tmp_path / "anti.wav"), left)
    assert "anti.wav: its channels cancel each other; only the first is used" in caplog.text
    caplog.clear()
    assert np.abs(load_audio(tmp_path / "wide.wav")).max() == pytest.approx(0.3, abs=0.01)
    assert np.array_equal(load_audio(tmp_path / "half.wav"), left / 2) and not caplog.text


def test_spoilt_recordings_are_transcribed_or_their_silence_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    speech = min(Mini().utterances(), key=lambda each: each.duration_s).load()
    noise = np.random.default_rng(1).normal(0, 0.1, 4 * RATE)
    sounds = {
        "plain": speech,
        "anti": np.stack([speech, -speech], 1),
        "zeros": np.zeros(2 * RATE),
        "sample": np.full(1, 0.1),
        "noise": noise,
    }
    for name, samples in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", samples, RATE, "FLOAT")
    files = [str(tmp_path / f"{name}.wav") for name in sounds]
    with caplog.at_level(logging.WARNING):
        assert transcribe.main([*files, "model=mini", "chunk=1s"]) == 0
    told = capsys.readouterr()
    texts = [block.partition(":\n")[2].strip() for block in told.out.split("\n\n")]
    assert len(texts[0].split()) > 3 and texts[1] == texts[0]
    assert texts[2:4] == ["", ""] and len(texts[4].split()) < 4
    assert "sample.wav: no words were found; gate=none lets other sounds through\n" in told.err
    assert "plain.wav: no words" not in told.err and "zeros.wav: no words" not in told.err
    assert "zeros.wav: is silent" in told.err and "anti.wav: its channels" in caplog.text
