"""What STAR costs: memory with and without compression, and its step beside recomputing everything.

Memory, in the form of the paper's table 3: the semantic encoder and the decoder of appendix E (4
layers, 8 heads, 512 wide, vocabulary of 10,000) over L feature frames and L / 10 tokens, in a
process of its own. `pass` is one pass over everything with its activations kept, weights included;
`stream` is what a stream holds at its end: keys and values of encoder and decoder. 100 % is no
compression.

Step: STAR on random weights of a Whisper, an anchor every 12 frames or so and one token for each,
beside a baseline that encodes the whole audio again at every chunk and decodes from the first token
for every token. Both give the same tokens.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.bench.models import random_whisper, synthetic_audio
from experiments.bench.settings import AROUND, StepSettings
from experiments.bench.show import console, print_lines, verdict
from experiments.bench.step import Meter
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.machine import MemoryMeter, machine, versions
from streaming_asr.methods.star import Star
from streaming_asr.methods.star.decoder import AnchorCache, AnchorDecoder, seen
from streaming_asr.methods.star.network import compressor
from streaming_asr.methods.star.semantic import SemanticEncoder
from streaming_asr.whisper.features import FRAME_SAMPLES

LENGTHS = (1000, 2000, 3000, 4000, 5000)
RATES = (None, 2, 5, 10, 20)
D, HEADS, LAYERS, VOCABULARY, FRAMES_PER_TOKEN = 512, 8, 4, 10_000, 10
CHUNK_FRAMES = 15
GROWTH = 1.3  # at most, chunk 97 against 5


@dataclass(frozen=True)
class StarSettings:
    """lengths in feature frames. attention: fused, or eager as in the paper's day."""

    lengths: tuple[int, ...] = LENGTHS
    attention: str = "fused"
    model: str = "base"
    at: str = "5,30,97"
    repeats: int = 3
    parts: tuple[str, ...] = ("memory", "step")

    def __post_init__(self) -> None:
        if self.attention not in ("fused", "eager"):
            raise UserError(f"--attention {self.attention}: fused or eager")
        if not self.lengths or min(self.lengths) < 10:
            raise UserError(f"--lengths {list(self.lengths)}: feature frames, 10 or more")
        unknown = set(self.parts) - {"memory", "step"}
        if unknown:
            raise UserError(f"--only {unknown.pop()}: memory, step")


def bench_star(settings: StarSettings) -> dict[str, Any]:
    """All figures, as `--json` writes them."""
    result: dict[str, Any] = {"machine": machine(), "versions": versions()}
    result["attention"] = settings.attention
    if "memory" in settings.parts:
        result["memory"] = [_row(n, settings.attention) for n in settings.lengths]
    if "step" in settings.parts:
        result["step"] = bench_steps(settings.model, settings.at, settings.repeats)
    return result


# ---- memory ----------------------------------------------------------------------------------


def _row(n_frames: int, attention: str) -> dict[str, Any]:
    cells = []
    for rate in RATES:
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            cells.append({"rate": rate, **pool.apply(measure, (n_frames, rate, attention))})
    return {"frames": n_frames, "cells": cells}


