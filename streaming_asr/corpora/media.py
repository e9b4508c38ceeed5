"""Decodes what FFmpeg reads (PyAV), on the time line that a media player shows.

Where the time stamps of a recording leave a gap, silence fills it, so that later words keep their
time. A frame that cannot be decoded is such a gap, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_asr.corpora.headers import (
    BEGIN_BYTES,
    SHORT_S,
    check_no_text,
    stated_bytes,
    wav_goes_on,
    wav_parts,
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
SILENCE_S = 60  # so much of a gap is in memory

log = logging.getLogger(__name__)


class Block(NamedTuple):
    """Samples, (n, channels) float32 in about [-1, 1], at `rate` Hz."""

    data: NDArray[np.float32]
    rate: int


def decoded(path: str | Path, audio_track: int | None = None) -> Iterator[Block]:
    """Yield the samples of an audio track from time 0 on.

    audio_track: counted from 1; None is the default track. Raises UserError where nothing can be
    decoded, where a gap is too long, and where the recording is shorter than its header counts.
    """
    with refusing(path), Path(path).open("rb", buffering=0) as file:
        for begin, size in _parts(file):
            with _opened(file, path, begin, size) as media:
                yield from _blocks(media, path, audio_track)


def length_s(source: str | Path | IO[bytes], audio_track: int | None = None) -> float:
    """Return the length that the header of a recording states for an audio track, by default the
    default one, on the time line; 0.0 where it states none or is no recording."""
    with suppress(Exception), file_of(source) as file:
        begin, size = 0, file.seek(0, os.SEEK_END)
        with _opened(file, "", begin, size) as media:
            return _track_length_s(media, _track(media.container, "", audio_track))
    return 0.0


def has_gap(path: str | Path) -> bool:
    """Return whether the time stamps of a recording leave a gap."""
    next_s: float | None = None
    with suppress(Exception), Path(path).open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        with _opened(file, path, 0, size) as media:
            for packet in media.container.demux(media.container.streams.audio[0]):
                if packet.pts is None:
                    continue
                at_s = float(packet.pts * packet.time_base)
                if next_s is not None and at_s > next_s + JITTER_S:
                    return True
                next_s = at_s + float((packet.duration or 0) * packet.time_base)
    return False


@contextmanager
def refusing(path: str | Path) -> Iterator[None]:
    """Turn whatever a decoder raises into a UserError: one file at fault ends nothing else."""
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
    """A part of a file whose size is fixed when it is opened: a file that grows is read as it was.

    FFmpeg is given no name, so that the content decides. It cannot open other files through this.
    """

    def __init__(self, file: IO[bytes], begin: int, size: int) -> None:
        self._file, self._begin, self._size, self._at = file, begin, size, 0

    def read(self, n: int) -> bytes:
        self._file.seek(self._begin + self._at)
        piece = self._file.read(max(0, min(n, self._size - self._at)))
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at


class _NamedWindow(_Window):
    """Its name tells the format of a file whose content has no mark of one."""

    def __init__(self, name: str, *window: Any) -> None:
        super().__init__(*window)
        self.name = name


class _Media(NamedTuple):
    container: Any
    file: IO[bytes]
    begin: int
    size: int  # bytes

    @property
    def kind(self) -> str:
        """FFmpeg's name of the format."""
        return str(self.container.format.name)


def _parts(file: IO[bytes]) -> list[tuple[int, int]]:
    """Return where recordings begin, and their sizes: several for WAVs one after another."""
    begins = wav_parts(file)
    ends = [*begins[1:], file.seek(0, os.SEEK_END)]
    return [(begin, end - begin) for begin, end in zip(begins, ends, strict=True)]


