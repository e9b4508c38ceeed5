"""Reads recordings: any format, rate and number of channels, to 16 kHz mono float32.

libsndfile reads files whose header counts their samples (WAV, FLAC, Ogg and the like), so that
their samples are exact. FFmpeg (PyAV) reads everything else, on the time line of a media player.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, groupby
from math import gcd
from pathlib import Path
from typing import IO, Any

import numpy as np

from streaming_asr.corpora.decoder import PIECE_S, PIECE_VALUES, Block, apart
from streaming_asr.corpora.headers import (
    BEGIN_BYTES,
    SHORT_S,
    check_recording,
    is_chained_ogg,
    is_counted,
    is_ogg,
    stated_bytes,
    wav_goes_on,
)
from streaming_asr.corpora.media import MAX_PEAK, has_gap, refusing
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples

_SUFFIXES = (
    ".wav .flac .ogg .opus .mp3 .aiff .aif .au .3g2 .3gp .aac .ac3 .amr .ape .avi .caf .flv .m4a "
    ".m4b .m4v .mka .mkv .mov .mp2 .mp4 .mpeg .mpg .mts .oga .ogv .ts .weba .webm .wma .wmv .wv"
)
SUFFIXES = tuple(_SUFFIXES.split())  # of recordings in a folder; a file may have any name
CANCELLED = 1e-3  # the mean of channels in antiphase has less of their power than this
FAINT = 1e-3  # a peak of -60 dB: nobody spoke, or channels cancelled each other
LOUDEST = 1000.0  # floats of some recorders exceed 1; such a peak is of integers
FEW = 1e-3  # so many of all samples may be clipped
FRAME = 2048  # samples, for the comparison of channels:
MOST_COMPARED = 8
LOUDER = 4.0  # times the power of every other channel
OWN_SHARE = 0.1  # of the frames with sound, in which a channel is louder by that
ALIKE = 0.3  # from this correlation on two channels have the same sound
# Outside of these a header is damaged; believing it would take all memory.
RATES_HZ = (2_000, 768_000)
MAX_S = 24 * 3600.0
MOST_S = 7 * MAX_S  # what a log can hold
UNKNOWN_SIZE = 2**31 - 512  # a WAV header with this size or a larger one states none
MAX_PHASES = 50_000  # of a resampler between two rates; more would take minutes and gigabytes
UNKNOWN_SAMPLES = 2**62  # libsndfile gives 2^63 - 1 where a FLAC states none

log = logging.getLogger(__name__)


def load_audio(
    path: str | Path,
    start_s: float = 0.0,
    end_s: float | None = None,
    channel: int | None = None,
) -> Samples:
    """Return the samples of `path`, (n,) float32 mono 16 kHz in [-1, 1], n > 0.

    start_s, end_s: only the samples between these times are returned. Channels are averaged; other
    rates are resampled by a polyphase filter. channel: counted from 1; None is all of them. Raises
    UserError where the file is missing, unreadable, cut off or damaged, has no sample between the
    times, or holds values that are no audio.
    """
    with _counted(path) as file:
        if file is not None:
            if end_s is None and file.frames > MAX_S * file.samplerate:
                raise _too_long(path, "its header states", file.frames / file.samplerate)
            blocks = _counted_blocks(file, path, start_s, end_s)
            return _whole(_resampled(blocks, path, channel), path)
    key = str(path), channel
    if end_s is None:
        samples = _load_decoded(*key)[round(start_s * SAMPLE_RATE) :]
    else:
        status = Path(path).stat()
        recording = _last_decoded(*key, status.st_mtime_ns, status.st_size)
        samples = recording[round(start_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)].copy()
    if not len(samples):
        raise _no_samples(path)
    return samples


def _load_decoded(path: str, channel: int | None) -> Samples:
    """Return all samples that FFmpeg decodes, (n,) at 16 kHz. Raises UserError."""
    return _whole(_resampled(apart("media:decoded", path), path, channel), path)


def _whole(pieces: Iterable[Samples], path: str | Path) -> Samples:
    """Return the pieces as one array, without a second copy of it. Raises UserError over MAX_S."""
    samples = np.zeros(0, np.float32)
    for piece in pieces:
        n_before = len(samples)
        samples.resize(n_before + len(piece), refcheck=False)
        samples[n_before:] = piece
        if len(samples) > MAX_S * SAMPLE_RATE:
            raise _too_long(path, "it lasts over", MAX_S)
    return samples


@lru_cache(maxsize=1)  # a corpus asks for one part of a recording after another
def _last_decoded(path: str, channel: int | None, changed_ns: int, n_bytes: int) -> Samples:
    """`_load_decoded`, cached; `changed_ns` and `n_bytes` make a changed file another key."""
    return _load_decoded(path, channel)


@contextmanager
def _counted(path: str | Path) -> Iterator[Any]:
    """Yield the open `soundfile.SoundFile` of a file whose header counts its samples, else None.

    Samples of WAV, FLAC, Ogg and the like come from libsndfile and are the same on every machine.
    The rest goes to FFmpeg: other formats, and files whose header does not count all of their
    samples. Raises UserError for what is no recording.
    """
    check_recording(path)
    with ExitStack() as stack:
        file = None
        if _is_counted(path):
            # libsndfile gets no name: a wrong ending would mislead it.
            raw = stack.enter_context(Path(path).open("rb", buffering=0))
            with suppress(Exception):
                file = stack.enter_context(_soundfile(raw))
        if file is not None and _is_exact(file):
            _check_rate(file.samplerate, path)
            yield file
        else:
            yield None


def _is_counted(path: str | Path) -> bool:
    """Return whether the header counts all samples of a file, and no time stamp leaves a gap."""
    status = Path(path).stat()
    return _is_counted_cached(str(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)  # all of a FLAC or an Ogg is read for it
def _is_counted_cached(path: str, changed_ns: int, n_bytes: int) -> bool:
    return is_counted(path) and not (is_ogg(path) and has_gap(path))


def _soundfile(source: IO[bytes]) -> Any:
    import soundfile

    return soundfile.SoundFile(source.fileno(), closefd=False)


def _is_exact(file: Any) -> bool:
    """Return whether libsndfile knows the number of samples: of MP3, also in a WAV, it may guess,
    and a FLAC from a pipe states none."""
    return not file.subtype.startswith("MPEG") and 0 <= file.frames < UNKNOWN_SAMPLES


def _check_rate(rate: int, path: str | Path) -> None:
    """Raise UserError for a rate in Hz that no recording has, or that cannot be resampled."""
    n_phases = rate // gcd(rate, SAMPLE_RATE)
    if not RATES_HZ[0] <= rate <= RATES_HZ[1] or n_phases > MAX_PHASES:
        raise UserError(
            f"{path}: its header states {rate} Hz, which must be from {RATES_HZ[0]} to "
            f"{RATES_HZ[1]} and, above {MAX_PHASES}, share a large factor with 16000; "
            "export the audio again, for instance at 48000 Hz."
        )


def _damaged(file: Any, n_decoded: int, path: str | Path) -> UserError:
    decoded_s, stated_s = n_decoded / file.samplerate, file.frames / file.samplerate
    return UserError(
        f"{path}: is damaged: {decoded_s:.2f} of {stated_s:.2f} s can be decoded; copy or export "
        "it again."
    )


def _too_long(path: str | Path, begin: str, length_s: float) -> UserError:
    return UserError(
        f"{path}: {begin} {length_s / 3600:.0f} h, {MAX_S / 3600:.0f} h at most are read at once; "
        "export it again or cut it."
    )


def _no_samples(name: str | Path) -> UserError:
    return UserError(f"{name}: holds 0 samples; an utterance needs audio: remove or replace it.")


def _check_whole(file: Any, path: str | Path) -> None:
    """Raise UserError for a file that ends over SHORT_S before its header states, or whose header
    contradicts itself."""
    bytes_per_s = _check_header(file, path)
    # libsndfile corrects the sizes of a header silently. Only its log has them, as in
    # "data : 3200 (should be 1600)".
    field = {"W64": "riff", "RF64": "Riff size", "SVX": "FORM"}.get(file.format)
    corrections = re.findall(
        rf"(?:{field or 'data|SSND|Data Size'}) *: (\d+) \(should be (\d+)\)", file.extra_info
    )
    sizes = [(int(stated), int(actual)) for stated, actual in corrections]  # in bytes
    if file.format in ("NIST", "CAF"):  # of which the log has none
        with Path(path).open("rb") as raw:
            stated_size = stated_bytes(raw.read(BEGIN_BYTES)) or 0
            sizes.append((stated_size, raw.seek(0, os.SEEK_END)))
    tolerance = SHORT_S * bytes_per_s
    if any(actual < stated - tolerance and stated < UNKNOWN_SIZE for stated, actual in sizes):
        raise UserError(
            f"{path}: is cut off: it ends after {file.frames / file.samplerate:.2f} s, in the "
            "middle of what its header announces; copy or export it again."
        )


def _check_header(file: Any, path: str | Path) -> int:
    """Return the bytes per second of a WAV whose samples have one size, 0 for other files.

    A WAV states its channels and bits, and from these its bytes per block (a sample of every
    channel) and per second. Raises UserError where both of the latter are wrong, where the second
    is right for another rate, and where the numbers of an AIFF differ from its size.
    """
    if not re.match("PCM|FLOAT|DOUBLE|ULAW|ALAW", file.subtype):
        return 0
    if "Frame count read from" in file.extra_info and "should be" not in file.extra_info:
        raise UserError(
            f"{path}: its header contradicts itself: its number of samples, channels and bits is "
            "not that of its sound; export it again."
        )
    stated = dict(
        re.findall(r"^  (Channels|Block Align|Bit Width|Bytes/sec) *: (\d+)", file.extra_info, re.M)
    )
    if len(stated) < 4:
        return 0
    channels, block, bits, bytes_per_s = (
        int(stated[key]) for key in ("Channels", "Block Align", "Bit Width", "Bytes/sec")
    )
    bits = 8 if file.subtype in ("ULAW", "ALAW") else bits
    needed_block = channels * -(-bits // 8)  # whole bytes a sample
    if needed_block * file.samplerate == bytes_per_s:
        return bytes_per_s
    if needed_block != block:
        raise UserError(
            f"{path}: its header contradicts itself: {channels} channels of {bits} bits are "
            f"{needed_block} bytes, it states {block}; export it again."
        )
    contradiction = (
        f"{path}: its header contradicts itself: {file.samplerate} Hz of {block} bytes are "
        f"{block * file.samplerate} bytes per second, it states {bytes_per_s}"
    )
    if RATES_HZ[0] <= bytes_per_s / block <= RATES_HZ[1] and not bytes_per_s % block:
        raise UserError(f"{contradiction}, as of {bytes_per_s // block} Hz; export it again.")
    log.warning(contradiction)
    return needed_block * file.samplerate


class Resampler:
    """Resamples pieces of audio to mono at `rate` Hz; the filter keeps its state between pieces."""

    def __init__(self, rate: int = SAMPLE_RATE) -> None:
        import av

        self._swr = av.AudioResampler(format="flt", layout="mono", rate=rate)

    def of_frame(self, frame: Any) -> Samples:
        """Return the samples, (n,), that are ready after an `av.AudioFrame`; None ends the audio
        and returns the rest."""
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


class Reader:
    """Reads a recording from its start, with only a minute or two of it in memory.

    is_apart: every decoder runs in another process, for recordings of strangers.
    """

    def __init__(
        self,
        path: str | Path,
        channel: int | None = None,
        *,
        is_apart: bool = False,
    ) -> None:
        source = apart("audio:blocks", path) if is_apart else blocks(path)
        self._pieces = _resampled(source, path, channel)
        self._unread: Samples = np.zeros(0, dtype=np.float32)  # of the last piece

    def read(self, n: int) -> Samples:
        """Return the next `n` samples, or fewer at the end, as `load_audio` returns them. Raises
        UserError as it does."""
        parts, n_available = [self._unread], len(self._unread)
        while n_available < n and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            n_available += len(piece)
        joined = np.concatenate(parts)
        self._unread = joined[n:].copy()
        return joined[:n]


def blocks(path: str | Path) -> Iterator[Block]:
    """Yield the samples of a recording as they are stored. Raises UserError."""
    with _counted(path) as file:
        if file is None:
            yield from apart("media:decoded", path)
        else:
            yield from _counted_blocks(file, path)


def _counted_blocks(
    file: Any, path: str | Path, start_s: float = 0.0, end_s: float | None = None
) -> Iterator[Block]:
    """Yield the samples between the times of a file that libsndfile reads, a minute at a time at
    most. Raises UserError for a damaged file. That it has its stated end is only checked where it
    is read to the end."""
    rate = file.samplerate
    size = max(1, min(PIECE_S * rate, PIECE_VALUES // file.channels))
    with refusing(path):
        _check_header(file, path)
        if end_s is None:
            _check_whole(file, path)
        at = min(round(start_s * rate), file.frames)
        if at and file.seekable():
            file.seek(at)
        elif at:  # GSM and others cannot be sought in
            file.read(at, dtype="float32")
        last = file.frames if end_s is None else min(file.frames, round(end_s * rate))
        while at < last and len(data := file.read(min(size, last - at), "float32", always_2d=True)):
            at += len(data)
            yield Block(data, rate)
    if at < last - SHORT_S * rate:
        raise _damaged(file, at, path)


def _resampled(
    blocks: Iterable[Block], path: str | Path, channel: int | None = None
) -> Iterator[Samples]:
    """Yield blocks of a minute at most as mono 16 kHz; a recording may change its rate and channels
    midway. Raises UserError where they hold no sample."""
    n_samples = 0
    for (rate, _), run in groupby(blocks, key=lambda block: (block.rate, block.data.shape[1])):
        _check_rate(rate, path)
        mix = _Mix(path, channel)
        for piece in _resampled_run((mix(block.data) for block in run), rate):
            n_samples += len(piece)
            yield piece
        mix.warn()
    if not n_samples:
        raise _no_samples(path)


def _resampled_run(run: Iterable[Samples], rate: int) -> Iterator[Samples]:
    """Yield consecutive mono samples, (n,) at `rate` Hz, at 16 kHz, a minute at a time.

    Each minute is resampled with a second before and after it, more than the filter reaches, and
    these are cut off again. So the result is that of one pass over the whole run.
    """
    pending: Samples = np.zeros(0, np.float32)
    n_before = 0  # samples at 16 kHz to cut off: the first minute has nothing before it
    size = (PIECE_S + 2) * rate  # whole seconds are whole numbers of samples at both rates
    for data in run:
        pending = np.concatenate([pending, data]) if len(pending) else data
        while len(pending) > size:
            yield _at_16k(pending[:size], rate)[n_before:-SAMPLE_RATE]
            pending, n_before = pending[size - 2 * rate :], SAMPLE_RATE
    if len(pending):
        yield _at_16k(pending, rate)[n_before:]


def to_mono_16k(data: np.ndarray[Any, Any], rate: int, name: str | Path) -> Samples:
    """Return `data`, (n, channels) at `rate` Hz, as mono 16 kHz, clipped to [-1, 1].

    Raises UserError, which begins with `name`, for no samples, NaN, and a peak above LOUDEST.
    """
    if data.size == 0:
        raise _no_samples(name)
    return _at_16k(_Mix(name)(data), rate)


def _at_16k(mono: Samples, rate: int) -> Samples:
    """Return samples, (n,) at `rate` Hz, at 16 kHz and clipped to [-1, 1]."""
    if rate != SAMPLE_RATE:
        from scipy.signal import resample_poly

        shared = gcd(rate, SAMPLE_RATE)
        mono = resample_poly(mono, SAMPLE_RATE // shared, rate // shared)
    return np.ascontiguousarray(np.clip(mono, -1.0, 1.0), dtype=np.float32)


class _Mix:
    """Makes mono of a recording, a piece after another, and warns once of each thing that is odd.

    What one piece needs, a lower level or the first channel, later pieces get, too.
    """

    def __init__(self, name: str | Path, channel: int | None = None) -> None:
        self._name, self._channel = name, channel
        self._exponent = 0  # samples are divided by 2 to this power
        self._cancels = False
        self._n_frames = 0  # with sound
        self._n_louder: Any = 0  # (channels,) of these frames, those in which one is by far louder
        self._products: Any = 0  # (channels, channels) of their samples

    def __call__(self, data: np.ndarray[Any, Any]) -> Samples:
        """Return the next samples, (n, channels), as mono, (n,). Raises UserError for values that
        are no audio."""
        peak = float(max(data.max(), -data.min()))  # NaN and infinity survive both
        if not np.isfinite(peak):
            raise UserError(f"{self._name}: holds NaN or infinite samples; export the audio again.")
        if peak > LOUDEST:
            raise UserError(
                f"{self._name}: samples reach {peak:g}, audio lies in [-1, 1]; 16-bit values "
                "stored as floats must be divided by 32768."
            )
        if peak > MAX_PEAK * 2.0**self._exponent:
            self._lower(data, peak)
        if self._exponent:
            data = np.ldexp(data, -self._exponent)
        n_channels = data.shape[1]
        if self._channel is not None:
            if self._channel > n_channels:
                raise UserError(
                    f"{self._name}: has {n_channels} channels, none has the number {self._channel}"
                    "; name another"
                )
            return data[:, self._channel - 1].copy()
        if n_channels == 1:
            return data[:, 0]
        self._compare(data)
        mono = data.mean(axis=1)
        power = np.vdot(data, data) / n_channels
        if not self._cancels and np.vdot(mono, mono) < CANCELLED * power:
            log.warning("%s: its channels cancel each other; only the first is used", self._name)
            self._cancels = True
        return data[:, 0].copy() if self._cancels else mono

    def _lower(self, data: np.ndarray[Any, Any], peak: float) -> None:
        """Choose the power of 2 that leaves few samples above full scale."""
        loud = np.abs(data[np.abs(data) > 1])
        exponent = self._exponent
        while np.count_nonzero(loud > 2.0**exponent) > FEW * data.size:
            exponent += 1
        action = f"are divided by {2**exponent}"
        if exponent == self._exponent:
            action = "are clipped, few as they are"
        log.warning(
            "%s: its samples reach %.3g, which is over 1; they %s", self._name, peak, action
        )
        self._exponent = exponent

    def _compare(self, data: np.ndarray[Any, Any]) -> None:
        """Count the frames in which a channel is by far louder than the others."""
        n, width = len(data) // FRAME, min(data.shape[1], MOST_COMPARED)
        frames = data[: n * FRAME, :width].reshape(n, FRAME, width)
        powers = np.einsum("nfc,nfc->nc", frames, frames) / FRAME
        powers = powers[powers.max(axis=1) > FAINT**2]
        order = np.sort(powers, axis=1)
        is_clear = order[:, -1] > LOUDER * order[:, -2]
        louder = powers[is_clear].argmax(axis=1)
        self._n_frames += len(powers)
        self._n_louder = self._n_louder + np.bincount(louder, minlength=width)
        flat = frames.reshape(n * FRAME, width)
        self._products = self._products + flat.T @ flat

    def warn(self) -> None:
        """Warn where two channels hold different sounds, each for a good part of the time."""
        if not self._n_frames:
            return
        speaking = np.flatnonzero(self._n_louder >= OWN_SHARE * self._n_frames)
        level = np.sqrt(np.diag(self._products))
        for i, j in combinations(speaking, 2):
            if abs(self._products[i, j]) < ALIKE * level[i] * level[j]:
                log.warning(
                    "%s: its channels %d and %d hold different sounds, as of two speakers, and are "
                    "mixed; channel=%d reads one of them, channel=each every one (of transcribe, "
                    "compare, and as data.channel of data=folder)",
                    self._name, i + 1, j + 1, i + 1,
                )  # fmt: skip
                return


def channel_number(text: str, name: str) -> int:
    """Return the number of a channel, from 1 on. Raises UserError, with the setting's `name`, for
    any other text."""
    if not re.fullmatch("0*[1-9][0-9]{0,3}", text):
        raise UserError(f"{name}={text[:100]}: must be a number from 1 to 9999, as in {name}=2")
    return int(text)


def doubts(samples: Samples) -> str | None:
    """Return a fault of the recording (n,), n > 0, as the end of a sentence: it is silent, faint,
    clipped or has an offset; None for most recordings."""
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
            f"is clipped: {100 * clipped:.0f} % of its samples are at full scale, and words may "
            "be lost; record it at a lower level"
        )
    if abs(offset) > 0.1:
        return f"has a DC offset of {offset:.2f}; a high-pass filter at 40 Hz takes it away"
    return None


def duration_s(path: str | Path) -> float:
    """Return the length in seconds that the header of a recording states, 0.0 where it states none,
    does not count all samples, or cannot be read.

    That is no error here: one bad file should not keep a corpus from being listed. Loading raises.
    """
    if not os.path.isfile(path):
        return 0.0
    with suppress(Exception), Path(path).open("rb", buffering=0) as source:
        if wav_goes_on(source) or is_chained_ogg(source):
            return 0.0
        source.seek(0)
        with suppress(Exception), _soundfile(source) as file:
            if _is_exact(file):
                return _plausible(float(file.frames / file.samplerate))
        return _plausible(next(apart("media:length_s", path)))
    return 0.0


def n_channels(path: str | Path) -> int:
    """Return the number of channels of a recording, 1 for one that cannot be read."""
    with suppress(Exception), _counted(path) as file:
        return int(file.channels if file else next(apart("media:n_channels", path)))
    return 1


def _plausible(length_s: float) -> float:
    """Return the length that a header states, 0.0 for one that no recording has."""
    return length_s if 0 <= length_s <= MOST_S else 0.0


@dataclass(frozen=True, slots=True)
class File:
    """A recording in a file. A call returns its samples, as with the other classes here."""

    path: Path
    channel: int | None = None  # counted from 1; None is the mean of all

    def __call__(self) -> Samples:
        return load_audio(self.path, channel=self.channel)

    def reader(self) -> Reader:
        """Return a reader for a recording that is too long to be in memory whole."""
        return Reader(self.path, self.channel)


def by_channel(file: File, channel: int | str | None, name: str) -> Iterator[tuple[File, str]]:
    """Yield the file as the setting `name` asks: one of its channels, all mixed for None, or for
    `each` every channel by itself; each with what its name gets behind it. Raises UserError."""
    if channel is None:
        yield file, ""
    elif channel == "each":
        for number in range(1, n_channels(file.path) + 1):
            yield replace(file, channel=number), f"-channel{number}"
    else:
        yield replace(file, channel=channel_number(str(channel), name)), ""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a longer recording, in seconds."""

    path: Path
    start_s: float
    end_s: float
    recording: str | None = None  # its name in the corpus, where that is not the file's

    def __call__(self) -> Samples:
        return load_audio(self.path, self.start_s, self.end_s)


@dataclass(frozen=True, slots=True)
class Composed:
    """Recordings that are joined into one at loading, each followed by its pause."""

    parts: Sequence[tuple[Path, float]]  # (audio, silence after it in seconds)

    def __call__(self) -> Samples:
        pieces: list[Samples] = []
        for path, gap_s in self.parts:
            pieces.append(load_audio(path))
            pieces.append(np.zeros(round(gap_s * SAMPLE_RATE), dtype=np.float32))
        return np.concatenate(pieces)
