"""The settings of a recipe as conf/recipe/<method>.yaml has them, for tests that change some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

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
