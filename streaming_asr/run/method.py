"""Builds the method of a settled configuration, behind the gate and the language detection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

from streaming_asr.chunking import parse_duration
from streaming_asr.config.build import build
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE


def method_of(config: DictConfig) -> tuple[Any, Callable[[], None]]:
    """Return the method of a settled configuration and a function that waits for its device.

    The random generators are seeded first. With language=detect and gate=speech the method is
    wrapped, so that it gets a language and only speech. Raises UserError if there is no such
    device, or if the class is no method.
    """
    import random

    random.seed(config.seed)
    if str(config.method._target_).startswith("streaming_asr.") or config.device != "cpu":
        import torch

        kind, _, number = config.device.partition(":")
        n_devices = {"cuda": torch.cuda.device_count, "mps": torch.mps.device_count}
        if kind in n_devices and int(number or 0) >= n_devices[kind]():
            raise UserError(f"device={config.device}: torch finds no such GPU; use device=cpu")
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
    method = build(config.method)
    lacks = [name for name in ("start", "step") if not callable(getattr(method, name, None))]
    if not isinstance(getattr(method, "lookahead_samples", None), int):
        lacks.append("lookahead_samples (samples, 0 for none)")
    if lacks:
        raise UserError(
            f"method._target_={config.method._target_}: makes no method, as it lacks "
            f"{', '.join(lacks)}; name a class that keeps streaming_asr.method.Method"
        )
    if config.language == "detect":
        from streaming_asr.whisper.detect import DetectsLanguage
        from streaming_asr.whisper.load import load_whisper

        whisper = load_whisper(config.model.path, device=config.device, dtype=config.dtype)
        method = DetectsLanguage(method, whisper)
    if config.gate == "speech":
        from streaming_asr.whisper.gate import behind_gate

        durations = (config.chunk, config.first_chunk, config.gate_silence)
        method = behind_gate(method, *map(samples_of, durations))
    if config.device.startswith("cuda"):
        return method, lambda: torch.cuda.synchronize(config.device)
    return method, lambda: None


def samples_of(duration: str) -> int:
    """Return the samples at 16 kHz of a duration with a unit, as 300ms. Raises UserError."""
    return parse_duration(duration) * SAMPLE_RATE // 1000
