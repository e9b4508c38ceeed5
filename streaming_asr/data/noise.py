"""Noise mixed into recordings when they are loaded: deterministic, made of a seed, numpy only.

`snr_db` is the ratio of the mean powers of the whole recording (its pauses included) and of the
noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streaming_asr.errors import UserError

_SAMPLE_RATE = 16_000
_N_TALKERS = 6


def mix(samples: NDArray[np.float32], kind: str, snr_db: float, seed: int) -> NDArray[np.float32]:
    """`samples`, (n,) float32 at 16 kHz, with noise of `kind` at `snr_db`.

    `kind` is a key of `KINDS`. The sum is scaled down as a whole where it would pass +-1. Silent
    or empty audio has no ratio to noise and comes back as it is. Raises UserError for an unknown
    kind.
    """
    if kind not in KINDS:
        raise UserError(f"noise kind {kind!r} is unknown; there are: {', '.join(sorted(KINDS))}.")
    signal = np.asarray(samples, dtype=np.float64)
    power = float(np.mean(signal**2)) if signal.size else 0.0
    if power == 0.0:
        return np.asarray(samples, dtype=np.float32)
    noise = KINDS[kind](signal.size, np.random.default_rng(seed))
    noise *= np.sqrt(power / (10 ** (snr_db / 10) * np.mean(noise**2)))
    mixed = signal + noise
    return (mixed / max(1.0, float(np.abs(mixed).max()))).astype(np.float32)


def _shaped(noise: NDArray[np.float64], gain: Callable[..., NDArray[np.float64]]) -> NDArray:
    """`noise` filtered by `gain`, a function of the frequency in Hz."""
    spectrum = np.fft.rfft(noise) * gain(np.fft.rfftfreq(noise.size, 1 / _SAMPLE_RATE))
    return np.fft.irfft(spectrum, noise.size)


def _white(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.standard_normal(n)


def _pink(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Power falls with 1/f above 50 Hz."""
    return _shaped(rng.standard_normal(n), lambda hz: 1 / np.sqrt(np.maximum(hz, 50.0)))


def _hum(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A mains hum (50 or 60 Hz and its harmonics) over weak pink noise."""
    t = np.arange(n) / _SAMPLE_RATE
    mains_hz = float(rng.choice([50.0, 60.0]))
    tone = np.zeros(n)
    for harmonic in range(1, 13):
        amplitude = rng.uniform(0.3, 1.0) / harmonic
        tone += amplitude * np.sin(2 * np.pi * (harmonic * mains_hz * t + rng.uniform()))
    pink = _pink(n, rng)
    return tone + 0.3 * tone.std() * pink / pink.std()


def _babble(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Six talkers, each noise with three moving bands and the rhythm of syllables (3-6 Hz)."""
    t = np.arange(n) / _SAMPLE_RATE
    babble = np.zeros(n)
    for _ in range(_N_TALKERS):
        for low_hz, high_hz, weight in ((250, 850, 1.0), (850, 2300, 0.5), (2300, 3500, 0.2)):
            centre_hz, width_hz = rng.uniform(low_hz, high_hz), rng.uniform(120, 300)

            def band(hz: NDArray, centre_hz: float = centre_hz, width_hz: float = width_hz):
                return np.exp(-(((hz - centre_hz) / width_hz) ** 2))

            part = _shaped(rng.standard_normal(n), band)
            syllables_hz, drift_hz = rng.uniform(3, 6), rng.uniform(0.2, 0.7)
            rhythm = np.sin(2 * np.pi * (syllables_hz * t + rng.uniform()))
            rhythm += np.sin(2 * np.pi * (drift_hz * t + rng.uniform()))
            babble += weight * part / (part.std() + 1e-12) * np.maximum(rhythm, 0.0)
    return babble + 1e-9 * rng.standard_normal(n)


KINDS: dict[str, Callable[[int, np.random.Generator], NDArray[np.float64]]] = {
    "white": _white,
    "pink": _pink,
    "babble": _babble,
    "hum": _hum,
}
