"""Decodes what FFmpeg reads (PyAV), on the time line that a media player shows.

Where the time stamps of a recording leave a gap, silence fills it, so that later words keep their
time. A frame that cannot be decoded leaves such a gap, too. "Time 0" is what a player shows as the
start; `_origin_s` gives its time stamp.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_asr.corpora.decoder import Block
from streaming_asr.corpora.headers import (
    BEGIN_BYTES,
    SHORT_S,
    avi_length_s,
    check_begin,
    check_raw,
    stated_bytes,
    wav_goes_on,
)
from streaming_asr.errors import UserError

# A lossy codec overshoots full scale a little; a file of integers stored as floats by a lot.
MAX_PEAK = 2.0
# FFmpeg's own filter leaves smaller gaps as they are (aresample, min_hard_comp).
JITTER_S = 0.1
RESTART_S = 1.0  # time stamps that go back further begin again: another recording follows
LONGEST_GAP_S = 3600.0
LONG_GAP_S = 600.0  # from here on a gap may be this many times as long as the audio:
GAP_OF_AUDIO = 10.0
MOST_S = 7 * 24 * 3600.0  # what a log can hold
OTHER_TRACKS_S = 0.5  # where a file has other tracks, they may be a little longer
READ_SHARE = 0.9  # of a file lies before the end of its last packet, if all of them were read
UNMARKED = (".722", ".g722", ".gsm", ".sln")
COUNTED = {"aiff", "ape", "au", "caf", "flac", "mp3", "mp4", "tta", "w64", "wav", "wv"}
# Their packets have a checksum that every encoder fills in.
CHECKED = {"ape", "flac", "tta", "wavpack"}
CLOCK_S = 0.003  # times may be rounded to so much,
DRIFT = 0.1  # and packets may last so much longer or shorter than what is decoded from them
SILENCE_S = 60  # so much of a gap is in memory,
SILENCE_VALUES = 2**22  # or so many samples of all channels
PAUSE_S = 0.02  # of a frame of AMR
PLANES = 7  # of a frame with more PyAV reads beyond its memory

log = logging.getLogger(__name__)


def decoded(path: str | Path) -> Iterator[Block]:
    """Yield the samples of the default audio track from time 0 on.

    Raises UserError where nothing can be decoded, where a gap is too long, and where the recording
    is shorter than its header states.
    """
    with refusing(path), _opened(path) as media:
        yield from _blocks(media, path)


def length_s(path: str | Path) -> float:
    """Return the length in seconds, from time 0, that the header of a recording states for its
    default audio track; 0.0 where it states none or is no recording."""
    with _default_track(path) as (media, track):
        return _track_length_s(media, track)


def n_channels(path: str | Path) -> int:
    """Return the number of channels of the default audio track."""
    with _default_track(path) as (_, track):
        return int(track.codec_context.layout.nb_channels)


@contextmanager
def _default_track(path: str | Path) -> Iterator[tuple[_Media, Any]]:
    with _opened(path) as media:
        yield media, _track(media.container, path)


def has_gap(path: str | Path) -> bool:
    """Return whether the time stamps of a recording's default track leave a gap over JITTER_S.
    False for a file that cannot be read, of which decoding reports the fault."""
    end_s: float | None = None  # of the packet before
    with suppress(Exception), _default_track(path) as (media, track):
        for packet in media.container.demux(track):
            if packet.pts is None:
                continue
            begin_s = float(packet.pts * packet.time_base)
            if end_s is not None and begin_s > end_s + JITTER_S:
                return True
            end_s = begin_s + float((packet.duration or 0) * packet.time_base)
    return False


@contextmanager
def refusing(path: str | Path) -> Iterator[None]:
    """Turn whatever a decoder raises into a UserError, so that one bad file does not end a run."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        log.debug("%s cannot be decoded", path, exc_info=True)
        raise unreadable(path, error) from error


def unreadable(path: str | Path, error: BaseException) -> UserError:
    """Return the error of a file that cannot be decoded."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UserError(f"{path}: not readable as audio ({reason}); record or export it again")


# -- opening --------------------------------------------------------------------------------


class _Window:
    """The first `size` bytes of a file: what is appended later is not read.

    FFmpeg gets no name from it, so that the content decides the format, and cannot open other
    files.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size
        self._position = 0

    def read(self, n: int) -> bytes:
        self._file.seek(self._position)
        piece = self._file.read(max(0, min(n, self._size - self._position)))
        self._position += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position


class _NamedWindow(_Window):
    """One with a name, which decides the format of a file whose content has no mark of it."""

    def __init__(self, name: str, *window: Any) -> None:
        super().__init__(*window)
        self.name = name


