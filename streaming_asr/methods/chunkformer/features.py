"""Kaldi's log-mel filter bank, as ChunkFormer's checkpoints were trained on.

Samples at 16-bit scale; windows of 25 ms every 10 ms that lie wholly inside the audio (Kaldi's
`snip_edges`); mean removed, pre-emphasis 0.97, Povey's window; power spectrum of 512 points; 80
triangles on Kaldi's mel scale from 20 Hz to 8 kHz; natural logarithm. No dither. A frame depends on
its own 400 samples only, so a stream gives the very frames of the whole recording.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F

from streaming_asr.method import SAMPLE_RATE, Samples

WINDOW_SAMPLES = 400
HOP_SAMPLES = 160
N_FFT = 512
LOW_HZ, HIGH_HZ = 20.0, 8000.0
PREEMPHASIS = 0.97
GROUP_FRAMES = 1000
"""Computed at a time: half an hour at once takes 1.4 GB, and five times as long on a CPU."""


def n_mel_frames(n_samples: int) -> int:
    """Return the frames of `n_samples` samples: windows that fit."""
    return max(0, (n_samples - WINDOW_SAMPLES) // HOP_SAMPLES + 1)


@functools.lru_cache(maxsize=8)
def _filters(n_mels: int, device: torch.device) -> torch.Tensor:
    """Return (257, n_mels): triangles between equally spaced mels."""
    from transformers.audio_utils import mel_filter_bank

    weights = mel_filter_bank(
        N_FFT // 2 + 1,
        n_mels,
        LOW_HZ,
        HIGH_HZ,
        SAMPLE_RATE,
        mel_scale="kaldi",
        triangularize_in_mel_space=True,
    )
    return torch.as_tensor(weights, dtype=torch.float32, device=device)


@functools.lru_cache(maxsize=8)
def _window(device: torch.device) -> torch.Tensor:
    """Return Povey's window, (400,): a symmetric Hann window to the power of 0.85."""
    return torch.as_tensor(np.hanning(WINDOW_SAMPLES) ** 0.85, dtype=torch.float32, device=device)


def fbank(samples: torch.Tensor, n_mels: int = 80) -> torch.Tensor:
    """Return (frames, n_mels) float32 of (n,) float32 in [-1, 1]; no frames below 400 samples."""
    if n_mel_frames(samples.shape[-1]) == 0:
        return samples.new_zeros(0, n_mels)
    windows = samples.unfold(-1, WINDOW_SAMPLES, HOP_SAMPLES)
    return torch.cat([_log_mel(part, n_mels) for part in windows.split(GROUP_FRAMES)])


def _log_mel(windows: torch.Tensor, n_mels: int) -> torch.Tensor:
    """Return the logarithms of the mel energies (frames, n_mels) of windows (frames, 400)."""
    # Kaldi computes on 16-bit samples, and the logarithm keeps the difference.
    frames = windows * 32768.0
    frames = frames - frames.mean(-1, keepdim=True)
    # The sample before each; that of the first is itself.
    previous = F.pad(frames[:, None], (1, 0), mode="replicate")[:, 0, :-1]
    frames = (frames - PREEMPHASIS * previous) * _window(windows.device)
    spectrum = torch.fft.rfft(frames, N_FFT)
    power = spectrum.real.square() + spectrum.imag.square()
    energies = power @ _filters(n_mels, windows.device)
    return energies.clamp_min(torch.finfo(torch.float32).eps).log()


class StreamingFbank:
    """The frames of one stream as its samples arrive."""

    def __init__(self, n_mels: int = 80, device: torch.device | str = "cpu") -> None:
        self._n_mels = n_mels
        self._device = device
        self._pending = np.zeros(0, np.float32)

    def push(self, audio: Samples) -> torch.Tensor:
        """Take in (n,) new samples; return the (k, n_mels) frames that are complete now, k >= 0."""
        pending = np.concatenate([self._pending, audio]) if audio.size else self._pending
        n_used = n_mel_frames(pending.size) * HOP_SAMPLES  # the rest is in later frames too
        self._pending = pending[n_used:]
        return fbank(torch.from_numpy(pending).to(self._device), self._n_mels)
