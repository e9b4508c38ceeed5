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
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.corpora.noise import KINDS, in_room, telephone_band
from streaming_asr.corpora.shards import ShardItem
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import SAMPLE_RATE

Example = TypeVar("Example")
TimedText: TypeAlias = tuple[str, float, float, int]
"""A word: its text, start and end in seconds, and the index of its utterance."""


@dataclass(frozen=True)
class Window:
    """One training example."""

    audio: np.ndarray  # (n,) float32
    words: list[TimedText]  # in seconds of the window
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
    silence_after: float = 0.0  # silence after the last word
    silence_after_s: float = 2.0  # at most
    silences: Sequence[str] = ("zeros",)  # what it and the pauses hold: a draw from `SILENCES`
    empty_s: tuple[float, float] | None = None  # of an empty window, of `silences`; see `_empty`
    clips: tuple[int, int] = (2, 4)  # in a window of several
    pause_s: tuple[float, float] = (0.1, 1.8)  # between them
    whole: bool = False  # an utterance that would run over the context's edge is left out


UNCUT: dict[str, Any] = dict.fromkeys(("crop_end", "crop_start", "timestamps", "prompt"), 0.0)
"""Options of windows that hold whole words and no more than them."""
SILENCES = ("zeros", "room", "noise")  # room: the clip's own background; noise: faint pink or hum
NO_AUGMENT: dict[str, Any] = {
    **dict.fromkeys(("empty", "noise", "speed", "room", "telephone", "silence_after"), 0.0),
    "gain_db": (0.0, 0.0),
}
_RANGES = {  # options that are a range (least, most), and what both must be greater than
    **dict.fromkeys(("gain_db", "noise_snr_db"), -np.inf),
    **dict.fromkeys(("speed_range", "empty_s", "clips", "pause_s"), 0),
}
FAINT_DB = (-70.0, -40.0)  # of full scale


