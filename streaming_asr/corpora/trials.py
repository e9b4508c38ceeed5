"""Trials: half an hour of what ordinary audio contains apart from clear speech, made from a seed at
first use.

Sounds in which nobody speaks are made here. Speech is from the corpora of the package, with its
exact word times: the half `dev` has clips of mini's dev, `test` those of voices and of mini's
clean, so that a choice on dev does not depend on test. The files are in
<cache>/trials/<VERSION>/<half>: FLAC and trials.jsonl, a manifest whose lines also have a `kind`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streaming_asr.corpora import MINI, Manifest, hash_of
from streaming_asr.corpora.manifest import read_manifest, word_rows, write_rows
from streaming_asr.corpora.noise import KINDS, hum, telephone_band
from streaming_asr.corpora.rows import text_of
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.files import HERE, cache_root, make_once
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import TimedWord, Utterance

VERSION = 1  # raised with any change of what is made
SEED = 33
MANIFEST = "trials.jsonl"
N_BYTES = 60_000_000  # of a half, while it is made
VOICES = HERE / "data" / "voices" / "voices.jsonl"
# By half: the manifest of speech, that of speech with numbers, the voice of the ten minutes.
SPEECH = {"dev": MINI / "dev.jsonl", "test": VOICES}
NUMBERS = {"dev": MINI / "dev.jsonl", "test": MINI / "clean.jsonl"}
LONG_VOICE = {"dev": "flite-awb", "test": "bm_lewis"}
# Mini's voices that are made from a person's recordings; eSpeak's do not sound like a person.
RECORDED = ("flite", "festival")

LEAD_S = 0.5  # before the first word's clip
LONG_S = 600.0
ROOM_DB = -60.0  # of full scale, of the faint noise of a room

Sound: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """One trial: its sound, and the clips and timed words that are spoken in it."""

    kind: str
    samples: Sound  # (n,) at 16 kHz
    clips: Sequence[Utterance] = ()
    words: Sequence[TimedWord] = ()


# -- sounds in which nobody speaks, (n,) at 16 kHz -----------------------------------------------


def at_level(samples: Sound, level_db: float) -> Sound:
    """Return `samples` with a root mean square of `level_db` below full scale; silence as it is."""
    power = float(np.mean(samples**2))
    return samples * (10 ** (level_db / 20) / np.sqrt(power)) if power else samples


def tones(n: int) -> Sound:
    """Return a telephone's dial tone, busy tone, keys and short beeps, (n,), a quarter each; `n` is
    a multiple of 4."""
    t = np.arange(n // 4) / SAMPLE_RATE  # seconds of a quarter

    def pair(low_hz: Any, high_hz: Any) -> Sound:
        return np.sin(2 * np.pi * low_hz * t) + np.sin(2 * np.pi * high_hz * t)

    key = (t * 4).astype(int) % 9  # four keys a second, each at two frequencies (DTMF)
    rows_hz, columns_hz = np.array([697, 770, 852]), np.array([1209, 1336, 1477])
    return np.concatenate(
        [
            pair(350, 440),
            pair(480, 620) * (t % 1 < 0.5),
            pair(rows_hz[key // 3], columns_hz[key % 3]) * (t * 4 % 1 < 0.5),
            pair(1000, 1000) * (t % 2 < 0.2),
        ]
    )


def breath(n: int, rng: np.random.Generator) -> Sound:
    """Return someone who breathes, (n,): noise that swells and fades for a second or two, again and
    again."""
    swell = np.zeros(n)
    begin = int(0.3 * SAMPLE_RATE)
    while begin < n:
        size = min(int(rng.uniform(0.9, 1.8) * SAMPLE_RATE), n - begin)
        swell[begin : begin + size] = np.hanning(size) * rng.uniform(0.5, 1.0)
        begin += size + int(rng.uniform(0.3, 1.5) * SAMPLE_RATE)
    rush = telephone_band(KINDS["pink"](n, rng).astype(np.float32)).astype(np.float64)
    return rush * swell


def wordless(rng: np.random.Generator) -> Iterator[Recording]:
    """Yield the recordings in which nobody speaks."""
    n = 10 * SAMPLE_RATE
    yield from (Recording("silence", np.zeros(n)) for _ in range(2))
    for level_db in (ROOM_DB, ROOM_DB + 10):
        yield Recording("room", at_level(KINDS["pink"](n, rng), level_db))
    for kind in ("white", "pink", "babble"):
        yield Recording("noise", at_level(KINDS[kind](n, rng), rng.uniform(-35, -25)))
    for mains_hz in (50.0, 60.0):
        yield Recording("hum", at_level(hum(n, rng, mains_hz), -30))
    yield Recording("tones", at_level(tones(2 * n), -25))
    yield Recording("breath", at_level(breath(2 * n, rng), -45))


# -- speech --------------------------------------------------------------------------------------


def speak(
    kind: str, clips: Sequence[Utterance], pauses_s: Sequence[float], room: Sound | None = None
) -> Recording:
    """Return a recording of the clips, a pause of `pauses_s` seconds after each, over the noise
    `room`, which is repeated to their length."""
    n_lead = round(LEAD_S * SAMPLE_RATE)
    parts, words = [np.zeros(n_lead)], []
    n_samples = n_lead  # so far
    sound_of = {clip.id: clip.load().astype(np.float64) for clip in clips}  # clips may repeat
    for clip, pause_s in zip(clips, pauses_s, strict=True):
        begin_s = n_samples / SAMPLE_RATE
        for text, start, end in clip.words or ():
            words.append(TimedWord(text, begin_s + start, begin_s + end))
        sound, pause = sound_of[clip.id], np.zeros(round(pause_s * SAMPLE_RATE))
        parts += [sound, pause]
        n_samples += len(sound) + len(pause)
    samples = np.concatenate(parts)
    if room is not None:
        samples += np.resize(room, n_samples)
    return Recording(kind, samples, clips, words)


def changed(recording: Recording, kind: str, change: Callable[[Sound], Sound]) -> Recording:
    """Return the recording as another kind, its samples changed."""
    return Recording(kind, change(recording.samples), recording.clips, recording.words)


def low(samples: Sound) -> Sound:
    """Return `samples` 30 dB fainter than speech is recorded."""
    return at_level(samples, -52)


def clipped(samples: Sound) -> Sound:
    """Return `samples` so loud that their peaks are cut off."""
    return np.clip(at_level(samples, -6), -1, 1)


def at_8_khz(samples: Sound) -> Sound:
    """Return `samples`, (n,) at 16 kHz, without what a recording at 8 kHz loses."""
    from scipy.signal import resample_poly

    return resample_poly(resample_poly(samples, 1, 2), 2, 1)[: len(samples)]


def spoken(half: str, draw: random.Random, rng: np.random.Generator) -> Iterator[Recording]:
    """Yield the recordings with speech, except the long one."""
    by_voice = voices_of(SPEECH[half])
    names = sorted(by_voice)

    def some(n: int) -> list[Utterance]:
        """Return `n` clips of one voice, both drawn."""
        voices = [name for name in names if len(by_voice[name]) >= n]
        return draw.sample(by_voice[draw.choice(voices)], n)

    room = at_level(KINDS["pink"](10 * SAMPLE_RATE, rng), ROOM_DB)
    longest = round(draw.uniform(15, 20), 1)
    yield speak("pauses", some(4), [5.0, longest, round(draw.uniform(6, 14), 1), 0.5])
    yield speak("pauses", some(3), [round(draw.uniform(5, 9), 1), 12.0, 0.5], room)
    yield speak("ends", some(1), [10.0])
    yield speak("ends", some(1), [10.0], room)
    for kind, change in (("low", low), ("clipped", clipped), ("8khz", at_8_khz)):
        yield changed(speak(kind, some(2), [0.6, 0.5], room), kind, change)
    numbers: dict[str, list[Utterance]] = {}  # clips with a number, of voices with four or more
    for voice, clips in voices_of(NUMBERS[half]).items():
        with_digits = [clip for clip in clips if any(map(str.isdigit, clip.text))]
        if len(with_digits) >= 4:
            numbers[voice] = with_digits
    clips = draw.sample(numbers[draw.choice(sorted(numbers))], 4)
    yield speak("numbers", clips, [0.5] * 4)
    menu = draw.sample(numbers[draw.choice(sorted(numbers))], 3)
    yield speak("menu", menu * 2, [0.4] * 6)  # telephones repeat their menus


def long_one(half: str, draw: random.Random) -> Recording:
    """Return ten minutes of one voice: all of its clips, again and again, each round in another
    order, with no clip directly after itself."""
    voice_clips = voices_of(SPEECH[half])[LONG_VOICE[half]]
    clips: list[Utterance] = []
    pauses_s: list[float] = []
    length_s = LEAD_S
    while True:
        one_round = draw.sample(voice_clips, len(voice_clips))
        if clips and one_round[0] is clips[-1]:
            one_round.reverse()
        for clip in one_round:
            pause_s = round(draw.uniform(0.3, 1.5), 2)
            length_s += clip.duration_s + pause_s
            if length_s > LONG_S:
                return speak("long", clips, pauses_s)
            clips.append(clip)
            pauses_s.append(pause_s)


def voices_of(manifest: Path) -> dict[str, list[Utterance]]:
    """Return {voice: clips} of a manifest, of mini's voices the RECORDED ones only. Mini marks the
    speed of a voice by `-w` and a number; all speeds are one voice here."""
    voices: dict[str, list[Utterance]] = {}
    for clip in read_manifest(manifest):
        voice = (clip.speaker or "").partition("-w")[0]
        if manifest == VOICES or voice.startswith(RECORDED):
            voices.setdefault(voice, []).append(clip)
    return voices


# -- the corpus ----------------------------------------------------------------------------------


def recordings(half: str) -> Iterator[Recording]:
    """Yield the recordings of a half. They depend on this file and the package's speech only."""
    draw = random.Random(f"{SEED} {half}")
    rng = np.random.default_rng([SEED, *half.encode()])
    yield from wordless(rng)
    yield from spoken(half, draw, rng)
    yield long_one(half, draw)