class _Media(NamedTuple):
    """PyAV's container of a recording, its file, and the size of that in bytes."""

    container: Any
    file: IO[bytes]
    size: int

    @property
    def kind(self) -> str:
        """FFmpeg's name of the format."""
        return str(self.container.format.name)


@contextmanager
def _opened(path: str | Path) -> Iterator[_Media]:
    """Open a file for FFmpeg and yield it. Raises UserError for a text and PyAV's errors."""
    import av

    options = {"protocol_whitelist": "none"}  # a playlist opens no other file and no address
    with Path(path).open("rb", buffering=0) as file:
        window = file, file.seek(0, os.SEEK_END)
        file.seek(0)
        check_begin(path, file.read(BEGIN_BYTES))
        if wav_goes_on(file):
            log.warning(
                "%s: samples go on behind the end that its header states; all are read", path
            )
            options["ignore_length"] = "1"
        try:
            container = _open(_Window(*window), options)
        except av.FFmpegError:
            check_raw(path)
            if Path(path).suffix.lower() not in UNMARKED:
                raise
            container = _open(_NamedWindow(Path(path).name, *window), options)
        with container:
            yield _Media(container, *window)


def _open(window: _Window, options: dict[str, str]) -> Any:
    import av

    return av.open(window, options=options, metadata_errors="replace")


# -- the track ------------------------------------------------------------------------------


def _track(container: Any, path: str | Path) -> Any:
    """Return the default audio track (`av.AudioStream`). Raises UserError where there is none, or
    no decoder for it."""
    tracks = list(container.streams.audio)
    if not tracks:
        raise UserError(f"{path}: holds no audio track; give a recording with sound")
    chosen = tracks[_default(tracks)]
    if chosen.codec_context is None:
        raise UserError(
            f"{path}: there is no decoder for its audio, as of one that is protected (DRM)"
        )
    return chosen


def _default(tracks: Sequence[Any]) -> int:
    """Return the index of the default track: of the tracks that can be decoded, the first that the
    file marks as default, else the first. (iPhones add one of spatial audio without a decoder.)"""
    from av.stream import Disposition

    usable = [i for i, track in enumerate(tracks) if track.codec_context is not None] or [0]
    return next((i for i in usable if Disposition.default in tracks[i].disposition), usable[0])


def _report_tracks(container: Any, path: str | Path) -> None:
    """Warn that a recording has other tracks than the default one, which is read."""
    tracks = list(container.streams.audio)
    if len(tracks) == 1:
        return
    labels = []
    for number, track in enumerate(tracks, 1):
        notes = [track.metadata.get(key) for key in ("language", "title")]
        known_notes = [note for note in notes if note and note != "und"]  # undetermined
        labels.append(" ".join([str(number), *known_notes]))
    log.warning(
        "%s: holds %d audio tracks (%s), track %d is read; `ffmpeg -i FILE -map 0:a:N track.wav` "
        "writes another, counted from 0",
        path, len(tracks), ", ".join(labels), _default(tracks) + 1,
    )  # fmt: skip


def _track_length_s(media: _Media, track: Any) -> float:
    """Return the end of a track in seconds from time 0 by the headers, 0.0 where none states it."""
    container = media.container
    if track.duration is not None:
        end_s = float(((track.start_time or 0) + track.duration) * track.time_base)
    elif len(container.streams) == 1 and container.duration is not None:
        end_s = _begin_s(media) + container.duration / 1e6
    else:
        return 0.0
    end_s -= _origin_s(container)
    return end_s if _is_stated(media) and 0 < end_s <= MOST_S else 0.0


def _begin_s(media: _Media) -> float:
    """Return the time stamp in seconds from which a container's stated length counts. Matroska
    states its last time stamp; others the time between the first and the last."""
    if "matroska" in media.kind:
        return 0.0
    return (media.container.start_time or 0) / 1e6


