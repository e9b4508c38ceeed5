"""What STAR costs: memory with and without compression; its step against recomputing everything.

Memory, in the form of the paper's table 3: the semantic encoder and the decoder of appendix E (4
layers, 8 heads, 512 wide, vocabulary of 10,000) over L feature frames and L / 10 tokens, in a
process of its own. `pass` is one pass over everything with its activations kept, weights included;
`stream` is what a stream holds at its end: keys and values of encoder and decoder. 100 % is no
compression.

Step: STAR on random weights of a Whisper, an anchor every 12 frames or so and one token for each,
against a baseline that encodes the whole audio again at every chunk and decodes from the first
token for every token. Both give the same tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.bench.frame import Meter, in_own_process, table, threads, verdict
from experiments.bench.models import random_whisper, synthetic_audio
from experiments.bench.settings import AROUND, StepSettings
from experiments.bench.step import StreamRun, around, run_streams
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.machine import MemoryMeter, machine, versions
from streaming_asr.methods.star import Star
from streaming_asr.methods.star.decoder import AnchorCache, AnchorDecoder, seen
from streaming_asr.methods.star.network import compressor
from streaming_asr.methods.star.semantic import SemanticEncoder
from streaming_asr.terminal import console
from streaming_asr.whisper.features import FRAME_SAMPLES

RATES = (None, 2, 5, 10, 20)
D, HEADS, LAYERS, VOCABULARY, FRAMES_PER_TOKEN = 512, 8, 4, 10_000, 10
CHUNK_FRAMES = 15
GROWTH = 1.3  # at most, chunk 97 against 5


def bench(
    lengths: Sequence[int],
    attention: str,
    model: str,
    at: tuple[int, ...],
    repeats: int,
    only: Sequence[str],
) -> dict[str, Any]:
    """All figures, as `--json` writes them. Raises UserError for lengths of no token."""
    if attention not in ("fused", "eager"):
        raise UserError(f"--attention {attention}: fused or eager")
    if lengths[0] < FRAMES_PER_TOKEN:
        raise UserError(f"--lengths {lengths[0]}: feature frames, {FRAMES_PER_TOKEN} or more")
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "attention": attention}
    if "memory" in only:
        result["memory"] = [
            {
                "frames": n,
                "cells": [
                    {"rate": rate, **in_own_process(measure, n, rate, attention)} for rate in RATES
                ],
            }
            for n in lengths
        ]
    if "step" in only:
        with threads(1):
            result["step"] = bench_steps(model, at, repeats)
    return result


# ---- memory ----------------------------------------------------------------------------------


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
    network = compressor("none" if rate is None else "star", D, encoder)
    x = torch.randn(n_frames, D)
    tokens = torch.randint(VOCABULARY, (n_tokens,)).tolist()
    backends = [SDPBackend.MATH] if attention == "eager" else list(SDPBackend.__members__.values())
    with MemoryMeter() as meter:
        meter.reset()
        with sdpa_kernel([b for b in backends if b is not SDPBackend.ERROR]):
            heard = network.compress(x, rate=None if rate is None else float(rate))
            visible = [len(heard.vectors)] * n_tokens
            hidden = decoder.forward(tokens, heard.vectors, heard.scores, visible)
            loss = decoder.logits(hidden).logsumexp(-1).sum()
        peak = meter.peak_bytes()
    parameters = [*encoder.parameters(), decoder.embedding]
    parameters += [p for layer in decoder.layers for p in layer.parameters()]
    n_vectors = len(heard.vectors)
    del loss, hidden, heard
    weights = sum(p.numel() * p.element_size() for p in parameters)
    held = stream_bytes(network, decoder, x, rate, tokens)
    return {
        "vectors": n_vectors,
        "pass_mib": (weights + peak) / 2**20,
        "stream_mib": held / 2**20,
    }


@torch.inference_mode()
def stream_bytes(
    network: Any, decoder: AnchorDecoder, x: torch.Tensor, rate: int | None, tokens: list[int]
) -> int:
    """Bytes of keys and values that a stream over x holds at its end, an anchor every `rate`."""
    network.stride = rate or 1
    state, cache = network.start(), AnchorCache(decoder)
    for start in range(0, len(x), CHUNK_FRAMES):
        last = start + CHUNK_FRAMES >= len(x)
        heard = network.push(state, x[start : start + CHUNK_FRAMES], last=last)
        decoder.append(cache, heard.vectors, heard.scores)
    decoder.step(cache, tokens, [cache.n_anchors] * len(tokens))
    tensors = [*state.cache.keys, *state.cache.values]
    return cache.n_bytes + sum(t.numel() * t.element_size() for t in tensors)


# ---- a step ----------------------------------------------------------------------------------


@torch.inference_mode()
def recompute(
    star: Star, audio: torch.Tensor, ends: list[int], tokens: list[int], meter: Meter
) -> None:
    """Take in all audio up to the last of `ends`, nothing cached, and bring `tokens` up to date."""
    whisper, decoder = star._whisper, star._decoder
    stop = ends[-1] * FRAME_SAMPLES + star.lookahead_samples
    with meter.part("encode"):
        x = star._extractor.windows([audio[:stop]], [ends])[0]
        heard = star._compressor.push(star._compressor.start(), x, last=False)
    prompt = whisper.prompt()
    with meter.part("decode"):
        while len(heard.ready) >= len(tokens) + star.wait_k:
            ids = [*prompt, *tokens]
            visible = [seen(i, len(prompt), star.wait_k, heard.ready) for i in range(len(ids))]
            hidden = decoder.forward(ids, heard.vectors, heard.scores, visible)
            logits = decoder.logits(hidden)[-1].float() + whisper.suppressed
            logits[whisper.eot] = -torch.inf
            tokens.append(int(logits.argmax()))


def run_recompute(
    star: Star, audio: torch.Tensor, settings: StepSettings, k: int, tokens: list[int], meter: Meter
) -> StreamRun:
    """The steps around chunk `k`, from the text `tokens` before them."""
    run = StreamRun({}, {})
    for j in range(k - AROUND, k + AROUND + 1):
        with meter.part("total"):
            recompute(star, audio, settings.ends(j), tokens, meter)
        run.times[j] = meter.drain()
        run.tokens[j] = list(tokens)
    return run


def bench_steps(model: str, at: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Milliseconds per chunk, ours and the baseline's, and whether their tokens are the same."""
    settings = StepSettings((model,), at=at, repeats=repeats)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = model if Path(model).is_dir() else str(random_whisper(model, Path(folder)))
        star = new_method("star", path, chunk_s=0.3, first_chunk_s=0.6)
    # Measured up to the end of the context, two seconds past where a stream is cut.
    star._seam = replace(star._seam, limit=star._extractor.context_frames)
    meter = Meter()
    points = settings.points_within(star._whisper.context_frames)
    last = points[-1] + AROUND
    audio = synthetic_audio((last + 1) * 0.3, seed=1)
    ours = [
        run_streams(star, [audio], settings, last, meter, lambda state: state.tokens)
        for _ in range(repeats)
    ]
    tokens, whole = ours[0].tokens, torch.from_numpy(audio)
    rows, same = [], True
    for k in points:
        theirs = [
            run_recompute(star, whole, settings, k, list(tokens[k - AROUND - 1]), meter)
            for _ in range(repeats)
        ]
        same = same and all(run.tokens[j] == tokens[j] for run in theirs for j in run.tokens)
        parts = around(k, ours)
        rows.append(
            {
                "chunk": k,
                "ours_ms": parts["total"],
                "encode_ms": parts["encode"],
                "decode_ms": parts["decode"],
                "recompute_ms": around(k, theirs)["total"],
            }
        )
    return {
        "model": model,
        "clock": meter.clock_name,
        "rows": rows,
        "same_tokens": same,
        "n_tokens": len(tokens[last]),
        "n_different_tokens": len(set(tokens[last])),
    }