def make(half: str, target: Path) -> None:
    """Write the recordings of a half and their manifest into the new folder `target`."""
    import soundfile

    target.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for recording in recordings(half):
        n_of_kind = sum(row["kind"] == recording.kind for row in rows)
        name = f"{recording.kind}-{half}-{n_of_kind}"
        samples: Samples = np.clip(recording.samples, -1, 1).astype(np.float32)
        soundfile.write(target / f"{name}.flac", samples, SAMPLE_RATE, subtype="PCM_16")
        row = {
            "id": name,
            "kind": recording.kind,
            "audio_filepath": f"{name}.flac",
            "duration": len(samples) / SAMPLE_RATE,
            "text": " ".join(clip.text for clip in recording.clips),
            "speaker": recording.clips[0].speaker if recording.clips else None,
            "language": "en",
            "words": word_rows(recording.words),
        }
        rows.append(row)
    write_rows(target / MANIFEST, rows)


@dataclass(kw_only=True, eq=False)
class Trials(Manifest):
    """A half of the trials, made at first use."""

    path: Path = field(default=Path(), init=False)
    split: str = "dev"

    def __post_init__(self) -> None:
        check_one_of(SPEECH, **{"data.split": self.split})
        self.path = cache_root() / "trials" / str(VERSION) / self.split / MANIFEST
        self.name = self.name or "trials"
        super().__post_init__()

    def scan(self) -> Iterator[Utterance | UserError]:
        self._make()
        yield from super().scan()

    def data_hash(self) -> str:
        """Return the hash of the version, of the manifest (texts and times) and of the alignment
        files. Samples are left out: another decoder may change their last bit."""
        self._make()
        return hash_of(f"{VERSION} {text_of(self.path)}", self._alignment_files())

    def _make(self) -> None:
        make_once(self.path.parent, partial(make, self.split), n_bytes=N_BYTES)
