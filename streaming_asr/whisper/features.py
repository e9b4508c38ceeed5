"""Whisper's log-mel spectrogram: offline, in blocks, and sample by sample as a stream.

Frame m is the window of 400 samples centred on sample 160 m, so it needs samples up to
160 m + 200. On the left the audio is reflected by 200 samples, as centre=True does. On the right,
offline audio is padded with zeros to the context before the transform; a stream that ends is
therefore continued with zeros, which gives the same frames.

Whisper clamps the log-mel at 8 below its maximum over the whole input, which no stream can know.
The rule here, for training and inference: the floor of a block is the maximum over everything seen
so far, this block included, minus 8. Frames once normalised are never normalised again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from streaming_asr.method import FRAME_SAMPLES, SAMPLE_RATE

N_FFT = 400
HOP_SAMPLES = 160
FRAMES_PER_S = SAMPLE_RATE // FRAME_SAMPLES
LOOKAHEAD_SAMPLES = 200
"""Encoder frame i needs mel 2i-2..2i+2, and mel 2i+2 needs 200 samples past the frame's end."""


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)  # the cached tensor may later be used with gradients
def mel_filters(n_mels: int, device: torch.device) -> torch.Tensor:
    """Return Whisper's filters, (n_mels, 201) float32: triangles between 0 and 8 kHz at equal
    distances on Slaney's mel scale, each with an area of 1 (Slaney 1998, Auditory Toolbox)."""
    edges = _hertz(np.linspace(0.0, _mels(SAMPLE_RATE / 2), n_mels + 2))
    bins = np.linspace(0, SAMPLE_RATE // 2, N_FFT // 2 + 1)
    widths = np.diff(edges)
    distances = edges - bins[:, None]  # (bins, edges)
    rising, falling = -distances[:, :-2] / widths[:-1], distances[:, 2:] / widths[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    areas = 2.0 / (edges[2:] - edges[:-2])
    filters = (triangles * areas).T
    return torch.as_tensor(filters, dtype=torch.float32, device=device).contiguous()


# Slaney's scale: 3 mel for 200 Hz up to 1 kHz, then 27 mel for a factor of 6.4.
_MEL_HZ, _BREAK_HZ, _BREAK_MEL, _MEL_LOG = 200.0 / 3, 1000.0, 15.0, 27.0 / np.log(6.4)


def _mels(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz / _MEL_HZ
    return float(_BREAK_MEL + np.log(hertz / _BREAK_HZ) * _MEL_LOG)


def _hertz(mels: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp((mels - _BREAK_MEL) / _MEL_LOG)
    return np.where(mels < _BREAK_MEL, mels * _MEL_HZ, above)


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)
def _window(device: torch.device) -> torch.Tensor:
    return torch.hann_window(N_FFT, device=device)


def _log10_mel(windowed: torch.Tensor, n_mels: int) -> torch.Tensor:
    """Return log10 mel power (..., n_mels, frames) of (..., n) samples.

    Frame m is the window of 400 samples from 160 m on; callers pad.
    """
    spectrum = torch.stft(
        windowed.reshape(-1, windowed.shape[-1]),
        N_FFT,
        HOP_SAMPLES,
        window=_window(windowed.device),
        center=False,
        return_complex=True,
    )
    power = spectrum.reshape(*windowed.shape[:-1], *spectrum.shape[-2:]).abs() ** 2
    return (mel_filters(n_mels, windowed.device) @ power).clamp(min=1e-10).log10()


def log_mel_raw(audio: torch.Tensor, n_mels: int, n_frames: int | None = None) -> torch.Tensor:
    """Return the log10 mel power before the clamp, (..., n_mels, frames), of (..., n) float32.

    Without `n_frames`: n // 160 frames, reflected at both ends, as transformers computes them. With
    `n_frames`: exactly so many, the audio continued with zeros where they need more.
    """
    if n_frames is None:
        n_frames = audio.shape[-1] // HOP_SAMPLES
        shape = audio.shape
        flat = audio.reshape(-1, shape[-1])  # torch reflects two dimensions at most
        padded = F.pad(flat, (N_FFT // 2, N_FFT // 2), mode="reflect").reshape(*shape[:-1], -1)
    else:
        n_needed = max((n_frames - 1) * HOP_SAMPLES + N_FFT // 2, N_FFT // 2 + 1)
        audio = F.pad(audio, (0, max(0, n_needed - audio.shape[-1])))
        reflection = audio[..., 1 : N_FFT // 2 + 1].flip(-1)
        padded = torch.cat([reflection, audio], dim=-1)
    return _log10_mel(padded, n_mels)[..., :n_frames]


def clamp_running(
    log_mel_raw: torch.Tensor, running_max: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clamp a block at the running maximum minus 8, then scale as Whisper does.

    log_mel_raw: (..., n_mels, frames); running_max: (...,) of what came before. Returns the
    normalised frames and the new maximum.
    """
    peak = log_mel_raw.amax(dim=(-2, -1))
    if running_max is not None:
        peak = torch.maximum(running_max, peak)
    return (torch.maximum(log_mel_raw, peak[..., None, None] - 8.0) + 4.0) / 4.0, peak


def mel_block_ends(encoder_block_ends: Sequence[int], n_mel_frames: int) -> list[int]:
    """Return how many mel frames are there when each encoder block is complete: 2 e + 1 for one
    that ends at encoder frame e, and all of them for the last."""
    return [min(2 * end + 1, n_mel_frames) for end in encoder_block_ends[:-1]] + [n_mel_frames]


def log_mel(
    audio: torch.Tensor,
    n_mels: int,
    *,
    n_frames: int | None = None,
    block_ends: Sequence[int] | None = None,
) -> torch.Tensor:
    """Return the normalised log-mel (..., n_mels, frames) of (..., n) samples.

    Offline (no `block_ends`): clamped at the maximum of the whole input, equal to transformers'
    WhisperFeatureExtractor on audio padded to the context. With `block_ends` (encoder frames): as a
    stream of these blocks sees it, 2 * block_ends[-1] + 1 frames.
    """
    if block_ends is None:
        return clamp_running(log_mel_raw(audio, n_mels, n_frames))[0]
    rows = audio.reshape(-1, audio.shape[-1])
    mels = log_mel_windows(rows, n_mels, [block_ends] * len(rows))
    return torch.stack(mels).reshape(*audio.shape[:-1], n_mels, -1)


def log_mel_windows(
    audio: torch.Tensor, n_mels: int, ends: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Return `log_mel` with `block_ends` of each of many windows, (n_mels, 2 F_i + 1), in one pass.

    audio: (batch, n), the windows, followed by zeros or by the samples after their last block; of
    these only the first 200 count. ends: for each window those of its blocks in encoder frames, the
    last one F_i. The same operations clamp all blocks of all windows: one call for each would let a
    GPU wait.
    """
    n_frames = [2 * row_ends[-1] + 1 for row_ends in ends]
    raw = log_mel_raw(audio, n_mels, max(n_frames))
    # For each frame the last one of its block, at which the block's running maximum is known.
    last_of_block = torch.zeros(len(ends), max(n_frames), dtype=torch.long)
    for row, row_ends, n in zip(last_of_block, ends, n_frames, strict=True):
        stops = torch.tensor(mel_block_ends(row_ends, n))
        sizes = torch.diff(stops, prepend=stops.new_zeros(1))
        row[:n] = (stops - 1).repeat_interleave(sizes)
    running_max = raw.amax(dim=-2).cummax(dim=-1).values
    floor = running_max.gather(-1, last_of_block.to(raw.device, non_blocking=True)) - 8.0
    mel = (torch.maximum(raw, floor[:, None]) + 4.0) / 4.0
    return [row[:, :n] for row, n in zip(mel, n_frames, strict=True)]


class StreamingLogMel:
    """Log-mel of a stream; every push is one block of the running maximum."""

    def __init__(self, n_mels: int, device: torch.device | str = "cpu") -> None:
        self.n_mels = n_mels
        self.running_max: torch.Tensor | None = None
        """(1,) maximum of the raw log-mel so far."""
        self._pending = torch.zeros(1, 0, device=device)
        self._started = False

    def push(self, samples: torch.Tensor) -> torch.Tensor:
        """Add (1, n) samples; return the frames (1, n_mels, k) that are complete now."""
        pending = torch.cat([self._pending, samples.to(self._pending)], dim=-1)
        if not self._started:
            if pending.shape[-1] <= N_FFT // 2:  # too few to reflect at the left edge
                self._pending = pending
                return pending.new_zeros(pending.shape[0], self.n_mels, 0)
            pending = torch.cat([pending[:, 1 : N_FFT // 2 + 1].flip(-1), pending], dim=-1)
            self._started = True
        n_new = (pending.shape[-1] - N_FFT) // HOP_SAMPLES + 1
        if n_new < 1:
            self._pending = pending
            return pending.new_zeros(pending.shape[0], self.n_mels, 0)
        raw = _log10_mel(pending[:, : (n_new - 1) * HOP_SAMPLES + N_FFT], self.n_mels)
        # The next frame's window begins here and overlaps the last one by 240 samples.
        self._pending = pending[:, n_new * HOP_SAMPLES :]
        frames, self.running_max = clamp_running(raw, self.running_max)
        return frames


def mel_of_frames(mel: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return, of a window's mel (..., mel frames), those that encoder frames `start` to `stop`
    (exclusive) need: two before the first and one after the last."""
    return mel[..., max(0, 2 * start - 2) : 2 * stop + 1]
