"""Reads audio files: any rate, any number of channels, to 16 kHz mono float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au")  # soundfile reads
# A lossy codec overshoots full scale a little; a file of integers stored as floats by a lot.
MAX_PEAK = 2.0
PIECE_S = 60


def load_audio(path: str | Path, start_s: float = 0.0, end_s: float | None = None) -> Samples:
    """Return the samples of `path`, (n,) float32 mono 16 kHz in [-1, 1], n > 0.

    With times, only what lies between them is read. Channels are averaged; other rates are
    resampled by a polyphase filter. Raises UserError where the file is missing, unreadable, empty
    there, or holds values that are no audio.
    """
    with _opened(path) as file:
        rate = file.samplerate
        file.seek(min(round(start_s * rate), file.frames))
        n = -1 if end_s is None else max(0, round(end_s * rate) - file.tell())
        data = file.read(n, dtype="float32", always_2d=True)  # (n, channels)
    return to_mono_16k(data, rate, path)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    import soundfile

    try:
        with soundfile.SoundFile(str(path)) as file:
            yield file
    except (soundfile.SoundFileError, OSError) as error:
        if not Path(path).is_file():
            raise UserError(f"{path}: no such audio file; correct the path.") from error
        raise UserError(
            f"{path}: not readable as audio ({error}); convert it, for instance: "
            f"ffmpeg -i {Path(path).name} -ar 16000 -ac 1 {Path(path).stem}.wav"
        ) from error


class Reader:
    """The samples of a file in turn, of which a minute or two are in memory."""

    def __init__(self, path: str | Path) -> None:
        self._pieces = _pieces(path)
        self._held: Samples = np.zeros(0, dtype=np.float32)

    def read(self, n: int) -> Samples:
        """Return the next `n` samples that `load_audio` would give, or what is left.

        Raises UserError as `load_audio` does, where it comes to what is wrong.
        """
        parts, n_held = [self._held], len(self._held)
        while n_held < n and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            n_held += len(piece)
        joined = np.concatenate(parts)
        self._held = joined[n:].copy()
        return joined[:n]


def _pieces(path: str | Path) -> Iterator[Samples]:
    """Yield a minute at a time. Each is resampled with a second on either side of it, more than the
    filter reaches: whole seconds, which are whole numbers of samples at both rates."""
    with _opened(path) as file:
        rate = file.samplerate
        data = file.read((PIECE_S + 1) * rate, dtype="float32", always_2d=True)
        begin = 0
        while True:
            more = file.read(PIECE_S * rate, dtype="float32", always_2d=True)
            samples = to_mono_16k(data, rate, path)
            yield samples[begin : len(samples) - SAMPLE_RATE if len(more) else None]
            if not len(more):
                return
            data, begin = np.concatenate([data[-2 * rate :], more]), SAMPLE_RATE


def to_mono_16k(data: np.ndarray[Any, Any], rate: int, name: str | Path) -> Samples:
    """Return `data`, (n, channels) at `rate` Hz, as checked mono 16 kHz; errors tell `name`."""
    if data.size == 0:
        raise UserError(f"{name}: holds 0 samples; an utterance needs audio: remove or replace it.")
    peak = float(np.max(np.abs(data)))  # NaN and infinity survive the maximum
    if not np.isfinite(peak):
        raise UserError(f"{name}: holds NaN or infinite samples; export the audio again.")
    if peak > MAX_PEAK:
        raise UserError(
            f"{name}: samples reach {peak:g}, audio lies in [-1, 1]; 16-bit values stored as "
            "floats must be divided by 32768."
        )
    mono = data.mean(axis=1)
    if rate != SAMPLE_RATE:
        from scipy.signal import resample_poly

        shared = gcd(rate, SAMPLE_RATE)
        mono = resample_poly(mono, SAMPLE_RATE // shared, rate // shared)
    return np.ascontiguousarray(np.clip(mono, -1.0, 1.0), dtype=np.float32)


def duration_s(path: str | Path) -> float:
    """Return the length that the file's header states, or 0.0 where it has none that can be read.

    Not an error here: listing a corpus should not fail for one bad file, loading that file does.
    """
    import soundfile

    try:
        info = soundfile.info(str(path))
    except (soundfile.SoundFileError, OSError):
        return 0.0
    return float(info.frames / info.samplerate)


@dataclass(frozen=True, slots=True)
class File:
    """A recording in a file. Called, it gives the samples (so do the others here)."""

    path: Path

    def __call__(self) -> Samples:
        return load_audio(self.path)

    def reader(self) -> Reader:
        """Return a reader for a recording that is too long to be in memory whole."""
        return Reader(self.path)


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a longer recording, in seconds."""

    path: Path
    start_s: float
    end_s: float

    def __call__(self) -> Samples:
        return load_audio(self.path, self.start_s, self.end_s)


@dataclass(frozen=True, slots=True)
class Composed:
    """Recordings joined into one, each followed by its pause, made when it is loaded."""

    parts: Sequence[tuple[Path, float]]  # (audio, silence after it in seconds)

    def __call__(self) -> Samples:
        pieces: list[Samples] = []
        for path, gap_s in self.parts:
            pieces.append(load_audio(path))
            pieces.append(np.zeros(round(gap_s * SAMPLE_RATE), dtype=np.float32))
        return np.concatenate(pieces)
