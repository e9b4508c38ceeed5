"""Recordings with pauses of known length: voices of the package after silences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import TimedWord, Utterance


def voices() -> list[Utterance]:
    """Return the clips of `data=voices`, whose word times are exact."""
    return list(build(compose_raw(["data=voices"]).data).utterances())


def with_pauses(
    clips: Sequence[Utterance],
    silences_s: Sequence[float],
    *,
    noise_db: float | None = None,
    seed: int = 0,
) -> tuple[Samples, list[TimedWord]]:
    """Return the clips, each after its silence, and their words with the times in the result.

    noise_db: level of white noise under all of it, in dB of full scale; None: none.
    """
    pieces: list[Samples] = []
    words: list[TimedWord] = []
    n_samples = 0
    for clip, silence_s in zip(clips, silences_s, strict=True):
        n_silent = round(silence_s * SAMPLE_RATE)
        pieces += [np.zeros(n_silent, np.float32), clip.load()]
        begin_s = (n_samples + n_silent) / SAMPLE_RATE
        words += [TimedWord(w.text, begin_s + w.start, begin_s + w.end) for w in clip.words or ()]
        n_samples += n_silent + len(pieces[-1])
    samples = np.concatenate(pieces)
    if noise_db is not None:
        noise = np.random.default_rng(seed).standard_normal(n_samples)
        samples = samples + (10 ** (noise_db / 20) * noise).astype(np.float32)
    return samples, words
