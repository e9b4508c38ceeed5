"""Names and sizes as OpenAI's code has them, which published checkpoints and other programs use."""

from __future__ import annotations

import re
from typing import Any

import torch

NAMES = (
    ("layers.", "blocks."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn.", "attn."),
    ("encoder_attn.", "cross_attn."),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("embed_tokens", "token_embedding"),
    ("embed_positions.weight", "positional_embedding"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
)
"""Parts of a tensor's name in transformers, and in OpenAI's code."""


def openai_name(name: str) -> str:
    """Return OpenAI's name of a tensor of transformers' class."""
    name = name.removeprefix("model.")
    for part, openai in NAMES:
        name = name.replace(part, openai)
    return name


def our_name(name: str) -> str:
    """Return the name below `model.` in transformers' class of a tensor of OpenAI's."""
    for part, openai in reversed(NAMES):
        name = re.sub(rf"(?<![a-z_]){re.escape(openai)}", part, name)
    return name


def openai_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of a Whisper by OpenAI's names."""
    state = {openai_name(name): value for name, value in model.state_dict().items()}
    return {name: value for name, value in state.items() if not name.startswith("proj_")}


def dimensions(config: Any) -> dict[str, int]:
    """Return the sizes of a configuration by OpenAI's names."""
    return {
        "n_mels": config.num_mel_bins,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_vocab": config.vocab_size,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }
