"""The trials: made by a seed, each kind as its name says."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest

from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.trials import (
    LONG_VOICE,
    MANIFEST,
    NUMBERS,
    SPEECH,
    make,
    recordings,
    voices_of,
)
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import Utterance


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials") / "dev"
    make("dev", folder)
    return folder


@pytest.fixture(scope="module")
def trials(dev: Path) -> dict[str, Utterance]:
    return {each.id: each for each in read_manifest(dev / MANIFEST)}


def decibels(samples: np.ndarray) -> float:
    return 10 * np.log10(np.mean(np.square(samples, dtype=np.float64)))


def test_what_is_said_and_when_is_the_same_everywhere(dev: Path) -> None:
    digest = hashlib.sha256((dev / MANIFEST).read_bytes()).hexdigest()
    assert digest.startswith("de0c0fc046ebeebe")


def test_the_same_seed_gives_the_same_sounds(trials: dict[str, Utterance]) -> None:
    again = itertools.takewhile(lambda each: each.kind != "pauses", recordings("dev"))
    for made, heard in zip(again, trials.values(), strict=False):
        assert heard.id.startswith(made.kind)
        assert np.allclose(heard.load(), made.samples, atol=2**-15)  # of 16 bits


def test_nothing_is_said_in_a_third_and_silence_is_silent(trials: dict[str, Utterance]) -> None:
    quiet = {name.partition("-")[0] for name, each in trials.items() if not each.text}
    assert quiet == {"silence", "room", "noise", "hum", "tones", "breath"}
    assert all(each.words == () for each in trials.values() if not each.text)
    assert not np.any(trials["silence-dev-0"].load())
    assert decibels(trials["room-dev-0"].load()) == pytest.approx(-60, abs=0.1)


@pytest.mark.parametrize(("name", "mains_hz"), [("hum-dev-0", 50), ("hum-dev-1", 60)])
def test_hum_has_its_frequency(trials: dict[str, Utterance], name: str, mains_hz: int) -> None:
    spectrum = np.abs(np.fft.rfft(trials[name].load()[: 2 * SAMPLE_RATE]))  # by 0.5 Hz
    assert np.argmax(spectrum[:150]) == 2 * mains_hz


def test_words_lie_where_the_sound_is(trials: dict[str, Utterance]) -> None:
    for name in ("pauses-dev-0", "ends-dev-0"):
        samples = trials[name].load()
        loud = np.zeros(len(samples), dtype=bool)
        for word in trials[name].words or ():
            loud[int((word.start - 0.3) * SAMPLE_RATE) : int((word.end + 0.3) * SAMPLE_RATE)] = True
        assert decibels(samples[loud]) > -40 > -60 > decibels(samples[~loud] + 1e-9)


def test_pauses_and_ends_are_as_long_as_they_should_be(trials: dict[str, Utterance]) -> None:
    for name in ("pauses-dev-0", "pauses-dev-1"):
        gaps_s = [b.start - a.end for a, b in itertools.pairwise(trials[name].words or ())]
        longest = sorted(gaps_s)[-3:] if name == "pauses-dev-0" else sorted(gaps_s)[-2:]
        assert all(5 < gap_s < 21 for gap_s in longest)
    for name in ("ends-dev-0", "ends-dev-1"):
        words = trials[name].words
        assert words and 10 <= trials[name].duration_s - words[-1].end < 11


def test_levels_and_bands(trials: dict[str, Utterance]) -> None:
    assert decibels(trials["low-dev-0"].load()) == pytest.approx(-52, abs=0.1)
    loud = np.abs(trials["clipped-dev-0"].load())
    assert 0.02 < np.mean(loud > 0.999) < 0.2
    power = np.abs(np.fft.rfft(trials["8khz-dev-0"].load())) ** 2
    above = np.linspace(0, SAMPLE_RATE / 2, len(power)) > 4200
    assert power[above].sum() < 1e-5 * power.sum()


def test_a_menu_is_said_twice_and_numbers_are_numbers(trials: dict[str, Utterance]) -> None:
    words = trials["menu-dev-0"].text.split()
    assert words[: len(words) // 2] == words[len(words) // 2 :]
    assert any(map(str.isdigit, trials["numbers-dev-0"].text))


def test_the_long_one_is_ten_minutes_of_one_voice_and_says_no_clip_twice_at_once(
    trials: dict[str, Utterance],
) -> None:
    long = trials["long-dev-0"]
    assert 580 < long.duration_s <= 601
    words = long.text.split()
    for clip in voices_of(SPEECH["dev"])[LONG_VOICE["dev"]]:
        said = clip.text.split()
        at = [i for i in range(len(words)) if words[i : i + len(said)] == said]
        assert len(at) > 3 and all(b - a > len(said) for a, b in itertools.pairwise(at))


def test_test_says_nothing_that_dev_says() -> None:
    texts = {
        half: {
            clip.text
            for file in (SPEECH[half], NUMBERS[half])
            for clips in voices_of(file).values()
            for clip in clips
        }
        for half in ("dev", "test")
    }
    assert len(texts["dev"]) > 50 and not texts["dev"] & texts["test"]


def test_a_half_is_made_once_and_another_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[str] = []

    def fake(half: str, target: Path) -> None:
        made.append(half)
        target.mkdir()
        (target / MANIFEST).write_text('{"text": "", "id": "a", "audio_filepath": "a.flac"}\n')
        (target / "a.flac").write_bytes(b"x")

    monkeypatch.setattr("streaming_asr.corpora.trials.make", fake)
    corpus = build(compose_raw(["data=trials", "data.split=test"]).data)
    assert (corpus.name, corpus.split) == ("trials", "test")
    assert corpus.data_hash() == corpus.data_hash() and made == ["test"]
    with pytest.raises(UserError, match="split='train': one of dev, test"):
        build(compose_raw(["data=trials", "data.split=train"]).data)
