"""Recordings as phones and browsers make them, written with PyAV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from hypothesis import strategies as st

from streaming_asr.method import Samples

# -- words of one tone each, whose times are known ---------------------------------------------

WORD_S, EVERY_S, FIRST_S = 0.25, 0.6, 0.2


class Pipe:
    """A file that cannot seek back: headers written to it stay unfinished."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = path.open("wb")

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()


def hertz(word: int) -> float:
    return 400.0 + 200 * word


def words(n: int, rate: int, first: int = 0) -> Samples:
    """Return `n` words, (samples,) at `rate` Hz; each stands before the middle of a pause."""
    sound = np.zeros(round(n * EVERY_S * rate), np.float32)
    t = np.arange(round(WORD_S * rate)) / rate
    for word in range(n):
        at = round((FIRST_S + word * EVERY_S) * rate)
        sound[at : at + len(t)] = 0.5 * np.sin(2 * np.pi * hertz(first + word) * t)
    return sound


def found_words(heard: Samples) -> list[tuple[float, float]]:
    """Return the start (s) and the frequency (Hz) of each word in mono 16 kHz samples."""
    frames = heard[: len(heard) // 80 * 80].reshape(-1, 80)
    loud = np.concatenate([[False], np.abs(frames).max(axis=1) > 0.1, [False]])
    edges = np.flatnonzero(loud[1:] != loud[:-1])
    found = []
    for begin, end in zip(edges[::2] * 80, edges[1::2] * 80, strict=True):
        if end - begin < 1600:  # an encoder's echo
            continue
        power = np.abs(np.fft.rfft(heard[begin:end], 16_000))
        found.append((begin / 16_000, float(np.argmax(power))))
    return found


@dataclass(frozen=True)
class Track:
    """An audio track to be written: words, moved by `offset_s`, with a gap before word `gap_at`."""

    codec: str
    rate: int
    channels: int = 1
    n_words: int = 4
    first: int = 0
    offset_s: float = 0.0
    gap_s: float = 0.0
    gap_at: int = 2
    n_gaps: int = 1  # one before each of so many words
    is_default: bool | None = None
    language: str | None = None
    jitter_s: tuple[float, ...] = ()  # of the packets' time stamps
    sound: tuple[float, ...] = ()  # (n,) mono at `rate` Hz in place of the words

    def expected(self) -> list[tuple[float, float]]:
        """Return the start (s) and the frequency (Hz) of each word."""
        return [
            (
                self.offset_s + FIRST_S + n * EVERY_S + (self.gap_s if n >= self.gap_at else 0),
                hertz(self.first + n),
            )
            for n in range(self.n_words)
        ]


def write_recording(
    path: Path,
    tracks: Sequence[Track],
    *,
    form: str | None = None,
    video_s: float = 0.0,
    video_codec: str = "mpeg4",
    is_pipe: bool = False,
    options: dict[str, str] | None = None,
    ends_with_video: bool = False,
) -> Path:
    """Write a recording; is_pipe: by a program that cannot go back to complete the header."""
    target: Any = Pipe(path) if is_pipe else str(path)
    with av.open(target, "w", format=form, container_options=options or {}) as container:
        if ends_with_video:
            streams = [_add(container, track) for track in tracks]
        if video_s:
            video = container.add_stream(video_codec, rate=5)
            video.width = video.height = 64
        if not ends_with_video:
            streams = [_add(container, track) for track in tracks]
        packets = [p for each in zip(streams, tracks, strict=True) for p in _packets(*each)]
        if video_s:
            packets += _pictures(video, video_s)
        for _, packet in sorted(packets, key=lambda timed: timed[0]):
            container.mux(packet)
    if is_pipe:
        target.close()
    return path


def write_pictures(path: Path, length_s: float) -> Path:
    """Write a video without sound."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 64
        for _, packet in _pictures(stream, length_s):
            container.mux(packet)
    return path


def _add(container: Any, track: Track) -> Any:
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[track.channels]
    stream = container.add_stream(track.codec, rate=track.rate, layout=layout)
    if track.codec.startswith("wma"):
        stream.bit_rate = 64_000
    if track.is_default is not None:
        stream.disposition = Disposition.default if track.is_default else Disposition(0)
    if track.language is not None:
        stream.metadata["language"] = track.language
    return stream


def _packets(stream: Any, track: Track) -> Iterator[tuple[float, Any]]:
    """Yield packets and their times (s)."""
    mono = words(track.n_words, track.rate, track.first)
    if track.sound:
        mono = np.asarray(track.sound, np.float32)
    elif not track.n_words:
        mono = np.zeros(track.rate, np.float32)  # a second of silence
    resampler = av.AudioResampler(
        format=stream.format.name, layout=stream.layout.name, rate=track.rate
    )
    whole = av.AudioFrame.from_ndarray(
        np.repeat(mono[None], track.channels, 0), format="fltp", layout=stream.layout.name
    )
    whole.sample_rate = track.rate
    fifo = av.AudioFifo()
    for frame in (*resampler.resample(whole), *resampler.resample(None)):
        frame.pts = None
        fifo.write(frame)
    size, at, packets = stream.codec_context.frame_size or 1024, 0, []
    while frame := fifo.read(size, partial=True):
        frame.pts, frame.time_base = at, Fraction(1, track.rate)
        at += frame.samples
        packets += stream.encode(frame)
    packets += stream.encode(None)
    gap_from_s = track.gap_at * EVERY_S
    for number, packet in enumerate(packets):
        at_s = float(packet.pts * packet.time_base)
        gaps = int(np.clip((at_s - gap_from_s) // EVERY_S + 1, 0, track.n_gaps))
        move_s = track.offset_s + gaps * track.gap_s
        if number < len(track.jitter_s) and number:
            move_s = max(0.0, move_s + track.jitter_s[number])
        move = round(move_s / packet.time_base)
        packet.pts += move
        packet.dts = packet.pts
        yield at_s + move_s, packet


def _pictures(stream: Any, length_s: float) -> Iterator[tuple[float, Any]]:
    for n in range(round(5 * length_s)):
        frame = av.VideoFrame.from_ndarray(np.full((96, 64), n % 255, np.uint8), format="yuv420p")
        frame.pts, frame.time_base = n, Fraction(1, 5)
        for packet in stream.encode(frame):
            yield n / 5, packet
    for packet in stream.encode(None):
        yield length_s, packet


# -- recordings of any kind ------------------------------------------------------------------

# Ending, FFmpeg's format, codec, rates; of the first containers packets carry time stamps.
TIMED = [
    ("m4a", "ipod", "aac", (44_100, 16_000)),
    ("m4a", "ipod", "alac", (44_100,)),
    ("mp4", "mp4", "libmp3lame", (44_100,)),
    ("mp4", "mp4", "flac", (48_000,)),
    ("mp4", "mp4", "libopus", (48_000,)),
    ("3gp", "3gp", "aac", (22_050,)),
    ("mkv", "matroska", "aac", (48_000, 16_000)),
    ("mkv", "matroska", "libopus", (48_000, 16_000)),
    ("mkv", "matroska", "flac", (44_100, 11_025)),
    ("mkv", "matroska", "pcm_s16le", (8_000, 96_000)),
    ("mkv", "matroska", "ac3", (48_000,)),
    ("webm", "webm", "libopus", (48_000,)),
    ("flv", "flv", "aac", (44_100,)),
    ("flv", "flv", "libmp3lame", (22_050,)),
    ("wma", "asf", "wmav2", (44_100,)),
]
UNTIMED = [
    ("aac", "adts", "aac", (44_100, 16_000)),
    ("mp3", "mp3", "libmp3lame", (44_100, 16_000, 8_000)),
    ("mp2", "mp2", "mp2", (48_000,)),
    ("ac3", "ac3", "ac3", (48_000,)),
    ("tta", "tta", "tta", (44_100,)),
    ("wv", "wv", "wavpack", (44_100,)),
    ("amr", "amr", "libopencore_amrnb", (8_000,)),
    ("caf", "caf", "alac", (44_100,)),
    ("avi", "avi", "libmp3lame", (44_100,)),
    ("ts", "mpegts", "aac", (48_000,)),
    ("mpg", "mpeg", "mp2", (48_000,)),
    ("ogg", "ogg", "libopus", (48_000,)),
    ("ogg", "ogg", "flac", (44_100,)),
    ("flac", "flac", "flac", (44_100, 192_000)),
    ("wav", "wav", "pcm_s16le", (44_100,)),
    ("wav", "wav", "pcm_f32le", (44_100,)),
    ("wav", "wav", "adpcm_ms", (22_050,)),
    ("wav", "wav", "pcm_mulaw", (8_000,)),
    ("aiff", "aiff", "pcm_s16be", (44_100,)),
    ("au", "au", "pcm_mulaw", (8_000,)),
]
TOLERANCE_S = 0.08  # ADTS does not state the encoder's delay: 64 ms at 16 kHz
MP3_DELAY = 1105  # samples, which an MP3 from a pipe does not state either
NEEDS_SEEKING = ("caf",)  # cannot be written to a pipe


def assert_words(heard: Samples, track: Track) -> None:
    """Assert that each word sounds once, at its time and with its frequency."""
    found, expected = found_words(heard), track.expected()
    assert [round(hertz) for _, hertz in found] == [round(hertz) for _, hertz in expected]
    late = [at - due for (at, _), (due, _) in zip(found, expected, strict=True)]
    delay_s = MP3_DELAY / track.rate if track.codec == "libmp3lame" else 0.0
    assert max(np.abs(late)) < max(TOLERANCE_S, delay_s + 0.01), late


@dataclass(frozen=True)
class Drawn:
    """How a recording is written."""

    ending: str
    form: str
    tracks: list[Track]
    video_s: float
    is_pipe: bool
    ends_with_video: bool

    def write(self, folder: Path) -> Path:
        is_mp4 = self.ending in ("m4a", "mp4", "3gp")
        return write_recording(
            folder / f"a.{self.ending}",
            self.tracks,
            form=self.form,
            video_s=self.video_s,
            is_pipe=self.is_pipe,
            ends_with_video=self.ends_with_video,
            options={"movflags": "frag_keyframe+delay_moov"} if self.is_pipe and is_mp4 else None,
        )


@st.composite
def drawn_recordings(draw: st.DrawFn) -> Drawn:
    kind = draw(st.sampled_from(TIMED + UNTIMED))
    ending, form, codec, rates = kind
    is_timed = kind in TIMED
    n_tracks = draw(st.integers(1, 2)) if ending in ("mp4", "mkv") else 1
    tracks = [
        Track(
            codec,
            draw(st.sampled_from(rates)),
            channels=1 if codec == "libopencore_amrnb" else draw(st.integers(1, 2)),
            n_words=draw(st.integers(3, 6)),
            first=6 * number,
            offset_s=draw(st.sampled_from((0.0, 0.7, 4.087))) if is_timed else 0.0,
            gap_s=draw(st.sampled_from((0.0, 0.5, 10.0))) if is_timed else 0.0,
            is_default=None if n_tracks == 1 else number == 0,
        )
        for number in range(n_tracks)
    ]
    has_video = ending in ("mp4", "mkv", "wma")
    video_s = draw(st.sampled_from((0.0, 1.0, 20.0))) if has_video else 0.0
    is_pipe = ending not in NEEDS_SEEKING and draw(st.booleans())
    return Drawn(ending, form, tracks, video_s, is_pipe, draw(st.booleans()))
