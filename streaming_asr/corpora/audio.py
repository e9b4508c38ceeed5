"""Reads audio files: any rate, any number of channels, to 16 kHz mono float32.

libsndfile reads the formats that recordings of corpora have, FFmpeg (PyAV) those of phones,
browsers and cameras.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import IO, Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.files import check_file
from streaming_asr.method import SAMPLE_RATE, Samples

SOUNDFILE = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au")
_FFMPEG = (
    ".3g2 .3gp .aac .ac3 .amr .ape .avi .caf .flv .m4a .m4b .m4v .mka .mkv .mov .mp2 .mp4 .mpeg "
    ".mpg .mts .oga .ogv .ts .weba .webm .wma .wmv .wv"
)
CONTAINERS = tuple(_FFMPEG.split())
SUFFIXES = SOUNDFILE + CONTAINERS
# A lossy codec overshoots full scale a little; a file of integers stored as floats by a lot.
MAX_PEAK = 2.0
CANCELLED = 1e-3  # the mean of channels in antiphase has less of their power than this
FAINT = 1e-3  # a peak of -60 dB: nobody spoke, or channels cancelled each other
PIECE_S = 60
# Outside of these a header is damaged; believing it would take all memory.
RATES_HZ = (2_000, 768_000)
MAX_S = 24 * 3600.0
MOST_S = 7 * MAX_S  # what a log can hold
SHORT_S = 0.1  # so much less may be decoded than a header states
UNKNOWN_SIZE = 2**31 - 512  # from here on a WAV header says "as long as it goes on"
MAX_PHASES = 50_000  # of a resampler between two rates; more would take minutes and gigabytes
# How a recording begins: a page that opens an Ogg stream, the first block of a FLAC.
_BEGINS = re.compile(rb"OggS\x00\x02\x00{8}|fLaC[\x00\x80]\x00\x00\x22")
# How an MP3 begins that states its length: a silent frame with its number of frames.
_BEGINS_MP3 = re.compile(
    rb"\xff[\xe2-\xff]..\x00{9,32}(?:Xing|Info)\x00\x00\x00[\x00-\x0f]", re.DOTALL
)
_CONTAINER = re.compile(rb"....ftyp|\x1aE\xdf\xa3", re.DOTALL)
_GOES_ON = re.compile(rb"OggS\x00[\x00\x01]")  # a page of a stream that was opened

log = logging.getLogger(__name__)


def load_audio(path: str | Path, start_s: float = 0.0, end_s: float | None = None) -> Samples:
    """Return the samples of `path`, (n,) float32 mono 16 kHz in [-1, 1], n > 0.

    With times, only what lies between them is read. Channels are averaged; other rates are
    resampled by a polyphase filter. Raises UserError where the file is missing, unreadable, cut
    off, damaged or empty there, or holds values that are no audio.
    """
    if _is_container(path):
        whole = np.concatenate([*_decoded(path)] or [np.zeros(0, np.float32)])
        first, last = (None if s is None else round(s * SAMPLE_RATE) for s in (start_s, end_s))
        return to_mono_16k(whole[first:last, None], SAMPLE_RATE, path)
    with _opened(path) as file:
        rate = file.samplerate
        if end_s is None:
            _check_whole(file, path)
            if file.frames > MAX_S * rate:
                raise UserError(
                    f"{path}: its header states {file.frames / rate / 3600:.0f} h, "
                    f"{MAX_S / 3600:.0f} h at most are read at once; export it again or cut it."
                )
        first = file.seek(min(round(start_s * rate), file.frames))
        last = file.frames if end_s is None else min(file.frames, round(end_s * rate))
        data = file.read(max(0, last - first), dtype="float32", always_2d=True)  # (n, channels)
        _check_decoded(file, len(data), last - first, path)
    return to_mono_16k(data, rate, path)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    import soundfile

    check_file(path)
    try:
        with soundfile.SoundFile(str(path)) as file:
            rate = file.samplerate
            if (
                not RATES_HZ[0] <= rate <= RATES_HZ[1]
                or rate // gcd(rate, SAMPLE_RATE) > MAX_PHASES
            ):
                raise UserError(
                    f"{path}: its header states {rate} Hz, which must be from {RATES_HZ[0]} to "
                    f"{RATES_HZ[1]} and, above {MAX_PHASES}, share a large factor with 16000; "
                    "export the audio again, for instance at 48000 Hz."
                )
            _check_one(path, file.format)
            if file.format == "MP3" and _length_is_a_guess(path, file.frames / file.samplerate):
                raise UserError(
                    f"{path}: is an MP3 of variable bit rate that states no length, so its end "
                    f"would be lost; convert it: ffmpeg -i {Path(path).name} {Path(path).stem}.flac"
                )
            yield file
    except (soundfile.SoundFileError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, why: object) -> UserError:
    if not Path(path).is_file():
        return UserError(f"{path}: no such audio file; correct the path.")
    if "does not exist" in str(why):  # what libsndfile says of an .mp3 that is none
        why = "its content is of no audio format that is known"
    return UserError(f"{path}: not readable as audio ({why}); record or export it again")


def _check_one(path: str | Path, kind: str) -> None:
    """Raise UserError where recordings stand one after the other in an Ogg, a FLAC or an MP3, of
    which the first alone would be read."""
    if kind not in ("OGG", "FLAC", "MP3"):
        return
    begins = _BEGINS_MP3 if kind == "MP3" else _BEGINS
    with Path(path).open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as held:
        # Streams that sound at once are all opened before the first of them goes on.
        opened = (_GOES_ON if kind == "OGG" else begins).search(held)
        if opened is not None and begins.search(held, opened.end()) is not None:
            raise UserError(
                f"{path}: holds several recordings one after another, of which only the first "
                "would be heard; convert each by itself, or join them: "
                f"ffmpeg -i {Path(path).name} {Path(path).stem}.wav"
            )


def _is_container(path: str | Path) -> bool:
    """Return whether FFmpeg is to read a file: an MP4 or a WebM under another name, too."""
    if Path(path).suffix.lower() not in CONTAINERS and Path(path).is_file():
        with suppress(OSError), Path(path).open("rb") as raw:
            return bool(_CONTAINER.match(raw.read(8)))
    return Path(path).suffix.lower() in CONTAINERS


def _decoded(path: str | Path) -> Iterator[Samples]:
    """Yield a container's first audio track, (n,) mono 16 kHz at a time. Raises UserError."""
    import av

    check_file(path)
    try:
        if Path(path).suffix.lower() == ".oga":
            _check_one(path, "OGG")
        with av.open(str(path)) as container:
            if not container.streams.audio:
                raise UserError(f"{path}: holds no audio track; give a recording with sound")
            track = container.streams.audio[0]
            stated_s = _length_s(container)
            # Where there are other tracks, they may be a little longer.
            short_s = SHORT_S if len(container.streams) == 1 else 0.5
            resampler, n = Resampler(), 0
            # FFmpeg's resampler, since frames come in pieces: its filter goes on over their edges.
            for frame in container.decode(track):
                samples = resampler.of_frame(frame)
                n += len(samples)
                yield samples
            rest = resampler.of_frame(None)
            yield rest
    except (av.FFmpegError, OSError) as error:
        raise _unreadable(path, error.strerror) from error
    found_s = (n + len(rest)) / SAMPLE_RATE
    if found_s < stated_s - short_s:
        raise UserError(
            f"{path}: is cut off or damaged: {found_s:.2f} of {stated_s:.2f} s can be decoded; "
            "copy or export it again."
        )


