"""Table III in form: how long a recording fits, and the picture of memory against duration.

    python -m experiments.chunkformer.memory [--size small] [--device cpu] [--minutes 1,2,4,8,16]

One recording in one pass, with the full and with a limited context, and by endless decoding; each
figure in a process of its own, random weights. What fits into a memory is computed from the last
two figures: the full context's grows with the square of the duration, the limited one's in
proportion. Writes <output>/chunkformer/memory.json and memory.svg into this folder.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.bench.chunkformer import CONTEXT, BenchSettings, in_own_process, transcribe
from experiments.bench.models import MEL_PER_S, SHAPES, random_mels, random_network
from experiments.svg import drawn
from streaming_asr.errors import UserError
from streaming_asr.machine import MemoryMeter, machine
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.encoder import Network
from streaming_asr.methods.chunkformer.endless import EndlessCache, advance
from streaming_asr.methods.chunkformer.layers import RECEPTIVE, STRIDE, n_frames

HERE = Path(__file__).parent
KINDS = {
    "full": "full context",
    "limited": f"c {CONTEXT.chunk}, l {CONTEXT.left}, r {CONTEXT.right}",
    "endless": "the same, endless",
}
FULL_MINUTES = 4.0
"""Longer recordings are left out with the full context, whose attention would not fit."""
PIECE_S = 60
TARGETS_GIB = (8.0, 80.0)


def measure(settings: BenchSettings, kind: str, minutes: float) -> float:
    """Peak of memory in MiB above the loaded network; the features are made as they are needed."""
    torch.set_num_threads(settings.threads)
    shape, device = SHAPES[settings.size], settings.device
    network = random_network(shape, device)
    transcribe(network, random_mels([2.0], shape.n_mels, device), CONTEXT, "masked")  # warm
    seconds = 60 * minutes
    with MemoryMeter() as meter:
        meter.reset()
        before = torch.cuda.memory_allocated() if device.startswith("cuda") else 0
        if kind == "endless":
            _endless(network, round(seconds * MEL_PER_S), device)
        else:
            mels = random_mels([seconds], shape.n_mels, device)
            whole = Context(n_frames(len(mels[0])), 0, 0)
            transcribe(network, mels, whole if kind == "full" else CONTEXT, "masked")
        return (meter.peak_bytes() - before) / 2**20


@torch.inference_mode()
def _endless(network: Network, n_mel: int, device: str) -> None:
    encoder = network.encoder
    positions, cache = encoder.positions(CONTEXT), EndlessCache.empty(encoder)
    step, n_repeated = PIECE_S * MEL_PER_S // STRIDE * STRIDE, RECEPTIVE - STRIDE
    for start in range(0, n_mel, step):
        n = min(step, n_mel - start) + n_repeated
        (mel,) = random_mels([n / MEL_PER_S], network.shape.n_mels, device)
        frames = encoder.subsample([mel])
        last = start + step >= n_mel
        (done,) = advance(encoder, CONTEXT, positions, [cache], frames, [last])
        network.ctc(done).argmax(-1)


def longest_minutes(points: Mapping[float, float], kind: str, mib: float) -> float | None:
    """Minutes that fit into `mib`, from the last two of `points` (minutes to MiB).

    None for endless decoding, which has no limit, and where two points are not there.
    """
    if kind == "endless" or len(points) < 2:
        return None
    (t0, m0), (t1, m1) = sorted(points.items())[-2:]
    power = 2 if kind == "full" else 1
    slope = (m1 - m0) / (t1**power - t0**power)
    if slope <= 0:
        return None
    return max(0.0, (mib - m1) / slope + t1**power) ** (1 / power)


def measure_all(settings: BenchSettings, minutes: Sequence[float]) -> dict[str, Any]:
    """All kinds at all durations; the result is what tables.py and the picture read."""
    rows: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        for length in minutes:
            if kind == "full" and length > FULL_MINUTES:
                continue
            mib = in_own_process(measure, settings, kind, length)
            rows.setdefault(kind, {})[f"{length:g}"] = mib
            print(f"{kind} {length:g} min: {mib:.0f} MiB", flush=True)
    return {
        "size": settings.size,
        "device": settings.device,
        "machine": machine(device=settings.device),
        "mib": rows,
    }


def points(result: Mapping[str, Any], kind: str) -> dict[float, float]:
    return {float(minutes): mib for minutes, mib in result["mib"].get(kind, {}).items()}


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draws memory against duration, one line a kind, into `path`."""
    title, y = f"ChunkFormer {result['size']}, {result['device']}", "memory above the weights (MiB)"
    with drawn(path, "chunkformer", title=title, x="recording (min)", y=y) as axis:
        for kind, label in KINDS.items():
            if line := points(result, kind):
                axis.plot(*zip(*sorted(line.items()), strict=True), marker="o", label=label)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        ticks = sorted({minutes for kind in KINDS for minutes in points(result, kind)})
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        top = max(max(points(result, kind).values(), default=1.0) for kind in KINDS)
        sizes = [2**i for i in range(4, math.ceil(math.log2(max(top, 32))) + 1)]
        axis.set_yticks(sizes, [f"{size:g}" for size in sizes])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="small", help="mini, small or large")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--minutes", default="1,2,4,8,16", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--svg", type=Path, default=HERE / "memory.svg")
    arguments = parser.parse_args(argv)
    try:
        minutes = [float(text) for text in arguments.minutes.split(",")]
    except ValueError:
        print(f"error: --minutes {arguments.minutes}: numbers with commas", file=sys.stderr)
        return 2
    try:
        result = measure_all(BenchSettings(size=arguments.size, device=arguments.device), minutes)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = arguments.output / "chunkformer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(result, arguments.svg)
    print(f"written: {folder / 'memory.json'}, {arguments.svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
