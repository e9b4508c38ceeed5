"""Build the training data of the `mini` corpus; splits.py builds dev and test.

    python -m experiments.mini.corpus train --hours 14 --out DIR [--workers 2] [--seed 0]
    python -m experiments.mini.corpus finance-train --hours 2 --out DIR

Training data are shards of about an hour, each of all engines in random order, so that the
first shards can be used while the others are made. A shard is two files:

    shard-000.npy     int16, one dimension: the samples of its utterances, joined, 16 kHz
    shard-000.jsonl   one line per utterance: offset and n (samples), text (written), speaker,
                      words [[written, start_s, end_s], ...]

The index appears when its audio is complete, and a file DONE with the totals at the end.
`streaming_asr.corpora.shards` reads them.

A sentence whose spoken text hashes to 0 modulo 20 is reserved for dev and test, all others are
for training (`reserved`). The rule holds for each sentence of an utterance of two. Two in five
training utterances are scrambled: many words, in no order (text.scrambled, lexicon.ini).
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import random
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.mini import text, voices

SAMPLE_RATE = 16_000
MIN_S, MAX_S = 2.0, 9.0
HELD_OUT_SHARE = 0.15
JOINED_SHARE = 0.25
SCRAMBLED_SHARE = 0.4  # of the training utterances


def reserved(spoken: str) -> bool:
    """Whether a sentence is kept for dev and test, by a hash of its spoken text."""
    return zlib.crc32(spoken.encode()) % 20 == 0


def spoken_sentences(units: Iterable) -> list[str]:
    """The spoken text of each sentence of an utterance."""
    sentences: list[str] = []
    current: list[str] = []
    for unit in units:
        current += unit.spoken
        if unit.written[-1] in ".?!" and unit.written.lower() not in text.ABBREVIATIONS:
            sentences.append(" ".join(current))
            current = []
    if current:
        sentences.append(" ".join(current))
    return sentences


@dataclass
class Made:
    """A sentence, spoken."""

    text: str
    sentences: list[str]  # spoken
    speaker: str
    samples: np.ndarray
    words: list[list]
    heldout: bool


def make(sentence, speaker: str, seed: str, rejected: collections.Counter) -> Made | None:
    """Speak one sentence. Returns None, with the reason counted, when it cannot be used."""
    words, spans, pauses = [], [], []
    for unit in sentence.units:
        spans.append((len(words), len(words) + len(unit.spoken) - 1))
        words += unit.spoken
        if unit.written[-1] in ",.?!;:":
            pauses.append(len(words) - 1)
    voice = voices.voice(speaker)
    spoken = voices.speak(words, voice, seed, frozenset(pauses) - {len(words) - 1})
    if spoken is None:
        rejected[f"{voice.engine}: word events"] += 1
        return None
    if not MIN_S <= len(spoken.samples) / SAMPLE_RATE <= MAX_S:
        rejected[f"{voice.engine}: length"] += 1
        return None
    timed = [
        [unit.written, round(spoken.times[a][0], 4), round(spoken.times[b][1], 4)]
        for unit, (a, b) in zip(sentence.units, spans, strict=True)
    ]
    return Made(
        sentence.written,
        spoken_sentences(sentence.units),
        speaker,
        spoken.samples,
        timed,
        sentence.heldout,
    )


def _train_shard(folder: Path, shard: int, hours: float, seed: int, domain: str) -> dict:
    rng = random.Random(f"{domain}/{seed}/{shard}")
    rejected: collections.Counter[str] = collections.Counter()
    n_wanted = int(hours * 3600 * SAMPLE_RATE)
    pieces: list[np.ndarray] = []
    rows, offset = [], 0
    while offset < n_wanted:
        if domain == "general" and rng.random() < SCRAMBLED_SHARE:
            sentence = text.scrambled(rng)
        else:
            sentence = text.sentence(rng, domain=domain)
        if any(reserved(s) for s in spoken_sentences(sentence.units)):
            rejected["reserved"] += 1
            continue
        clip = make(sentence, voices.train_speaker(rng), f"{seed}/{shard}/{len(rows)}", rejected)
        if clip is None:
            continue
        pieces.append(np.round(clip.samples * 32767).astype(np.int16))
        n = len(pieces[-1])
        row = {"offset": offset, "n": n, "text": clip.text, "speaker": clip.speaker}
        rows.append({**row, "words": clip.words})
        offset += n
    path = folder / f"shard-{shard:03d}.npy"
    temporary = folder / f"tmp-{shard:03d}.npy"
    np.save(temporary, np.concatenate(pieces))
    temporary.rename(path)
    index = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    temporary.with_suffix(".jsonl").write_text(index, "utf-8")
    temporary.with_suffix(".jsonl").rename(path.with_suffix(".jsonl"))
    return {"shard": shard, "n": len(rows), "samples": offset, "rejected": dict(rejected)}


def train(folder: Path, hours: float, workers: int, seed: int, domain: str) -> None:
    """Write the shards that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    n_shards = max(1, round(hours))
    missing = [k for k in range(n_shards) if not (folder / f"shard-{k:03d}.jsonl").exists()]
    began, done = time.time(), n_shards - len(missing)
    rejected: collections.Counter[str] = collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(_train_shard, folder, k, hours / n_shards, seed, domain) for k in missing
        ]
        for job in concurrent.futures.as_completed(jobs):
            result = job.result()
            rejected.update(result["rejected"])
            done += 1
            print(
                f"shard {result['shard']:3d}: {result['n']} utterances, "
                f"{result['samples'] / SAMPLE_RATE / 3600:.2f} h; {done}/{n_shards} shards "
                f"in {time.time() - began:.0f} s",
                flush=True,
            )
    from streaming_asr.corpora.shards import read_shards

    items = read_shards(folder)
    totals = {
        "hours": round(sum(i.n_samples for i in items) / SAMPLE_RATE / 3600, 3),
        "utterances": len(items),
        "speakers": len({i.speaker for i in items}),
        "rejected": dict(rejected),
        "seconds": round(time.time() - began),
    }
    (folder / "DONE").write_text(json.dumps(totals) + "\n")
    print(json.dumps(totals), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, hours in (("train", 14.0), ("finance-train", 2.0)):
        command = commands.add_parser(name)
        command.add_argument("--hours", type=float, default=hours)
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--workers", type=int, default=os.cpu_count() or 1)
        command.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    domain = "finance" if args.command == "finance-train" else "general"
    train(args.out, args.hours, args.workers, args.seed, domain)


if __name__ == "__main__":
    main()