def _length_s(container: Any) -> float:
    """Return the length of a container's first audio track; 0.0 where it states none."""
    track = container.streams.audio[0]
    if track.duration:
        return float(track.duration * track.time_base)
    return (container.duration or 0) / 1e6


class Resampler:
    """Makes mono audio at `rate` Hz of pieces; the filter's state goes from one to the next."""

    def __init__(self, rate: int = SAMPLE_RATE) -> None:
        import av

        self._swr = av.AudioResampler(format="flt", layout="mono", rate=rate)

    def of_frame(self, frame: Any) -> Samples:
        """Return the samples, (n,), that are ready after an `av.AudioFrame`; None ends it."""
        ready = [resampled.to_ndarray()[0] for resampled in self._swr.resample(frame)]
        return np.concatenate(ready or [np.zeros(0, np.float32)])

    def of_samples(self, mono: Samples, rate: int) -> Samples:
        """Return the samples that are ready after the next `mono`, (n,), at `rate` Hz."""
        import av

        if not len(mono):
            return mono
        frame = av.AudioFrame.from_ndarray(mono[None], format="flt", layout="mono")
        frame.sample_rate = rate
        return self.of_frame(frame)


def _check_whole(file: Any, path: str | Path) -> None:
    """Raise UserError for a file that ends before its header or its last Ogg page says."""
    # libsndfile repairs the sizes of a header in silence, and tells only its log.
    sizes = re.findall(
        r"(?:RIFF|FORM|data|SSND|Data Size) *: (\d+) \(should be (\d+)\)", file.extra_info
    )
    off = any(int(there) < int(stated) < UNKNOWN_SIZE for stated, there in sizes)
    if file.format == "OGG":
        with Path(path).open("rb") as raw:
            raw.seek(max(0, Path(path).stat().st_size - 2**16 - 2**9))  # longer than any page
            end = raw.read()
        page = end[end.rfind(b"OggS") :]
        lacing = page[27 : 27 + page[26]] if len(page) > 26 else b""
        off = len(page) < 27 + len(lacing) + sum(lacing) or not lacing
        if not off and not page[5] & 4:
            log.warning("%s: has no last Ogg page; it may be cut off", path)
    if off:
        raise UserError(
            f"{path}: is cut off: it ends after {file.frames / file.samplerate:.2f} s, in the "
            "middle of what its header announces; copy or export it again."
        )


