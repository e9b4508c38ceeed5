"""The held-out voices of Kokoro: those of `data=voices` and those of dev, and their sentences.

The sentences are of addresses on the State of the Union since 1961 (public domain), kept for tests
by one hash (`sentences.reserved`) and taken in the order of another. CHANGELOG.md names the commit
that has the makers of `data=voices` and of synthetic speech to train on.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.real.packages import ADDRESSES
from experiments.real.sentences import addresses, reserved, words_of
from experiments.real.synthesis import Clip, Speaker, TimedWords, Unmatched
from streaming_asr.errors import UserError

HELD_OUT = Path(__file__).parent / "held_out.json"
PAUSE_S = (0.2, 1.2)
FIRST_YEAR = 1961
SPEED = (0.9, 1.1)

YearAndSentence = tuple[int, str]


def held_out() -> set[str]:
    """The voices of Kokoro that nothing is trained on: those of data=voices and those of dev."""
    return {name for names in json.loads(HELD_OUT.read_text("utf-8")).values() for name in names}


def ordered(years: Mapping[int, Sequence[str]], salt: str) -> list[YearAndSentence]:
    """What is kept for tests, each sentence once, by a hash of its words."""
    by_year = {
        words_of(sentence): (year, sentence)
        for year, sentences in years.items()
        for sentence in sentences
        if reserved(sentence)
    }
    by_hash = sorted(by_year, key=lambda words: hashlib.sha256(f"{salt} {words}".encode()).digest())
    return [by_year[words] for words in by_hash]


def of_late(root: Path) -> dict[int, list[str]]:
    """The sentences of the addresses since 1961, which sound like today's English."""
    years = addresses(root / ADDRESSES.folder)
    return {year: sentences for year, sentences in years.items() if year >= FIRST_YEAR}


def take(pool: list[YearAndSentence], n: int, least: int, most: int) -> tuple[str, ...]:
    """The first `n` sentences of one year with so many words; removes them from `left`.

    Raises UserError where there are none.
    """
    of_year: dict[int, list[YearAndSentence]] = {}
    for each in pool:
        if least <= len(each[1].split()) <= most:
            same_year = of_year.setdefault(each[0], [])
            same_year.append(each)
            if len(same_year) == n:
                for taken in same_year:
                    pool.remove(taken)
                return tuple(sentence for _, sentence in same_year)
    raise UserError(f"fewer than {n} sentences of {least} to {most} words are left in every year")


def spoken(
    speaker: Speaker,
    pool: list[YearAndSentence],
    voice: str,
    rng: random.Random,
    shape: tuple[int, int, int],
) -> tuple[Clip, np.ndarray, TimedWords]:
    """A clip of `voice`, its samples at 24 kHz and its words' times.

    `shape`: how many sentences, and the least and the most words of each; `take` removes them
    from `left`.
    """
    speed = round(rng.uniform(*SPEED), 3)
    pauses_s = tuple(round(rng.uniform(*PAUSE_S), 2) for _ in range(shape[0] - 1))
    while True:
        planned = Clip(voice, speed, take(pool, *shape), pauses_s)
        try:
            return planned, *speaker.say(planned)
        except Unmatched as error:
            print(f"left out, {error}: {planned.text}")
