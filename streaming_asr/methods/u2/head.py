"""The CTC head: one linear layer from encoder frames to CTC classes, and its place on disk.

A trained U2 is a folder with ctc_head.safetensors, and next to it what else was trained: a LoRA
adapter (adapter_config.json), or a whole model under model/, or neither where only the head was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from streaming_asr.errors import UserError
from streaming_asr.models.tensors import save_half, weights_at
from streaming_asr.whisper.load import Whisper, load_whisper

HEAD_FILE = "ctc_head.safetensors"
MODEL_FOLDER = "model"


def embedding_head(whisper: Whisper, n_tokens: int) -> nn.Linear:
    """Return a head whose weights are the decoder's token embeddings, untrained.

    The blank, the last class, gets the embedding of the token for no speech.
    """
    embedding = whisper.model.get_input_embeddings().weight
    no_speech = whisper.eot
    for token in ("<|nospeech|>", "<|nocaptions|>"):  # its name in newer and older models
        token_id = whisper.tokenizer.convert_tokens_to_ids(token)
        if token_id not in (None, whisper.eot):  # of an unknown token it is eot or None
            no_speech = token_id
            break
    head = nn.Linear(embedding.shape[1], n_tokens + 1)
    with torch.no_grad():
        head.weight.copy_(torch.cat([embedding[:n_tokens], embedding[no_speech : no_speech + 1]]))
        head.bias.zero_()
    return head


def save_head(head: nn.Linear, folder: Path) -> None:
    """Write the head in fp16."""
    save_half(dict(head.named_parameters()), folder / HEAD_FILE)


def load_head(folder: str | Path, whisper: Whisper) -> nn.Linear:
    """Return the head in `folder`, float32. Raises UserError where none is or it does not fit."""
    path = Path(folder) / HEAD_FILE
    remedy = (
        "train one with `python -m streaming_asr.train method=u2` and name its folder with "
        "method.weights="
    )
    tensors = weights_at(path, HEAD_FILE, "CTC head", remedy)
    weight, bias = tensors.get("weight"), tensors.get("bias")
    width, most = whisper.config.d_model, whisper.eot + 1
    shapes = [None if each is None else tuple(each.shape) for each in (weight, bias)]
    n_classes = shapes[0][0] if shapes[0] else 0
    fits = shapes == [(n_classes, width), (n_classes,)] and n_classes <= most
    if weight is None or bias is None or not fits:
        raise UserError(
            f"{path}: weight and bias of shapes {shapes[0]} and {shapes[1]}, but this model's "
            f"frames have {width} numbers and it has {most - 1} text tokens; use the model that "
            "the head was trained on"
        )
    head = nn.Linear(width, n_classes)
    head.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    return head


def load_trained(
    model_path: str,
    folder: str | Path | None,
    *,
    device: str = "cpu",
    dtype: str = "float32",
) -> Whisper:
    """Return the Whisper that a U2 folder's head was trained with.

    That is the whole model in the folder, or `model_path` with the folder's adapter, or by itself.
    """
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    if folder is None:
        return load_whisper(model_path, **options)
    folder = Path(folder)
    whole_model = folder / MODEL_FOLDER
    if (whole_model / "config.json").is_file():
        # Weights in the package leave out the tokenizer, which is the base model's.
        has_tokenizer = (whole_model / "tokenizer.json").is_file()
        tokenizer_path = None if has_tokenizer else model_path
        return load_whisper(whole_model, **options, tokenizer_path=tokenizer_path)
    adapter = folder if (folder / "adapter_config.json").is_file() else None
    return load_whisper(model_path, **options, adapter=adapter)
