"""Checks of a Hugging Face folder before its weights are loaded: do its files agree?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.corpora.rows import json_file
from streaming_asr.errors import UserError

REMEDY = "take all files from where the model comes from"
SIDES = {
    "vocab_size": ("decoder.embed_tokens.weight", 0),
    "d_model": ("decoder.embed_tokens.weight", 1),
    "max_target_positions": ("decoder.embed_positions.weight", 0),
    "max_source_positions": ("encoder.embed_positions.weight", 0),
    "num_mel_bins": ("encoder.conv1.weight", 1),
    "encoder_ffn_dim": ("encoder.layers.0.fc1.weight", 0),
    "decoder_ffn_dim": ("decoder.layers.0.fc1.weight", 0),
}
"""Sizes of config.json, and the tensor and the axis that have them."""


def check_sizes(folder: Path) -> None:
    """Raise UserError where config.json contradicts the shapes of the weights, and where
    generation_config.json names attention heads that the decoder does not have."""
    config = json_file(folder / "config.json", REMEDY)
    shapes = _shapes(folder)
    for key, (tensor, axis) in SIDES.items():
        is_known = key in config and len(shapes.get(tensor, ())) > axis
        if is_known:
            stored = shapes[tensor][axis]
            if config[key] != stored:
                raise UserError(
                    f"{folder / 'config.json'}: {key} is {config[key]!r:.60}, and the weights have "
                    f"{stored} ({tensor}); {REMEDY}"
                )
    for key in ("encoder_attention_heads", "decoder_attention_heads"):
        n_heads, width = config.get(key), config.get("d_model")
        if not isinstance(n_heads, int) or not isinstance(width, int):
            continue  # loading reports what is wrong
        if n_heads < 1 or width % n_heads:
            raise UserError(
                f"{folder / 'config.json'}: {key} is {n_heads}; must divide d_model={width}; "
                f"{REMEDY}"
            )
    file = folder / "generation_config.json"
    heads = json_file(file, REMEDY).get("alignment_heads") if file.is_file() else None
    n_layers, n_heads = config.get("decoder_layers"), config.get("decoder_attention_heads")
    if heads and isinstance(n_layers, int) and isinstance(n_heads, int):
        _check_heads(heads, n_layers, n_heads, file)


def _check_heads(heads: Any, n_layers: int, n_heads: int, file: Path) -> None:
    """Raise UserError where `heads` is no list of (layer, head) pairs of a decoder of this size."""
    remedy = f"{REMEDY}, or delete alignment_heads there"
    for pair in heads if isinstance(heads, list) else [heads]:
        is_pair = isinstance(pair, Sequence) and [type(each) for each in pair] == [int, int]
        if not is_pair:
            raise UserError(
                f"{file}: alignment_heads has {str(pair)[:60]!r}; each must be a decoder layer and "
                f"a head; {remedy}"
            )
        if not (0 <= pair[0] < n_layers and 0 <= pair[1] < n_heads):
            raise UserError(
                f"{file}: alignment_heads has layer {pair[0]}, head {pair[1]}, and the decoder has "
                f"{n_layers} layers of {n_heads} heads; {remedy}"
            )


def _shapes(folder: Path) -> dict[str, Sequence[int]]:
    """Return the shape of every tensor in the folder's safetensors files, by its name below
    `model.`; {} where the weights have another form or are damaged."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, Sequence[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118
                    shapes[name.removeprefix("model.")] = tensors.get_slice(name).get_shape()
        except (SafetensorError, OSError):
            return {}  # loading reports what is wrong
    return shapes


def check_added_tokens(path: str | Path, tokenizer: Any, end: int) -> None:
    """Raise UserError for a tokenizer with tokens of text beyond Whisper's.

    The tokens after <|endoftext|>, number `end`, are control tokens and timestamps, which no text
    may hold; a word that fine-tuning added there could never be output.
    """
    added: Mapping[int, Any] = tokenizer.added_tokens_decoder
    texts = [
        token.content
        for number, token in sorted(added.items())
        if number > end and not token.special and not re.fullmatch(r"<\|.*\|>", token.content)
    ]
    if texts:
        more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
        raise UserError(
            f"model {str(path)!r}: its tokenizer adds {texts[0]!r}{more} to Whisper's tokens, and "
            "no method here can output added tokens of text; fine-tune with Whisper's tokenizer"
        )