# ---- what is shown ---------------------------------------------------------------------------


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    out = console(130)
    if "memory" in result:
        for part, what in (("pass_mib", "one pass"), ("stream_mib", "a stream's state")):
            title = f"Memory of {what}, {result['attention']} attention; 100 %: no compression"
            headings = ("frames", "no compression", *(f"r = {r}" for r in RATES[1:]))
            grid = table(title, headings, n_text=0)
            for row in result["memory"]:
                base = row["cells"][0][part]
                shares = [f"{100 * c[part] / base:.0f} %" for c in row["cells"][1:]]
                grid.add_row(str(row["frames"]), f"{base:.0f} MiB", *shares)
            out.print(grid)
    if "step" in result:
        step = result["step"]
        title = f"Milliseconds per chunk of 300 ms, {step['model']}, {step['clock']}"
        headings = ("chunk", "encoder", "decoder", "ours", "recompute", "speed-up")
        grid = table(title, headings, n_text=0)
        for row in step["rows"]:
            figures = (row[k] for k in ("encode_ms", "decode_ms", "ours_ms", "recompute_ms"))
            speed_up = row["recompute_ms"] / row["ours_ms"]
            grid.add_row(str(row["chunk"]), *(f"{v:.1f}" for v in figures), f"{speed_up:.1f}")
        out.print(grid)
        same = "the same tokens" if step["same_tokens"] else "NOT the same tokens"
        out.print(f"{same} from both ({step['n_tokens']}, {step['n_different_tokens']} kinds)")
        out.print(*verdicts(step), sep="\n", soft_wrap=True)


def verdicts(step: dict[str, Any]) -> list[str]:
    """One sentence on whether the step stays flat; none where a chunk was not measured."""
    rows = {row["chunk"]: row for row in step["rows"]}
    if not {5, 97} <= set(rows):
        return []
    growth = rows[97]["ours_ms"] / rows[5]["ours_ms"]
    text = f"chunk 97 takes {growth:.2f} times chunk 5 (target: at most {GROWTH:g})"
    return [verdict(growth <= GROWTH, text)]
