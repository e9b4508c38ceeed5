"""LoRA adapters: make, write and merge peft's, and read the form WhisperRT's authors publish.

A peft folder holds adapter_config.json and adapter_model.safetensors. The authors' checkpoints are
torch files with OpenAI's key names (encoder.blocks.0.attn.query) whose lora_A is (in, rank) and
lora_B (rank, out), the transpose of peft's, scaled by alpha / rank = 1.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError
from streaming_asr.models.tensors import load_pickled, load_tensors, refuse_not_finite, save_half
from streaming_asr.whisper.adapter_config import CONFIG_FILE, check_base, check_rank, read_config
from streaming_asr.whisper.openai import dimensions, our_name

ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")  # of all three attentions
LINEAR = (*ATTENTION, "fc1", "fc2")
MODULES = {"attention": ATTENTION, "all": LINEAR}
# What a plain adapter's configuration may hold next to what is checked; all else must be unset.
CHECKED = {
    *("peft_type", "r", "lora_alpha", "lora_dropout", "bias", "init_lora_weights"),
    *("target_modules", "auto_mapping", "base_model_name_or_path"),
}
IDLE_OPTIONS = {
    *("inference_mode", "megatron_core", "peft_version", "qalora_group_size", "revision"),
    "task_type",
}
WEIGHTS_FILE = "adapter_model.safetensors"


def with_lora(
    model: Any,
    rank: int,
    target_modules: Sequence[str],
    *,
    init: str = "peft",
    start: Path | None = None,
) -> Any:
    """Return `model` wrapped by peft: only the low-rank matrices A (rank, d) and B are trainable.

    B is 0, so that nothing changes yet; the scale alpha / r is 1. init: `peft` draws A from
    U(±1/sqrt(d)); `paper`, as WhisperRT's code does with A stored transposed, from
    U(±1/sqrt(rank)), which is sqrt(d / rank) times wider. start: a folder whose adapter, if it has
    one, gives the matrices instead. Raises UserError for another init, and for an adapter of
    another rank or model.
    """
    from peft import LoraConfig

    if init not in ("paper", "peft"):
        raise UserError(f"init={init!r}: must be paper or peft, whose scale lora_A begins with")
    config = LoraConfig(
        r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=list(target_modules)
    )
    wrapped = _wrapped(model, config)
    if init == "paper":
        for name, weight in wrapped.named_parameters():
            if "lora_A" in name:
                torch.nn.init.uniform_(weight, -(rank**-0.5), rank**-0.5)
    if start is not None and (start / WEIGHTS_FILE).is_file():
        _load_lora(wrapped, start, rank)
    return wrapped


def _wrapped(model: Any, config: Any) -> Any:
    from peft import get_peft_model

    with warnings.catch_warnings():
        # peft asks transformers 5 for an attribute under its old name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        return get_peft_model(model, config)


def _load_lora(wrapped: Any, start: Path, rank: int) -> None:
    """Put the matrices of the adapter in folder `start` into `wrapped`. Raises UserError where they
    have another rank or are of other modules."""
    from peft import set_peft_model_state_dict

    weights = {name: value.float() for name, value in load_tensors(start / WEIGHTS_FILE).items()}
    try:
        loaded: Any = set_peft_model_state_dict(wrapped, weights)
    except RuntimeError as error:
        raise UserError(
            f"start={start}: its adapter does not fit rank={rank} on this model "
            f"({str(error).splitlines()[0]}); use the rank and model of that stage"
        ) from error
    if loaded.unexpected_keys:
        raise UserError(
            f"start={start}: its adapter also changes {loaded.unexpected_keys[0]}; train the same "
            "modules (recipe.target.modules=all, where there is that setting)"
        )


def save_lora(wrapped: Any, folder: Path, base: str) -> None:
    """Write the adapter of a model from `with_lora` as a peft folder, in fp16.

    base: the name of the model that it changes.
    """
    from peft import get_peft_model_state_dict

    save_half(get_peft_model_state_dict(wrapped), folder / WEIGHTS_FILE)
    config = wrapped.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    # What is unset is left out: other versions of peft have other options.
    config = {k: getattr(v, "value", v) for k, v in config.items() if v not in (None, {})}
    text = json.dumps(config, indent=2, sort_keys=True, default=sorted)  # sets become lists
    (folder / CONFIG_FILE).write_text(text + "\n")


def check_adapter(adapter: str | Path) -> None:
    """Raise UserError where the adapter is missing, or its configuration cannot be merged."""
    if not os.path.isfile(adapter):
        read_config(Path(adapter))


def merge_adapter(model: Any, adapter: str | Path, scale: float = 1.0) -> Any:
    """Return `model` with weights base + scale * (merged - base).

    adapter: a folder of peft's, whose form may be any that peft can merge, or a published
    checkpoint. scale: the share of its change, the same in every tensor that the adapter changes.
    A folder of LoRA with one rank and alpha is merged here, to the same bits: peft's import takes
    longer than most recordings. Raises UserError for an adapter of another kind or model.
    """
    path = Path(adapter)
    base = model.state_dict()
    if os.path.isfile(path):
        changed = _published(model, path)
    else:
        content = read_config(path)
        check_base(content, model.config, path / CONFIG_FILE)
        pairs = load_tensors(path / WEIGHTS_FILE)
        changed = _plain_lora(model, content, pairs) if _is_plain(content) else {}
        if not changed:
            base = {name: x.clone() for name, x in base.items()} if scale != 1 else {}
            model = _merge_peft(model, path, content, pairs)
            changed = dict(model.named_parameters())  # a tied tensor comes once
    refuse_not_finite(f"adapter {str(path)!r}, merged", changed.items())
    with torch.no_grad():
        for name, value in changed.items():
            weight = model.get_parameter(name)
            share = value if scale == 1 else torch.lerp(base[name].float(), value.float(), scale)
            if share is not weight:
                weight.copy_(share)
    if model.proj_out.weight is not model.model.decoder.embed_tokens.weight:
        model.config.tie_word_embeddings = False  # or a saved copy would tie them again
    return model


def _is_plain(content: Mapping[str, Any]) -> bool:
    """Return whether a configuration is of LoRA of linear layers with one rank and alpha, and no
    other option of peft is in use."""
    modules = content.get("target_modules")
    others = [content[name] for name in content.keys() - CHECKED - IDLE_OPTIONS]
    return (
        content["peft_type"] == "LORA"
        and {"r", "lora_alpha"} <= content.keys()
        and content.get("bias", "none") == "none"
        and content.get("init_lora_weights", True) in (True, False, "gaussian")
        and isinstance(modules, list)
        and bool(modules)
        and set(map(str, modules)) <= set(LINEAR)
        and all(value is None or value is False or value in ([], {}) for value in others)
    )


def _plain_lora(
    model: Any, content: Mapping[str, Any], pairs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights that a plain adapter of matrices `pairs` changes; {} where it does not
    fit, which peft's way then reports."""
    rank, modules = content["r"], set(content["target_modules"])
    factor = content["lora_alpha"] / rank
    changed: dict[str, torch.Tensor] = {}
    expected: dict[str, tuple[int, int]] = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in modules:
            continue
        keys = [f"base_model.model.{name}.lora_{side}.weight" for side in "AB"]
        n_out, n_in = module.weight.shape
        expected |= dict(zip(keys, ((rank, n_in), (n_out, rank)), strict=True))
        if any(key not in pairs or tuple(pairs[key].shape) != expected[key] for key in keys):
            return {}
        a, b = (pairs[key].float() for key in keys)
        changed[f"{name}.weight"] = _plus(module.weight, (b @ a) * factor)
    return changed if expected.keys() == pairs.keys() else {}


