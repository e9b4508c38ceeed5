"""The encoder in a process of its own, during the decoding of the round before.

WhisperFlow (section 4.3) lets the GPU encode round k, prefill its prompt and time the words of
round k - 1, while the CPU decodes round k - 1, each with its own threads. Here the second worker is
a process: it has its own model, device and number of threads, and Python's lock is not shared.

The paper also lets the two exchange their decodings after a number of tokens. That is left out,
because the text could no longer be that of `pipeline=none`: a pruned search follows the text of the
round before (`search.py`), which does not exist yet when the worker would begin to decode.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.methods.hush_word.padding import PaddedEncoder, Padding
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.load import Whisper

Floats = npt.NDArray[np.float32]
TokenTimes = list[tuple[float, float]]

MOST_ROUNDS = 4
"""Whose keys and values the worker keeps for word times; each stream has two at most."""


def parse_split(text: str) -> tuple[int, int] | None:
    """Return the threads of the encoder's worker and of the decoding, from `1:1`; None for `none`.

    Raises UserError for another text; for `auto` see `profile`.
    """
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or "0" in match.groups():
        raise UserError(
            f"pipeline={text}: none, auto, or threads of the encoder and of the decoding with a "
            "colon between them, as in pipeline=1:1"
        )
    return int(match[1]), int(match[2])


def splits_of(n_threads: int) -> list[tuple[int, int]]:
    """Return the splits of all threads that a profile compares: 1, 2, 4 ... for one of the two."""
    splits = set()
    n = 1
    while n < n_threads:
        splits |= {(n, n_threads - n), (n_threads - n, n)}
        n *= 2
    return sorted(splits)


def best_split(
    splits: Sequence[tuple[int, int]],
    worker_s: Mapping[int, float],
    decoding_s: Mapping[int, float],
) -> tuple[int, int]:
    """Return the split of the shortest round, which lasts as long as the slower of its two halves.

    worker_s, decoding_s: seconds of each half by its threads.
    """
    return min(splits, key=lambda split: max(worker_s[split[0]], decoding_s[split[1]]))


def profile(
    halves: tuple[Callable[[], object], Callable[[], object]], n_threads: int
) -> tuple[int, int]:
    """Return the split of `n_threads` that was the fastest here, 1:1 for a single thread.

    halves: what the worker does in a round, and the decoding. Both are run and timed.
    """
    splits = splits_of(n_threads)
    if not splits:
        return 1, 1
    seconds: list[dict[int, float]] = [{}, {}]
    for i, half in enumerate(halves):
        for n in sorted({split[i] for split in splits}):
            torch.set_num_threads(n)
            half()  # the first call allocates
            begin = time.perf_counter()
            half()
            seconds[i][n] = time.perf_counter() - begin
    torch.set_num_threads(n_threads)
    return best_split(splits, *seconds)


@dataclass(frozen=True, slots=True)
class Prefill:
    """What the worker hands over of a round: all that the search begins with.

    n_frames: encoder frames, the padding's included. cross: keys and values of the frames,
    (2, layers, heads, frames, d / heads), 9 MB for 15 s with tiny.en and 150 MB with medium. past:
    those of the prompt's tokens. log_probs: of what follows the prompt, (1, vocabulary).
    """

    number: int
    n_samples: int
    n_frames: int
    cross: Floats
    prompt: tuple[int, ...]
    past: Floats
    log_probs: Floats

    @torch.inference_mode()
    def put_frames(self, cache: DecoderCache) -> None:
        """Write the keys and values of the frames into a stream's cache."""
        _write(self.cross, (cache.cross_keys, cache.cross_values), self.n_frames)

    @torch.inference_mode()
    def put_prompt(self, cache: DecoderCache) -> torch.Tensor:
        """Write those of the prompt into row 0; return the log-probabilities of what follows."""
        _write(self.past, (cache.keys, cache.values), len(self.prompt))
        return torch.from_numpy(self.log_probs).to(cache.keys[0].device)


def _write(
    values: Floats, keys_values: tuple[list[torch.Tensor], list[torch.Tensor]], n: int
) -> None:
    """Write (2, layers, heads, n, d / heads) into the first n positions of row 0 of a cache."""
    for layers, targets in zip(torch.from_numpy(values), keys_values, strict=True):
        for layer, target in zip(layers, targets, strict=True):
            target[0, :, :n] = layer


