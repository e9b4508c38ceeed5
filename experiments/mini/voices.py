"""Speakers of the `mini` corpus: which exist, which are in training, and how they speak.

A speaker is a name such as ``espeak-en-US+f3`` or ``flite-awb-w94``. Its base rate and pitch come
from a hash of the name; each utterance varies a little around them. ``-w94`` is a warp: playing
the recording at 0.94 times the speed, which lowers pitch and formants as speed perturbation of
recognisers does and makes several speakers out of the few recorded voices.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import numpy as np

from experiments.mini import espeak, festival, flite

SAMPLE_RATE = 16_000

_HEARD_ACCENTS = ("en-US", "en", "en-GB-scotland", "en-GB-x-rp", "en-GB-x-gbclan", "en-GB-x-gbcwmd")
_HEARD_VARIANTS = (
    *("", "m1", "m2", "m3", "m4", "m7", "f1", "f2", "f3", "f5"),
    *("Alex", "Annie", "adam", "belinda", "klatt2"),
)
_WARPS = ("", "-w90", "-w95", "-w105", "-w110")

ESPEAK_HEARD = tuple(
    f"espeak-{accent}{'+' + variant if variant else ''}"
    for accent in _HEARD_ACCENTS
    for variant in _HEARD_VARIANTS
)
FLITE_HEARD = tuple(f"flite-{voice}{warp}" for voice in ("awb", "rms", "slt") for warp in _WARPS)
FLITE_TRAIN_ONLY = ("flite-kal16",)
FESTIVAL_FAST = ("festival-kal", "festival-kal-w93", "festival-kal-w107")
FESTIVAL_SLOW = ("festival-hts", "festival-hts-w93", "festival-hts-w107")

# The test speakers of `clean`: all are in training.
CLEAN = (
    *("espeak-en-US", "espeak-en-US+m1", "espeak-en-US+f3", "espeak-en-US+Annie"),
    *("espeak-en+f2", "espeak-en+m3", "espeak-en+adam", "espeak-en+klatt2"),
    *("espeak-en-GB-scotland+f1", "espeak-en-GB-scotland+m4", "espeak-en-GB-x-rp+f5"),
    *("espeak-en-GB-x-rp+m7", "espeak-en-GB-x-gbclan+m2", "espeak-en-GB-x-gbcwmd+belinda"),
    *("flite-awb", "flite-rms", "flite-slt", "flite-awb-w105", "flite-rms-w95"),
    *("festival-kal", "festival-hts", "flite-slt-w90"),
)
# The test speakers of `other`: none is in training. Most are new variants of known accents; then
# two accents that do not occur in training, and one recorded voice.
OTHER = (
    *("espeak-en-US+linda", "espeak-en-US+m5", "espeak-en-US+f4", "espeak-en-US+david"),
    *("espeak-en+m6", "espeak-en+f4", "espeak-en+john", "espeak-en+steph"),
    *("espeak-en-GB-x-rp+m8", "espeak-en-GB-x-rp+shelby", "espeak-en-GB-scotland+m6"),
    *("espeak-en-GB-scotland+f4", "espeak-en-GB-x-gbclan+paul", "espeak-en-GB-x-gbcwmd+Lee"),
    *("espeak-en-US+klatt4", "espeak-en-GB-x-rp+Mario", "espeak-en+edward"),
    *("espeak-en-US-nyc+f2", "espeak-en-US-nyc+m3", "espeak-en-029+m3", "espeak-en-029+f1"),
    "festival-ked",
)


@dataclass(frozen=True)
class Voice:
    """A speaker, parsed: the engine, its voice, the warp, and the speaker's own settings."""

    name: str
    engine: str
    base: str
    warp: int  # percent
    rate: float  # words per minute (espeak) or stretch of durations (others)
    pitch: int  # espeak's scale of 0-99
    pitch_range: int


@dataclass(frozen=True)
class Spoken:
    """Mono float32 samples at 16 kHz and (start_s, end_s) of each spoken word."""

    samples: np.ndarray
    times: list[tuple[float, float]]


