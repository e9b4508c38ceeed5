"""The noise axis: noise at a ratio, the same in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Folder
from streaming_asr.corpora.noise import in_room, telephone_band
from streaming_asr.errors import UserError
from streaming_asr.run.plan import plan


def write(path: Path, samples: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.asarray(samples), 16_000, subtype="FLOAT")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two utterances of a second, a tone each."""
    times = np.arange(16_000) / 16_000
    for name, hz in (("a", 300), ("b", 500)):
        write(tmp_path / "corpus" / f"{name}.wav", 0.1 * np.sin(2 * np.pi * hz * times))
        (tmp_path / "corpus" / f"{name}.txt").write_text("x")
    return tmp_path / "corpus"


def ratio_db(clean: Any, noisy: Any) -> float:
    clean = clean.astype(np.float64)
    return float(10 * np.log10(np.mean(clean**2) / np.mean((noisy - clean) ** 2)))


def test_a_clean_corpus_gets_noise_at_each_ratio_of_a_sweep(corpus: Path) -> None:
    command = ["method=offline", "data=folder", f"data.path={corpus}", "data.snr_db=20,10,5,0"]
    planned = plan(CommandLine(["-m", *command, "output=none"])).cells
    assert [cell.config.data.snr_db for cell in planned] == [20, 10, 5, 0]
    assert [cell.folder.name.rpartition("=")[2] for cell in planned] == ["20", "10", "5", "0"]
    clean = [utterance.load() for utterance in Folder(corpus).utterances()]
    first = [u.load() for u in build(planned[0].config.data).utterances()]
    for cell in planned:
        noisy = [u.load() for u in build(cell.config.data).utterances()]
        for dry, wet in zip(clean, noisy, strict=True):
            assert ratio_db(dry, wet) == pytest.approx(cell.config.data.snr_db, abs=0.05)
        again = [u.load() for u in build(cell.config.data).utterances()]
        assert all(np.array_equal(one, other) for one, other in zip(noisy, again, strict=True))
        # The noise is the same at every ratio, and another for every utterance.
        noise = [wet - dry for dry, wet in zip(clean, noisy, strict=True)]
        for dry, wet, here in zip(clean, first, noise, strict=True):
            assert np.corrcoef(wet - dry, here)[0, 1] > 0.999
        assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.2


def test_mini_takes_a_ratio_on_clean_and_keeps_its_own_kinds_on_other() -> None:
    for split, kinds in (("clean", {"pink"}), ("other", {"pink"})):
        data = compose(["model=mini", f"data.split={split}", "data.snr_db=5", "data.noise=pink",
                        "method=offline"]).data  # fmt: skip
        audio = [utterance.audio for utterance in build(data).utterances()]
        assert {each.kind for each in audio} == kinds
        assert {each.snr_db for each in audio} == {5}
    data = compose(["model=mini", "data.split=other", "data.snr_db=5", "method=offline"]).data
    assert len({utterance.audio.kind for utterance in build(data).utterances()}) > 1


def test_wrong_noise_is_refused_before_anything_is_loaded(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"data\.noise='rain': one of babble, hum, pink, white"):
        Folder(corpus, snr_db=5, noise="rain").utterances()
    with pytest.raises(UserError, match=r"noise=pink: a has no ratio .* data.snr_db=10"):
        Folder(corpus, noise="pink").utterances()
    with pytest.raises(UserError, match=r"snr_db=nan: not a ratio"):
        Folder(corpus, snr_db=float("nan")).utterances()


# -- rooms and telephones -----------------------------------------------------------------------


def test_a_room_makes_a_click_ring_and_keeps_its_power() -> None:
    click = np.zeros(16_000, dtype=np.float32)
    click[1000] = 1.0
    heard = in_room(click, 0.3, seed=2)
    assert heard.shape == click.shape and heard.dtype == np.float32
    assert not np.abs(heard[:1000]).max() > 1e-6
    assert np.mean(heard**2) == pytest.approx(np.mean(click**2), rel=1e-5)
    early, late = np.mean(heard[1100:1600] ** 2), np.mean(heard[4000:4500] ** 2)
    # 2,900 samples apart, of the 4,800 in which it falls by 60 dB: 36 dB
    assert 10 * np.log10(early / late) == pytest.approx(36, abs=2)
    assert np.array_equal(heard, in_room(click, 0.3, seed=2))


@pytest.mark.parametrize(("hz", "db"), [(100, -40), (1000, 0), (3000, 0), (5000, -40)])
def test_a_telephone_lets_300_to_3400_hz_through(hz: int, db: float) -> None:
    tone = np.sin(2 * np.pi * hz * np.arange(16_000) / 16_000).astype(np.float32)
    heard = telephone_band(tone)
    assert 10 * np.log10(np.mean(heard**2) / np.mean(tone**2)) == pytest.approx(db, abs=0.1)
    assert telephone_band(tone[:0]).size == 0


@pytest.mark.parametrize("n", [997, 16_001, 48_017])  # lengths with large prime factors
def test_a_room_is_the_sum_of_its_echoes_at_any_length(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = (0.1 * rng.standard_normal(n)).astype(np.float32)
    reverberation_s, seed = 0.2, 3
    rng = np.random.default_rng(seed)
    t = np.arange(int(reverberation_s * 16_000)) / 16_000
    tail = rng.standard_normal(len(t)) * 10 ** (-3 * t / reverberation_s) * (t > 0.006)
    tail *= 10 ** (-rng.uniform(0, 12) / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    expected = np.convolve(samples.astype(np.float64), tail)[:n]
    expected *= np.sqrt(np.mean(samples.astype(np.float64) ** 2) / np.mean(expected**2))
    heard = in_room(samples, reverberation_s, seed)
    assert np.abs(heard - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("n", [1, 997, 16_001, 48_017])
def test_a_fast_telephone_is_the_other_within_rounding(n: int) -> None:
    noise = (0.1 * np.random.default_rng(n).standard_normal(n)).astype(np.float32)
    plain, fast = telephone_band(noise), telephone_band(noise, fast=True)
    assert fast.shape == (n,) and fast.dtype == np.float32
    assert np.abs(plain - fast).max() < 5e-5 * np.abs(noise).max()


def test_the_telephone_of_frozen_recordings_keeps_its_samples() -> None:
    # data=trials and the dev set are made with it; here it is the sum over all frequencies
    n = 401  # prime
    noise = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    k = np.arange(n // 2 + 1)
    gain = np.interp(k * 16_000 / n, [200, 300, 3400, 3600], [0.01, 1.0, 1.0, 0.01])
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), k) / n)
    parts = (noise.astype(np.float64) @ waves.conj()) * gain * np.where(k == 0, 1, 2)
    assert np.abs(telephone_band(noise) - (waves @ parts).real / n).max() < 1e-6