def _is_stated(media: _Media) -> bool:
    """Return whether a header states the length that FFmpeg gives.

    Where none does, FFmpeg estimates it from the size of the file and the bit rate. To find that
    out, only the first half of the file is opened: an estimate changes, a stated length does not.
    """
    first_half = _Window(media.file, media.size // 2)
    with suppress(Exception), _open(first_half, {"protocol_whitelist": "none"}) as container:
        return bool(container.duration == media.container.duration)
    return True  # a format that cannot be opened by half states its length at the end


def _has_times(container: Any) -> bool:
    """Return whether the packets in the file have time stamps. FFmpeg computes those of MP3, ADTS
    and other formats that it indexes itself; they are wrong where the sampling rate changes."""
    import av

    is_computed = av.format.Flags.generic_index in av.format.Flags(container.format.flags)
    return not is_computed or _is_discontinuous(container)


def _is_discontinuous(container: Any) -> bool:
    """Return whether time stamps may begin and go on anywhere, as in MPEG-TS."""
    import av

    return av.format.Flags.ts_discont in av.format.Flags(container.format.flags)


def _origin_s(container: Any) -> float:
    """Return the time stamp in seconds that is time 0: the first one in a format whose time stamps
    begin anywhere, and in a part of a live stream; else 0, so that a late track stays late."""
    start_s = (container.start_time or 0) / 1e6  # FFmpeg counts it in microseconds
    return start_s if _is_discontinuous(container) or _is_late(container) else 0.0


def _is_late(container: Any) -> bool:
    """Return whether the first time stamp of all tracks is over LONG_GAP_S. Then it is a part of a
    live stream, which counts from the stream's start."""
    return bool((container.start_time or 0) / 1e6 > LONG_GAP_S)


# -- decoding -------------------------------------------------------------------------------


@dataclass
class _Extent:
    """How far the packets of all tracks reach, and how much of the audio cannot be decoded."""

    end_s: float = 0.0  # the last time stamp
    end_byte: int = 0
    undecoded_s: float = 0.0
    error: Exception | None = None  # the last one of the decoder
    pauses_s: float = 0.0  # of packets that hold no sound, as a phone sends them in a pause
    n_packets: int = 0  # that were decoded, and of these those that last otherwise than their sound
    n_other: int = 0

    def add(self, packet: Any) -> None:
        if packet.pts is not None:
            ticks = packet.pts + (packet.duration or 0)
            self.end_s = max(self.end_s, float(ticks * packet.time_base))
        if packet.pos is not None:
            self.end_byte = max(self.end_byte, packet.pos + packet.size)


def _blocks(media: _Media, path: str | Path) -> Iterator[Block]:
    """Yield the samples of a track from time 0 on, with silence in its gaps. Warn of what is odd.
    Raises UserError as `decoded` does, at the end for what is only known there."""
    container = media.container
    track = _track(container, path)
    _report_tracks(container, path)
    if _is_late(container) and not _is_discontinuous(container):
        start_s = container.start_time / 1e6
        log.warning("%s: its time stamps begin at %.0f s, which is taken as time 0", path, start_s)
    _check_index(media, track, path)
    codec = track.codec_context
    if codec.name in CHECKED:
        codec.options = {"err_detect": "crccheck+explode"}
    is_lossy = not codec.name.startswith(("pcm_", "wavpack"))
    measure = partial(_packets_s, media, track.index)
    line = _TimeLine(path, _origin_s(container), _has_times(container), measure, is_lossy)
    extent = _Extent()
    for frame in _frames(container, track, path, extent):
        if isinstance(frame, float):
            yield from line.silence(frame, codec.layout.nb_channels, codec.sample_rate)
        else:
            yield from line.placed(frame)
    if not line.audio_s:
        if extent.error is not None:
            reason = getattr(extent.error, "strerror", None) or extent.error
            raise UserError(
                f"{path}: is damaged: none of its audio can be decoded ({reason}); copy or export "
                "it again."
            )
        raise UserError(f"{path}: its audio track holds 0 samples; record or export it again")
    if line.has_times and 2 * extent.n_other > extent.n_packets:
        raise UserError(
            f"{path}: is damaged: the times of {extent.n_other} of {extent.n_packets} packets are "
            "not those of their sound; copy or export it again."
        )
    # The last packet may state no duration, and computed time stamps may be wrong.
    length_s = max(extent.end_s - _begin_s(media), line.now_s)
    if _counts_samples(media):
        length_s -= extent.undecoded_s
    _check_end(media, path, length_s, extent.end_byte)
    if extent.undecoded_s > SHORT_S or (extent.error is not None and codec.name in CHECKED):
        log.warning("%s: is damaged: %.2f s of it cannot be decoded", path, extent.undecoded_s)
    if extent.pauses_s:
        log.warning("%s: its pauses hold no sound; %.2f s are silence", path, extent.pauses_s)


def _packets_s(media: _Media, index: int) -> float:
    """Return how long the packets of a track are together."""
    with _open(_Window(*media[1:]), {"protocol_whitelist": "none"}) as container:
        return sum(
            float((packet.duration or 0) * packet.time_base)
            for packet in _packets(container)
            if packet.stream.index == index and packet.duration
        )


def _frames(container: Any, track: Any, path: str | Path, extent: _Extent) -> Iterator[Any]:
    """Yield the frames (`av.AudioFrame`) of a track that can be decoded, and the seconds of pauses
    in it; note in `extent` what was read. Raises UserError for an encrypted track."""
    import av

    sound_s = 0.0  # of the last packet; those of NUT state none
    for packet in _packets(container):
        extent.add(packet)
        if packet.stream.index != track.index:  # `stream_index` of the empty packets is 0
            continue
        if packet.has_sidedata("encryption_info"):
            raise UserError(
                f"{path}: is encrypted (DRM); only the player that has its key reads it"
            )
        packet_s = float((packet.duration or 0) * packet.time_base)
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError) as error:
            if _is_pause(packet):
                extent.pauses_s += PAUSE_S
                yield PAUSE_S
                continue
            if packet.size:  # NUT ends with an empty packet
                extent.error = error
                extent.undecoded_s += packet_s or sound_s
            continue
        sound_s = sum(frame.samples / frame.sample_rate for frame in frames)
        extent.n_packets += bool(frames)
        extent.n_other += bool(sound_s and packet_s) and abs(sound_s - packet_s) > max(
            CLOCK_S, DRIFT * sound_s
        )
        yield from frames