def _plus(weight: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Return the sum in the type of `weight`, added in float32."""
    return (weight + change.to(weight.device)).to(weight.dtype)


def _merge_peft(
    model: Any, path: Path, content: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> Any:
    """Return `model` with the adapter of a peft folder merged. Raises UserError where its tensors
    are not exactly those that its configuration has on this model."""
    from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict

    longest_side = max((side for each in tensors.values() for side in each.shape), default=0)
    check_rank(content, longest_side, path / CONFIG_FILE)
    what = f"adapter {str(path)!r}"
    try:
        config = LoraConfig.from_pretrained(str(path))
        config.base_model_name_or_path = None  # peft warns where the model now lies elsewhere
        # peft draws matrices, which are then replaced; later random numbers must not depend on it.
        with torch.random.fork_rng(devices=[]):
            wrapped = _wrapped(model, config)
        loaded: Any = set_peft_model_state_dict(wrapped, dict(tensors))
        expected = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    except Exception as error:  # whatever a damaged configuration makes peft raise
        lines = str(error).splitlines() or [repr(error)]
        raise UserError(
            # (the first of several lines is only a heading)
            f"{what} does not fit this model: {lines[:2][-1].strip()}; use the model it was "
            "trained on"
        ) from error
    if missing := sorted(expected.keys() - tensors.keys()):
        raise UserError(
            f"{what} lacks {missing[0]}, and {len(missing) - 1} more of the "
            f"{len(expected)} tensors it should have; copy it again, or use the model it was "
            "trained on"
        )
    if surplus := sorted(name.replace(".default", "") for name in loaded.unexpected_keys):
        raise UserError(
            f"{what} also changes {surplus[0]}, and {len(surplus) - 1} more tensors that this "
            "model or its adapter_config.json does not have; use the model it was trained on"
        )
    try:
        return wrapped.merge_and_unload()
    except Exception as error:  # forms that peft cannot merge
        raise UserError(
            f"{what} cannot be merged ({str(error).partition(chr(10))[0]}); train it in a form "
            "that peft's merge_and_unload supports"
        ) from error


def _published(model: Any, path: Path) -> dict[str, torch.Tensor]:
    """Return the weights that a published WhisperRT checkpoint changes: whole tensors, and sums
    with low-rank updates.

    path: a file that holds the tensors, or, as Lightning saves them, a state_dict next to the
    settings and the state of the training, which are passed over. Raises UserError where it is not
    for this model.
    """
    what = f"checkpoint {str(path)!r}"
    content = load_pickled(path, what)
    if isinstance(content, Mapping):
        _check_dims(what, content.get("dims"), model.config)
        if isinstance(content.get("state_dict"), Mapping):
            content = content["state_dict"]
    base = model.state_dict()
    low_rank: dict[str, dict[str, torch.Tensor]] = {}  # lora_A and lora_B by weight
    changed: dict[str, torch.Tensor] = {}
    for key, tensor in _tensors(content):
        name, leaf = _our_name(key)
        kind = re.sub(r"\.\d+\.", ".0.", f"model.{name}")
        if f"{kind}.weight" not in base and kind not in base:
            raise UserError(f"{what}: unknown key {key!r}")
        if leaf in ("lora_A", "lora_B"):
            low_rank.setdefault(f"model.{name}.weight", {})[leaf] = tensor
        else:
            name = f"model.{name}.{leaf}" if leaf else f"model.{name}"
            _check_shape(what, name, tensor, base)
            changed[name] = tensor.to(base[name])
    if not low_rank:
        raise UserError(f"{what} holds no lora_A / lora_B keys; it is not a WhisperRT adapter")
    refuse_not_finite(what, _tensors(content))
    for name, pair in low_rank.items():
        change = _low_rank_update(what, name, pair)
        _check_shape(what, name, change, base)
        changed[name] = _plus(changed.get(name, base[name]), change)
    return changed


def _check_dims(what: str, dims: object, config: Any) -> None:
    """Raise UserError where a checkpoint declares other sizes than the model's.

    A vocabulary of another size changes no low-rank update, so that only this check finds it.
    dims: OpenAI's ModelDimensions, as a mapping or a stored object; None where there are none.
    """
    sizes = dims if isinstance(dims, Mapping) else vars(dims) if hasattr(dims, "__dict__") else {}
    for key, ours in dimensions(config).items():
        size = sizes.get(key)
        if size is not None and size != ours:
            raise UserError(
                f"{what} is of a Whisper with {key}={size}, and this model has {ours}; use the "
                "model it was trained on, English-only or multilingual and of the same size"
            )


def _low_rank_update(what: str, module: str, pair: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return (A B)^T, (out, in), of the matrices `lora_A` and `lora_B` of one module.

    Raises UserError where one is missing or their shapes do not fit each other.
    """
    matrices = [pair[leaf].float() for leaf in ("lora_A", "lora_B") if leaf in pair]
    are_two = len(matrices) == 2 and all(matrix.ndim == 2 for matrix in matrices)
    if not are_two or matrices[0].shape[1] != matrices[1].shape[0]:
        shapes = ", ".join(f"{leaf} {tuple(value.shape)}" for leaf, value in sorted(pair.items()))
        raise UserError(
            f"{what}: update {module} has {shapes}; it needs lora_A (in, rank) and "
            "lora_B (rank, out)"
        )
    return (matrices[0] @ matrices[1]).T


def _check_shape(
    what: str, name: str, value: torch.Tensor, base: Mapping[str, torch.Tensor]
) -> None:
    """Raise UserError where the model, whose tensors are `base`, has no `name` of this shape."""
    if name not in base or value.shape != base[name].shape:
        raise UserError(
            f"{what}: update {name.removeprefix('model.')} is {tuple(value.shape)}, this model has "
            f"{tuple(base[name].shape) if name in base else 'no such weight'}; "
            "load it on the size it was trained on"
        )


def _tensors(content: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (key, tensor) of a checkpoint, of nested dictionaries too; keys without `model.`."""
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            if not key.endswith("mask"):  # no weights: a mask follows from the chunk
                yield key.removeprefix("model."), value
        elif isinstance(value, Mapping):
            yield from _tensors(value)


def _our_name(key: str) -> tuple[str, str]:
    """Return where transformers has the tensor of OpenAI's `key`: the module below `model.` and the
    leaf (weight, bias, lora_A, lora_B), "" where the first is the tensor."""
    attention = re.fullmatch(
        r"(.+\.(?:query|key|value|out))\.(?:\w+\.)*?"
        r"(lora_A|lora_B|weight|bias)(?:\.(?:default\.)?weight)?",
        key,
    )
    if attention:
        return our_name(attention[1]), attention[2]
    name = our_name(key)
    if name.endswith("embed_positions.weight"):
        return name, ""
    stem, _, leaf = name.rpartition(".")
    return stem, leaf
