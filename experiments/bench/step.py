"""Measures WhisperRT's steps, the naive baseline's, and the simulator around them.

Every stream is run through once per repeat; the baseline is put into the state the stream had two
chunks before the chunk asked for, and makes the same five steps. When a chunk's text is long enough
(4 tokens per second of audio) the end is predicted, in both, and no token is ever unstable: random
weights have an opinion on neither. So both make the same passes for the same tokens.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from experiments.bench.frame import PARTS, Meter, Times, threads
from experiments.bench.models import DIMENSIONS, random_whisper, synthetic_audio
from experiments.bench.naive import Naive
from experiments.bench.settings import AROUND, FRAME_MS, StepSettings, n_text_tokens
from experiments.bench.step_table import show as show
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.machine import machine, versions
from streaming_asr.method import Samples
from streaming_asr.methods.whisperrt import WhisperRT
from streaming_asr.simulate.feeds import simulate
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.decoder import Decoder, TokenPart
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import Whisper


class ScheduledDecoder(Decoder):
    """Predicts the end when the text is as long as the schedule wants, and never before."""

    def __init__(self, whisper: Whisper) -> None:
        super().__init__(whisper)
        self._eot = whisper.eot
        self._n_prompt = len(whisper.prompt())
        self._is_long_enough = False

    def part(self, cache: Any, tokens: Any, starts: Any, n_frames: int, **rest: Any) -> TokenPart:
        n_text = starts[0] + len(tokens[0]) - self._n_prompt
        self._is_long_enough = n_text >= n_text_tokens(n_frames)
        return super().part(cache, tokens, starts, n_frames, **rest)

    @torch.inference_mode()
    def taken_log_probs(self, parts: Sequence[TokenPart]) -> list[torch.Tensor]:
        log_probs = super().taken_log_probs(parts)
        for of_part in log_probs:
            of_part[..., self._eot] = -torch.inf
            if self._is_long_enough:
                of_part[:, -1, self._eot] = torch.inf
        return log_probs


def scheduled_method(path: str, settings: StepSettings) -> WhisperRT:
    """WhisperRT whose text grows by the schedule, and whose window is filled to its end.

    In use the window is cut two seconds before, which would come before chunk 97.
    """
    method = new_method(
        "whisperrt",
        path,
        device=settings.device,
        chunk_s=settings.chunk_frames * FRAME_MS / 1000,
        first_chunk_s=settings.first_frames * FRAME_MS / 1000,
    )
    method._decoder = ScheduledDecoder(method._whisper)
    method._settings = replace(method._settings, decoder=method._decoder, tolerance=float("inf"))
    method._seam = replace(method._seam, limit=method._whisper.context_frames)
    return method


@dataclass
class StreamRun:
    """Times and texts by chunk of one run of a stream."""

    times: dict[int, Times]
    tokens: dict[int, list[int]]


def run_stream(
    method: Any, audio: Samples, settings: StepSettings, last_chunk: int, meter: Meter
) -> StreamRun:
    """Advance the stream chunk by chunk, up to `last_chunk`."""
    run = StreamRun({}, {})
    (state,) = method.start_many(1, recorder=meter)
    meter.drain()
    received = 0
    for k in range(settings.first_chunk, last_chunk + 1):
        stop = k * settings.chunk_frames * FRAME_SAMPLES + method.lookahead_samples
        with meter.part("total"):
            method.step_many([state], [audio[received:stop]], last=[False])
        received = stop
        run.times[k] = meter.drain()
        run.tokens[k] = list(state.hypotheses[0].tokens)
    return run


def run_naive(
    naive: Naive,
    audio: Samples,
    settings: StepSettings,
    k: int,
    tokens: list[int],
    meter: Meter,
) -> StreamRun:
    """The steps around chunk `k`, from the text `tokens` before them."""
    run = StreamRun({}, {})
    state = naive.at(audio, settings.ends(k - AROUND - 1), tokens)
    for j in range(k - AROUND, k + AROUND + 1):
        with meter.part("total"):
            naive.step(state, audio, j * settings.chunk_frames, meter)
        run.times[j] = meter.drain()
        run.tokens[j] = list(state.tokens)
    return run


def bench(**options: Any) -> dict[str, Any]:
    """All figures, as plain containers (the JSON file's form); options: of `StepSettings`.

    Raises UserError where a model is unknown or too short for every chunk asked for.
    """
    settings = StepSettings(**options)
    with threads(settings.threads):
        return {
            "settings": asdict(settings),
            "clock": Meter(settings.threads, settings.device).clock_name,
            "machine": machine(device=settings.device),
            "versions": versions(),
            "models": [_bench_model(name, settings) for name in settings.model],
        }


def _bench_model(name: str, settings: StepSettings) -> dict[str, Any]:
    if name in DIMENSIONS:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            random_whisper(name, Path(folder))
            method = scheduled_method(folder, settings)
    elif Path(name).is_dir():
        method = scheduled_method(name, settings)
    else:
        raise UserError(
            f"--model {name}: neither a folder nor one of {', '.join(DIMENSIONS)}; "
            "give a name from the list or a Hugging Face folder"
        )
    whisper = method._whisper
    points = settings.points_within(whisper.context_frames)
    last_chunk = points[-1] + AROUND
    duration_s = (last_chunk * settings.chunk_frames + 1) * FRAME_MS / 1000
    audio = synthetic_audio(duration_s, seed=0)
    meter = Meter(settings.threads, settings.device)
    naive = Naive(whisper)
    ours: list[StreamRun] = []
    theirs: dict[int, list[StreamRun]] = {k: [] for k in points}
    for _ in range(settings.repeats):
        ours.append(run_stream(method, audio, settings, last_chunk, meter))
        for k in points:
            before = ours[-1].tokens[k - AROUND - 1]
            theirs[k].append(run_naive(naive, audio, settings, k, before, meter))
    compared = [
        (ours[0].tokens[j], run.tokens[j]) for k in points for run in theirs[k] for j in run.tokens
    ]
    return {
        "model": name,
        "left_out": [k for k in settings.at if k not in points],
        "rows": [
            {
                "chunk": k,
                "audio_s": k * settings.chunk_frames * FRAME_MS / 1000,
                "ours": around(k, ours),
                "naive": around(k, theirs[k]),
            }
            for k in points
        ],
        "same_tokens": all(tokens == other for tokens, other in compared),
        "n_tokens": len(ours[0].tokens[last_chunk]),
        "n_different_tokens": len(set(ours[0].tokens[last_chunk])),
        "harness": _harness(method, audio, settings, last_chunk, meter),
    }


def around(k: int, runs: list[StreamRun]) -> Times:
    """Mean over the chunks around `k`, of the median over the repeats of each."""
    chunks = range(k - AROUND, k + AROUND + 1)
    return {
        part: statistics.fmean(
            statistics.median(run.times[j][part] for run in runs) for j in chunks
        )
        for part in PARTS
    }


def _harness(
    method: WhisperRT, audio: Samples, settings: StepSettings, last_chunk: int, meter: Meter
) -> dict[str, float]:
    """Elapsed time of a simulated stream, its log written, and what of it is not the method."""
    duration = last_chunk * settings.chunk_frames * FRAME_SAMPLES
    utterance = Utterance("stream", "", lambda: audio[:duration], duration / 16_000)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "events.jsonl"
        with EventWriter(log, {"config": {}}) as writer:
            begin = time.perf_counter()
            simulate(
                method,
                [utterance],
                writer=writer,
                feed="fixed",
                chunk_samples=settings.chunk_frames * FRAME_SAMPLES,
                first_chunk_samples=settings.first_frames * FRAME_SAMPLES,
                synchronise=meter.synchronise,
                warm_up=False,
            )
            total_s = time.perf_counter() - begin
        (logged,) = read_log(log).utterances
    if logged.error is not None:
        raise RuntimeError(f"the simulated stream failed: {logged.error}")
    method_s = sum(step.compute_s for step in logged.steps)
    return {"total_s": total_s, "method_s": method_s, "share": (total_s - method_s) / total_s}
