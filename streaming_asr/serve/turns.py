"""OpenAI's `turn_detection: server_vad`: the server finds where a turn begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from streaming_asr.config.settle import LEAST_SILENCE_MS, MAX_SILENCE_MS
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.serve.service import Refused
from streaming_asr.whisper.vad import (
    PRE_ROLL_SAMPLES,
    SILENCE_SAMPLES,
    THRESHOLD,
    Gate,
    Silero,
    Stretch,
)

SAMPLES_PER_MS = SAMPLE_RATE // 1000
# The least and the most of each setting.
RANGES = {
    "threshold": (0.05, 0.95),
    "prefix_padding_ms": (0, 5_000),
    "silence_duration_ms": (LEAST_SILENCE_MS, MAX_SILENCE_MS),
}


@dataclass(frozen=True)
class TurnDetection:
    """The settings of OpenAI's object, with the gate's defaults."""

    threshold: float = THRESHOLD
    prefix_padding_ms: int = PRE_ROLL_SAMPLES // SAMPLES_PER_MS
    silence_duration_ms: int = SILENCE_SAMPLES // SAMPLES_PER_MS

    @property
    def described(self) -> dict[str, Any]:
        """Return OpenAI's object."""
        return {"type": "server_vad"} | asdict(self)


def turn_detection(fields: Mapping[str, Any]) -> TurnDetection | None:
    """Return the settings of OpenAI's object; None for {}. Raises Refused."""
    if not fields:
        return None
    if (kind := fields.get("type")) != "server_vad":
        reason = f"turn_detection.type={str(kind)[:100]}: give server_vad; or turn_detection=null"
        raise Refused("unknown_turn_detection", f"{reason}, then commit ends an item")
    values = {key: value for key, value in fields.items() if key != "type" and value is not None}
    for key, value in values.items():
        if key not in RANGES:
            reason = f"turn_detection.{key[:100]}: is not supported here; leave it out"
            raise Refused("unknown_parameter", reason)
        least, most = RANGES[key]
        is_number = isinstance(value, int if isinstance(least, int) else int | float)
        if not is_number or isinstance(value, bool) or not least <= value <= most:
            reason = f"turn_detection.{key}={str(value)[:100]}: must be {least} to {most}"
            raise Refused("invalid_session", reason)
    return TurnDetection(**values)


@cache
def silero() -> Silero:
    """Return the network that all sessions share."""
    return Silero()


class Turns:
    """Finds the turns in the audio of a session."""

    def __init__(self, settings: TurnDetection) -> None:
        self.settings = settings
        self._offset = self._n_pushed = 0  # samples at 16 kHz: before this gate, and in it
        self._begin()

    def _begin(self) -> None:
        self._gate = Gate(
            silero().stream(),
            silence=self.settings.silence_duration_ms * SAMPLES_PER_MS,
            pre_roll=self.settings.prefix_padding_ms * SAMPLES_PER_MS,
            threshold=self.settings.threshold,
        )

    def push(self, samples: Samples, *, last: bool = False) -> list[Stretch]:
        """Return the speech in (n,) more samples at 16 kHz; stretches begin at samples of the
        session's audio."""
        self._n_pushed += len(samples)
        speech = self._gate.push(samples, last=last)
        return [replace(stretch, start=stretch.start + self._offset) for stretch in speech]

    def end(self, samples: Samples) -> list[Stretch]:
        """Return the rest of the open turn, which ends with (n,) more samples; the next audio
        begins another."""
        stretches = self.push(samples, last=True)
        self._offset, self._n_pushed = self._offset + self._n_pushed, 0
        self._begin()
        return stretches