def measure(n_frames: int, rate: int | None, attention: str) -> dict[str, float]:
    """MiB of one pass and of a stream's state, at a rate; None is no compression."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.set_num_threads(1)
    torch.manual_seed(0)
    n_tokens = n_frames // FRAMES_PER_TOKEN
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=D,
        encoder_layers=1,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=4 * D,
        max_target_positions=max(512, n_tokens + 1),
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    decoder = AnchorDecoder(WhisperForConditionalGeneration(config).eval())
    encoder = SemanticEncoder(D, HEADS, 4 * D, LAYERS, "compact")
    made = compressor("none" if rate is None else "star", D, encoder)
    x = torch.randn(n_frames, D)
    tokens = torch.randint(VOCABULARY, (n_tokens,)).tolist()
    backends = [SDPBackend.MATH] if attention == "eager" else list(SDPBackend.__members__.values())
    with MemoryMeter() as meter:
        meter.reset()
        with sdpa_kernel([b for b in backends if b is not SDPBackend.ERROR]):
            found = made.compress(x, rate=None if rate is None else float(rate))
            visible = [len(found.vectors)] * n_tokens
            hidden = decoder.forward(tokens, found.vectors, found.scores, visible)
            loss = decoder.logits(hidden).logsumexp(-1).sum()
        peak = meter.peak_bytes()
    parameters = [*encoder.parameters(), *_decoder_weights(decoder)]
    n_vectors = len(found.vectors)
    del loss, hidden, found
    weights = sum(p.numel() * p.element_size() for p in parameters)
    held = stream_bytes(made, decoder, x, rate, tokens)
    return {
        "vectors": n_vectors,
        "pass_mib": (weights + peak) / 2**20,
        "stream_mib": held / 2**20,
    }


def _decoder_weights(decoder: AnchorDecoder) -> list[torch.Tensor]:
    layers = [p for layer in decoder.layers for p in layer.parameters()]
    return [*layers, decoder.embedding]


@torch.inference_mode()
def stream_bytes(
    made: Any, decoder: AnchorDecoder, x: torch.Tensor, rate: int | None, tokens: list[int]
) -> int:
    """Bytes of keys and values that a stream over x holds at its end, an anchor every `rate`."""
    made.stride = rate or 1
    state, cache = made.start(), AnchorCache(decoder)
    for start in range(0, len(x), CHUNK_FRAMES):
        last = start + CHUNK_FRAMES >= len(x)
        found = made.push(state, x[start : start + CHUNK_FRAMES], last=last)
        decoder.append(cache, found.vectors, found.scores)
    decoder.step(cache, tokens, [cache.n_anchors] * len(tokens))
    kept = [*state.cache.keys, *state.cache.values]
    return cache.n_bytes + sum(t.numel() * t.element_size() for t in kept)


# ---- a step ----------------------------------------------------------------------------------


class Recompute:
    """STAR without caches: everything again from the first sample at every chunk."""

    def __init__(self, star: Star) -> None:
        self.star = star

    @torch.inference_mode()
    def step(self, audio: torch.Tensor, ends: list[int], tokens: list[int], meter: Meter) -> None:
        """Hear the blocks that end at `ends` and bring `tokens` up to date."""
        star = self.star
        whisper, decoder = star._whisper, star._decoder
        stop = ends[-1] * FRAME_SAMPLES + star.lookahead_samples
        with meter.part("encode"):
            x = star._extractor.windows([audio[:stop]], [ends])[0]
            made = star._compressor
            found = made.push(made.start(), x, last=False)
        prompt = whisper.prompt()
        with meter.part("decode"):
            while len(found.ready) >= len(tokens) + star.wait_k:
                ids = [*prompt, *tokens]
                visible = [seen(i, len(prompt), star.wait_k, found.ready) for i in range(len(ids))]
                hidden = decoder.forward(ids, found.vectors, found.scores, visible)
                logits = decoder.logits(hidden)[-1].float() + whisper.suppressed
                logits[whisper.eot] = -torch.inf
                tokens.append(int(logits.argmax()))


def bench_steps(model: str, at: str, repeats: int) -> dict[str, Any]:
    """Milliseconds per chunk, ours and the baseline's, and whether their tokens are the same."""
    settings = StepSettings.parse([model], "300ms", at, 1, repeats, "cpu")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(random_whisper(model, Path(folder))) if not Path(model).is_dir() else model
        star = new_method("star", path, chunk_s=0.3, first_chunk_s=0.6)
        # Measured up to the end of the context, two seconds past where a stream is cut.
        star._seam = replace(star._seam, limit=star._extractor.context_frames)
    meter = Meter(settings)
    points = settings.points_within(star._whisper.context_frames)
    last = points[-1] + AROUND
    audio = synthetic_audio((last + 1) * 0.3, seed=1)
    runs = [_stream(star, audio, settings, last, meter) for _ in range(repeats)]
    baseline, rows, same = Recompute(star), [], True
    whole = torch.from_numpy(audio)
    for k in points:
        chunks = range(k - AROUND, k + AROUND + 1)
        theirs: dict[int, list[float]] = {j: [] for j in chunks}
        for _ in range(repeats):
            tokens = list(runs[0][1][chunks[0] - 1])
            for j in chunks:
                meter.drain()
                with meter.part("total"):
                    baseline.step(whole, settings.ends(j), tokens, meter)
                theirs[j].append(meter.drain()["total"])
                same = same and tokens == runs[0][1][j]

        def ours(part: str, chunks: range = chunks) -> float:
            return statistics.fmean(
                [statistics.median(r[0][j][part] for r in runs) for j in chunks]
            )

        rows.append(
            {
                "chunk": k,
                "ours_ms": ours("total"),
                "encode_ms": ours("encode"),
                "decode_ms": ours("decode"),
                "recompute_ms": statistics.fmean([statistics.median(theirs[j]) for j in chunks]),
            }
        )
    final = runs[0][1][last]
    return {
        "model": model,
        "clock": meter.clock_name,
        "rows": rows,
        "same_tokens": same,
        "n_tokens": len(final),
        "n_different_tokens": len(set(final)),
    }