@contextmanager
def file_of(source: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield an open file, or the file that is at a path."""
    if isinstance(source, str | Path):
        with Path(source).open("rb", buffering=0) as file:
            yield file
    else:
        yield source


@contextmanager
def _opened(file: IO[bytes], path: str | Path, begin: int, size: int) -> Iterator[_Media]:
    import av

    window = file, begin, size
    file.seek(begin)
    check_no_text(path, file.read(BEGIN_BYTES))
    options = {"protocol_whitelist": "none"}  # a playlist opens no other file and no address
    if wav_goes_on(file, begin, begin + size):
        log.warning("%s: samples go on behind the end that its header states; all are read", path)
        options["ignore_length"] = "1"
    try:
        container = _open(_Window(*window), options)
    except av.FFmpegError:
        if Path(path).suffix.lower() not in UNMARKED:
            raise
        container = _open(_NamedWindow(Path(path).name, *window), options)
    with container:
        yield _Media(container, *window)


def _open(window: _Window, options: dict[str, str]) -> Any:
    import av

    return av.open(window, options=options, metadata_errors="replace")


# -- the track ------------------------------------------------------------------------------


def _track(container: Any, path: str | Path, audio_track: int | None) -> Any:
    """Return the audio track of that number, or the default one. Raises UserError."""
    tracks = list(container.streams.audio)
    if not tracks:
        raise UserError(f"{path}: holds no audio track; give a recording with sound")
    if audio_track is None:
        chosen = tracks[_default(tracks)]
    elif 1 <= audio_track <= len(tracks):
        chosen = tracks[audio_track - 1]
    else:
        n_text = "1 audio track" if len(tracks) == 1 else f"{len(tracks)} audio tracks"
        raise UserError(f"{path}: holds {n_text}, none has the number {audio_track}; name another")
    if chosen.codec_context is None:
        raise UserError(
            f"{path}: there is no decoder for its audio, as of one that is protected (DRM)"
        )
    return chosen


def _default(tracks: Sequence[Any]) -> int:
    """Return the index of the first track that its file calls the default, or of the first one;
    of those that can be decoded, as iPhones add one of spatial audio."""
    from av.stream import Disposition

    usable = [i for i, track in enumerate(tracks) if track.codec_context is not None] or [0]
    return next((i for i in usable if Disposition.default in tracks[i].disposition), usable[0])


def _report_tracks(container: Any, path: str | Path) -> None:
    """Print that a recording has other tracks than the one that is read."""
    tracks = list(container.streams.audio)
    if len(tracks) == 1:
        return
    named = []
    for number, track in enumerate(tracks, 1):
        about = [track.metadata.get(key) for key in ("language", "title")]
        named.append(" ".join([str(number), *(a for a in about if a and a != "und")]))
    log.warning(
        "%s: holds %d audio tracks (%s), track %d is read; `--audio-track N` of transcribe, "
        "`audio_track=N` of live and of an upload, and `data.audio_track=N` elsewhere read another",
        path, len(tracks), ", ".join(named), _default(tracks) + 1,
    )  # fmt: skip


def _track_length_s(media: _Media, track: Any) -> float:
    """Return the stated end of a track on the time line in seconds, 0.0 where none is stated."""
    container = media.container
    if track.duration is not None:
        end_s = float((track.start_time or 0) * track.time_base + track.duration * track.time_base)
        end_s -= _origin_s(container)
    elif len(container.streams) == 1 and container.duration is not None:
        end_s = _begin_s(media) + container.duration / 1e6 - _origin_s(container)
    else:
        return 0.0
    return end_s if _is_stated(media) and 0 < end_s <= MOST_S else 0.0


def _begin_s(media: _Media) -> float:
    """Return the time stamp from which the length of a container counts. Matroska and NUT state
    their last time stamp, others what lies between the first and the last."""
    if "matroska" in media.kind or media.kind == "nut":
        return 0.0
    return (media.container.start_time or 0) / 1e6


def _is_stated(media: _Media) -> bool:
    """Return whether a header states the length that FFmpeg gives.

    Where none does, FFmpeg estimates it from the size of the file and the bit rate. Such a length
    changes with the size; so it is asked again with half of it.
    """
    window = _Window(media.file, media.begin, media.size // 2)
    with suppress(Exception), _open(window, {"protocol_whitelist": "none"}) as half:
        return bool(half.duration == media.container.duration)
    return True  # what needs the whole file states its length there


def _has_times(container: Any) -> bool:
    """Return whether packets carry time stamps. Those of formats that FFmpeg has to index itself,
    as MP3 and ADTS, are computed: wrongly so where the sampling rate changes."""
    import av

    indexed = av.format.Flags.generic_index in av.format.Flags(container.format.flags)
    return not indexed or _is_discontinuous(container)


def _is_discontinuous(container: Any) -> bool:
    """Return whether time stamps may begin and go on anywhere, as in MPEG-TS."""
    import av

    return av.format.Flags.ts_discont in av.format.Flags(container.format.flags)


def _origin_s(container: Any) -> float:
    """Return the time stamp that is time 0."""
    start_s = (container.start_time or 0) / 1e6
    return start_s if _is_discontinuous(container) or _is_late(container) else 0.0


def _is_late(container: Any) -> bool:
    """Return whether all tracks begin so late that it was a live stream of which a part was
    recorded; it begins with its first sample."""
    return bool((container.start_time or 0) / 1e6 > LONG_GAP_S)


# -- decoding -------------------------------------------------------------------------------


def _blocks(media: _Media, path: str | Path, audio_track: int | None) -> Iterator[Block]:
    import av

    container = media.container
    track = _track(container, path, audio_track)
    if audio_track is None:
        _report_tracks(container, path)
    if _is_late(container) and not _is_discontinuous(container):
        start_s = container.start_time / 1e6
        log.warning("%s: its time stamps begin at %.0f s, which is taken as time 0", path, start_s)
    _check_index(media, track, path)
    is_lossy = not track.codec_context.name.startswith("pcm_")
    line = _TimeLine(path, _origin_s(container), _has_times(container), is_lossy)
    end_s = undecoded_s = 0.0
    end_byte = 0
    why: Exception | None = None
    for packet in _packets(container):
        if packet.pts is not None:
            ticks = packet.pts + (packet.duration or 0)
            end_s = max(end_s, float(ticks * packet.time_base))
        if packet.pos is not None:
            end_byte = max(end_byte, packet.pos + packet.size)
        if packet.stream_index != track.index:
            continue
        if packet.has_sidedata("encryption_info"):
            raise UserError(
                f"{path}: is encrypted (DRM); only the player that has its key reads it"
            )
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError) as error:
            why = error
            undecoded_s += float((packet.duration or 0) * packet.time_base)
            continue
        for frame in frames:
            yield from line.placed(frame)
    if not line.audio_s:
        if why is not None:
            raise unreadable(path, why)
        raise UserError(f"{path}: its audio track holds 0 samples; record or export it again")
    line.check_gaps()
    # Where the rate changes, computed time stamps are wrong and the samples count.
    there_s = max(end_s - _begin_s(media), 0.0 if line.has_times else line.now_s)
    if _counts_samples(media):
        there_s -= undecoded_s
    _check_end(media, path, there_s, end_byte)
    if undecoded_s > SHORT_S:
        log.warning("%s: is damaged: %.2f s of it cannot be decoded", path, undecoded_s)


def _packets(container: Any) -> Iterator[Any]:
    """Yield the packets of all tracks, as far as the file can be read, and what ends decoding."""
    import av

    try:
        yield from container.demux()
    except (av.FFmpegError, OSError):
        log.debug("the end of a file cannot be read", exc_info=True)


def _check_index(media: _Media, track: Any, path: str | Path) -> None:
    """Raise UserError where the sample table of an MP4 places samples behind the file's end."""
    if "mp4" not in media.kind.split(","):
        return
    missing = [
        entry.timestamp for entry in track.index_entries if entry.pos + entry.size > media.size
    ]
    if missing:
        stated_s = float((track.duration or 0) * track.time_base)
        there_s = float(min(missing) * track.time_base)
        raise _cut_off(path, there_s, max(stated_s, there_s))


def _check_end(media: _Media, path: str | Path, there_s: float, end_byte: int) -> None:
    """Raise UserError where a file ends before its header says. Print a warning where all of its
    bytes are there and were read all the same.

    there_s: its length by the last time stamp of any track. end_byte: where the last packet ends.
    """
    container = media.container
    media.file.seek(media.begin)
    n_bytes = stated_bytes(media.file.read(BEGIN_BYTES))
    is_short = n_bytes is not None and n_bytes > media.size
    if container.duration is None or _is_discontinuous(container) or not _is_stated(media):
        if is_short:
            raise UserError(
                f"{path}: is cut off: {media.size} of {n_bytes} bytes are there; copy or export it "
                "again."
            )
        return
    stated_s = container.duration / 1e6
    short_s = SHORT_S if is_short or len(container.streams) == 1 else OTHER_TRACKS_S
    if there_s >= stated_s - short_s:
        return
    if n_bytes is not None and not is_short and end_byte > READ_SHARE * media.size:
        log.warning("%s: its header states %.2f s, it holds %.2f s", path, stated_s, there_s)
        return
    raise _cut_off(path, there_s, stated_s)


def _counts_samples(media: _Media) -> bool:
    """Return whether the header of a recording counts its samples."""
    return bool(COUNTED & set(media.kind.split(",")))


def _cut_off(path: str | Path, there_s: float, stated_s: float) -> UserError:
    return UserError(
        f"{path}: is cut off or damaged: {there_s:.2f} of {stated_s:.2f} s can be decoded; copy or "
        "export it again."
    )


@dataclass
class _TimeLine:
    """Sets decoded frames one after another, each at its time. Times are in seconds."""

    path: str | Path
    origin_s: float
    has_times: bool
    is_lossy: bool = False  # a damaged frame may have any values
    now_s: float = 0.0  # where the next sample lies
    audio_s: float = 0.0  # decoded so far
    shift_s: float = 0.0  # of time stamps that begin again
    longest_gap_s: float = field(default=0.0, init=False)
    is_trimmed: bool = field(default=False, init=False)

    def placed(self, frame: Any) -> Iterator[Block]:
        """Yield the silence before a frame, if any, and its samples. Raises UserError."""
        data, rate = _floats(frame), frame.sample_rate
        if self.is_lossy:
            data = np.clip(np.nan_to_num(data, posinf=0.0, neginf=0.0), -MAX_PEAK, MAX_PEAK)
        gap_s = 0.0
        if self.has_times and frame.pts is not None:
            at_s = float(frame.pts * frame.time_base) - self.origin_s + self.shift_s
            if not self.audio_s and at_s < 0:  # before time 0, as a player would leave it out
                if at_s < -JITTER_S and not self.is_trimmed:
                    log.warning("%s: %.2f s before its time 0 are left out", self.path, -at_s)
                    self.is_trimmed = True
                data = data[round(-at_s * rate) :]
                at_s = 0.0
            gap_s = at_s - self.now_s
        if not len(data):
            return
        if gap_s < -RESTART_S:
            self.shift_s -= gap_s
        elif gap_s > JITTER_S:
            yield from self._silence(gap_s, data.shape[1], rate)
        self.now_s += len(data) / rate
        self.audio_s += len(data) / rate
        yield Block(data, rate)

    def _silence(self, gap_s: float, channels: int, rate: int) -> Iterator[Block]:
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
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        n = round(gap_s * rate)
        self.now_s += n / rate
        for at in range(0, n, SILENCE_S * rate):
            size = min(SILENCE_S * rate, n - at)
            yield Block(np.zeros((size, channels), np.float32), rate)

    def check_gaps(self) -> None:
        """Raise UserError for a gap that is long, and many times as long as the audio."""
        if self.longest_gap_s > max(LONG_GAP_S, GAP_OF_AUDIO * self.audio_s):
            raise UserError(
                f"{self.path}: its time stamps leave a gap of {self.longest_gap_s:.0f} s, and it "
                f"holds {self.audio_s:.2f} s of audio; export it again or cut it."
            )


def _floats(frame: Any) -> NDArray[np.float32]:
    """Return the samples of an `av.AudioFrame`, (n, channels) in about [-1, 1]."""
    array = frame.to_ndarray()
    channels = frame.layout.nb_channels
    data = array.T if frame.format.is_planar else array.reshape(-1, channels)
    if data.dtype == np.uint8:
        return (data.astype(np.float32) - 128) / 128
    if data.dtype.kind == "i":
        return (data / -float(np.iinfo(data.dtype).min)).astype(np.float32)
    return np.asarray(data, np.float32)
