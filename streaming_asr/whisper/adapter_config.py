"""Checks of a peft folder's adapter_config.json before anything is merged."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming_asr.corpora.rows import json_file
from streaming_asr.errors import UserError
from streaming_asr.models.find import MULTILINGUAL_TOKENS, find_here, is_local

CONFIG_FILE = "adapter_config.json"
MERGED_TYPES = ("LORA", "ADALORA")
# These learn vectors that go before a layer's input.
PROMPTS = ("PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING")
PATTERNS = ("rank_pattern", "alpha_pattern")
NUMBERS = ("r", "lora_alpha", "lora_dropout", "qalora_group_size")
SWITCHES = (
    *("use_rslora", "use_dora", "use_qalora", "lora_bias", "fan_in_fan_out"),
    *("ensure_weight_tying", "inference_mode"),
)
COMPARED = ("model_type", "d_model", "encoder_layers", "decoder_layers", "num_mel_bins")
OPENAI = {
    "tiny": (384, 4, 4, 80),
    "base": (512, 6, 6, 80),
    "small": (768, 12, 12, 80),
    "medium": (1024, 24, 24, 80),
    **dict.fromkeys(("large", "large-v2"), (1280, 32, 32, 80)),
    "large-v3": (1280, 32, 32, 128),
    "large-v3-turbo": (1280, 32, 4, 128),
}
"""Width, layers of encoder and decoder, and mel bands of OpenAI's models."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of adapter_config.json in a peft folder.

    Raises UserError where there is none, where it is damaged, where its kind of adapter is not
    LoRA, or where a value has a type or a range that LoRA's options do not have.
    """
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise UserError(
            f"adapter {str(folder)!r}: no {CONFIG_FILE} there; give the folder that peft's "
            "save_pretrained wrote, or a checkpoint file of WhisperRT's authors"
        )
    content = json_file(file, "copy the adapter's folder again")
    kind = content.get("peft_type")
    if kind not in MERGED_TYPES:
        remedy = (
            "merge the adapter with peft's merge_and_unload, save the model and give it as "
            "model.path"
        )
        if kind in PROMPTS:
            remedy = "it changes no weights, so that it cannot be merged; train a LoRA"
        raise UserError(
            f"{file}: peft_type is {str(kind)[:60]!r}, and only LoRA is merged here; {remedy}"
        )
    _check_options(content, file)
    _check_init(str(content.get("init_lora_weights")), file)
    return content


def _check_options(content: Mapping[str, Any], file: Path) -> None:
    """Raise UserError for a switch that is not a boolean, and for a rank or alpha out of range.

    A switch that is a text, as "false", would count as on.
    """
    for name in SWITCHES:
        if not isinstance(content.get(name, False), bool):
            raise UserError(f"{file}: {name} is {_short(content[name])}; must be true or false")
    for name in NUMBERS:
        _check_number(name, content.get(name, 1), file)
    for name in PATTERNS:
        pattern = content.get(name) or {}
        if not isinstance(pattern, Mapping):
            raise UserError(
                f"{file}: {name} is {_short(pattern)}; must be an object of module and number"
            )
        for module, value in pattern.items():
            is_rank = name == "rank_pattern"
            _check_number("r" if is_rank else f"{name} of {module}", value, file)


def _check_number(name: str, value: Any, file: Path) -> None:
    """Raise UserError for a value that is no finite number; the rank `r` is a whole one from 1."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # An integer of JSON may have more digits than a float can hold.
    if not is_number or not abs(value) < 1e9 or not math.isfinite(value):
        raise UserError(f"{file}: {name} is {_short(value)}; must be a number")
    if name == "r" and (value < 1 or value != int(value)):
        raise UserError(f"{file}: rank {value}; must be a whole number from 1 on")


def _check_init(init: str, file: Path) -> None:
    """Raise UserError for an adapter whose base weights were changed by a random draw."""
    if re.match(r"(pissa_niter|lora_ga)", init.lower()):
        raise UserError(
            f"{file}: init_lora_weights is {init[:60]!r}, which changes the base weights by a "
            "random draw that the folder does not hold; save the adapter with peft's "
            "path_initial_model_for_weight_conversion"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def check_base(content: Mapping[str, Any], model: Any, file: Path) -> None:
    """Raise UserError where the base model that the adapter was trained on has other sizes.

    content: the adapter's configuration, which names that base; its sizes are compared if its
    configuration is on this machine, or if its name is one of OpenAI's. model: the configuration,
    of transformers, of the model to change. file: for the message.
    """
    mapping = content.get("auto_mapping") or {}
    if not isinstance(mapping, Mapping):
        raise UserError(f"{file}: auto_mapping is {_short(mapping)}; must be an object")
    name = content.get("base_model_name_or_path") or ""
    if not isinstance(name, str):
        raise UserError(f"{file}: base_model_name_or_path is {_short(name)}; must be a text")
    kind = str(mapping.get("base_model_class") or "Whisper")
    if not kind.startswith("Whisper"):
        raise UserError(f"{file}: the adapter is of a {kind[:60]}; give an adapter of a Whisper")
    base = _base_sizes(name)
    ours = _sizes(model.to_dict())
    for key, size in base.items():
        if size != ours.get(key):
            raise UserError(
                f"{file}: the adapter was trained on {name} ({key}={size}), and this model has "
                f"{key}={ours.get(key)}; use the model that the adapter was trained on, or "
                "correct base_model_name_or_path"
            )


def _base_sizes(name: str) -> dict[str, Any]:
    """Return the sizes of a base model (keys: COMPARED, vocab_size), by OpenAI's name for it or by
    its config.json on this machine; {} where neither exists."""
    openai = re.fullmatch(r"openai/whisper-([\w-]+)(\.en)?", name)
    if openai and openai[1] in OPENAI:
        tokens = MULTILINGUAL_TOKENS - 1 if openai[2] else MULTILINGUAL_TOKENS
        values = ("whisper", *OPENAI[openai[1]], tokens)
        return dict(zip((*COMPARED, "vocab_size"), values, strict=True))
    if "/" not in name:  # no name of the hub; a folder of that name here may be any model
        return {}
    with suppress(UserError, OSError, ValueError):
        model = None if is_local(name) else find_here(name)
        folder = Path(name).expanduser() if model is None else model.folder
        return _sizes(json_file(folder / "config.json", ""))
    return {}


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration that are compared."""
    sizes = {key: config[key] for key in COMPARED if key in config}
    if isinstance(tokens := config.get("vocab_size"), int):
        # Fine-tuning may have added tokens to a multilingual model.
        sizes["vocab_size"] = min(tokens, MULTILINGUAL_TOKENS)
    return sizes


def check_rank(content: Mapping[str, Any], largest: int, file: Path) -> None:
    """Raise UserError for a rank beyond `largest`, the longest side of the adapter's tensors."""
    ranks = [content.get("r", 1), *(content.get("rank_pattern") or {}).values()]
    if (rank := max(ranks)) > largest:
        raise UserError(
            f"{file}: rank {rank}, and no side of the adapter's tensors is longer than {largest}; "
            "copy the adapter's folder again"
        )
