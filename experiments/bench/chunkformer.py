"""What ChunkFormer's paper claims, on this machine: `python -m experiments.bench chunkformer`.

masked   the paper's six recordings in one masked batch, and padded to the longest (table IV)
loop     100 audios of 10 s: the masks of section II-B, and a loop over the audios in every layer
author   the author's package on the same weights, where it is installed
endless  a long recording streamed from disk: time, and memory hour by hour

Weights are random, the audio is made up, nothing is downloaded. Each figure of memory is taken in a
process of its own and counts from where the network is loaded.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.bench import author
from experiments.bench.chunkformer_table import show as show
from experiments.bench.endless import stream_from_disk
from experiments.bench.frame import Meter, in_own_process, threads
from experiments.bench.models import SHAPES, random_mels, random_network
from streaming_asr.errors import UserError
from streaming_asr.machine import MemoryMeter, machine
from streaming_asr.methods.chunkformer.context import SIDE, Context, Span, Tables, rows_of, table
from streaming_asr.methods.chunkformer.context import whole as whole_tables
from streaming_asr.methods.chunkformer.encoder import Encoder, Network, Shape, encoder_flops
from streaming_asr.methods.chunkformer.layers import n_frames

PAPER_S = (1, 30, 60, 900, 1800, 3600)
CONTEXT = Context(64, 128, 128)
KINDS = ("padded", "masked")


@dataclass(frozen=True)
class BenchSettings:
    """scale: the six recordings are so many times shorter. hours: of the endless one."""

    size: str = "small"
    scale: float = 20.0
    audios: int = 100
    audio_s: float = 10.0
    hours: float = 10.0
    threads: int = 1
    repeats: int = 3
    device: str = "cpu"


# -- the batches --------------------------------------------------------------------------------


def padded_tables(lengths: Sequence[int], context: Context, device: torch.device | str) -> Tables:
    """Tables of a naive batch: every audio has the longest's chunks, what it lacks is masked."""
    longest = max(lengths)
    starts = range(0, longest, context.chunk)
    full = [Span(i * longest, 0, longest, starts) for i in range(len(lengths))]
    spans = [Span(i * longest, 0, n, starts) for i, n in enumerate(lengths)]
    queries = table(full, 0, context.chunk, 0, device=device)
    seen = min(context.right, SIDE)
    return Tables(
        queries,
        rows_of(queries),
        table(spans, context.left, context.chunk, context.right, device=device),
        table(spans, SIDE, context.chunk, SIDE, seen=seen, device=device),
    )


@torch.inference_mode()
def encode(encoder: Encoder, frames: Sequence[Tensor], context: Context, kind: str) -> list[Tensor]:
    """Encodes the subsampled frames of each audio, (n_i, d). kind: masked, padded or loop."""
    lengths = [len(part) for part in frames]
    if kind == "masked":
        return encoder(frames, context)
    if kind == "loop":
        return _encode_in_loops(encoder, frames, context)
    longest = max(lengths)
    padded = [F.pad(part, (0, 0, 0, longest - len(part))) for part in frames]
    done = encoder(padded, context, padded_tables(lengths, context, encoder.device))
    return [part[:n] for part, n in zip(done, lengths, strict=True)]


@torch.inference_mode()
def transcribe(
    network: Network, mels: Sequence[Tensor], context: Context, kind: str
) -> list[Tensor]:
    """Logits of the full model for the mel frames of each audio. kind: as in `encode`."""
    if kind == "padded":
        longest = max(map(len, mels))
        padded = [F.pad(mel, (0, 0, 0, longest - len(mel))) for mel in mels]
        frames = network.encoder.subsample(padded)
        lengths = [n_frames(len(mel)) for mel in mels]
        tables = padded_tables(lengths, context, network.encoder.device)
        encoded = network.encoder(frames, context, tables)
        logits = network.ctc(torch.stack(encoded))
        return [part[:n] for part, n in zip(logits, lengths, strict=True)]
    encoded = encode(network.encoder, network.encoder.subsample(mels), context, kind)
    logits = network.ctc(torch.cat(encoded))
    return list(logits.split([len(part) for part in encoded]))


def _encode_in_loops(encoder: Encoder, frames: Sequence[Tensor], context: Context) -> list[Tensor]:
    """Encodes as the masked batch, but in every layer each audio is padded and cut by itself."""
    lengths = [len(part) for part in frames]
    x = torch.cat(list(frames))
    tables = whole_tables(lengths, context, x.device)

    def cut(rows: Tensor, begin: int, right: int) -> Tensor:
        windows = []
        for part in rows.split(lengths):
            short = -len(part) % context.chunk
            padded = F.pad(part, (0, 0, begin, short + right))
            windows.append(padded.unfold(0, begin + context.chunk + right, context.chunk))
        return torch.cat(windows).transpose(1, 2)

    for layer, positions in zip(encoder.layers, encoder.positions(context), strict=True):
        x, keys_values = layer.enter(x)
        windows = cut(keys_values, context.left, context.right)
        heard = layer.self_attn(
            layer.norm_mha(x), tables.queries, windows, tables.keys.valid, positions
        )
        x = x + heard[tables.rows]
        x = x + layer.conv_module(cut(layer.gate(x), SIDE, SIDE))[tables.rows]
        x = layer.norm_final(x + 0.5 * layer.feed_forward(layer.norm_ff(x)))
    return list(encoder.after_norm(x).split(lengths))


