"""Makes a Hugging Face folder of a CTranslate2 Whisper folder, once, and keeps it in the cache."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.files import cache_root, file_sha256, make_once
from streaming_asr.models.ctranslate2 import Variables, embeddings, tensors
from streaming_asr.models.find import MULTILINGUAL_TOKENS, find
from streaming_asr.whisper.tensors import quiet

log = logging.getLogger(__name__)

FRAMES_PER_S = 50
VERSION = 1  # part of the cache's key: raise it when the conversion changes
FILES = ("model.bin", "config.json", "tokenizer.json")


def locate(path: str | Path) -> str:
    """Return the local folder of `path` in Hugging Face's form.

    path: a folder in Hugging Face's or CTranslate2's form, or a hub name, as in
    openai/whisper-base.en or openai/whisper-base.en@<branch, tag or commit>. A CTranslate2 folder
    is converted once into the cache. Raises UserError where there is no model, with all that can be
    done about it.
    """
    model = find(path)
    return str(as_hugging_face(model.folder) if model.is_ctranslate2 else model.folder)


def as_hugging_face(folder: Path) -> Path:
    """Return the Hugging Face folder of a CTranslate2 Whisper folder, made on first use.

    float16 and bfloat16 weights keep their type, integer weights become float32. The cache's name
    for it is a hash of the folder's content. Raises UserError where the folder is not whole.
    """
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder}: a CTranslate2 folder without {name}; copy it from where the model "
                "comes from (tokenizer.json is the same for all models of one vocabulary)"
            )
    identity = "\0".join([str(VERSION), *(file_sha256(folder / name) for name in FILES)])
    hashed = hashlib.sha256(identity.encode()).hexdigest()[:16]
    size = (folder / "model.bin").stat().st_size
    target = cache_root() / "from_ctranslate2" / hashed
    if not target.is_dir():
        make_once(target, lambda path: convert(folder, path), n_bytes=4 * size)
        log.info("converted %s for transformers: %s", folder, target)
    return target


def convert(folder: Path, target: Path) -> None:
    """Write the CTranslate2 folder `folder` as the Hugging Face folder `target`.

    float16 and bfloat16 weights keep their type, integer weights become float32. Raises UserError
    where the files are damaged or do not belong together.
    """
    import torch
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )

    variables = Variables(folder / "model.bin")
    settings, tokenizer = _json(folder / "config.json"), _json(folder / "tokenizer.json")
    halves = {"<f2": torch.float16, "bfloat16": torch.bfloat16}
    dtype = halves.get("".join(variables.types), torch.float32)  # a file has one type or several
    state = {name: torch.from_numpy(np.array(values)) for name, values in tensors(variables)}
    n_vocabulary, width = variables[embeddings(variables)].shape
    n_frames = len(state["model.encoder.embed_positions.weight"])
    ids = _tokens(folder, tokenizer, n_vocabulary)
    eot = ids["<|endoftext|>"]
    control_ids: dict[str, Any] = {
        "bos_token_id": eot,
        "eos_token_id": eot,
        "pad_token_id": eot,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
    }
    config = WhisperConfig(
        vocab_size=n_vocabulary,
        d_model=width,
        num_mel_bins=state["model.encoder.conv1.weight"].shape[1],
        max_source_positions=n_frames,
        max_target_positions=len(state["model.decoder.embed_positions.weight"]),
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **_layer_sizes(variables, state, folder),
        **control_ids,
    )
    generation = _generation(settings, ids, n_vocabulary)
    try:
        # No memory for weights that are replaced at once.
        with torch.device("meta"):
            model: Any = WhisperForConditionalGeneration(config)
            model.to(dtype)
        state = {name: value.to(dtype) for name, value in state.items()}
        # One tensor in CTranslate2's file, tied in transformers too.
        state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
        model.load_state_dict(state, assign=True)
        model.tie_weights()
        model.generation_config = GenerationConfig(
            **control_ids, **generation, max_length=config.max_target_positions
        )
        target.mkdir()
        with quiet():
            model.save_pretrained(target)
        WhisperFeatureExtractor(
            feature_size=config.num_mel_bins, chunk_length=max(1, n_frames // FRAMES_PER_S)
        ).save_pretrained(target)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(
            f"{folder}: its parts do not make one Whisper ({reason}); convert the model again"
        ) from error
    _write_tokenizer(tokenizer, eot, target)


def _layer_sizes(variables: Variables, state: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of WhisperConfig about the layers of encoder and decoder.

    state: the weights by transformers' names. Raises UserError where a side has no layers.
    """
    sizes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        if not variables.layers(side):
            raise UserError(
                f"{folder / 'model.bin'}: holds no {side} layers, so it is not a whole Whisper; "
                "copy it again"
            )
        sizes |= {
            f"{side}_layers": variables.layers(side),
            f"{side}_attention_heads": int(variables[f"{side}/num_heads"]),
            f"{side}_ffn_dim": len(state[f"model.{side}.layers.0.fc1.weight"]),
        }
    return sizes


