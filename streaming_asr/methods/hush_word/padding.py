"""What follows the audio: padding to the context, nothing, zeros, noise, or a hush word.

Whisper was trained on inputs padded to its context; on shorter ones it outputs words that nobody
spoke. A hush word is half a second of trained audio (WhisperFlow, section 4.1): appended, it marks
the end of the audio, so that the encoder runs only on audio and tail, on the first positions of the
model's context. Frames here are the encoder's, 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.models.tensors import weights_at
from streaming_asr.whisper.encoder import Part, encode_parts, part_of
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
from streaming_asr.whisper.load import Whisper

PADDINGS = ("full", "none", "zeros", "noise", "hush")
FILE_NAME = "hush_word.safetensors"
PADDING_S = 0.5
NOISE_PEAK = 0.02
"""Of white noise, drawn evenly: what an untrained hush word is under the usual clamp."""
NOISE_SEED = 0


@dataclass(frozen=True, slots=True)
class Padding:
    """A tail: `samples` (n,) to the audio. `full` has none: zeros up to the context."""

    kind: str
    samples: torch.Tensor | None = None

    @property
    def n_frames(self) -> int:
        """Return the encoder frames that are not available to audio."""
        return 0 if self.samples is None else -(-self.samples.numel() // FRAME_SAMPLES)


def make_padding(
    kind: str, whisper: Whisper, *, length_s: float | None = None, weights: str | None = None
) -> Padding:
    """Return the padding of that name for this model.

    weights: folder or file of the hush word. length_s: of zeros and noise, default 0.5. Raises
    UserError on a setting that does not fit and on a padding of more than half of the context.
    """
    check_one_of(PADDINGS, padding=kind)
    if length_s is not None and kind not in ("zeros", "noise"):
        raise UserError(
            f"padding_s={length_s:g} with padding={kind}: only zeros and noise have a length to "
            "choose; leave padding_s out"
        )
    if kind == "hush":
        if weights in (None, "none"):
            raise UserError(
                "padding=hush with method.weights=none: a hush word is trained; make one with "
                "`python -m streaming_asr.train method=hush_word entry=any_chunk`, or take "
                "padding=full, none, zeros or noise"
            )
        padding = load_hush(str(weights), whisper)
    elif kind in ("zeros", "noise"):
        seconds = PADDING_S if length_s is None else length_s
        n = round(seconds * SAMPLE_RATE)
        if n < 1:
            raise UserError(f"padding_s={seconds:g}: more than 0; padding=none appends nothing")
        peak = NOISE_PEAK if kind == "noise" else 0.0
        samples = np.random.default_rng(NOISE_SEED).uniform(-peak, peak, n).astype(np.float32)
        padding = Padding(kind, torch.from_numpy(samples).to(whisper.device))
    else:
        padding = Padding(kind)
    # At least half of the context is for audio.
    if 2 * padding.n_frames > whisper.context_frames:
        raise UserError(
            f"padding of {padding.n_frames * 0.02:g} s: more than half of the context of "
            f"{whisper.context_s:g} s; take a shorter one"
        )
    return padding


def load_hush(path: str | Path, whisper: Whisper) -> Padding:
    """Load the hush word of a folder that training wrote, or of its file.

    Raises UserError where there is none or it is for another model.
    """
    remedy = "give the folder that `python -m streaming_asr.train method=hush_word` made"
    tensors = weights_at(path, FILE_NAME, "hush word", remedy)
    samples = tensors.get("samples")
    if samples is not None and samples.ndim == 1 and samples.numel() > 0:
        return Padding("hush", samples=samples.float().to(whisper.device))
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    raise UserError(f"hush word {str(path)!r} holds {shapes}; `samples` (n,) is wanted")


def padded_mel(audio: torch.Tensor, padding: Padding, n_mels: int, context: int) -> torch.Tensor:
    """Return the log-mel of (batch, n) audio and what follows it, (batch, n_mels, 2 frames).

    Zeros fill the last frame up. The tail may have a gradient. Whisper's clamp goes by the loudest
    frame of all, the tail included: a loud tail would change what the speech looks like.
    """
    if padding.kind == "full":
        n_lacking = context * FRAME_SAMPLES - audio.shape[-1]
    else:
        if padding.samples is not None:
            tail = padding.samples.expand(audio.shape[0], -1)
            audio = torch.cat([audio, tail], dim=-1)
        n_lacking = -audio.shape[-1] % FRAME_SAMPLES
    return log_mel(F.pad(audio, (0, n_lacking)), n_mels)


class PaddedEncoder:
    """Audio of one window -> encoder output, with a padding."""

    def __init__(self, whisper: Whisper, padding: Padding) -> None:
        self.whisper = whisper
        self.padding = padding

    @property
    def limit_samples(self) -> int:
        """Return the longest audio that fits into the context before the padding, in samples."""
        return (self.whisper.context_frames - self.padding.n_frames) * FRAME_SAMPLES

    @torch.inference_mode()
    def mel(self, audio: Samples) -> torch.Tensor:
        """Return (1, n_mels, 2 frames) of (n,) samples and the padding."""
        samples = torch.from_numpy(np.ascontiguousarray(audio, dtype=np.float32))
        on_device = samples.to(self.whisper.device)[None]
        return padded_mel(on_device, self.padding, self.whisper.n_mels, self.whisper.context_frames)

    @torch.inference_mode()
    def part(self, mel: torch.Tensor) -> Part:
        """Return (1, n_mels, 2 frames) as a part of a pass of the encoder."""
        with self._uncompiled():
            return part_of(self.whisper.model, mel)

    def encode_parts(self, parts: Sequence[Part]) -> list[torch.Tensor]:
        """Encode windows of many streams in a pass: (1, frames, d) of each, padding included."""
        with self._uncompiled():
            return encode_parts(self.whisper.model, parts)

    @contextmanager
    def _uncompiled(self) -> Iterator[None]:
        """Keep oneDNN away from convolutions in float32.

        It keeps a compiled convolution for every length it has met, about a megabyte each, and
        every round has another length: memory would grow with the stream. Without it they take no
        longer.
        """
        onednn: Any = torch.backends.mkldnn  # its own context manager warns of Intel's GPUs
        before = onednn.enabled
        onednn.enabled = before and self.whisper.model.dtype != torch.float32
        try:
            yield
        finally:
            onednn.enabled = before
