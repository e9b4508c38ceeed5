"""What an aligner answers, and what all aligners share.

An aligner is a class with `align(utterances) -> Iterator[Aligned]`: one answer per utterance, in
any order; an utterance that fails does not stop it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_SAMPLES, Samples
from streaming_asr.text.units import unit_of, written_units
from streaming_asr.utterance import TimedWord, Utterance

PAUSE_DB = 30.0
"""So far below the loudest frames of an utterance nobody speaks."""
LOUD_PERCENTILE = 95
UNTIMED = math.nan
"""The start and end of a word that the aligner cannot time."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """The result of one utterance: its words with times, or None and the reason of the failure.

    A single word that the aligner cannot time starts and ends UNTIMED."""

    utterance: Utterance
    words: tuple[TimedWord, ...] | None
    reason: str = ""


def is_timed(word: TimedWord) -> bool:
    """Return whether the aligner gave the word a time."""
    return not math.isnan(word.end)


class OneByOne(ABC):
    """Aligns utterances in their order, each by `words`."""

    def align(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        """Yield the result of `words` for each utterance, or why it fails."""
        for utterance in utterances:
            try:
                yield Aligned(utterance, self.words(utterance))
            except UserError as error:
                yield Aligned(utterance, None, str(error))

    @abstractmethod
    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        """Return the words of the transcript with times. Raises UserError where text and audio do
        not fit each other or the model."""


def words_of(utterance: Utterance) -> list[str]:
    """Return the texts to time: the words of the transcript, or its characters where these are the
    unit of its language; pure punctuation has no time. Raises UserError where there are none."""
    words = written_units(utterance.text, unit_of(utterance.language))
    if not words:
        raise UserError(f"{utterance.id}: has no text to align; write what is spoken")
    return words


def loud_frames(samples: Samples) -> NDArray[np.bool_]:
    """Return for every 20 ms frame whether it is loud, (frames,) bool: at most 30 dB below the
    loudest frames.

    samples: (n,) float32 at 16 kHz; the last frame is filled up with zeros.
    """
    n_frames = -(-len(samples) // FRAME_SAMPLES)
    padded = np.zeros(n_frames * FRAME_SAMPLES)
    padded[: len(samples)] = samples
    power = (padded.reshape(n_frames, FRAME_SAMPLES) ** 2).mean(1) + 1e-12
    level_db = 10 * np.log10(power)
    is_loud: NDArray[np.bool_] = level_db > np.percentile(level_db, LOUD_PERCENTILE) - PAUSE_DB
    return is_loud