def _is_pause(packet: Any) -> bool:
    """Return whether a packet of AMR describes the noise of a pause, or nothing: FFmpeg decodes
    neither. Bits 3 to 6 of its first byte have its kind (3GPP TS 26.101 and 26.201)."""
    first_of_pauses = {"amrnb": 8, "amrwb": 9}.get(packet.stream.codec_context.name, 16)
    return packet.size > 0 and bytes(packet)[0] >> 3 & 15 >= first_of_pauses


def _packets(container: Any) -> Iterator[Any]:
    """Yield the packets of all tracks, as far as the file can be read, and then the empty ones that
    make the decoders return their last frames."""
    import av

    try:
        yield from container.demux()
    except (av.FFmpegError, OSError):
        log.debug("the end of a file cannot be read", exc_info=True)


def _check_index(media: _Media, track: Any, path: str | Path) -> None:
    """Raise UserError where the index of an MP4 lists packets (MP4 calls them samples) that lie
    after the end of the file: it is cut off."""
    if "mp4" not in media.kind.split(","):
        return
    missing = [
        entry.timestamp for entry in track.index_entries if entry.pos + entry.size > media.size
    ]
    if missing:
        stated_s = float((track.duration or 0) * track.time_base)
        first_missing_s = float(min(missing) * track.time_base)
        raise _cut_off(path, first_missing_s, max(stated_s, first_missing_s))


def _check_end(media: _Media, path: str | Path, length_s: float, end_byte: int) -> None:
    """Raise UserError where a file is shorter, in seconds or bytes, than its header states. Warn
    where it is shorter in seconds only: then the header is wrong, and nothing is missing.

    length_s: by the last time stamp of any track. end_byte: where the last packet ends.
    """
    container = media.container
    media.file.seek(0)
    begin = media.file.read(BEGIN_BYTES)
    n_bytes, avi_s = stated_bytes(begin), avi_length_s(begin)
    lacks_bytes = n_bytes is not None and n_bytes > media.size
    is_stated = container.duration and not _is_discontinuous(container) and _is_stated(media)
    if not is_stated and not avi_s:
        if lacks_bytes:
            raise UserError(
                f"{path}: is cut off: {media.size} of {n_bytes} bytes are there; copy or export it "
                "again."
            )
        return
    stated_s = avi_s or container.duration / 1e6
    # With several tracks the stated length is that of the longest.
    tolerance_s = SHORT_S if lacks_bytes or len(container.streams) == 1 else OTHER_TRACKS_S
    if length_s >= stated_s - tolerance_s:
        return
    has_all_bytes = n_bytes is not None and not lacks_bytes
    if has_all_bytes and end_byte > READ_SHARE * media.size:
        log.warning("%s: its header states %.2f s, it holds %.2f s", path, stated_s, length_s)
        return
    raise _cut_off(path, length_s, stated_s)


def _counts_samples(media: _Media) -> bool:
    """Return whether the format is one whose header counts its samples."""
    return bool(COUNTED & set(media.kind.split(",")))


def _cut_off(path: str | Path, decoded_s: float, stated_s: float) -> UserError:
    return UserError(
        f"{path}: is cut off or damaged: {decoded_s:.2f} of {stated_s:.2f} s can be decoded; copy "
        "or export it again."
    )