def check_augment(augment: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown name, a share outside [0, 1], a range that is not two rising
    numbers, an unknown kind of silence.

    augment: options of `WindowOptions` by name, from a recipe's setting."""
    shares = [name for name in NO_AUGMENT if name not in _RANGES]
    for name, value in augment.items():
        check_one_of((*shares, *_RANGES, "silence_after_s", "silences"), augment=name)
        option = f"augment.{name}={value}"
        if name in shares and not 0 <= value <= 1:
            raise UserError(f"{option}: a share of the windows, from 0 to 1")
        if name in _RANGES and not (len(value) == 2 and _RANGES[name] < value[0] <= value[1]):
            limit = ", above 0" if _RANGES[name] == 0 else ""
            raise UserError(f"{option}: the least and the most{limit}, as in [1, 4]")
        if name == "silence_after_s" and value <= 0.1:
            raise UserError(f"{option}: seconds, more than 0.1")
        if name == "silences":
            for kind in value or [None]:  # (no kind at all is refused too)
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
    n_clips = rng.randint(*options.clips) if rng.random() < options.several else 1
    speed = rng.uniform(*options.speed_range) if rng.random() < options.speed else 1.0
    pieces, words, items = _several(rng, anchor, same_voice, options, n_clips, speed, noise_seed)
    if options.silence_after and rng.random() < options.silence_after:
        n_silent = int(rng.uniform(0.1, options.silence_after_s) * SAMPLE_RATE)
        last_clip = pieces[2 * (len(items) - 1)]  # clips and pauses alternate
        pieces.append(_silence(rng, n_silent, last_clip, options, noise_seed))
    audio = np.concatenate(pieces)[: int(options.context_s * SAMPLE_RATE)]
    text_before = ""
    if rng.random() < options.crop_start and len(audio) > SAMPLE_RATE:
        start_s = rng.uniform(0.1, 0.7) * len(audio) / SAMPLE_RATE
        text_before = " ".join(text for text, _, end_s, _ in words if end_s <= start_s)
        audio = audio[int(start_s * SAMPLE_RATE) :]
        words = _words_after(rng, words, start_s)
    if rng.random() < options.crop_end and len(audio) > SAMPLE_RATE // 2:
        audio = audio[: int(rng.uniform(0.3 * SAMPLE_RATE, len(audio)))]
    length_s = len(audio) / SAMPLE_RATE
    cut_end = bool(words) and words[-1][2] > length_s + 0.01
    if cut_end:
        words = _words_before(rng, words, length_s)
    prompt = ""
    if rng.random() < options.prompt:
        other = same_voice[rng.randrange(len(same_voice))]
        prompt = text_before if text_before and rng.random() < 0.7 else other.text
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


def _several(
    rng: random.Random,
    anchor: ShardItem,
    same_voice: Sequence[ShardItem],
    options: WindowOptions,
    n_clips: int,
    speed: float,
    noise_seed: int,
) -> tuple[list[np.ndarray], list[TimedText], list[ShardItem]]:
    """Return `anchor` and further utterances, `n_clips` or as many as the context has room for.

    They are: the samples of utterances and of the pauses between them, in turn; the words; the
    utterances. speed: see `_at_speed`; noise_seed: of the pauses, see `_silence`.
    """
    pieces: list[np.ndarray] = []
    words: list[TimedText] = []
    items: list[ShardItem] = []
    item, n_samples = anchor, 0
    limit = int(options.context_s * SAMPLE_RATE)
    for index in range(n_clips):
        clip = _at_speed(item.samples(), speed)
        if index and n_samples + len(clip) > limit:
            # let the last utterance run over the context's edge half of the time, as speech does
            if options.whole or rng.random() < 0.5:
                break
            clip = clip[: limit - n_samples]
        offset_s = n_samples / SAMPLE_RATE
        words += [
            (text, start_s / speed + offset_s, end_s / speed + offset_s, index)
            for text, start_s, end_s in item.words
        ]
        pieces.append(clip)
        items.append(item)
        n_samples += len(clip)
        if index + 1 == n_clips or n_samples >= limit:
            break
        n_pause = int(rng.uniform(*options.pause_s) * SAMPLE_RATE)
        pause = _silence(rng, n_pause, clip, options, noise_seed + index)
        pieces.append(pause)
        n_samples += len(pause)
        item = same_voice[rng.randrange(len(same_voice))]
    return pieces, words, items


def _words_after(rng: random.Random, words: list[TimedText], cut_s: float) -> list[TimedText]:
    """Return the words of a window whose first `cut_s` seconds are removed, with new times.

    A divided word stays with a probability equal to the share of it that is in the audio.
    """
    return [
        (text, max(0.0, start_s - cut_s), end_s - cut_s, index)
        for text, start_s, end_s, index in words
        if end_s > cut_s
        and (start_s >= cut_s or rng.random() < (end_s - cut_s) / (end_s - start_s))
    ]


def _words_before(rng: random.Random, words: list[TimedText], cut_s: float) -> list[TimedText]:
    """Return the words of a window that ends after `cut_s` seconds.

    A divided word stays with a probability equal to the share of it that is in the audio.
    """
    return [
        (text, start_s, min(end_s, cut_s), index)
        for text, start_s, end_s, index in words
        if start_s < cut_s
        and (end_s <= cut_s or rng.random() < (cut_s - start_s) / (end_s - start_s))
    ]


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

    A share `late_start` of those whose utterances all have word times begins between two words, at
    most `lead_s` before the second, as a stream's next window may. voices: items by voice."""
    anchor = items[rng.randrange(len(items))]
    window = draw_window(rng, anchor, voices[anchor.voice], options)
    audio, words = window.audio, window.words
    if window.cut_end:  # an incomplete word ends exactly there
        length_s = len(audio) / SAMPLE_RATE - 1e-6
        words = [word for word in words if word[2] < length_s]
    texts = window.texts
    if len(words) > 1 and window.timed and rng.random() < late_start:
        k = rng.randrange(1, len(words))
        cut_s = max(words[k - 1][2], words[k][1] - rng.uniform(0.0, lead_s))
        audio = audio[int(cut_s * SAMPLE_RATE) :]
        words = [
            (text, max(0.0, start_s - cut_s), end_s - cut_s, index)
            for text, start_s, end_s, index in words[k:]
        ]
        texts = (" ".join(text for text, *_ in words),)
    return Window(audio, words, "", False, False, anchor.language, texts, window.timed)


def _at_speed(samples: np.ndarray, speed: float) -> np.ndarray:
    """Return `samples`, (n,), played `speed` times as fast, by linear interpolation."""
    if speed == 1:
        return samples
    positions = np.arange(int(len(samples) / speed)) * np.float64(speed)
    return np.interp(positions, np.arange(len(samples)), samples).astype(np.float32)


def _empty(
    rng: random.Random, anchor: ShardItem, options: WindowOptions, noise_seed: int
) -> Window:
    """Draw a window without words.

    With `options.empty_s`: one of `options.silences`, its length drawn from that range. Without:
    digital silence or white noise, of 0.3 s up to the context.
    """
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
    """Return (n,) float32 without speech: one of `options.silences`.

    clip: the utterance before it, whose background `room` continues.
    """
    kind = options.silences[0] if len(options.silences) == 1 else rng.choice(options.silences)
    if kind == "room":
        return _room_tone(clip, n, noise_seed)
    if kind == "noise":
        level = np.float32(10 ** (rng.uniform(*FAINT_DB) / 20))
        return level * _cut(rng, rng.choice(("pink", "hum")), n)
    return np.zeros(n, np.float32)


def _room_tone(clip: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return (n,) float32 of noise with spectrum and level of the quietest 0.2 s of `clip`."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = min(len(clip), SAMPLE_RATE // 5)
    if size < 2 or n < 1:
        return np.zeros(n, np.float32)
    starts = range(0, len(clip) - size + 1, max(1, size // 2))
    parts = (clip[start : start + size] for start in starts)
    quietest = min(parts, key=lambda part: float(part @ part))
    magnitudes = np.abs(np.fft.rfft(quietest * np.hanning(size)))
    n_drawn = next_fast_len(n, real=True)  # any length >= n serves, and this transforms fast
    spectrum = rfft(np.random.default_rng(seed).standard_normal(n_drawn, np.float32))
    # The magnitudes at the frequencies of the longer spectrum.
    wanted_at = np.linspace(0, 1, len(spectrum))
    spectrum *= np.interp(wanted_at, np.linspace(0, 1, len(magnitudes)), magnitudes)
    tone = irfft(spectrum, n_drawn)[:n]
    power = float(np.mean(np.square(quietest, dtype=np.float64)))
    tone_power = max(float(np.mean(np.square(tone))), 1e-20)
    return (tone * (power / tone_power) ** 0.5).astype(np.float32)


def _augment(
    rng: random.Random, audio: np.ndarray, options: WindowOptions, noise_seed: int
) -> np.ndarray:
    """Return audio (n,) with a room, noise, a telephone line and a gain, each as its share in
    `options` draws it; float32 in [-1, 1]."""
    if options.room and rng.random() < options.room:
        audio = in_room(audio, rng.uniform(0.15, 0.6), noise_seed)
    power = float(np.mean(np.square(audio)))
    if rng.random() < options.noise and power > 0:
        kinds = sorted(KINDS)
        noise = _cut(rng, kinds[noise_seed % len(kinds)], len(audio))
        snr_db = rng.uniform(*options.noise_snr_db)
        level = (power / 10 ** (snr_db / 10)) ** 0.5  # the noise has unit power
        audio = audio + np.float32(level) * noise
    if options.telephone and rng.random() < options.telephone:
        audio = telephone_band(audio, fast=True)
    gain = 10 ** (rng.uniform(*options.gain_db) / 20)
    return np.clip(audio * np.float32(gain), -1, 1).astype(np.float32)


def _cut(rng: random.Random, kind: str, n: int) -> np.ndarray:
    """Return (n,) of noise of unit power, from anywhere in the bank of its kind."""
    bank = _noise_bank(kind)
    first = rng.randrange(len(bank) - n)
    return bank[first : first + n]


@cache
def _noise_bank(kind: str) -> np.ndarray:
    """Return two minutes (n,) of noise of unit power, made once: new noise for each window would
    cost more than the training step."""
    parts = [KINDS[kind](2**18, np.random.default_rng([seed, 7])) for seed in range(7)]
    return np.concatenate([part / np.sqrt(np.mean(part**2)) for part in parts]).astype(np.float32)


def length_buckets(
    examples: Sequence[Example], n_batches: int, length: Callable[[Example], float], key: str
) -> list[list[Example]]:
    """Divide `examples` into `n_batches` batches of similar lengths, in an order drawn from `key`.

    With the same key all ranks have long batches at the same time, so that none waits for another.
    A single batch keeps the order of `examples`; examples that fill no batch are left out.
    """
    if n_batches == 1:
        return [list(examples)]
    ordered = sorted(examples, key=length)
    size = len(ordered) // n_batches
    batches = [ordered[first : first + size] for first in range(0, n_batches * size, size)]
    random.Random(key).shuffle(batches)
    return batches


FULL_SCALE = 32768
"""Of the shards' int16, so that speech which no augmentation has changed comes back as it was."""


def as_int16(windows: Sequence[np.ndarray]) -> Tensor:
    """Return windows of (n_i,) samples in [-1, 1] as (batch, n) int16, padded with zeros.

    The features are then made where the model is: the processes that draw windows have less to do.
    """
    scaled = [(window * FULL_SCALE).round().clip(-FULL_SCALE, FULL_SCALE - 1) for window in windows]
    tensors = [torch.from_numpy(samples).short() for samples in scaled]
    return pad_sequence(tensors, batch_first=True)


def from_int16(samples: Tensor) -> Tensor:
    """Return int16 samples of any shape as float32 in [-1, 1]."""
    return samples.float() / FULL_SCALE
