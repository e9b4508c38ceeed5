"""Speech with noise over a share of each recording, for the paper's table 1.

    python -m experiments.star.noisy                         # the prompts of experiment=real
    python -m experiments.star.noisy --manifest FILE.jsonl   # other speech

As appendix C has it: of a recording of T seconds a stretch of share * T, drawn at random, gets
noise. The paper's noise is natural (Freesound, by MS-SNSD); here it is synthesised (babble, pink,
white, hum in turn) and as loud as the recording. Writes <share>.jsonl and the recordings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.corpora.noise import KINDS
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import Utterance

SHARES = (0, 10, 20, 30, 40, 50)  # percent


def inject(audio: np.ndarray, share: float, kind: str, seed: int) -> np.ndarray:
    """(n,) float32 with noise of the recording's mean power added over `share` of its length.

    The place follows from the seed alone: at a larger share more of the same recording is covered.
    """
    rng = np.random.default_rng(seed)
    length, place = round(share * len(audio)), rng.random()
    first = round(place * (len(audio) - length))
    noise = KINDS[kind](len(audio), rng)
    level = np.sqrt(np.mean(np.square(audio)) / max(1e-12, np.mean(np.square(noise))))
    noisy = audio.copy()
    noisy[first : first + length] += (level * noise[first : first + length]).astype(np.float32)
    return np.clip(noisy, -1.0, 1.0)


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("outputs/star_noise_data"))
    parser.add_argument("--limit", type=int, default=60, help="utterances (default: 60)")
    parser.add_argument("--manifest", help="of other speech than the prompts")
    arguments = parser.parse_args(argv)
    kinds = sorted(KINDS)
    speech = ["data=prompts", "data.align=none"]
    if arguments.manifest:
        speech = ["data=manifest", f"data.path={arguments.manifest}"]
    utterances = build(compose_raw(speech).data).utterances(arguments.limit)

    def noisy(share: int) -> Iterator[Utterance]:
        for i, utterance in enumerate(utterances):
            audio = inject(utterance.load(), share / 100, kinds[i % len(kinds)], seed=i)
            yield replace(utterance, audio=lambda audio=audio: audio)

    for share in SHARES:
        write_manifest(noisy(share), arguments.out / f"{share}.jsonl")
    print(f"written: {arguments.out}, {len(SHARES)} shares of {len(utterances)} recordings")


if __name__ == "__main__":
    sys.exit(exit_status(program))
