"""Recordings as phones and browsers make them, written with PyAV."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from streaming_asr.method import Samples

CODECS = {
    ".m4a": ("aac", 44_100),
    ".mp4": ("aac", 48_000),
    ".webm": ("libopus", 48_000),
    ".mkv": ("libopus", 48_000),
    ".mp2": ("mp2", 48_000),
}


def write_container(path: Path, samples: Samples, rate: int = 16_000) -> Path:
    """Write mono samples into a container whose codec follows from its ending."""
    codec, coded_rate = CODECS[path.suffix]
    with av.open(str(path), "w") as container:
        track = container.add_stream(codec, rate=coded_rate, layout="mono")
        resampler = av.AudioResampler(format=track.format.name, layout="mono", rate=coded_rate)
        whole = av.AudioFrame.from_ndarray(
            np.asarray(samples, np.float32)[None], format="flt", layout="mono"
        )
        whole.sample_rate = rate
        fifo = av.AudioFifo()
        for frame in (*resampler.resample(whole), *resampler.resample(None)):
            frame.pts = None
            fifo.write(frame)
        size = track.codec_context.frame_size or 960
        while frame := fifo.read(size, partial=True):
            container.mux(track.encode(frame))
        container.mux(track.encode(None))
    return path
