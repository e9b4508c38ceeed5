"""LoRA adapters: make, write and merge peft's.

A peft folder holds adapter_config.json and adapter_model.safetensors.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.whisper.tensors import load_tensors, save_half

ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")  # of all three attentions
LINEAR = (*ATTENTION, "fc1", "fc2")
MODULES = {"attention": ATTENTION, "all": LINEAR}
WEIGHTS_FILE = "adapter_model.safetensors"


def with_lora(
    model: Any,
    rank: int,
    target_modules: Sequence[str],
    *,
    init: str = "peft",
    start: Path | None = None,
) -> Any:
    """Return `model` wrapped by peft, only the low-rank matrices trainable; B = 0, scale alpha / r
    = 1.

    init: `peft` draws A from U(±1/sqrt(d)); `paper`, as WhisperRT's code does with A stored
    transposed, from U(±1/sqrt(rank)), which is sqrt(d / rank) times wider. start: a folder whose
    adapter, if it has one, is gone on from. Raises UserError for another init, and for an adapter
    of another rank or model.
    """
    from peft import LoraConfig, get_peft_model

    check_one_of(("paper", "peft"), init=init)
    config = LoraConfig(
        r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=list(target_modules)
    )
    with warnings.catch_warnings():
        # peft asks transformers 5 for an attribute under its old name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        wrapped = get_peft_model(model, config)
    if init == "paper":
        for name, weight in wrapped.named_parameters():
            if "lora_A" in name:
                torch.nn.init.uniform_(weight, -(rank**-0.5), rank**-0.5)
    if start is not None and (start / WEIGHTS_FILE).is_file():
        _load_lora(wrapped, start, rank)
    return wrapped


def _load_lora(wrapped: Any, start: Path, rank: int) -> None:
    from peft import set_peft_model_state_dict

    weights = {name: value.float() for name, value in load_tensors(start / WEIGHTS_FILE).items()}
    try:
        lost = set_peft_model_state_dict(wrapped, weights).unexpected_keys
        if lost:
            raise UserError(
                f"start={start}: its adapter also changes {lost[0]}; train the same modules "
                "(recipe.target.modules=all, where there is that setting)"
            )
    except RuntimeError as error:
        raise UserError(
            f"start={start}: its adapter does not fit rank={rank} on this model "
            f"({str(error).splitlines()[0]}); use the rank and model of that stage"
        ) from error


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


def merge_adapter(model: Any, adapter: str | Path) -> Any:
    """Return `model` with the adapter's low-rank updates added to its weights. Raises UserError."""
    path = Path(adapter)
    if not (path / "adapter_config.json").is_file():
        raise UserError(
            f"adapter {str(path)!r}: no adapter_config.json there; give the folder that peft's "
            "save_pretrained wrote"
        )
    from peft import PeftModel, get_peft_model_state_dict

    file = path / "adapter_model.safetensors"
    held = load_tensors(file) if file.is_file() else None
    try:
        with warnings.catch_warnings():
            # peft 0.21 reads an attribute that transformers 5.23 has renamed.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing")
            # It only warns of tensors that are missing, which are refused below.
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            wrapped = PeftModel.from_pretrained(model, str(path))
        wanted = get_peft_model_state_dict(wrapped, save_embedding_layers=False)
        if held is not None and (missing := sorted(wanted.keys() - held.keys())):
            raise UserError(
                f"adapter {str(path)!r} lacks {missing[0]}, and {len(missing) - 1} more of the "
                f"{len(wanted)} tensors it should have; copy it again, or use the model it was "
                "trained on"
            )
        return wrapped.merge_and_unload()
    except UserError:
        raise
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(
            f"adapter {str(path)!r} does not fit this model: {str(error).splitlines()[0]}; use the "
            "model it was trained on"
        ) from error
