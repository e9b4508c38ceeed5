"""The settings of a recipe as conf/recipe/<method>.yaml has them, for tests that change some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from omegaconf import OmegaConf
from tiny import noise

from streaming_asr.files import CONF_DIR
from streaming_asr.training.loop import FitConfig, fit


def settings_of(
    method: str, corpus: Path, model: str | Path | None = None, **changes: Any
) -> dict[str, Any]:
    """Keyword arguments of the recipe's constructor for a toy corpus, chunks of 300 ms, seed 0.

    `model` is left out for a recipe that starts without one."""
    node = OmegaConf.load(CONF_DIR / "recipe" / f"{method}.yaml").target
    plain = OmegaConf.to_container(node, resolve=False)
    own = {
        key: value
        for key, value in plain.items()
        if key != "_target_" and not (isinstance(value, str) and value.startswith("${"))
    }
    places: dict[str, Any] = {"train_data": str(corpus), "dev_manifest": str(corpus / "dev.jsonl")}
    if model is not None:
        places["model_path"] = str(model)
    if "chunk_s" in node:
        places |= {"chunk_s": 0.3, "first_chunk_s": 0.6}
    return {**own, **places, "seed": 0, **changes}


def train(recipe: Any, folder: Path, steps: int, **changes: Any) -> dict[str, float]:
    """The figures of a training of so many steps, which has no limit of time."""
    settings = {"lr": 1e-2, "warmup_steps": 1, "schedule": "constant", **changes}
    return fit(recipe, FitConfig(out=str(folder), max_steps=steps, max_minutes=1e6, **settings))


def weights(recipe: Any) -> dict[str, torch.Tensor]:
    """Copies of all weights of a recipe's model."""
    return {name: p.detach().clone() for name, p in recipe.model.named_parameters()}


# -- A corpus --


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
