"""Checks of a peft folder's adapter_config.json before anything is merged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streaming_asr.corpora.rows import json_file
from streaming_asr.errors import UserError
from streaming_asr.models.find import MULTILINGUAL_TOKENS, find_here, is_local
from streaming_asr.schemas import violation

CONFIG_FILE = "adapter_config.json"
MERGED_TYPES = ("LORA", "ADALORA")
# These learn vectors that go before a layer's input.
PROMPTS = ("PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING")
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


Rank = Annotated[int, msgspec.Meta(ge=1, lt=10**9)]
Number = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]


class LoraOptions(msgspec.Struct):
    """Options of LoRA that are checked. A switch that is a text, as "false", would count as on."""

    r: Rank = 8
    lora_alpha: Number = 8.0
    lora_dropout: Number = 0.0
    qalora_group_size: Number = 16.0
    rank_pattern: dict[str, Rank] | None = None
    alpha_pattern: dict[str, Number] | None = None
    use_rslora: bool = False
    use_dora: bool = False
    use_qalora: bool = False
    lora_bias: bool = False
    fan_in_fan_out: bool = False
    ensure_weight_tying: bool = False
    inference_mode: bool = False
    base_model_name_or_path: str | None = None
    auto_mapping: dict[str, Any] | None = None


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of adapter_config.json in a peft folder.

    Raises UserError where there is none, where it is damaged, where its kind of adapter is not
    LoRA, where a value has a type or a range that LoRA's options do not have, and for an adapter
    whose base weights were changed by a random draw.
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
    if (fault := violation(content, LoraOptions)) is not None:
        raise UserError(f"{file}: {fault.text('it')}; copy the adapter's folder again")
    init = str(content.get("init_lora_weights"))
    if re.match(r"(pissa_niter|lora_ga)", init.lower()):
        raise UserError(
            f"{file}: init_lora_weights is {init[:60]!r}, which changes the base weights by a "
            "random draw that the folder does not hold; save the adapter with peft's "
            "path_initial_model_for_weight_conversion"
        )
    return content


def check_base(content: Mapping[str, Any], model: Any, file: Path) -> None:
    """Raise UserError where the base model that the adapter was trained on has other sizes.

    content: the adapter's configuration, which names that base; its sizes are compared if its
    configuration is on this machine, or if its name is one of OpenAI's. model: the configuration,
    of transformers, of the model to change. file: for the message.
    """
    mapping, name = content.get("auto_mapping") or {}, content.get("base_model_name_or_path") or ""
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
