"""The clips of `data=voices`: 60 of the held-out voices, with exact word times.

    python -m experiments.real.voices --out streaming_asr/data/voices

The sentences are of addresses on the State of the Union since 1961 (public domain), kept for tests
by one hash (`sentences.reserved`) and taken in the order of another. Each voice has ten clips,
three of them of two sentences with a pause. Texts and sound depend only on this file and on the
packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.real.packages import ADDRESSES, cache_root, obtain_all
from experiments.real.sentences import addresses, reserved, words_of
from experiments.real.speech import HELD_OUT, PAUSE_S
from experiments.real.synthesis import Clip, Speaker, TimedWords, Unmatched, write
from streaming_asr.errors import UserError
from streaming_asr.terminal import exit_status

FIRST_YEAR = 1961
# A voice's clips: how many sentences, and the least and the most words of each.
CLIPS = (
    *((1, 10, 13), (1, 10, 13), (1, 14, 17), (1, 14, 17), (1, 18, 23), (1, 18, 23), (1, 24, 32)),
    *((2, 8, 12), (2, 12, 17), (2, 18, 26)),
)
SPEED = (0.9, 1.1)
SALT = "voices 5"

YearAndSentence = tuple[int, str]


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
        planned = Clip("kokoro", voice, speed, take(pool, *shape), pauses_s)
        try:
            return planned, *speaker.say(planned)
        except Unmatched as error:
            print(f"left out, {error}: {planned.text}")


def make(out: Path) -> None:
    """Writes out/audio and out/voices.jsonl."""
    root = cache_root()
    obtain_all(root)
    pool = ordered(of_late(root), SALT)
    speaker = Speaker(root)
    (out / "audio").mkdir(parents=True, exist_ok=True)
    lines = []
    for voice in json.loads(HELD_OUT.read_text("utf-8"))["test"]:
        rng = random.Random(f"{SALT} {voice}")
        for i, shape in enumerate(CLIPS):
            planned, samples, words = spoken(speaker, pool, voice, rng, shape)
            name = f"{voice}-{i}"
            duration_s, words = write(samples, words, out / f"audio/{name}.ogg")
            row = {
                "id": name,
                "audio_filepath": f"audio/{name}.ogg",
                "duration": round(duration_s, 4),
                "text": planned.text,
                "speaker": voice,
                "language": "en",
                "words": words,
            }
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{name}: {row['duration']:.1f} s")
    (out / "voices.jsonl").write_text("".join(lines), encoding="utf-8")


def program(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the clips")
    options = parser.parse_args(arguments)
    make(options.out)


if __name__ == "__main__":
    sys.exit(exit_status(program))
