"""One utterance: what is said, when, by whom, and how to get its sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from streaming_asr.method import Samples


class TimedWord(NamedTuple):
    """A written word of the reference and the time it is spoken, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording and its reference; the sound is read only when `load` is called."""

    id: str
    text: str  # the reference as written, case and punctuation kept; "" where nothing is said
    audio: Callable[[], Samples]
    duration_s: float  # as its corpus states it; 0.0 where that cannot be known before loading
    speaker: str | None = None
    language: str | None = None
    words: tuple[TimedWord, ...] | None = None
    audio_path: str | None = None  # for a person who wants to listen; scoring never opens it

    def load(self) -> Samples:
        """Return the samples, (n,) float32 mono 16 kHz in [-1, 1], n > 0.

        Raises UserError where the audio is unreadable, empty or not finite.
        """
        return self.audio()