def voice(name: str) -> Voice:
    """The speaker called ``name``. Raises ValueError for a name of no known form."""
    match = re.fullmatch(r"(espeak|flite|festival)-(.+?)(?:-w(\d+))?", name)
    if not match:
        raise ValueError(f"speaker {name!r}: not of the form engine-voice[-wPERCENT]")
    engine, base, warp = match.groups()
    rng = random.Random(name)
    if engine == "espeak":
        base = f"gmw/{base}"
        rate = rng.uniform(138, 185)
    else:
        rate = rng.uniform(0.92, 1.12)
    pitch, pitch_range = rng.randint(36, 64), rng.randint(35, 70)
    return Voice(name, engine, base, int(warp or 100), rate, pitch, pitch_range)


def train_speaker(rng: random.Random) -> str:
    """A speaker for one training utterance, by the shares of the engines (of utterances)."""
    share = rng.random()
    if share < 0.62:
        return rng.choice(ESPEAK_HEARD)
    if share < 0.86:
        return rng.choice(FLITE_HEARD)
    if share < 0.90:
        return rng.choice(FLITE_TRAIN_ONLY)
    return rng.choice(FESTIVAL_FAST if share < 0.97 else FESTIVAL_SLOW)


def speak(
    words: list[str], speaker: Voice, seed: int | str, pauses: frozenset[int] = frozenset()
) -> Spoken | None:
    """Speak plain lower-case words; ``pauses`` are the indices of words followed by a comma.

    None when the engine's word events do not map one to one onto the words.
    """
    from scipy.signal import resample_poly

    rng = random.Random(f"{speaker.name}/{seed}")
    if speaker.engine == "espeak":
        result = espeak.speak(
            words,
            speaker.base,
            rate=round(speaker.rate * rng.uniform(0.93, 1.07)),
            pitch=max(30, min(70, speaker.pitch + rng.randint(-4, 4))),
            pitch_range=speaker.pitch_range + rng.randint(-6, 6),
            pauses=pauses,
        )
        if result is None:
            return None
        samples, rate_hz, times = result
    else:
        engine = flite if speaker.engine == "flite" else festival
        stretch = speaker.rate * rng.uniform(0.93, 1.07)
        text = " ".join(w + ("," if i in pauses else "") for i, w in enumerate(words)).rstrip(",")
        samples, rate_hz, timed = engine.speak(f"{text}.", speaker.base, stretch=stretch)
        matched = _match(words, timed)
        if matched is None:
            return None
        times = matched
    audio = samples.astype(np.float32) / 32768
    # One polyphase filter for the rate and the warp: a warp of 94 makes the audio longer.
    audio = resample_poly(audio, SAMPLE_RATE * 100, rate_hz * speaker.warp).astype(np.float32)
    scale = 100 / speaker.warp
    times = [(start * scale, end * scale) for start, end in times]
    return _level_and_lead(audio, times, rng, lead=speaker.engine == "espeak")


def _match(
    words: list[str], timed: list[tuple[str, float, float]]
) -> list[tuple[float, float]] | None:
    """Join the engine's words ("it", "'s") into ours by their letters."""
    spans, i = [], 0
    for word in words:
        letters, got = word.replace("'", ""), ""
        times: list[tuple[float, float]] = []
        while i < len(timed) and len(got) < len(letters):
            name, start, end = timed[i]
            got += name.lower().replace("'", "")
            if end > start:  # festival gives "'s" no time of its own
                times.append((start, end))
            i += 1
        # festival keeps the apostrophe "s" as a word of its own after a word that is complete
        if got != letters or not times:
            return None
        spans.append((times[0][0], times[-1][1]))
    return spans if i == len(timed) else None


def _level_and_lead(
    audio: np.ndarray, times: list[tuple[float, float]], rng: random.Random, *, lead: bool
) -> Spoken | None:
    rms = float(np.sqrt(np.mean(audio**2)))
    if not rms > 1e-4:
        return None
    audio = audio * (0.07 * 10 ** (rng.uniform(-6, 4) / 20) / rms)
    audio *= min(1.0, 0.95 / float(np.abs(audio).max()))
    before = int(SAMPLE_RATE * (rng.uniform(0, 0.25) if lead else rng.uniform(0, 0.06)))
    after = int(SAMPLE_RATE * rng.uniform(0.02, 0.25))
    duration_s = len(audio) / SAMPLE_RATE
    times = [(max(0.0, a), min(b, duration_s)) for a, b in times]
    previous = 0.0
    for start, end in times:
        if start < previous - 0.011 or end - start < 0.02:
            return None
        previous = end
    shift = before / SAMPLE_RATE
    audio = np.pad(audio, (before, after)).astype(np.float32)
    return Spoken(audio, [(a + shift, b + shift) for a, b in times])
