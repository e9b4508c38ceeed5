"""Training windows for the base model: what makes a small model behave as Whisper does.

The streaming policies sit on Whisper's habits, so the windows teach them: input padded to the whole
context, several utterances with pauses, audio that starts or ends in the middle of a word, silence
with empty text, timestamps, and a prompt of earlier text. A word cut by the end of the audio stays
in the target with a probability equal to the share of it in the audio: a wrong last word must
exist for the policies to repair.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from streaming_asr.corpora.noise import KINDS, in_room, telephone_band
from streaming_asr.corpora.shards import ShardItem
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import SAMPLE_RATE

Example = TypeVar("Example")


@dataclass(frozen=True)
class Window:
    """One training example; `words` are (text, start_s, end_s, utterance index) in window time."""

    audio: np.ndarray  # (n,) float32
    words: list[tuple[str, float, float, int]]
    prompt: str  # text before the window, "" for none
    timestamps: bool
    cut_end: bool  # the audio stops in the middle of its last utterance
    language: str | None = None
    texts: tuple[str, ...] = ()  # of its utterances, as they are written
    timed: bool = True  # each of them has word times


@dataclass(frozen=True)
class WindowOptions:
    """Shares of the examples that get each treatment, and how much of it."""

    context_s: float
    several: float = 0.55
    crop_end: float = 0.35
    crop_start: float = 0.15
    empty: float = 0.04
    timestamps: float = 0.5
    prompt: float = 0.33
    noise: float = 0.6
    noise_snr_db: tuple[float, float] = (4.0, 40.0)
    gain_db: tuple[float, float] = (-12.0, 4.0)
    speed: float = 0.0  # tape speed: tempo, pitch and formants together, as of another voice
    speed_range: tuple[float, float] = (0.87, 1.15)
    room: float = 0.0  # reverberation
    telephone: float = 0.0  # the band of a telephone line
    silence_after: float = 0.0  # of it behind the last word
    silence_after_s: float = 2.0  # at most
    silences: Sequence[str] = ("zeros",)  # what it holds: a draw from `SILENCES`
    empty_s: tuple[float, float] | None = None  # of an empty window, of `silences`; see `_empty`
    clips: tuple[int, int] = (2, 4)  # in a window of several
    whole: bool = False  # an utterance that would run over the context's edge is left out


SILENCES = ("zeros", "room", "noise")  # room: the clip's own background; noise: faint pink or hum
NO_AUGMENT: dict[str, Any] = {
    **dict.fromkeys(("empty", "noise", "speed", "room", "telephone", "silence_after"), 0.0),
    "gain_db": (0.0, 0.0),
}
_RANGES = {  # by what all of them are above
    **dict.fromkeys(("gain_db", "noise_snr_db"), -np.inf),
    **dict.fromkeys(("speed_range", "empty_s", "clips"), 0),
}
FAINT_DB = (-70.0, -40.0)  # of full scale


def check_augment(augment: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown name, a share outside [0, 1], a range that is none, an unknown
    kind of silence."""
    shares = [name for name in NO_AUGMENT if name not in _RANGES]
    for name, value in augment.items():
        check_one_of((*shares, *_RANGES, "silence_after_s", "silences"), augment=name)
        where = f"augment.{name}={value}"
        if name in shares and not 0 <= value <= 1:
            raise UserError(f"{where}: a share of the windows, from 0 to 1")
        if name in _RANGES and not (len(value) == 2 and _RANGES[name] < value[0] <= value[1]):
            raise UserError(
                f"{where}: the least and the most"
                f"{'' if _RANGES[name] else ', above 0'}, as in [1, 4]"
            )
        if name == "silence_after_s" and value <= 0.1:
            raise UserError(f"{where}: seconds, more than 0.1")
        if name == "silences":
            for kind in value or [None]:
                check_one_of(SILENCES, **{"augment.silences": kind})


def augmented(options: WindowOptions, augment: Mapping[str, Any] | None) -> WindowOptions:
    """Return `options` changed by a recipe's `augment`; None leaves the speech as it is."""
    return replace(options, **(NO_AUGMENT if augment is None else augment))


