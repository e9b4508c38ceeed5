"""Noise mixed into recordings when they are loaded: deterministic, made of a seed.

It is made here (`KINDS`, numpy only). `snr_db` is the ratio of the mean powers of the whole
recording (its pauses included) and of the noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import Utterance

DEFAULT = "babble"  # of an utterance that names no noise of its own
_N_TALKERS = 6


@dataclass(frozen=True, slots=True)
class Noisy:
    """A recording with noise mixed in when it is loaded; the same seed gives the same samples."""

    clean: Callable[[], Samples]
    kind: str
    snr_db: float
    seed: int

    def __call__(self) -> Samples:
        return mix(self.clean(), self.kind, self.snr_db, self.seed)


def with_noise(
    utterances: Sequence[Utterance], *, snr_db: float | None, noise: str | None
) -> list[Utterance]:
    """Return the utterances with noise mixed into their audio when it is loaded.

    snr_db: replaces the ratio of utterances that have noise of their own, in dB; the others get
    noise at this ratio, from a seed made of their id: the same noise at every ratio. noise: the
    kind, a key of `KINDS`, instead of an utterance's own or `DEFAULT`. With None for both nothing
    changes. Raises UserError for an unknown kind, and for a kind without a ratio.
    """
    if noise is not None:
        check_one_of(sorted(KINDS), **{"data.noise": noise})
    if snr_db is not None and not math.isfinite(snr_db):
        raise UserError(f"snr_db={snr_db}: not a ratio; write decibels, as in data.snr_db=10")
    return [replace(utterance, audio=_noisy(utterance, snr_db, noise)) for utterance in utterances]


def _noisy(
    utterance: Utterance, snr_db: float | None, noise: str | None
) -> Callable[[], NDArray[np.float32]]:
    """Return the audio of an utterance with the noise that `with_noise` states."""
    audio = utterance.audio
    if isinstance(audio, Noisy):
        ratio_db = audio.snr_db if snr_db is None else snr_db
        return replace(audio, kind=noise or audio.kind, snr_db=ratio_db)
    if snr_db is None:
        if noise is not None:
            raise UserError(
                f"noise={noise}: {utterance.id} has no ratio of signal to noise of its own; "
                "give one, as in data.snr_db=10"
            )
        return audio
    seed = int.from_bytes(hashlib.sha256(utterance.id.encode()).digest()[:4])
    return Noisy(audio, noise or DEFAULT, snr_db, seed)


def mix(samples: NDArray[np.float32], kind: str, snr_db: float, seed: int) -> NDArray[np.float32]:
    """Return `samples`, (n,) float32 at 16 kHz, with noise of `kind` at `snr_db`.

    `kind` is a key of `KINDS`. Where the sum exceeds +-1, all of it is scaled down. Silent or empty
    audio has no ratio to noise and is returned as it is. Raises UserError for another kind.
    """
    check_one_of(sorted(KINDS), noise=kind)
    signal = np.asarray(samples, dtype=np.float64)
    power = float(np.mean(signal**2)) if signal.size else 0.0
    if power == 0.0:
        return np.asarray(samples, dtype=np.float32)
    rng = np.random.default_rng(seed)
    noise = KINDS[kind](signal.size, rng)
    noise *= np.sqrt(power / (10 ** (snr_db / 10) * np.mean(noise**2)))
    mixed = signal + noise
    return (mixed / max(1.0, float(np.abs(mixed).max()))).astype(np.float32)


def _shaped(noise: NDArray[np.float64], gain: Callable[..., NDArray[np.float64]]) -> NDArray:
    """Return `noise`, (n,), filtered by `gain`, a function of frequencies in Hz."""
    # One transform over the whole length: the noise is periodic, without an edge.
    spectrum = np.fft.rfft(noise) * gain(np.fft.rfftfreq(noise.size, 1 / SAMPLE_RATE))
    return np.fft.irfft(spectrum, noise.size)


def _white(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.standard_normal(n)


def _pink(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return noise whose power falls with 1/f above 50 Hz."""
    return _shaped(rng.standard_normal(n), lambda hz: 1 / np.sqrt(np.maximum(hz, 50.0)))


def hum(n: int, rng: np.random.Generator, mains_hz: float | None = None) -> NDArray[np.float64]:
    """Return a mains hum with 12 harmonics over weak pink noise, (n,). `mains_hz` None draws 50 or
    60 Hz."""
    t = np.arange(n) / SAMPLE_RATE
    mains_hz = float(rng.choice([50.0, 60.0])) if mains_hz is None else mains_hz
    tone = np.zeros(n)
    for harmonic in range(1, 13):
        amplitude = rng.uniform(0.3, 1.0) / harmonic
        tone += amplitude * np.sin(2 * np.pi * (harmonic * mains_hz * t + rng.uniform()))
    pink = _pink(n, rng)
    return tone + 0.3 * tone.std() * pink / pink.std()