def flops(shape: Shape, context: Context, lengths: Sequence[int], kind: str, part: str) -> float:
    """FLOPs of a batch of `lengths` frames; one multiply-accumulate is two.

    part: full model, or encoder only (no subsampling, no CTC).
    """
    counted = [max(lengths)] * len(lengths) if kind == "padded" else list(lengths)
    n, n_chunks = sum(counted), sum(-(-length // context.chunk) for length in counted)
    whole = encoder_flops(shape, context, n, n_chunks)
    if part == "full model":
        return whole + 2.0 * n * shape.d * shape.vocabulary
    return whole - encoder_flops(replace(shape, layers=0), context, n, 0)


# -- measuring ----------------------------------------------------------------------------------


def seconds_of(act: Callable[[], Any], settings: BenchSettings) -> float:
    """Median seconds of `act` over the repeats, after one run that does not count."""
    meter = Meter(settings.threads, settings.device)
    act()
    meter.synchronise()
    for i in range(settings.repeats):
        with meter.part(str(i)):
            act()
    return statistics.median(meter.spent_ms.values()) / 1000


def measure_batch(settings: BenchSettings, kind: str, part: str) -> dict[str, float]:
    """Seconds, peak of memory above the loaded network, and FLOPs of the paper's six recordings."""
    torch.set_num_threads(settings.threads)
    shape, device = SHAPES[settings.size], settings.device
    network = random_network(shape, device)
    mels = random_mels([s / settings.scale for s in PAPER_S], shape.n_mels, device)
    with torch.inference_mode():
        frames = network.encoder.subsample(mels)

    def act() -> list[Tensor]:
        if part == "full model":
            return transcribe(network, mels, CONTEXT, kind)
        return encode(network.encoder, frames, CONTEXT, kind)

    transcribe(network, random_mels([5.0], shape.n_mels, device), CONTEXT, kind)  # warm
    with MemoryMeter() as meter:
        meter.reset()
        before = torch.cuda.memory_allocated() if device.startswith("cuda") else 0
        act()
        peak = meter.peak_bytes() - before
    lengths = [n_frames(len(mel)) for mel in mels]
    return {
        "seconds": seconds_of(act, settings),
        "mib": peak / 2**20,
        "gflop": flops(shape, CONTEXT, lengths, kind, part) / 1e9,
    }


def bench_masked(settings: BenchSettings) -> dict[str, Any]:
    """The rows of table IV that are ours, and whether both batches answer the same."""
    rows = {
        part: {kind: in_own_process(measure_batch, settings, kind, part) for kind in KINDS}
        for part in ("full model", "encoder only")
    }
    network = random_network(SHAPES["mini"])
    mels = random_mels([0.5, 7.0, 2.0])
    answers = [transcribe(network, mels, Context(8, 16, 16), kind) for kind in KINDS]
    return {"seconds_of_audio": [s / settings.scale for s in PAPER_S], "rows": rows} | {
        "difference": largest_difference(*answers)
    }


def largest_difference(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


def bench_loop(settings: BenchSettings) -> dict[str, float]:
    """Seconds of the encoder with masks, with a loop in every layer, and audio after audio."""
    shape = SHAPES[settings.size]
    encoder = random_network(shape, settings.device).encoder
    mels = random_mels([settings.audio_s] * settings.audios, shape.n_mels, settings.device)
    with torch.inference_mode():
        frames = encoder.subsample(mels)
    answers = [encode(encoder, frames, CONTEXT, kind) for kind in ("masked", "loop")]

    def one_by_one() -> None:
        for part in frames:
            encode(encoder, [part], CONTEXT, "masked")

    return {
        "masked_s": seconds_of(lambda: encode(encoder, frames, CONTEXT, "masked"), settings),
        "loop_s": seconds_of(lambda: encode(encoder, frames, CONTEXT, "loop"), settings),
        "one_by_one_s": seconds_of(one_by_one, settings),
        "difference": largest_difference(*answers),
    }


def bench_author(settings: BenchSettings) -> dict[str, float] | None:
    """Seconds of subsampling and encoder, ours and the author's. None where it is not installed."""
    if importlib.util.find_spec("chunkformer") is None:
        return None
    shape = SHAPES[settings.size]
    network = random_network(shape)
    theirs = author.author_encoder(network)
    mels = random_mels([s / settings.scale for s in PAPER_S], shape.n_mels)

    @torch.inference_mode()
    def ours() -> list[Tensor]:
        return network.encoder(network.encoder.subsample(mels), CONTEXT)

    def their_frames() -> list[Tensor]:
        return author.author_batch(theirs, shape, mels, CONTEXT)

    return {
        "difference": largest_difference(ours(), their_frames()),
        "ours_s": seconds_of(ours, settings),
        "author_s": seconds_of(their_frames, settings),
    }


def bench(only: Sequence[str], **options: Any) -> dict[str, Any]:
    """Measure the parts in `only`; options: of `BenchSettings`. Raises UserError for a new size."""
    settings = BenchSettings(**options)
    if settings.size not in SHAPES:
        raise UserError(f"--size {settings.size}: one of {', '.join(SHAPES)}")
    result: dict[str, Any] = {
        "settings": asdict(settings),
        "clock": Meter(settings.threads, settings.device).clock_name,
        "machine": machine(device=settings.device),
    }
    with threads(settings.threads):
        for part in only:
            result[part] = PARTS[part](settings)
    return result


def bench_endless(settings: BenchSettings) -> dict[str, Any]:
    """The figures of a long recording, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        where = (Path(folder), settings.hours, settings.threads, settings.device)
        return dict(in_own_process(stream_from_disk, *where))


PARTS: dict[str, Callable[[BenchSettings], Any]] = {
    "masked": bench_masked,
    "loop": bench_loop,
    "author": bench_author,
    "endless": bench_endless,
}
