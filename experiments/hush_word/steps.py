"""Words that the hush word loses in regular and in random steps, with pruning and without.

    python -m experiments.hush_word.steps [--sets clean-dev-100=FOLDER/manifest.jsonl ...]
        [--steps 0.3 1 3 random] [--clips 24]

The sets are those of `experiments.real.dev_score`; --clips of each are taken in the order of the
CRC-32 of their names. Random steps last 0.3 to 6 s, by the recording's name. A lost word is a
deletion of the alignment with the reference; it is at the end where no right word follows.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from experiments.real.dev_score import dev_set
from streaming_asr.method import SAMPLE_RATE, Samples, display_text, revise
from streaming_asr.streaming import load_method
from streaming_asr.terminal import exit_status
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import Utterance

SHORTEST_S, LONGEST_S = 0.3, 6.0  # random steps
CHUNKS = {"0.3": "300ms", "1": "1s", "3": "3s", "random": "300ms"}


def pieces(audio: Samples, steps: str, name: str) -> Iterator[Samples]:
    """Yield the audio, (n,), of each step."""
    draw = random.Random(name)
    begin = 0
    while begin < len(audio):
        seconds = draw.uniform(SHORTEST_S, LONGEST_S) if steps == "random" else float(steps)
        end = begin + round(seconds * SAMPLE_RATE)
        yield audio[begin:end]
        begin = end


def text_of(method: Any, utterance: Utterance, steps: str) -> str:
    """Return what `method` outputs for a recording in these steps."""
    state, words = method.start(language="en"), list[Any]()
    parts = list(pieces(utterance.load(), steps, utterance.id))
    for i, part in enumerate(parts):
        update = method.step(state, part, last=i == len(parts) - 1)
        revise(words, update.retracted, update.committed)
    return display_text(words)


def losses(reference: Sequence[str], text: Sequence[str]) -> tuple[int, int, int]:
    """Return the errors, the lost words, and those of them at the end."""
    edits = Levenshtein.editops(reference, text)
    lost = {edit.src_pos for edit in edits if edit.tag == "delete"}
    n_end = 0
    while len(reference) - 1 - n_end in lost:
        n_end += 1
    return len(edits), len(lost), n_end


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sets", nargs="+", default=["clean-dev-100", "cv-dev-2"])
    parser.add_argument("--steps", nargs="+", default=list(CHUNKS), choices=list(CHUNKS))
    parser.add_argument("--clips", type=int, default=24, help="of each set; default 24")
    arguments = parser.parse_args(argv)
    clips: list[Utterance] = []
    for each in arguments.sets:
        by_name = sorted(dev_set(each).utterances, key=lambda u: zlib.crc32(u.id.encode()))
        clips += by_name[: arguments.clips]
    words = normaliser("en").words
    n_words = sum(len(words(clip.text)) for clip in clips)
    print(f"{len(clips)} clips, {n_words} words")
    print(f"{'steps':<8} {'search':<7} {'lost':>5} {'at the end':>11} {'WER %':>6}")
    for steps in arguments.steps:
        for prune in (True, False):
            method = load_method("hush_word", chunk=CHUNKS[steps], prune=str(prune).lower())
            sums = [0, 0, 0]
            for clip in clips:
                counts = losses(words(clip.text), words(text_of(method, clip, steps)))
                sums = [a + b for a, b in zip(sums, counts, strict=True)]
            search, wer = "pruned" if prune else "full", 100 * sums[0] / n_words
            print(f"{steps:<8} {search:<7} {sums[1]:5} {sums[2]:11} {wer:6.1f}", flush=True)


if __name__ == "__main__":
    raise SystemExit(exit_status(program))
