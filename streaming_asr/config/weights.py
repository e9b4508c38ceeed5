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
    """Return `model.path` where it is a ChunkFormer's own network or a model built for streaming,
    the folder in the hub's cache for one on the hub; None for a Whisper.

    A name on the hub that is not on this machine is a ChunkFormer's where model=chunkformer, or
    method=chunkformer and the name says so; it is returned as it is, for `obtain_models`.
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
    beside = model.get("weights") or str(Path(str(model.path)).expanduser() / "weights")
    return [
        Path(str(config.output)) / "train" / str(model.get("name", "model")) / method_name,
        Path(beside) / method_name,
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

    wanted: `none`; `auto` (one trained at exactly this chunk, in any of `folders`, else one trained
    on random chunks); `auto_or_none` (the same, None where there is neither); the name of one in
    `folders` (`any_chunk`, `300ms`); a path; or a name on the hub (`models.hub`), which is
    returned as it is where it is not on this machine.
    model: its folder; model_name: what messages call it. Both `auto` pass over folders whose
    training.json names other weights than its own; one that is asked for by name or path is taken.
    Raises MissingWeights, which says what exists and how to train one.
    """
    if name in ("none", "None"):
        return None
    auto = name in ("auto", "auto_or_none")
    base = weights_hash(model) if auto and model is not None else None
    present: dict[str, Path] = {}
    strange: list[Path] = []
    for folder in folders:
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not entry.is_dir() or not any(entry.iterdir()):
                continue
            if base is not None and training_of(entry).get("base") not in (None, base):
                strange.append(entry)
            else:
                present.setdefault(duration_key(entry.name), entry)
    if auto:
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
    named = re.fullmatch(r"(\d+)ms", duration_key(name))  # is asked for by its chunk
    chunk = format_duration(int(named[1]) if named else chunk_ms)
    choices = ", ".join(str(path) for path in present.values()) or "none"
    if strange:
        choices += f" (trained on other weights: {', '.join(map(str, strange))})"
    if not present and not strange and name == "auto":
        others = sorted(
            path.parent.name for path in (HERE / "data/weights").glob(f"*/{method_name}")
        )
        some = f"; the package has some for {' and '.join(others)}" if others else ""
        raise MissingWeights(
            f"model={model_name}: has no trained weights of {method_name}{some}. Take such a "
            "model, or a method that runs on any unmodified Whisper, as method=ufal, or train some "
            f"with `python -m streaming_asr.train method={method_name} model={model_name} "
            f"chunk={chunk}`; method.weights=none does without"
        )
    asked = f"chunk={chunk}" if name == "auto" else f"method.weights={name}"
    raise MissingWeights(
        f"{asked}: no such weights of {method_name} for this model. There are: {choices}. "
        f"Train one with `python -m streaming_asr.train method={method_name} chunk={chunk}` and "
        f"the same model (or as conf/recipe/{method_name}.yaml says), "
        f"name one with method.weights=<folder, or OWNER/REPO/FILE of the hub>, do without with "
        "method.weights=none, or take a method that runs on any unmodified Whisper, as method=ufal"
    )


def _detector(model_name: str) -> Path:
    """Return the published detector of a model; their name where none was obtained yet."""
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
    """Return `wanted`, or for `dev` the share of the adapter's change that dev chose for the chunk:
    `adapter_scale` of the training.json in `weights` (share by chunk in seconds, linear in the
    chunk's logarithm between them), 1 without. Raises UserError for another word or below 0.
    """
    if setting != "dev":
        try:
            scale = float(setting)
        except ValueError:
            scale = math.nan
        if not 0 <= scale < math.inf:
            raise UserError(f"adapter_scale={setting}: must be dev, or a number from 0 on")
        return scale
    chosen = {} if weights is None else training_of(Path(weights)).get("adapter_scale")
    if not chosen:
        return 1.0
    try:
        at = sorted((math.log(float(chunk)), float(share)) for chunk, share in chosen.items())
        if not all(0 <= share < math.inf for _, share in at):
            raise ValueError("a share below 0, or none")
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{weights}/training.json: adapter_scale={str(chosen)[:60]}: must give the share "
            'of the adapter by the chunk in seconds, as {"0.3": 1.0, "1": 0.85}'
        ) from error
    logs, shares = ([pair[i] for pair in at] for i in (0, 1))
    return float(np.interp(math.log(chunk_s), logs, shares))


def unheard(config: Mapping[str, Any], languages: Set[str]) -> str | None:
    """Return the sentence that says which of `languages` the trained weights of a configuration's
    method never heard; None where they heard all, and where training.json does not tell."""
    weights = config["method"].get("weights")
    heard = None if weights in (None, "none") else training_of(Path(weights)).get("languages")
    heard = heard if isinstance(heard, list) else None
    others = sorted(languages - set(heard or languages))
    if not heard or not others:
        return None
    return (
        f"The weights were trained on {', '.join(heard)} and not on {', '.join(others)}: expect "
        "many errors, or take a method that needs none, as method=ufal"
    )