def draw_window(
    rng: random.Random, anchor: ShardItem, same_voice: Sequence[ShardItem], options: WindowOptions
) -> Window:
    """Draw a window that starts with `anchor`; further utterances come from `same_voice`."""
    noise_seed = rng.getrandbits(31)
    if rng.random() < options.empty:
        return _empty(rng, anchor, options, noise_seed)
    pieces: list[np.ndarray] = []
    words: list[tuple[str, float, float, int]] = []
    n_wanted = rng.randint(*options.clips) if rng.random() < options.several else 1
    speed = rng.uniform(*options.speed_range) if rng.random() < options.speed else 1.0
    item, n = anchor, 0
    items: list[ShardItem] = []
    clip = np.zeros(0, np.float32)  # the last one added
    limit = int(options.context_s * SAMPLE_RATE)
    for index in range(n_wanted):
        samples = _at_speed(item.samples(), speed)
        if index and n + len(samples) > limit:
            # let the last utterance run over the context's edge half of the time, as speech does
            if options.whole or rng.random() < 0.5:
                break
            samples = samples[: limit - n]
        offset = n / SAMPLE_RATE
        words += [(w, s / speed + offset, e / speed + offset, index) for w, s, e in item.words]
        pieces.append(samples)
        items.append(item)
        n, clip = n + len(samples), samples
        if index + 1 == n_wanted or n >= limit:
            break
        pause = np.zeros(int(rng.uniform(0.1, 1.8) * SAMPLE_RATE), np.float32)
        pieces.append(pause)
        n += len(pause)
        item = same_voice[rng.randrange(len(same_voice))]
    if options.silence_after and rng.random() < options.silence_after:
        n_silent = int(rng.uniform(0.1, options.silence_after_s) * SAMPLE_RATE)
        pieces.append(_silence(rng, n_silent, clip, options, noise_seed))
    audio = np.concatenate(pieces)[:limit]
    prompt = anchor_prompt = ""
    cut_end = False
    if rng.random() < options.crop_start and len(audio) > SAMPLE_RATE:
        start = rng.uniform(0.1, 0.7) * len(audio) / SAMPLE_RATE
        anchor_prompt = " ".join(w for w, _, e, _ in words if e <= start)
        audio = audio[int(start * SAMPLE_RATE) :]
        words = [
            (w, max(0.0, s - start), e - start, u)
            for w, s, e, u in words
            if e > start and (s >= start or rng.random() < (e - start) / (e - s))
        ]
    if rng.random() < options.crop_end and len(audio) > SAMPLE_RATE // 2:
        keep = int(rng.uniform(0.3 * SAMPLE_RATE, len(audio)))
        audio = audio[:keep]
    end = len(audio) / SAMPLE_RATE
    if words and words[-1][2] > end + 0.01:
        cut_end = True
        words = [
            (w, s, min(e, end), u)
            for w, s, e, u in words
            if s < end and (e <= end or rng.random() < (end - s) / (e - s))
        ]
    if rng.random() < options.prompt:
        other = same_voice[rng.randrange(len(same_voice))]
        prompt = anchor_prompt if anchor_prompt and rng.random() < 0.7 else other.text
    return Window(
        _augment(rng, audio, options, noise_seed),
        words,
        prompt,
        rng.random() < options.timestamps,
        cut_end,
        anchor.language,
        tuple(item.text for item in items),
        all(item.words for item in items),
    )


def complete_window(
    rng: random.Random,
    voices: Mapping[tuple[str | None, str], Sequence[ShardItem]],
    items: Sequence[ShardItem],
    options: WindowOptions,
    *,
    late_start: float,
    lead_s: float,
) -> Window:
    """Draw a window whose words are all complete, for the training of causal models.

    A share `late_start` of them begins between two words, at most `lead_s` before the second, as a
    stream's next window may; where each utterance has word times."""
    anchor = items[rng.randrange(len(items))]
    window = draw_window(rng, anchor, voices[anchor.voice], options)
    audio, words = window.audio, window.words
    if window.cut_end:
        last = len(audio) / SAMPLE_RATE - 1e-6
        words = [word for word in words if word[2] < last]
    texts = window.texts
    if len(words) > 1 and window.timed and rng.random() < late_start:
        k = rng.randrange(1, len(words))
        start = max(words[k - 1][2], words[k][1] - rng.uniform(0.0, lead_s))
        audio = audio[int(start * SAMPLE_RATE) :]
        words = [(w, max(0.0, s - start), e - start, u) for w, s, e, u in words[k:]]
        texts = (" ".join(word for word, *_ in words),)
    return Window(audio, words, "", False, False, anchor.language, texts, window.timed)


def _at_speed(samples: np.ndarray, speed: float) -> np.ndarray:
    """Return `samples`, (n,), played `speed` times as fast, by linear interpolation."""
    if speed == 1:
        return samples
    at = np.arange(int(len(samples) / speed)) * np.float64(speed)
    return np.interp(at, np.arange(len(samples)), samples).astype(np.float32)


def _empty(
    rng: random.Random, anchor: ShardItem, options: WindowOptions, noise_seed: int
) -> Window:
    """Draw a window without words: `silences` of a length in `empty_s`; without that silence or
    white noise of any length."""
    if options.empty_s is not None:
        n = int(min(rng.uniform(*options.empty_s), options.context_s) * SAMPLE_RATE)
        audio = _silence(rng, n, anchor.samples(), options, noise_seed)
    else:
        n = int(rng.uniform(0.3, options.context_s) * SAMPLE_RATE)
        audio = np.zeros(n, np.float32)
        if rng.random() < 0.7:
            level = 10 ** (rng.uniform(-70, -25) / 20)
            audio = np.random.default_rng(noise_seed).standard_normal(n).astype(np.float32) * level
    prompt = anchor.text if rng.random() < options.prompt else ""
    return Window(audio, [], prompt, rng.random() < options.timestamps, False, anchor.language)


