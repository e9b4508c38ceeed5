"""Where the trained weights of a method lie, and which of them a cell takes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from streaming_asr.chunking import duration_key, format_duration
from streaming_asr.errors import MissingWeights, UserError
from streaming_asr.files import HERE, json_of
from streaming_asr.models.hash import weights_hash
from streaming_asr.models.hub import DETECTORS, cached, detectors_folder, reference


def own_network(config: DictConfig) -> str | None:
    """Return `model.path` if it is no Whisper: the network of a ChunkFormer or a model built for
    streaming. None for a Whisper. Of a name on the hub, return its folder in the hub's cache.

    A name on the hub that is not on this machine is taken for a ChunkFormer with model=chunkformer,
    or with method=chunkformer if the name contains `chunkformer`. It is returned as it is; later
    `obtain_models` downloads it.
    """
    path = OmegaConf.select(config, "model.path")
    if path is None:
        return None
    folder = Path(path).expanduser()
    if is_native(config):
        name = None if os.path.exists(folder) else reference(str(path))
        return str((name and cached(name)) or path)
    is_whisper = os.path.isfile(folder / "config.json")  # False for a name too long, too
    if not is_whisper and os.path.isfile(folder / "config.yaml"):
        return str(path)
    name = None if os.path.exists(folder) else reference(str(path))
    is_own = config.model.get("name") == "chunkformer" or (
        "chunkformer" in str(path).lower()
        and str(OmegaConf.select(config, "method._target_")).endswith(".ChunkFormer")
    )
    if name is None or not is_own:
        return None
    return str(cached(name) or path)


def is_native(config: DictConfig) -> bool:
    """Return whether the method is `native`, which runs models that are no Whisper."""
    target = str(OmegaConf.select(config, "method._target_"))
    return target.startswith("streaming_asr.methods.native.")


def weights_folders(config: DictConfig, method_name: str) -> list[Path]:
    """Return the folders that may hold weights of this method for this model, in search order."""
    model = config.model
    of_model = model.get("weights") or str(Path(str(model.path)).expanduser() / "weights")
    return [
        Path(str(config.output)) / "train" / str(model.get("name", "model")) / method_name,
        Path(of_model) / method_name,
    ]


def find_weights(
    method_name: str,
    chunk_ms: int,
    name: str,
    folders: Sequence[Path],
    *,
    model: str | Path | None = None,
    model_name: str = "",
) -> Path | None:
    """Return the folder that `method.weights` names; None for `none`.

    name: `none`; `auto` (weights trained at exactly this chunk, in any of `folders`, else weights
    trained on random chunks); `auto_or_none` (the same, None if there are neither); the name of
    weights in `folders` (`any_chunk`, `300ms`); a path; or a name on the hub (`models.hub`), which
    is returned as it is if it is not on this machine.
    model: its folder. model_name: its name in messages.
    `auto` and `auto_or_none` leave out weights that were trained for another model, by the `base`
    of their training.json; weights given by name or path are not checked.
    Raises MissingWeights with the weights that exist and how to train some.
    """
    if name in ("none", "None"):
        return None
    is_auto = name in ("auto", "auto_or_none")
    base = weights_hash(model) if is_auto and model is not None else None
    present: dict[str, Path] = {}  # by name; the first of `folders` counts
    of_other_models: list[Path] = []
    for folder in folders:
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not entry.is_dir() or not any(entry.iterdir()):
                continue
            if base is not None and training_of(entry).get("base") not in (None, base):
                of_other_models.append(entry)
            else:
                present.setdefault(duration_key(entry.name), entry)
    if is_auto:
        for key in (f"{chunk_ms}ms", "any_chunk"):
            if key in present:
                return present[key]
        if name == "auto_or_none":
            return None
    elif duration_key(name) in present:
        return present[duration_key(name)]
    elif Path(name).expanduser().exists():  # a folder, or a checkpoint file of another project
        return Path(name).expanduser()
    elif name == DETECTORS:
        return _detector(model_name)
    elif (on_hub := reference(name)) is not None:
        return cached(on_hub) or Path(name)
    chunk_of_name = re.fullmatch(r"(\d+)ms", duration_key(name))
    chunk = format_duration(int(chunk_of_name[1]) if chunk_of_name else chunk_ms)
    choices = ", ".join(str(path) for path in present.values()) or "none"
    if of_other_models:
        choices += f" (trained on other weights: {', '.join(map(str, of_other_models))})"
    if not present and not of_other_models and name == "auto":
        models = sorted(
            path.parent.name for path in (HERE / "data/weights").glob(f"*/{method_name}")
        )
        hint = f"; the package has some for {' and '.join(models)}" if models else ""
        raise MissingWeights(
            f"model={model_name}: has no trained weights of {method_name}{hint}. Take such a "
            "model, or a method that runs on any unmodified Whisper, as method=ufal, or train some "
            f"with `python -m streaming_asr.train method={method_name} model={model_name} "
            f"chunk={chunk}`; method.weights=none does without"
        )
    setting = f"chunk={chunk}" if name == "auto" else f"method.weights={name}"
    raise MissingWeights(
        f"{setting}: no such weights of {method_name} for this model. There are: {choices}. "
        f"Train one with `python -m streaming_asr.train method={method_name} chunk={chunk}` and "
        f"the same model (or as conf/recipe/{method_name}.yaml has it), "
        f"name one with method.weights=<folder, or OWNER/REPO/FILE of the hub>, do without with "
        "method.weights=none, or take a method that runs on any unmodified Whisper, as method=ufal"
    )


def _detector(model_name: str) -> Path:
    """Return the file of the published truncation detector of a model; the name DETECTORS if they
    were not obtained yet. Raises MissingWeights for a model that has none."""
    if not detectors_folder().is_dir():
        return Path(DETECTORS)
    file = detectors_folder() / f"{model_name}.pt"
    if not file.is_file():
        sizes = ", ".join(sorted(each.stem for each in file.parent.glob("*.pt")))
        raise MissingWeights(
            f"method.weights={DETECTORS}: there is none for model={model_name}; take one of "
            f"{sizes}, or method.weights=none"
        )
    return file


def training_of(weights: Path) -> dict[str, Any]:
    """Return the content of training.json in a folder of weights; {} where none can be read."""
    return json_of(weights / "training.json")


def scale_of(setting: str | float, weights: str | Path | None, chunk_s: float) -> float:
    """Return the factor by which an adapter's change of the weights is multiplied.

    setting: a number, or `dev` for the factor that was best on dev at this chunk: `adapter_scale`
    of the training.json in `weights`, which gives factors by chunk in seconds; between them it is
    linear in the logarithm of the chunk. 1 without such an entry. Raises UserError for another
    word, a number below 0, and a damaged entry.
    """
    if setting != "dev":
        try:
            scale = float(setting)
        except ValueError:
            scale = math.nan
        if not 0 <= scale < math.inf:
            raise UserError(f"adapter_scale={setting}: must be dev, or a number from 0 on")
        return scale
    by_chunk = {} if weights is None else training_of(Path(weights)).get("adapter_scale")
    if not by_chunk:
        return 1.0
    try:
        points = sorted((math.log(float(chunk)), float(scale)) for chunk, scale in by_chunk.items())
        if not all(0 <= scale < math.inf for _, scale in points):
            raise ValueError("a share below 0, or none")
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{weights}/training.json: adapter_scale={str(by_chunk)[:60]}: must give the share "
            'of the adapter by the chunk in seconds, as {"0.3": 1.0, "1": 0.85}'
        ) from error
    log_chunks, scales = zip(*points, strict=True)
    return float(np.interp(math.log(chunk_s), log_chunks, scales))


def unheard(config: Mapping[str, Any], languages: Set[str]) -> str | None:
    """Return a warning if the method's weights were not trained on all of `languages`; None if they
    were, without weights, and if training.json names no languages."""
    weights = config["method"].get("weights")
    if weights in (None, "none"):
        return None
    trained_on = training_of(Path(weights)).get("languages")
    if not isinstance(trained_on, list) or not trained_on:
        return None
    others = sorted(languages - set(trained_on))
    if not others:
        return None
    return (
        f"The weights were trained on {', '.join(trained_on)} and not on {', '.join(others)}: "
        "expect many errors, or take a method that needs none, as method=ufal"
    )