def _babble(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return six talkers, (n,): each is noise in three bands, where speech has its formants, that
    swell with the rhythm of syllables (3-6 Hz)."""
    t = np.arange(n) / SAMPLE_RATE
    babble = np.zeros(n)
    for _ in range(_N_TALKERS):
        for low_hz, high_hz, weight in ((250, 850, 1.0), (850, 2300, 0.5), (2300, 3500, 0.2)):
            centre_hz, width_hz = rng.uniform(low_hz, high_hz), rng.uniform(120, 300)

            def gain(hz: NDArray, centre_hz: float = centre_hz, width_hz: float = width_hz):
                return np.exp(-(((hz - centre_hz) / width_hz) ** 2))

            band = _shaped(rng.standard_normal(n), gain)
            syllables_hz, drift_hz = rng.uniform(3, 6), rng.uniform(0.2, 0.7)
            rhythm = np.sin(2 * np.pi * (syllables_hz * t + rng.uniform()))
            rhythm += np.sin(2 * np.pi * (drift_hz * t + rng.uniform()))
            loudness = np.maximum(rhythm, 0.0)  # silent half of the time
            babble += weight * band / (band.std() + 1e-12) * loudness
    return babble + 1e-9 * rng.standard_normal(n)  # never all zeros, which have no power


KINDS: dict[str, Callable[[int, np.random.Generator], NDArray[np.float64]]] = {
    "white": _white,
    "pink": _pink,
    "babble": _babble,
    "hum": hum,
}


def in_room(samples: NDArray[np.float32], reverberation_s: float, seed: int) -> NDArray[np.float32]:
    """Return `samples`, (n,) float32 at 16 kHz, with the reverberation of a room; as long and as
    strong (mean power) as before.

    The room's response is the direct sound, and from 6 ms after it noise that falls by 60 dB in
    `reverberation_s` seconds. All of this noise is 0 to 12 dB weaker than the direct sound.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    rng = np.random.default_rng(seed)
    n = int(reverberation_s * SAMPLE_RATE)
    t = np.arange(n) / SAMPLE_RATE
    response = rng.standard_normal(n) * 10 ** (-3 * t / reverberation_s) * (t > 0.006)
    response *= 10 ** (-rng.uniform(0, 12) / 20) / np.sqrt(np.sum(response**2))
    response[0] = 1.0  # the direct sound
    # Zeros are appended up to a length that transforms fast: one with large prime factors takes
    # several times as long.
    size = next_fast_len(samples.size + n, real=True)
    spectrum = rfft(samples, size) * rfft(response.astype(np.float32), size)
    reverberant = irfft(spectrum, size)[: samples.size]
    power = float(np.mean(np.square(reverberant, dtype=np.float64))) if samples.size else 0.0
    if power:
        gain = np.sqrt(np.mean(np.square(samples, dtype=np.float64)) / power)
        reverberant = reverberant * gain
    return reverberant.astype(np.float32)


def telephone_band(samples: NDArray[np.float32], *, fast: bool = False) -> NDArray[np.float32]:
    """Return `samples`, (n,) float32 at 16 kHz, limited to a telephone's band of 300 to 3400 Hz.

    The gain falls to -40 dB from 300 to 200 Hz and from 3400 to 3600 Hz. fast: uses a length that
    transforms several times as fast, which changes the samples by 1e-5 of their peak. The frozen
    recordings are made without it.
    """
    if not samples.size:
        return samples
    if not fast:
        return _filtered(samples, np.fft.rfft, np.fft.irfft)
    from scipy.fft import irfft, next_fast_len, rfft

    # The filter treats the samples as periodic. Repeating them at both ends up to a fast length
    # keeps the neighbours that the edges have in the slow form.
    size = next_fast_len(samples.size + 2 * _N_RINGING, real=True)
    padded = np.pad(samples, (_N_RINGING, size - samples.size - _N_RINGING), mode="wrap")
    return _filtered(padded, rfft, irfft)[_N_RINGING : _N_RINGING + samples.size]


_N_RINGING = SAMPLE_RATE // 5  # samples after which the response of the telephone's filter ends


def _filtered(
    samples: NDArray[np.float32],
    rfft: Callable[..., NDArray],
    irfft: Callable[..., NDArray],
) -> NDArray[np.float32]:
    """Return `samples`, (n,), limited to the telephone's band by these Fourier transforms."""
    spectrum = rfft(samples)
    hz = np.fft.rfftfreq(samples.size, 1 / SAMPLE_RATE)
    spectrum *= np.interp(hz, [200, 300, 3400, 3600], [0.01, 1.0, 1.0, 0.01])
    return irfft(spectrum, samples.size).astype(np.float32)
