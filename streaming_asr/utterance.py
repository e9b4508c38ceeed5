"""One utterance: its text, the times of its words, its speaker, and how to load its audio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples

LENGTH_TOLERANCE_S = 0.5
"""A recording that differs more from its stated duration is another one, or cut off."""

MAX_TEXT = 2_000_000
"""The letters of a reference at most: more than a day of speech, and scored within seconds."""


class TimedWord(NamedTuple):
    """A written word of the reference and the time it is spoken, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """A recording and its reference; the audio is read only when `load` is called."""

    id: str
    text: str  #: the reference as written, with case and punctuation; "" where nobody speaks
    audio: Callable[[], Samples]
    duration_s: float  #: as its corpus states it; 0.0 where that cannot be known before loading
    speaker: str | None = None
    language: str | None = None
    words: tuple[TimedWord, ...] | None = None
    biasing: tuple[str, ...] | None = None  #: the words that B-WER counts, as its list has them
    prompt: str | None = None  #: of this recording, in place of the setting
    audio_path: str | None = None  #: for a person who wants to listen; scoring never opens it

    def load(self) -> Samples:
        """Return the samples, (n,) float32 mono 16 kHz in [-1, 1], n > 0.

        Raises UserError where the audio is unreadable, empty, not finite, or not of the stated
        duration.
        """
        samples = self.audio()
        self.check_length(len(samples))
        return samples

    def check_length(self, n_samples: int) -> None:
        """Raise UserError where `n_samples` differs from the stated duration, if one is stated, by
        over LENGTH_TOLERANCE_S."""
        length_s = n_samples / SAMPLE_RATE
        if self.duration_s and abs(length_s - self.duration_s) > LENGTH_TOLERANCE_S:
            raise UserError(self.other_length(length_s))

    def other_length(self, length_s: float) -> str:
        """Return a message: the recording lasts `length_s`, which is not the stated duration."""
        return (
            f"{self.id}: lasts {length_s:.2f} s, {self.duration_s:.2f} s are stated; the "
            f"recording is cut off, or not the one that is meant ({self.audio_path})"
        )
