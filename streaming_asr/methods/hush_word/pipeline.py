"""The encoder in a process of its own, during the decoding of the round before.

WhisperFlow (section 4.3) encodes round k on the GPU while the CPU decodes round k - 1, each with
its own threads. Here the second worker is a process: it has its own model, device and number of
threads, and Python's lock is not shared. What the paper adds is left out: the two do not exchange
their work in the middle of a decoding.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.methods.hush_word.padding import PaddedEncoder, Padding

_encoder: PaddedEncoder | None = None
"""Of a worker process."""


def parse_split(text: str) -> tuple[int, int] | None:
    """Return the threads of the encoder's worker and of the decoding, from `1:1`; None for `none`.

    Raises UserError for another text. docs/methods.md has the command that compares splits.
    """
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or "0" in match.groups():
        raise UserError(
            f"pipeline={text}: none, or threads of the encoder and of the decoding with a colon "
            "between them, as in pipeline=1:1"
        )
    return int(match[1]), int(match[2])


class EncoderWorker:
    """One process that encodes; it starts with the first audio and ends with the program."""

    def __init__(
        self, model_path: str, *, device: str, dtype: str, threads: int, padding: Padding
    ) -> None:
        # Arrays, not tensors: torch would hand those over in shared memory.
        samples, mel = (x if x is None else x.cpu().numpy() for x in (padding.samples, padding.mel))
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            # Neither torch's threads nor a CUDA context survive a fork.
            mp_context=get_context("spawn"),
            initializer=partial(
                _load, model_path, device, dtype, threads, padding.kind, samples, mel
            ),
        )

    def submit(self, audio: Samples) -> Future[Any]:
        """Begin to encode (n,) samples."""
        return self._pool.submit(_encode, np.ascontiguousarray(audio, dtype=np.float32))

    def collect(self, submitted: Any) -> tuple[int, torch.Tensor]:
        """Wait for it: (n, encoder output (1, frames, d) float32 on the CPU)."""
        n_samples, hidden = submitted.result()
        return n_samples, torch.from_numpy(hidden)

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
    mel: np.ndarray | None,
) -> None:
    from streaming_asr.whisper.load import load_whisper

    global _encoder
    torch.set_num_threads(threads)
    whisper = load_whisper(model_path, device=device, dtype=dtype)
    samples_tail, mel_tail = (
        None if x is None else torch.from_numpy(x).to(whisper.device) for x in (samples, mel)
    )
    _encoder = PaddedEncoder(whisper, Padding(kind, samples_tail, mel_tail))


def _encode(audio: np.ndarray) -> tuple[int, np.ndarray]:
    assert _encoder is not None
    hidden = _encoder.encode(_encoder.mel(audio))
    return audio.size, hidden.float().cpu().numpy()
