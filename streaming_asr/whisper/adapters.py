"""LoRA adapters: make, write and merge peft's, and read the form WhisperRT's authors publish.

A peft folder holds adapter_config.json and adapter_model.safetensors. The authors' checkpoints are
torch files with OpenAI's key names (encoder.blocks.0.attn.query) whose lora_A is (in, rank) and
lora_B (rank, out), the transpose of peft's, scaled by alpha / rank = 1.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError
from streaming_asr.whisper.tensors import load_pickled, load_tensors, refuse_not_finite, save_half

ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")  # of all three attentions
LINEAR = (*ATTENTION, "fc1", "fc2")
MODULES = {"attention": ATTENTION, "all": LINEAR}
WEIGHTS_FILE = "adapter_model.safetensors"

PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_ATTENTION = {"attn": "self_attn", "cross_attn": "encoder_attn"}
_NORMS = {"attn_ln": "self_attn_layer_norm", "cross_attn_ln": "encoder_attn_layer_norm"}
_PLAIN = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "encoder.ln_post": "encoder.layer_norm",
    "encoder.conv1": "encoder.conv1",
    "encoder.conv2": "encoder.conv2",
    "decoder.token_embedding": "decoder.embed_tokens",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "decoder.ln": "decoder.layer_norm",
}


def with_lora(
    model: Any,
    rank: int,
    target_modules: Sequence[str],
    *,
    init: str = "peft",
    start: Path | None = None,
) -> Any:
    """`model` wrapped by peft, only the low-rank matrices trainable; B = 0, scale alpha / r = 1.

    init: `peft` draws A from U(±1/sqrt(d)); `paper`, as WhisperRT's code does with A stored
    transposed, from U(±1/sqrt(rank)), which is sqrt(d / rank) times wider. start: a folder whose
    adapter, if it has one, is gone on from. Raises UserError for another init, and for an adapter
    of another rank or model.
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
    """Write what `with_lora` made and training changed, in fp16; `base`: the model it is for."""
    from peft import get_peft_model_state_dict

    save_half(get_peft_model_state_dict(wrapped), folder / WEIGHTS_FILE)
    config = wrapped.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    # What is unset is left out: other versions of peft have other options.
    config = {k: getattr(v, "value", v) for k, v in config.items() if v not in (None, {})}
    text = json.dumps(config, indent=2, sort_keys=True, default=sorted)
    (folder / "adapter_config.json").write_text(text + "\n")


def merge_adapter(model: Any, adapter: str | Path, scale: float = 1.0) -> Any:
    """`model` with the adapter's low-rank updates, times `scale`, added to its weights."""
    path = Path(adapter)
    if path.is_file():
        return merge_published(model, path, scale)
    if not (path / "adapter_config.json").is_file():
        raise UserError(
            f"adapter {str(path)!r}: no adapter_config.json there; give the folder that peft's "
            "save_pretrained wrote, or a checkpoint file of WhisperRT's authors"
        )
    from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict

    held = load_tensors(path / WEIGHTS_FILE)
    try:
        config = LoraConfig.from_pretrained(str(path))
        config.base_model_name_or_path = None  # peft warns where the model now lies elsewhere
        config.lora_alpha *= scale  # type: ignore[assignment]
        with torch.random.fork_rng(devices=[]):  # what follows draws as where nothing was loaded
            wrapped = _wrapped(model, config)
        set_peft_model_state_dict(wrapped, dict(held))
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(
            f"adapter {str(path)!r} does not fit this model: "
            f"{str(error).splitlines()[:2][-1].strip()}; use the model it was trained on"
        ) from error
    wanted = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    if missing := sorted(wanted.keys() - held.keys()):
        raise UserError(
            f"adapter {str(path)!r} lacks {missing[0]}, and {len(missing) - 1} more of the "
            f"{len(wanted)} tensors it should have; copy it again, or use the model it was "
            "trained on"
        )
    return wrapped.merge_and_unload()


def merge_published(model: Any, path: Path, scale: float = 1.0) -> Any:
    """Add a published WhisperRT checkpoint to `model`: its weights, its low-rank updates times
    `scale`."""
    content = load_pickled(path, f"checkpoint {str(path)!r}")
    own = model.model.state_dict()
    low_rank: dict[str, dict[str, torch.Tensor]] = {}
    changes: dict[str, torch.Tensor] = {}
    unknown = []
    for key, tensor in _tensors(content):
        name, leaf = _our_name(key)
        if name is None:
            unknown.append(key)
        elif leaf in ("lora_A", "lora_B"):
            low_rank.setdefault(name, {})[leaf] = tensor
        else:
            changes[name if leaf == "" else f"{name}.{leaf}"] = tensor
    if not low_rank:
        raise UserError(
            f"checkpoint {str(path)!r} holds no lora_A / lora_B keys; it is not a WhisperRT adapter"
        )
    updated = {name: value.to(own[name]) for name, value in changes.items() if name in own}
    refuse_not_finite(f"checkpoint {str(path)!r}", _tensors(content))
    for name, pair in low_rank.items():
        weight = f"{name}.weight"
        delta = scale * (pair["lora_A"].float() @ pair["lora_B"].float()).T
        if weight not in own or delta.shape != own[weight].shape:
            raise UserError(
                f"checkpoint {str(path)!r}: update {name} is {tuple(delta.shape)}, this model has "
                f"{tuple(own[weight].shape) if weight in own else 'no such weight'}; "
                "load it on the size it was trained on"
            )
        base = updated.get(weight, own[weight])
        updated[weight] = (base.float() + delta.to(base.device)).to(own[weight].dtype)
    if unknown:
        raise UserError(f"checkpoint {str(path)!r}: unknown key {unknown[0]!r}")
    model.model.load_state_dict(updated, strict=False)
    return model


def _tensors(content: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Model tensors of a checkpoint, whatever dictionary they lie in, without a model. prefix."""
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            if not key.endswith("mask"):  # buffers, rebuilt from the chunk
                yield key.removeprefix("model."), value
        elif isinstance(value, Mapping):
            yield from _tensors(value)


def _our_name(key: str) -> tuple[str | None, str]:
    """OpenAI's key -> (module path below model.model, leaf); (None, "") for an unknown one."""
    block = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)", key)
    if block is None:
        stem, _, leaf = key.rpartition(".")
        if key in _PLAIN:
            return _PLAIN[key], ""
        return (_PLAIN[stem], leaf) if stem in _PLAIN else (None, "")
    side, index, rest = block.groups()
    layer = f"{side}.layers.{index}"
    attention = re.fullmatch(
        r"(attn|cross_attn)\.(query|key|value|out)\.(?:\w+\.)*?"
        r"(lora_A|lora_B|weight|bias)(?:\.(?:default\.)?weight)?",
        rest,
    )
    if attention:
        kind, projection, leaf = attention.groups()
        return f"{layer}.{_ATTENTION[kind]}.{PROJECTIONS[projection]}", leaf
    stem, _, leaf = rest.rpartition(".")
    names = {**_NORMS, "mlp.0": "fc1", "mlp.2": "fc2", "mlp_ln": "final_layer_norm"}
    return (f"{layer}.{names[stem]}", leaf) if stem in names else (None, "")
