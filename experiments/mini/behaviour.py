"""What a model does on whole, cut and empty audio, padded to its context and not.

    python -m experiments.mini.behaviour --model FOLDER [--split clean] [--limit N] [--out FILE]

Whole utterances: WER (normalised). Cut audio: every utterance is cut at some random points, and the
text is compared with the words that had ended by then. Of the cuts that fall inside a word:

    early     the last word of the text is the word that is being cut
    dropped   the last word of the text is the last one that is complete (or there is none in both)
    wrong     the text has a last word, and it is neither of these two
    nothing   the text is empty although words are complete
    runs on   the text has two words or more beyond the complete ones (also counted above)

The first four add up to 100 %. A last word can also be wrong for no fault of the cut: the same
share on whole utterances stands beside it. Empty audio: 10 s of silence and of white noise, where
every word is an invention.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_asr.corpora import MINI, choose
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.metrics.accuracy import Errors, count, total
from streaming_asr.text.normalise import light_key, normaliser
from streaming_asr.utterance import Utterance

if TYPE_CHECKING:
    from streaming_asr.whisper.load import Whisper

SAMPLE_RATE = 16_000
SHORTEST_S = 0.4  # of cut audio
EDGE_S = 0.02  # a cut this near to a word's edge is not inside it
EMPTY_S = 10.0
NOISE_DBFS = (-60, -45, -30)
N_NOISES = 5
OUTCOMES = ("early", "dropped", "wrong", "nothing")
HEARD = ((0.0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1.0))


@dataclass(frozen=True)
class Cut:
    """Audio that stops early: the words that had ended, and the one that was being said."""

    audio: np.ndarray
    ended: tuple[str, ...]
    inside: str | None = None
    heard: float = 0.0  # share of the word `inside` that was heard


def cut_at(audio: np.ndarray, words: Sequence[tuple[str, float, float]], time_s: float) -> Cut:
    """The first `time_s` seconds of an utterance with word times."""
    samples = audio[: round(time_s * SAMPLE_RATE)]
    ended = tuple(word for word, _, end in words if end <= time_s)
    for word, start, end in words:
        if start + EDGE_S < time_s < end - EDGE_S:
            return Cut(samples, ended, word, (time_s - start) / (end - start))
    return Cut(samples, ended)


def outcome(text: str, ended: Sequence[str], inside: str) -> str:
    """One of OUTCOMES for a cut inside the word `inside`."""
    last = last_key(text)
    complete = light_key(ended[-1]) if ended else ""
    if not last:
        return "nothing" if complete else "dropped"
    if last == light_key(inside):
        return "early"
    return "dropped" if last == complete else "wrong"


def last_key(text: str) -> str:
    """The last word that is more than punctuation, under the light key; "" without one."""
    keys = [key for word in text.split() if (key := light_key(word))]
    return keys[-1] if keys else ""


def cuts_of(utterances: Sequence[Utterance], n_cuts: int, seed: int) -> list[Cut]:
    """`n_cuts` cuts of each utterance at points that depend on its id and the seed alone.

    A cut inside a word equal to the one before it is left out: early and dropped look the same.
    """
    cuts = []
    for utterance in utterances:
        audio = utterance.load()
        for i in range(n_cuts):
            rng = random.Random(f"{seed}/{utterance.id}/{i}")
            cut = cut_at(
                audio, utterance.words or (), rng.uniform(SHORTEST_S, len(audio) / SAMPLE_RATE)
            )
            if cut.inside and cut.ended and light_key(cut.inside) == light_key(cut.ended[-1]):
                continue
            cuts.append(cut)
    return cuts


def wer(references: Sequence[str], texts: Sequence[str]) -> float | None:
    """WER in percent over the normalised words of all references; None without any."""
    words = normaliser("en").words
    errors: list[Errors] = [
        count(words(r), words(t)) for r, t in zip(references, texts, strict=True)
    ]
    return total(errors).percent()


def share(hits: Sequence[bool]) -> float | None:
    return 100 * sum(hits) / len(hits) if hits else None


def on_whole(utterances: Sequence[Utterance], texts: Sequence[str]) -> dict[str, Any]:
    wrong = [last_key(t) != last_key(u.text) for u, t in zip(utterances, texts, strict=True)]
    return {"wer": wer([u.text for u in utterances], texts), "last_word_wrong": share(wrong)}


def on_cuts(cuts: Sequence[Cut], texts: Sequence[str]) -> dict[str, Any]:
    inside = [
        (cut, text, outcome(text, cut.ended, cut.inside))
        for cut, text in zip(cuts, texts, strict=True)
        if cut.inside
    ]
    counted = Counter(result for *_, result in inside)
    report: dict[str, Any] = {
        "wer": wer([" ".join(cut.ended) for cut in cuts], texts),
        "n_inside_a_word": len(inside),
    }
    for name in OUTCOMES:
        report[name] = 100 * counted[name] / len(inside) if inside else None
    report["runs_on"] = share([len(t.split()) >= len(c.ended) + 2 for c, t, _ in inside])
    report["by_share_heard"] = [
        {
            "from": round(low, 3),
            "to": round(high, 3),
            "n": len(part),
            **{name: share([result == name for result in part]) for name in OUTCOMES[:3]},
        }
        for low, high in HEARD
        for part in [[result for cut, _, result in inside if low <= cut.heard < high]]
    ]
    return report


def empty_audio() -> list[tuple[str, np.ndarray]]:
    n = round(EMPTY_S * SAMPLE_RATE)
    signals = [("silence", np.zeros(n, np.float32))]
    for dbfs in NOISE_DBFS:
        for seed in range(N_NOISES):
            noise = np.random.default_rng([seed, -dbfs]).standard_normal(n)
            signals.append((f"white noise, {dbfs} dBFS", (noise * 10 ** (dbfs / 20)).astype("f4")))
    return signals


def on_empty(names: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        counts = [len(t.split()) for n, t in zip(names, texts, strict=True) if n == name]
        report[name] = {
            "n": len(counts),
            "with_words": share([c > 0 for c in counts]),
            "words_each": sum(counts) / len(counts),
        }
    return report


def measure(
    whisper: Whisper,
    manifest: Path,
    *,
    limit: int | None = None,
    n_cuts: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """All figures, in percent. Raises UserError for a split without word times."""
    from experiments.mini.base_model import transcribe_batch

    utterances = choose(read_manifest(manifest), limit)
    if not all(utterance.words for utterance in utterances):
        raise UserError(f"{manifest}: utterances without `words`; cuts need word times")
    cuts, empty = cuts_of(utterances, n_cuts, seed), empty_audio()
    result: dict[str, Any] = {
        "split": manifest.stem,
        "n_utterances": len(utterances),
        "n_cuts": len(cuts),
        "seed": seed,
    }
    for name, padded in (("padded", True), ("unpadded", False)):

        def texts(audio: Sequence[np.ndarray], padded: bool = padded) -> list[str]:
            return transcribe_batch(whisper, audio, padded=padded)

        result[name] = {
            "whole": on_whole(utterances, texts([u.load() for u in utterances])),
            "cut": on_cuts(cuts, texts([cut.audio for cut in cuts])),
            "empty": on_empty([kind for kind, _ in empty], texts([audio for _, audio in empty])),
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--split", default="clean")
    parser.add_argument("--limit", type=int, help="so many utterances")
    parser.add_argument("--cuts", type=int, default=3, help="per utterance")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    args = parser.parse_args()

    from streaming_asr.whisper.load import load_whisper

    try:
        whisper = load_whisper(args.model, trainable=True)
        result = {"model": args.model} | measure(
            whisper,
            MINI / f"{args.split}.jsonl",
            limit=args.limit,
            n_cuts=args.cuts,
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if args.out is not None:
        write_text(args.out, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
