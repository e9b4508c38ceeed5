"""Many hours of audio, made on disk and transcribed as `run` does it: never whole in memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile
import torch

from experiments.bench.models import SHAPES, random_network
from streaming_asr.config.build import new_method
from streaming_asr.corpora.audio import File, duration_s
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.methods.chunkformer.load import save
from streaming_asr.simulate.feeds import simulate
from streaming_asr.utterance import Utterance

BLOCK_S = 60
"""Written in blocks of so many seconds; read, too: it is the total duration of a pass."""
TOKENS = 384


def make_recording(path: Path, seconds: float) -> None:
    """Writes noise whose loudness changes from syllable to syllable: 16-bit WAV, in blocks."""
    with soundfile.SoundFile(path, "w", SAMPLE_RATE, 1, "PCM_16") as file:
        n_missing = round(seconds * SAMPLE_RATE)
        block = 0
        while n_missing > 0:
            n = min(n_missing, BLOCK_S * SAMPLE_RATE)
            random = np.random.default_rng(block)
            loudness = random.uniform(0.0, 0.3, n // 3200 + 1).repeat(3200)[:n]
            file.write((random.standard_normal(n, np.float32) * loudness).clip(-1, 1))
            n_missing, block = n_missing - n, block + 1


def stream_from_disk(
    folder: Path, hours: float, threads: int = 1, device: str = "cpu"
) -> dict[str, Any]:
    """Transcribes a made-up recording. Returns the figures as plain containers.

    growth_mib_by_hour: for each hour, the largest resident set above that after 5 minutes.
    The network has mini's size: a stream's memory is in question, not that of the weights.
    """
    torch.set_num_threads(threads)
    tokens = ["<blank>", "<unk>", *(f"▁t{i}" for i in range(TOKENS - 3)), "<sos/eos>"]
    save(folder, random_network(SHAPES["mini"]), tokens)
    path = folder / "recording.wav"
    make_recording(path, hours * 3600)
    method = new_method(
        "chunkformer",
        weights=str(folder),
        device=device,
        mode="longform",
        total_duration_s=BLOCK_S,
    )
    process = psutil.Process()
    readings: list[tuple[float, int]] = []  # seconds of audio, bytes resident
    begin = time.perf_counter()
    with EventWriter(folder / "events.jsonl", {"config": {}}) as writer:
        simulate(
            method,
            [Utterance("recording", "", File(path), duration_s(path))],
            writer=writer,
            feed="fixed",
            chunk_samples=BLOCK_S * SAMPLE_RATE,
            first_chunk_samples=BLOCK_S * SAMPLE_RATE,
            on_progress=lambda _, heard_s: readings.append((heard_s, process.memory_info().rss)),
        )
    spent_s = time.perf_counter() - begin
    (log,) = read_log(folder / "events.jsonl").utterances
    if log.error is not None:
        raise RuntimeError(f"the recording failed: {log.error}")
    heard_s = log.duration_s
    start = readings[min(4, len(readings) - 1)][1]  # when all caches are full
    grown: dict[int, int] = {}
    for at_s, size in readings[4:]:
        hour = int((at_s - 1e-6) // 3600)
        grown[hour] = max(grown.get(hour, 0), size - start)
    return {
        "hours": heard_s / 3600,
        "file_mib": path.stat().st_size / 2**20,
        "elapsed_s": spent_s,
        "rtf": spent_s / heard_s,
        "words": sum(len(step.committed) for step in log.steps),
        "resident_mib": start / 2**20,
        "growth_mib_by_hour": [size / 2**20 for _, size in sorted(grown.items())],
    }