def _length_is_a_guess(path: str | Path, stated_s: float) -> bool:
    """Return whether an MP3 whose header counts no frames is longer than `stated_s`.

    libsndfile then takes its size over the bit rate of the first frame for the length, and stops
    there: the end of a recording of variable bit rate would be lost.
    """
    import av

    with Path(path).open("rb") as raw:
        begin = raw.read(2**16)
    if re.search(rb"(Xing|Info)...[\x01\x03\x05\x07\x09\x0b\x0d\x0f]|VBRI", begin, re.DOTALL):
        return False
    try:
        with av.open(str(path)) as container:
            track = container.streams.audio[0]
            ticks = sum(packet.duration or 0 for packet in container.demux(track))
            return ticks * float(track.time_base or 0) > stated_s + SHORT_S
    except (av.FFmpegError, IndexError):  # the decoder that reads it says what is wrong
        return False


def _check_decoded(file: Any, n: int, stated: int, path: str | Path) -> None:
    if n < stated - SHORT_S * file.samplerate:
        raise UserError(
            f"{path}: is damaged: {n / file.samplerate:.2f} of {stated / file.samplerate:.2f} s "
            "can be decoded; copy or export it again."
        )


class Reader:
    """The samples of a file in turn, of which a minute or two are in memory."""

    def __init__(self, path: str | Path) -> None:
        self._pieces = _pieces(path)
        self._held: Samples = np.zeros(0, dtype=np.float32)

    def read(self, n: int) -> Samples:
        """Return the next `n` samples as `load_audio`, or what is left. Raises UserError."""
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
    if _is_container(path):
        yield from (to_mono_16k(d[:, None], SAMPLE_RATE, path) for d in _decoded(path) if len(d))
        return
    with _opened(path) as file:
        rate = file.samplerate
        _check_whole(file, path)
        data = _next(file, (PIECE_S + 1) * rate, path)
        begin = 0
        while True:
            more = _next(file, PIECE_S * rate, path)
            samples = to_mono_16k(data, rate, path)
            yield samples[begin : len(samples) - SAMPLE_RATE if len(more) else None]
            if not len(more):
                return
            data, begin = np.concatenate([data[-2 * rate :], more]), SAMPLE_RATE


def _next(file: Any, n: int, path: str | Path) -> np.ndarray[Any, Any]:
    """Return the next `n` samples, (n, channels), fewer at the end. Raises UserError for a hole."""
    data: np.ndarray[Any, Any] = file.read(n, dtype="float32", always_2d=True)
    if len(data) < n:
        _check_decoded(file, file.tell(), file.frames, path)
    return data


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
    if np.mean(mono**2) < CANCELLED * np.mean(data**2):
        log.warning("%s: its channels cancel each other; the first alone is heard", name)
        mono = data[:, 0]
    if rate != SAMPLE_RATE:
        from scipy.signal import resample_poly

        shared = gcd(rate, SAMPLE_RATE)
        mono = resample_poly(mono, SAMPLE_RATE // shared, rate // shared)
    return np.ascontiguousarray(np.clip(mono, -1.0, 1.0), dtype=np.float32)


def doubts(samples: Samples) -> str | None:
    """Return what a person should know of how (n,) samples sound, n > 0; None of most."""
    peak, offset = float(np.abs(samples).max()), float(samples.mean())
    clipped = float(np.mean(np.abs(samples) >= 0.99))
    if peak == 0:
        return "is silent: all of its samples are 0"
    if peak < FAINT:
        return (
            f"is almost silent, its peak is {20 * np.log10(peak):.0f} dB; where it has several "
            "channels that cancel each other, export one of them"
        )
    if clipped > 0.01:
        return (
            f"is clipped: {100 * clipped:.0f} % of its samples stand at full scale, and words may "
            "be lost; record it at a lower level"
        )
    if abs(offset) > 0.1:
        return f"has a DC offset of {offset:.2f}; a high-pass filter at 40 Hz takes it away"
    return None


def duration_s(path: str | Path | IO[bytes]) -> float:
    """Return the length that the file's header states, or 0.0 where it has none that can be read.

    Not an error here: listing a corpus should not fail for one bad file, loading that file does.
    """
    import soundfile

    if isinstance(path, str | Path) and not os.path.isfile(path):
        return 0.0
    if isinstance(path, str | Path) and _is_container(path):
        import av

        try:
            with av.open(str(path)) as container:
                return _stated(_length_s(container) if container.streams.audio else 0.0)
        except (av.FFmpegError, OSError, UnicodeEncodeError):
            return 0.0
    try:
        info = soundfile.info(str(path) if isinstance(path, Path) else path)
    except (soundfile.SoundFileError, OSError, UnicodeEncodeError):
        return 0.0
    return _stated(float(info.frames / info.samplerate))


def _stated(length_s: float) -> float:
    """Return a stated length, 0.0 for one that no recording has."""
    return length_s if 0 <= length_s <= MOST_S else 0.0


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
