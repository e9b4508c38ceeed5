"""Numbers that a run does not give: another program's time, and the least time of the products.

`python -m experiments.bench.probe bound METHOD SETTINGS... FILE` runs a method of `run`'s SETTINGS
and adds up, for each matrix product, the greater of its arithmetic at the best rate of one thread
and its bytes at the best rate of memory. `peer KIND SETTINGS... FILE` transcribes the same
recordings with faster-whisper, greedily. Both write seconds per second of audio to FILE.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.models.find import find
from streaming_asr.streaming import stream

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "convolution")


class Products(TorchDispatchMode):
    """Adds up the least time of every matrix product, in seconds."""

    def __init__(self, flop_per_s: float, bytes_per_s: float) -> None:
        super().__init__()
        self.least_s = 0.0
        self._rates = flop_per_s, bytes_per_s

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            tensors = [each for each in args if isinstance(each, torch.Tensor)]
            if name == "convolution":
                n_summed = tensors[1][0].numel()
            else:
                n_summed = tensors[name in ("addmm", "baddbmm")].shape[-1]
            flop = 2 * result.numel() * n_summed
            n_bytes = sum(each.numel() * each.element_size() for each in (*tensors, result))
            self.least_s += max(flop / self._rates[0], n_bytes / self._rates[1])
        return result


def best_s(work: Callable[[], Any], n: int = 20) -> float:
    """Return the CPU seconds of the fastest of `n` calls."""
    times = []
    for _ in range(n):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def bound(method: str, settings: list[str]) -> float:
    config = compose([f"method={method}", "chunk=1s", "threads=1", *settings])
    square, vocabulary, frame = (
        torch.randn(n, m) for n, m in ((1536, 1536), (51864, 384), (384, 1))
    )
    flop_per_s = 2 * 1536**3 / best_s(lambda: square @ square)
    bytes_per_s = vocabulary.numel() * 4 / best_s(lambda: vocabulary @ frame)
    recogniser = build(config.method)
    products = Products(flop_per_s, bytes_per_s)
    duration_s = 0.0
    for utterance in build(config.data).utterances(config.limit):
        audio = utterance.load()
        duration_s += len(audio) / 16_000
        with products:
            for _ in stream(recogniser, np.asarray(audio), 16_000, chunk="1s"):
                pass
    return products.least_s / duration_s


def peer(kind: str, settings: list[str]) -> float:
    from faster_whisper import WhisperModel

    config = compose(["method=offline", *settings])
    model = WhisperModel(str(find(config.model.path).folder), compute_type=kind, cpu_threads=1)
    recordings = [utterance.load() for utterance in build(config.data).utterances(config.limit)]
    list(model.transcribe(recordings[0], beam_size=1)[0])
    begin = time.process_time()
    for audio in recordings:
        list(model.transcribe(audio, beam_size=1, language="en")[0])
    return (time.process_time() - begin) / (sum(map(len, recordings)) / 16_000)


if __name__ == "__main__":
    kind, name, *rest, file = sys.argv[1:]
    torch.set_num_threads(1)
    with torch.inference_mode():
        value = {"bound": bound, "peer": peer}[kind](name, rest)
    Path(file).write_text(json.dumps({"value": value}))
