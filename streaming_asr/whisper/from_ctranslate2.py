"""Makes a Hugging Face folder of a CTranslate2 Whisper folder, once, and keeps it in the cache."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.files import cache_root, file_sha256, make_once
from streaming_asr.models.ctranslate2 import Variables, embeddings, tensors
from streaming_asr.models.find import MULTILINGUAL_TOKENS, find
from streaming_asr.whisper.tensors import quiet

log = logging.getLogger(__name__)

VERSION = 1  # raised where the same folder would be converted otherwise
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

    Raises UserError.
    """
    import torch
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )

    v = Variables(folder / "model.bin")
    settings, tokenizer = _json(folder / "config.json"), _json(folder / "tokenizer.json")
    dtype = {"<f2": torch.float16, "bfloat16": torch.bfloat16}.get("".join(v.types), torch.float32)
    state = {name: torch.from_numpy(np.array(values)) for name, values in tensors(v)}
    vocabulary, width = v[embeddings(v)].shape
    frames = len(state["model.encoder.embed_positions.weight"])
    ids = _tokens(folder, tokenizer, vocabulary)
    eot = ids["<|endoftext|>"]
    ends: dict[str, Any] = {"bos_token_id": eot, "eos_token_id": eot, "pad_token_id": eot}
    ends["decoder_start_token_id"] = ids["<|startoftranscript|>"]
    sizes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        if not v.layers(side):
            raise UserError(
                f"{folder / 'model.bin'}: holds no {side} layers, so it is not a whole Whisper; "
                "copy it again"
            )
        sizes |= {
            f"{side}_layers": v.layers(side),
            f"{side}_attention_heads": int(v[f"{side}/num_heads"]),
            f"{side}_ffn_dim": len(state[f"model.{side}.layers.0.fc1.weight"]),
        }
    config = WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        num_mel_bins=state["model.encoder.conv1.weight"].shape[1],
        max_source_positions=frames,
        max_target_positions=len(state["model.decoder.embed_positions.weight"]),
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **sizes,
        **ends,
    )
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
            **ends, **_generation(settings, ids, vocabulary), max_length=config.max_target_positions
        )
        target.mkdir()
        with quiet():
            model.save_pretrained(target)
        WhisperFeatureExtractor(
            feature_size=config.num_mel_bins, chunk_length=max(1, frames // 50)
        ).save_pretrained(target)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise UserError(
            f"{folder}: its parts do not make one Whisper ({reason}); convert the model again"
        ) from error
    _write_tokenizer(tokenizer, eot, target)


def _json(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{file}: not readable as JSON ({error}); copy it again") from error


def _tokens(folder: Path, tokenizer: dict[str, Any], vocabulary: int) -> dict[str, int]:
    """Return the ids of the added tokens. Raises UserError where they are not this model's."""
    ids = {str(token["content"]): int(token["id"]) for token in tokenizer.get("added_tokens") or []}
    needed = ("<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>")
    if lacking := [token for token in needed if token not in ids]:
        raise UserError(
            f"{folder / 'tokenizer.json'}: no token {lacking[0]}; take the tokenizer.json of a "
            "Whisper with this vocabulary"
        )
    if max(ids.values()) >= vocabulary:
        raise UserError(
            f"{folder / 'tokenizer.json'}: has token {max(ids.values())}, but the model has "
            f"{vocabulary}; take the tokenizer.json of this model"
        )
    return ids


def _generation(source: dict[str, Any], ids: dict[str, int], vocabulary: int) -> dict[str, Any]:
    """Return what a generation_config.json of Whisper has apart from the tokens of every text."""
    settings: dict[str, Any] = {
        "suppress_tokens": source.get("suppress_ids"),
        "begin_suppress_tokens": source.get("suppress_ids_begin"),
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "is_multilingual": vocabulary >= MULTILINGUAL_TOKENS,
        "max_initial_timestamp_index": 50,
        "return_timestamps": False,
    }
    if source.get("alignment_heads"):
        settings["alignment_heads"] = source["alignment_heads"]
    if settings["is_multilingual"]:
        spelling = {i: token for token, i in ids.items()}
        languages = [i for i in source.get("lang_ids") or () if i in spelling]
        settings["lang_to_id"] = {spelling[i]: i for i in languages}
        tasks = {name: ids.get(f"<|{name}|>") for name in ("transcribe", "translate")}
        settings["task_to_id"] = {name: i for name, i in tasks.items() if i is not None}
    return settings


def _write_tokenizer(tokenizer: dict[str, Any], eot: int, target: Path) -> None:
    text = json.dumps(tokenizer, ensure_ascii=False)
    (target / "tokenizer.json").write_text(text, encoding="utf-8")
    special = [t["content"] for t in tokenizer["added_tokens"] if t["special"] and t["id"] != eot]
    end = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>")
    settings = {
        **end,
        "tokenizer_class": "WhisperTokenizer",
        "add_prefix_space": False,
        "extra_special_tokens": special,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