def _stream(
    star: Star, audio: Any, settings: StepSettings, last: int, meter: Meter
) -> tuple[dict[int, dict[str, float]], dict[int, list[int]]]:
    """Times and text after every chunk of a stream."""
    state = star.start(recorder=meter)
    times, texts, at = {}, {}, 0
    for k in range(settings.first_chunk, last + 1):
        stop = k * settings.chunk_frames * FRAME_SAMPLES + star.lookahead_samples
        meter.drain()
        with meter.part("total"):
            star.step(state, audio[at:stop], last=False)
        at = stop
        times[k] = meter.drain()
        texts[k] = list(state.tokens)
    return times, texts


# ---- what is shown ---------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    from rich.table import Table

    out = console()
    if "memory" in result:
        for part, what in (("pass_mib", "one pass"), ("stream_mib", "a stream's state")):
            title = f"Memory of {what}, {result['attention']} attention; 100 %: no compression"
            table = Table(title=title, title_justify="left")
            for name in ("frames", "no compression", *(f"r = {r}" for r in RATES[1:])):
                table.add_column(name, justify="right")
            for row in result["memory"]:
                base = row["cells"][0][part]
                shares = [f"{100 * c[part] / base:.0f} %" for c in row["cells"][1:]]
                table.add_row(str(row["frames"]), f"{base:.0f} MiB", *shares)
            out.print(table)
    if "step" in result:
        step = result["step"]
        table = Table(title=f"Milliseconds per chunk of 300 ms, {step['model']}, {step['clock']}")
        for name in ("chunk", "encoder", "decoder", "ours", "recompute", "speed-up"):
            table.add_column(name, justify="right")
        for row in step["rows"]:
            figures = (row[k] for k in ("encode_ms", "decode_ms", "ours_ms", "recompute_ms"))
            speed_up = row["recompute_ms"] / row["ours_ms"]
            table.add_row(str(row["chunk"]), *(f"{v:.1f}" for v in figures), f"{speed_up:.1f}")
        out.print(table)
        same = "the same tokens" if step["same_tokens"] else "NOT the same tokens"
        out.print(f"{same} from both ({step['n_tokens']}, {step['n_different_tokens']} kinds)")
        print_lines(out, verdicts(step))


def verdicts(step: dict[str, Any]) -> list[str]:
    """One sentence on whether the step stays flat; none where a chunk was not measured."""
    rows = {row["chunk"]: row for row in step["rows"]}
    if not {5, 97} <= set(rows):
        return []
    growth = rows[97]["ours_ms"] / rows[5]["ours_ms"]
    text = f"chunk 97 takes {growth:.2f} times chunk 5 (target: at most {GROWTH:g})"
    return [verdict(growth <= GROWTH, text)]
