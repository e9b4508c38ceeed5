"""Where a model's files are: a local folder, the hub's cache, or, only then, the hub itself."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from streaming_asr.errors import UserError

FILES = "config.json, generation_config.json, the tokenizer's files and model.safetensors"
SMALL = ("*.json", "*.txt")
# The sharded copies of OpenAI's large models in float32 are left where they are.
WEIGHTS = ("model.safetensors", "model-*.safetensors")
OLD_WEIGHTS = ("pytorch_model*.bin",)
TIMEOUT_S = 5.0


def locate(path: str | Path) -> str:
    """Return the local folder of `path`: a Hugging Face folder, or a hub name, as in
    openai/whisper-base.en or openai/whisper-base.en@<branch, tag or commit>.

    The hub is asked only for what is not in its cache ($HF_HOME). Raises UserError where there is
    no model, with the folder to place files in where the hub cannot be reached.
    """
    path = str(path)
    if is_local(path):
        folder = Path(path).expanduser()
        if not (folder / "config.json").is_file():
            raise UserError(
                f"model {path!r}: no folder with a config.json there; give a Hugging Face folder "
                "or a hub name such as openai/whisper-tiny.en"
            )
        return str(folder)
    name, _, revision = path.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise UserError(
            f"model {path!r}: neither a folder nor a hub name (owner/name, @revision after it)"
        )
    return _cached(name, revision or None) or _downloaded(name, revision or None)


def is_local(path: str) -> bool:
    """Return whether `path` means a folder: it looks like one, or is one."""
    return path.startswith((".", "/", "~")) or path.count("/") > 1 or Path(path).exists()


def _cached(name: str, revision: str | None) -> str | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError):
        return None
    weights = [file for pattern in (*WEIGHTS, *OLD_WEIGHTS) for file in folder.glob(pattern)]
    # a download that was broken off leaves a folder without its weights
    return str(folder) if weights and (folder / "config.json").is_file() else None


def _downloaded(name: str, revision: str | None) -> str:
    from huggingface_hub import constants, snapshot_download

    if constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise _unreachable(name, revision, "HF_HUB_OFFLINE is set")
    if problem := _no_way(constants.ENDPOINT):
        raise _unreachable(name, revision, problem)
    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=[*SMALL, *WEIGHTS])
        if not any(file for pattern in WEIGHTS for file in Path(folder).glob(pattern)):
            folder = snapshot_download(
                name, revision=revision, allow_patterns=[*SMALL, *OLD_WEIGHTS]
            )
    except (OSError, ValueError) as error:  # all of the hub's errors are OSErrors
        reason = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise _unreachable(name, revision, reason) from error
    return folder


def _no_way(endpoint: str) -> str | None:
    """Why the hub cannot be reached; the hub's own client would try for most of a minute."""
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return None
    host = endpoint.partition("://")[2].partition("/")[0]
    name, _, port = host.partition(":")
    try:
        default = 80 if endpoint.startswith("http://") else 443
        with socket.create_connection((name, int(port or default)), timeout=TIMEOUT_S):
            return None
    except OSError as error:
        return f"{name} cannot be reached ({error.strerror or type(error).__name__})"


def _unreachable(name: str, revision: str | None, reason: str) -> UserError:
    at = f" at {revision}" if revision else ""
    folder = f"models/{name.rpartition('/')[2]}"
    return UserError(
        f"model {name!r}{at} could not be loaded: it is not on this machine, and {reason}.\n"
        f"Where there is a network: hf download {name}"
        f"{f' --revision {revision}' if revision else ''} --local-dir {folder}\n"
        f"then place that folder here ({FILES}) and give model.path={folder}"
    )