def _json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON ({error}); copy it again") from error


def _tokens(folder: Path, tokenizer: dict[str, Any], n_vocabulary: int) -> dict[str, int]:
    """Return the ids of the added tokens (control tokens, timestamps) by their spelling.

    Raises UserError where one that every Whisper needs is missing, or the model has fewer tokens.
    """
    ids = {str(token["content"]): int(token["id"]) for token in tokenizer.get("added_tokens") or []}
    needed = ("<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>")
    if lacking := [token for token in needed if token not in ids]:
        raise UserError(
            f"{folder / 'tokenizer.json'}: no token {lacking[0]}; take the tokenizer.json of a "
            "Whisper with this vocabulary"
        )
    if max(ids.values()) >= n_vocabulary:
        raise UserError(
            f"{folder / 'tokenizer.json'}: has token {max(ids.values())}, but the model has "
            f"{n_vocabulary}; take the tokenizer.json of this model"
        )
    return ids


def _generation(
    converted: dict[str, Any], ids: dict[str, int], n_vocabulary: int
) -> dict[str, Any]:
    """Return the settings of generation_config.json that only Whisper has.

    converted: config.json of the CTranslate2 folder. ids: of the added tokens by their spelling.
    """
    settings: dict[str, Any] = {
        "suppress_tokens": converted.get("suppress_ids"),
        "begin_suppress_tokens": converted.get("suppress_ids_begin"),
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "is_multilingual": n_vocabulary >= MULTILINGUAL_TOKENS,
        "max_initial_timestamp_index": 50,
        "return_timestamps": False,
    }
    if converted.get("alignment_heads"):
        settings["alignment_heads"] = converted["alignment_heads"]
    if settings["is_multilingual"]:
        spellings = {token_id: token for token, token_id in ids.items()}
        languages = [
            token_id for token_id in converted.get("lang_ids") or () if token_id in spellings
        ]
        settings["lang_to_id"] = {spellings[token_id]: token_id for token_id in languages}
        tasks = [task for task in ("transcribe", "translate") if f"<|{task}|>" in ids]
        settings["task_to_id"] = {task: ids[f"<|{task}|>"] for task in tasks}
    return settings


def _write_tokenizer(tokenizer: dict[str, Any], eot: int, target: Path) -> None:
    """Write tokenizer.json and the tokenizer_config.json that transformers reads next to it."""
    text = json.dumps(tokenizer, ensure_ascii=False)
    (target / "tokenizer.json").write_text(text, encoding="utf-8")
    special = [
        token["content"]
        for token in tokenizer["added_tokens"]
        if token["special"] and token["id"] != eot
    ]
    settings = {
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>"),
        "tokenizer_class": "WhisperTokenizer",
        "add_prefix_space": False,
        "extra_special_tokens": special,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
