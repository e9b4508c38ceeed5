"""U2's rows of `bench methods`: the share of its search in a step, and its encoder over a segment.

A stream of Whisper small's dimensions with random weights and an untrained CTC head of the paper's
8000 tokens, 12 s in chunks of 1 s. Random posteriors are flat, which is hard on a beam: no prefix
wins by itself.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from experiments.bench.frame import Meter, cpu_ms
from experiments.bench.models import random_whisper, synthetic_audio
from experiments.bench.plain_ctc import PlainPrefixBeamSearch
from experiments.bench.settings import FRAME_MS
from streaming_asr.config.build import new_method
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import FRAME_SAMPLES

SIZE, CTC_TOKENS, BEAM = "small", 8000, 10
SEGMENT_S = 12
REPEATS = 3
SHARE = 0.05  # below, of the search in a step
GROWTH = 1.3  # at most, the last chunk's encoder against the second's
CHUNK = 1000 // FRAME_MS


@dataclass(frozen=True)
class Stream:
    """Milliseconds of CPU time by chunk from the second on, ours the median over the repeats."""

    search_ms: list[float]
    plain_ms: list[float]
    step_ms: list[float]
    encode_ms: list[float]
    whole_ms: float
    """Encoding anew all that was heard, once, at the last chunk."""
    same_texts: bool
    same_frames: bool


def measure(folder: str, ctc_tokens: int, seconds: int, repeats: int) -> Stream:
    """A stream on a model folder, its search again in the plain form, its frames in one pass."""
    method = new_method(
        "u2",
        folder,
        head="embedding",
        ctc_tokens=ctc_tokens,
        beam=BEAM,
        chunk_s=CHUNK * FRAME_MS / 1000,
        first_chunk_s=CHUNK * FRAME_MS / 1000,
        # no segment ends within the stream
        max_delay_s=seconds + 0.5,
        trailing_silence_s=seconds,
        no_speech_s=seconds,
    )
    meter = Meter()
    audio = synthetic_audio(seconds + 0.1, seed=1)
    ends = [CHUNK * k for k in range(1, seconds + 1)]
    stops = [end * FRAME_SAMPLES + method.lookahead_samples for end in ends]
    searches, steps, encodings = [], [], []
    for _ in range(repeats):
        state = method.start(recorder=meter)
        search_ms, scores = _time(state.search)
        parts = []
        for begin, end in zip([0, *stops], stops, strict=False):
            with meter.part("total"):
                method.step(state, audio[begin:end], last=False)
            parts.append(meter.drain())
        searches.append(search_ms)
        steps.append([part["total"] for part in parts])
        encodings.append([part["encode"] for part in parts])
    plain = PlainPrefixBeamSearch(state.search.blank, BEAM, BEAM)
    rows = [log_probs.double().numpy() for log_probs in scores]
    plain_ms = [cpu_ms(plain.advance, row) for row in rows]
    texts = [hypothesis.tokens for hypothesis in state.search.hypotheses()]
    whole: list[torch.Tensor] = []

    @torch.inference_mode()
    def encode() -> None:
        mel = state.mel[None, :, : 2 * ends[-1] + 1]
        whole.append(encode_masked(method._whisper.model, mel, ends=ends)[0])

    whole_ms = cpu_ms(encode)
    with torch.inference_mode():
        log_probs = method._first_pass.head(whole[0]).log_softmax(-1)
    return Stream(
        search_ms=_medians(searches),
        plain_ms=plain_ms[1:],
        step_ms=_medians(steps),
        encode_ms=_medians(encodings),
        whole_ms=whole_ms,
        same_texts=texts == [tokens for tokens, _, _ in plain.hypotheses()],
        same_frames=torch.allclose(torch.cat(scores), log_probs, atol=1e-3),
    )


def _time(search: Any) -> tuple[list[float], list[torch.Tensor]]:
    """From now on: the milliseconds of every `advance` of this search, and what it was given."""
    times: list[float] = []
    results: list[torch.Tensor] = []
    advance = search.advance

    def timed(log_probs: torch.Tensor) -> None:
        times.append(cpu_ms(advance, log_probs))
        results.append(log_probs)

    search.advance = timed
    return times, results


def _medians(runs: list[list[float]]) -> list[float]:
    return [statistics.median(chunk) for chunk in zip(*runs, strict=True)][1:]


@cache
def small_stream() -> Stream:
    """The stream that both rows look at."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        random_whisper(SIZE, Path(folder))
        return measure(folder, CTC_TOKENS, SEGMENT_S, REPEATS)