@dataclass
class _TimeLine:
    """Puts decoded frames one after another, with silence where their time stamps leave a gap.

    origin_s: the time stamp of time 0. has_times: whether time stamps are used. measure: returns
    the length of all audio in seconds. is_lossy: of the codec; its damaged frames may have any
    values.
    """

    path: str | Path
    origin_s: float
    has_times: bool
    measure: Callable[[], float] = float
    is_lossy: bool = False
    now_s: float = 0.0  # the end of what was yielded, from time 0
    audio_s: float = 0.0  # of it decoded, not silence
    shift_s: float = 0.0  # is added to time stamps, since some began again
    is_trimmed: bool = field(default=False, init=False)

    def placed(self, frame: Any) -> Iterator[Block]:
        """Yield the silence before a frame (`av.AudioFrame`), if any, and its samples.

        Samples before time 0 are left out, as in a player. Raises UserError for a gap that is too
        long.
        """
        data, rate = _floats(frame), frame.sample_rate
        if self.is_lossy:
            data = np.clip(np.nan_to_num(data, posinf=0.0, neginf=0.0), -MAX_PEAK, MAX_PEAK)
        gap_s = 0.0
        if self.has_times and frame.pts is not None:
            begin_s = float(frame.pts * frame.time_base) - self.origin_s + self.shift_s
            if not self.audio_s and begin_s < 0:
                if begin_s < -JITTER_S and not self.is_trimmed:
                    log.warning("%s: %.2f s before its time 0 are left out", self.path, -begin_s)
                    self.is_trimmed = True
                data = data[round(-begin_s * rate) :]
                begin_s = 0.0
            gap_s = begin_s - self.now_s
        if not len(data):
            return
        if gap_s < -RESTART_S:  # the stamps began again: this frame follows the last one
            log.warning(
                "%s: its time stamps go back by %.2f s at %.2f s; parts of it may be in another "
                "order, or there twice", self.path, -gap_s, self.now_s,
            )  # fmt: skip
            self.shift_s -= gap_s
        elif gap_s > JITTER_S:
            self._check_gap(gap_s)
            yield from self.silence(gap_s, data.shape[1], rate)
        self.now_s += len(data) / rate
        self.audio_s += len(data) / rate
        yield Block(data, rate)

    @cached_property
    def _total_s(self) -> float:
        return self.measure()

    def _check_gap(self, gap_s: float) -> None:
        """Raise UserError for a gap that is too long, also with those before it for the audio."""
        if gap_s > LONGEST_GAP_S:
            raise UserError(
                f"{self.path}: its time stamps leave a gap of {gap_s:.0f} s after "
                f"{self.audio_s:.2f} s of audio, {LONGEST_GAP_S:.0f} s at most are filled; export "
                "it again or cut it."
            )
        if self.now_s + gap_s > MOST_S:
            raise UserError(
                f"{self.path}: its time stamps reach {self.now_s + gap_s:.0f} s, {MOST_S:.0f} s at "
                "most are read; export it again or cut it."
            )
        gaps_s = self.now_s - self.audio_s + gap_s
        if gaps_s > LONG_GAP_S and gaps_s > GAP_OF_AUDIO * self._total_s:
            raise UserError(
                f"{self.path}: its time stamps leave gaps of {gaps_s:.0f} s, and it holds "
                f"{self._total_s:.2f} s of audio; export it again or cut it."
            )

    def silence(self, length_s: float, channels: int, rate: int) -> Iterator[Block]:
        """Yield zeros, SILENCE_S at a time."""
        n_samples = round(length_s * rate)
        self.now_s += n_samples / rate
        longest = min(SILENCE_S * rate, SILENCE_VALUES // channels)
        for begin in range(0, n_samples, longest):
            yield Block(np.zeros((min(longest, n_samples - begin), channels), np.float32), rate)


def _floats(frame: Any) -> NDArray[np.float32]:
    """Return the samples of an `av.AudioFrame`, (n, channels) in about [-1, 1]."""
    channels = frame.layout.nb_channels
    packed = frame.format.packed.name
    if (frame.format.is_planar and channels > PLANES) or packed == "s64":
        import av

        # PyAV makes no array of 64-bit integers.
        packed = packed.replace("s64", "dbl")
        (frame,) = av.AudioResampler(packed, frame.layout).resample(frame)
    array = frame.to_ndarray()
    data = array.T if frame.format.is_planar else array.reshape(-1, channels)
    if data.dtype == np.uint8:
        return (data.astype(np.float32) - 128) / 128
    if data.dtype.kind == "i":
        return (data / -float(np.iinfo(data.dtype).min)).astype(np.float32)
    return np.asarray(data, np.float32)