def _silence(
    rng: random.Random, n: int, clip: np.ndarray, options: WindowOptions, noise_seed: int
) -> np.ndarray:
    """Return (n,) float32 without speech: one of `options.silences`, as after `clip`."""
    kind = options.silences[0] if len(options.silences) == 1 else rng.choice(options.silences)
    if kind == "room":
        return _room_tone(clip, n, noise_seed)
    if kind == "noise":
        level = np.float32(10 ** (rng.uniform(*FAINT_DB) / 20))
        return level * _cut(rng, rng.choice(("pink", "hum")), n)
    return np.zeros(n, np.float32)


def _room_tone(clip: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return (n,) float32 of noise with the spectrum and the level of the quietest 0.2 s of
    `clip`."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = min(len(clip), SAMPLE_RATE // 5)
    if size < 2 or n < 1:
        return np.zeros(n, np.float32)
    starts = range(0, len(clip) - size + 1, max(1, size // 2))
    quietest = min((clip[at : at + size] for at in starts), key=lambda part: float(part @ part))
    heard = np.abs(np.fft.rfft(quietest * np.hanning(size)))
    n_drawn = next_fast_len(n, real=True)  # any length of noise will do, and this transforms fast
    noise = rfft(np.random.default_rng(seed).standard_normal(n_drawn, np.float32))
    noise *= np.interp(np.linspace(0, 1, len(noise)), np.linspace(0, 1, len(heard)), heard)
    tone = irfft(noise, n_drawn)[:n]
    power = float(np.mean(np.square(quietest, dtype=np.float64)))
    tone_power = max(float(np.mean(np.square(tone))), 1e-20)
    return (tone * (power / tone_power) ** 0.5).astype(np.float32)


def _augment(
    rng: random.Random, audio: np.ndarray, options: WindowOptions, noise_seed: int
) -> np.ndarray:
    if options.room and rng.random() < options.room:
        audio = in_room(audio, rng.uniform(0.15, 0.6), noise_seed)
    power = float(np.mean(np.square(audio)))
    if rng.random() < options.noise and power > 0:
        kinds = sorted(KINDS)
        noise = _cut(rng, kinds[noise_seed % len(kinds)], len(audio))
        level = (power / 10 ** (rng.uniform(*options.noise_snr_db) / 10)) ** 0.5
        audio = audio + np.float32(level) * noise
    if options.telephone and rng.random() < options.telephone:
        audio = telephone_band(audio, fast=True)
    gain = 10 ** (rng.uniform(*options.gain_db) / 20)
    return np.clip(audio * np.float32(gain), -1, 1).astype(np.float32)


def _cut(rng: random.Random, kind: str, n: int) -> np.ndarray:
    """Return (n,) of noise of unit power, from anywhere in its bank."""
    bank = _noise_bank(kind)
    first = rng.randrange(len(bank) - n)
    return bank[first : first + n]


@cache
def _noise_bank(kind: str) -> np.ndarray:
    """Make two minutes of noise (n,) of unit power, once: new noise for each window would cost
    more than the training step."""
    parts = [KINDS[kind](2**18, np.random.default_rng([seed, 7])) for seed in range(7)]
    return np.concatenate([p / np.sqrt(np.mean(p**2)) for p in parts]).astype(np.float32)


def length_buckets(
    examples: Sequence[Example], n_batches: int, length: Callable[[Example], float], key: str
) -> list[list[Example]]:
    """Divide `examples` into `n_batches` batches of similar lengths, in an order drawn from `key`.

    With the same key all ranks have long batches at the same time. One batch keeps its order.
    """
    if n_batches == 1:
        return [list(examples)]
    ordered = sorted(examples, key=length)
    size = len(ordered) // n_batches
    batches = [ordered[at : at + size] for at in range(0, n_batches * size, size)]
    random.Random(key).shuffle(batches)
    return batches


def place(
    labels: np.ndarray,
    units: Sequence[int],
    sizes: Sequence[int],
    start: float,
    end: float,
    frame_s: float = 0.02,
) -> None:
    """Write `units` into the frames of [start, end) seconds, in proportion to their sizes.

    labels: (frames,) of `frame_s` each, changed in place."""
    edges = start + (end - start) * np.cumsum([0, *sizes]) / sum(sizes)
    bounds = np.round(edges / frame_s).astype(int)
    for unit, a, b in zip(units, bounds[:-1], bounds[1:], strict=True):
        labels[a : max(b, a + 1)] = unit
