"""Table V and figure 7 in form: time per chunk by beam, on random weights of published dimensions.

    python -m experiments.whisperrt.table5                    # base on one CPU thread, 2 minutes
    python -m experiments.whisperrt.table5 --size large-v2 --device cuda --out large.json

Time does not depend on what the weights are, but on how many tokens are written. So the text is
on a schedule, the same for every system: 4 tokens per second of audio, never taken back. WhisperRT
is compared with re-encoding: the audio so far, padded to 30 s, encoded and decoded again at every
chunk, as Simul-Whisper and Ufal-Whisper have to encode it; it is no measurement of either.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from experiments.bench.models import DIMENSIONS, random_whisper, synthetic_audio
from streaming_asr.chunking import first_chunk_ms
from streaming_asr.config.build import new_method
from streaming_asr.machine import machine
from streaming_asr.method import NULL
from streaming_asr.whisper.decoder import Decoder, DecoderCache, TokenPart
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import WindowDecoder

SAMPLE_RATE = 16_000
TOKENS_PER_S = 4
DURATION_S, CHUNK_MS = 15.0, 300  # of the stream and its chunks
BEAMS = (0, 3, 5, 7)
REENCODING_BEAMS = (0, 5)  # those of Simul-Whisper and of Ufal-Whisper in the paper
REENCODING_STRIDE = 10  # its cost changes little from chunk to chunk: every tenth is measured


class Scheduled(Decoder):
    """A decoder whose text ends when it has `n_text` tokens and whose older tokens stay likeliest.

    Computes all that its parent does; only the probabilities are bent afterwards.
    """

    def __init__(self, whisper: Any) -> None:
        super().__init__(whisper)
        self._n_prompt = len(whisper.prompt())
        self.n_text = 0
        self._outputs: list[list[tuple[int, int | None]]] = []

    def part(
        self,
        cache: DecoderCache,
        tokens: Sequence[Sequence[int]],
        starts: Sequence[int],
        n_frames: int,
        **options: Any,
    ) -> TokenPart:
        """The parent's part; remembers which text position each output predicts, and its token."""
        take = options.get("take") or [[len(row) - 1] for row in tokens]
        self._outputs = [
            [
                (start + i + 1 - self._n_prompt, row[i + 1] if i + 1 < len(row) else None)
                for i in n_tokens
            ]
            for row, start, n_tokens in zip(tokens, starts, take, strict=True)
        ]
        return super().part(cache, tokens, starts, n_frames, **options)

    @torch.inference_mode()
    def log_probs(self, hidden: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """The parent's, bent to the schedule."""
        log_probs = super().log_probs(hidden, bias)
        rows = log_probs if hidden.ndim == 3 else log_probs[:, None]  # else only the last output
        for r, outputs in enumerate(self._outputs):
            for i, (position, token) in enumerate(outputs[-rows.shape[1] :]):
                if token is None:
                    token = self.pad if position >= self.n_text else None
                if token is None:
                    rows[r, i, self.pad] = -torch.inf
                else:
                    rows[r, i, token] = 0.0
        return log_probs


def scheduled(method: Any) -> Scheduled:
    """Give WhisperRT a decoder whose text has `n_text` tokens, and return it."""
    schedule = Scheduled(method._whisper)
    method._decoder = schedule
    method._settings = replace(method._settings, decoder=schedule)
    return schedule


def n_tokens(n_samples: int) -> int:
    """Length of the text after so much audio."""
    return n_samples * TOKENS_PER_S // SAMPLE_RATE


def streaming_ms(
    folder: Path, beam: int, audio: Any, device: str, synchronise: Callable[[], Any]
) -> list[float]:
    """Milliseconds of every chunk after the first, which is longer."""
    method = new_method(
        "whisperrt",
        str(folder),
        device=device,
        chunk_s=CHUNK_MS / 1000,
        first_chunk_s=first_chunk_ms(f"{CHUNK_MS}ms") / 1000,
        beam=beam,
    )
    schedule = scheduled(method)
    state = method.start()
    begin, end = 0, first_chunk_ms(f"{CHUNK_MS}ms") * 16 + method.lookahead_samples
    times = []
    while end <= len(audio):
        schedule.n_text = n_tokens(end)
        synchronise()
        started = time.perf_counter()
        method.step(state, audio[begin:end], last=False)
        synchronise()
        times.append(1000 * (time.perf_counter() - started))
        begin, end = end, end + CHUNK_MS * 16
    return times[1:]


def reencoding_ms(
    folder: Path, beam: int, audio: Any, device: str, synchronise: Callable[[], Any]
) -> list[float]:
    """Milliseconds of every tenth chunk: the prefix padded, encoded and decoded from its start."""
    whisper = load_whisper(folder, device=device)
    windows = WindowDecoder(whisper, beam)
    schedule = Scheduled(whisper)
    windows.decoder = schedule
    windows.search = replace(windows.search, decoder=schedule)
    times = []
    alone(windows.decoding(audio[:SAMPLE_RATE], None, NULL), NULL)  # what only the first pass pays
    for end in range(CHUNK_MS * 16, len(audio) + 1, REENCODING_STRIDE * CHUNK_MS * 16):
        schedule.n_text = n_tokens(end)
        synchronise()
        started = time.perf_counter()
        alone(windows.decoding(audio[:end], None, NULL), NULL)
        synchronise()
        times.append(1000 * (time.perf_counter() - started))
    return times


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=sorted(DIMENSIONS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("outputs/table5/table5.json"))
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    device = arguments.device
    synchronise = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    audio = synthetic_audio(DURATION_S, seed=0)
    rows = [
        {"system": "Ufal-Whisper", "beam": 5, "mean_ms": None, "rtf": None},
        {"system": "Simul-Whisper", "beam": 0, "mean_ms": None, "rtf": None},
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = random_whisper(arguments.size, Path(place))
        measured = [("re-encoding, padded to 30 s", reencoding_ms, REENCODING_BEAMS)]
        measured.append(("WhisperRT", streaming_ms, BEAMS))
        for system, measure, beams in measured:
            for beam in beams:
                times = measure(folder, beam, audio, device, synchronise)
                mean_ms = sum(times) / len(times)
                rtf = mean_ms / CHUNK_MS
                rows.append({"system": system, "beam": beam, "mean_ms": mean_ms, "rtf": rtf})
                print(f"{system}, beam {beam}: {mean_ms:.1f} ms per chunk, RTF {rtf:.3f}")
    here = machine(device=device)
    document = {
        "measured": str(date.today()),
        "machine": here.get("gpu") or here["cpu"],
        "device": device,
        "threads": arguments.threads,
        "size": arguments.size,
        "duration_s": DURATION_S,
        "chunk_ms": CHUNK_MS,
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