def _read(keys_values: tuple[list[torch.Tensor], list[torch.Tensor]], n: int) -> Floats:
    """Return what `_write` writes, of the first n positions of row 0 of a cache."""
    keys, values = keys_values
    stacked = torch.stack([torch.stack([x[0, :, :n] for x in layers]) for layers in (keys, values)])
    # In float32 on the CPU, which holds every dtype's numbers exactly.
    array: Floats = stacked.float().cpu().numpy()
    return array


class Worker:
    """What runs in the process: the encoder, prompts and word times of all streams."""

    def __init__(self, whisper: Whisper, encoder: PaddedEncoder) -> None:
        self._whisper, self._encoder = whisper, encoder
        self._decoder = Decoder(whisper)
        self._caches: dict[int, DecoderCache] = {}

    @torch.inference_mode()
    def prefill(self, number: int, audio: Samples, prompt: Sequence[int]) -> Prefill:
        """Encode (n,) samples and run the decoder over the prompt."""
        hidden = self._encoder.encode(self._encoder.mel(audio))
        n_frames = hidden.shape[1]
        cache = DecoderCache(self._decoder)
        self._decoder.append_frames(cache, hidden, 0)
        part = self._decoder.part(cache, [list(prompt)], [0], n_frames)
        (log_probs,) = self._decoder.next_log_probs([part])
        # Nobody asks for rounds that were dropped when the buffer was cut: only the newest stay.
        for old_number in sorted(self._caches)[: -(MOST_ROUNDS - 1)]:
            del self._caches[old_number]
        self._caches[number] = cache
        return Prefill(
            number,
            audio.size,
            n_frames,
            _read((cache.cross_keys, cache.cross_values), n_frames),
            tuple(prompt),
            _read((cache.keys, cache.values), len(prompt)),
            log_probs.float().cpu().numpy(),
        )

    @torch.inference_mode()
    def token_times(
        self, number: int, prompt: Sequence[int], tokens: Sequence[int], n_frames: int
    ) -> TokenTimes | None:
        """Return (start, end) of each token in seconds, None for a round that is gone."""
        cache = self._caches.pop(number, None)
        if cache is None:
            return None
        heads = self._whisper.alignment_heads
        return alignment_times(self._decoder, cache, heads, prompt, tokens, n_frames)


_worker: Worker | None = None
"""Of a worker process."""


class EncoderWorker:
    """The process; it starts with the first audio and ends with the program."""

    def __init__(
        self, model_path: str, *, device: str, dtype: str, threads: int, padding: Padding
    ) -> None:
        # Arrays, not tensors: torch would hand those over in shared memory.
        samples = None if padding.samples is None else padding.samples.cpu().numpy()
        self._n_rounds = 0
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            # Neither torch's threads nor a CUDA context survive a fork.
            mp_context=get_context("spawn"),
            initializer=partial(_load, model_path, device, dtype, threads, padding.kind, samples),
        )

    def submit(self, audio: Samples, prompt: Sequence[int]) -> Future[Prefill]:
        """Begin to encode (n,) samples and to prefill the prompt's tokens."""
        self._n_rounds += 1
        samples = np.ascontiguousarray(audio, dtype=np.float32)
        return self._pool.submit(_prefill, self._n_rounds, samples, tuple(prompt))

    def token_times(
        self, number: int, prompt: Sequence[int], tokens: Sequence[int], n_frames: int
    ) -> TokenTimes | None:
        """Wait for (start, end) of each token of a round, once; None for a round that is gone."""
        return self._pool.submit(_token_times, number, prompt, tokens, n_frames).result()

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


def _load(
    model_path: str,
    device: str,
    dtype: str,
    threads: int,
    kind: str,
    samples: np.ndarray | None,
) -> None:
    """Load the model in the worker process; the padding comes as its parts."""
    from streaming_asr.whisper.load import load_whisper

    global _worker
    torch.set_num_threads(threads)
    whisper = load_whisper(model_path, device=device, dtype=dtype)
    tail = None if samples is None else torch.from_numpy(samples).to(whisper.device)
    _worker = Worker(whisper, PaddedEncoder(whisper, Padding(kind, tail)))


def _prefill(*arguments: Any) -> Prefill:
    assert _worker is not None
    return _worker.prefill(*arguments)


def _token_times(*arguments: Any) -> TokenTimes | None:
    assert _worker is not None
    return _worker.token_times(*arguments)
