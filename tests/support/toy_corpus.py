"""A training corpus of noise with word times, for the tests of recipes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import soundfile
from tiny import noise

WORDS = ("the", "quick", "brown", "fox", "runs", "away", "and", "she", "had", "wash", "water")


def toy_corpus(
    folder: Path, *, n: int = 12, n_lengths: int = 4, word_s: float = 0.3, n_dev: int = 2
) -> Path:
    """Shards of `n` utterances by 2 voices, of 3 words of `word_s` or more, and a manifest."""
    lines, pieces, offset = [], [], 0
    for i in range(n):
        n_words = 3 + i % n_lengths
        words = [
            [WORDS[(3 * i + j) % len(WORDS)], 0.1 + word_s * j, 0.1 + word_s + word_s * j]
            for j in range(n_words)
        ]
        audio = noise(word_s * n_words + 0.25, seed=i)
        row = {"offset": offset, "n": len(audio), "speaker": f"voice{i % 2}", "words": words}
        lines.append(json.dumps(row | {"text": " ".join(w for w, *_ in words)}))
        pieces.append((audio * 32767).astype(np.int16))
        offset += len(audio)
    np.save(folder / "shard-000.npy", np.concatenate(pieces))
    (folder / "shard-000.jsonl").write_text("\n".join(lines) + "\n")
    rows = []
    for i in range(n_dev):
        soundfile.write(folder / f"dev{i}.wav", noise(1.5, seed=50 + i), 16_000)
        rows.append({"audio_filepath": f"dev{i}.wav", "duration": 1.5, "text": "the quick fox"})
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
