"""Does a method's memory stay bounded? `python -m experiments.bench memory --method ufal`.

Each method runs one recording of mini, ten minutes by default, in a process of its own. The
resident set is read after every step; growth is that of the last minute's median over the second
minute's, when all buffers are full and all lazy loading is done.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.bench.frame import in_own_process, table, verdict
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.terminal import console

GROWTH = 0.05  # below
MINUTE_S = 60.0
LEAST_S = 3 * MINUTE_S

Reading = tuple[float, int]
"""Audio so far, in seconds, and the resident set after that step, in bytes."""


def growth(readings: Sequence[Reading]) -> dict[str, float]:
    """Medians of the second and the last minute, the peak after the first, and what has grown.

    Raises UserError for less than three minutes.
    """
    end_s = readings[-1][0] if readings else 0.0
    if end_s < LEAST_S:
        raise UserError(f"a recording of {end_s:.0f} s: {LEAST_S:g} s at least show growth")
    second = _median(r for r in readings if MINUTE_S < r[0] <= 2 * MINUTE_S)
    last = _median(r for r in readings if r[0] > end_s - MINUTE_S)
    peak = max(size for at, size in readings if at > MINUTE_S)
    return {
        "audio_s": end_s,
        "second_minute_mib": second / 2**20,
        "last_minute_mib": last / 2**20,
        "peak_mib": peak / 2**20,
        "growth": last / second - 1,
        "peak_growth": peak / second - 1,
    }


def _median(readings: Iterable[Reading]) -> float:
    return statistics.median(size for _, size in readings)


def read_memory(overrides: Sequence[str]) -> tuple[list[Reading], float]:
    """Run the first recording; the readings and the real-time factor."""
    import psutil
    import torch

    from streaming_asr.chunking import Schedule, parse_duration
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose

    torch.set_num_threads(1)
    config = compose(overrides)
    method = build(config.method)
    (utterance,) = build(config.data).utterances(1)
    audio = utterance.load()
    chunk, first = (
        parse_duration(text) * SAMPLE_RATE // 1000 for text in (config.chunk, config.first_chunk)
    )
    process = psutil.Process()
    state = method.start(language=utterance.language)
    readings: list[Reading] = []
    received, begin = 0, time.perf_counter()
    for end in Schedule(chunk, first, method.lookahead_samples).ends(len(audio)):
        method.step(state, audio[received:end], last=end == len(audio))
        received = end
        readings.append((end / SAMPLE_RATE, process.memory_info().rss))
    return readings, (time.perf_counter() - begin) / (len(audio) / SAMPLE_RATE)


def bench(method: Sequence[str], chunk: str, split: str, rest: Sequence[str]) -> dict[str, Any]:
    """One row per method. `rest`: settings as `run` takes them, for all methods."""
    rows = {}
    for name in method:
        line = CommandLine([f"method={name}", f"chunk={chunk}", f"data.split={split}", *rest])
        line.default(model="mini", data="mini", tracker="none")
        readings, rtf = in_own_process(read_memory, line.settings)
        rows[name] = growth(readings) | {"rtf": rtf}
    return {"chunk": chunk, "split": split, "overrides": list(rest), "rows": rows}


def show(result: dict[str, Any]) -> None:
    """Print the table and one sentence per method."""
    out = console(130)
    grid = table(
        f"Resident set in MiB, mini {result['split']}, chunks of {result['chunk']}",
        ("method", "minutes", "2nd minute", "last minute", "peak", "RTF"),
    )
    for name, row in result["rows"].items():
        sizes = (row["second_minute_mib"], row["last_minute_mib"], row["peak_mib"])
        grid.add_row(
            name,
            f"{row['audio_s'] / 60:.1f}",
            *(f"{size:.0f}" for size in sizes),
            f"{row['rtf']:.2f}",
        )
    out.print(grid)
    for name, row in result["rows"].items():
        text = (
            f"{name}: {100 * row['growth']:+.1f} % from the second minute to the last, at the "
            f"peak {100 * row['peak_growth']:+.1f} % (target: under {100 * GROWTH:g} %)"
        )
        out.print(verdict(row["growth"] < GROWTH, text), soft_wrap=True)
