"""What a finished result stands for: a result is kept only while none of these has changed."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

# The code that can change what a method answers. Scoring is not in it: it can be repeated from
# the log, and METRICS_VERSION says when it must be. Nor is training: its result is hashed.
SIMULATOR = ("method.py", "queue_feed.py", "recorder.py", "schedule.py", "simulate.py")
CODE = ("methods", "models", "whisper", "data/audio.py", "data/noise.py", *SIMULATOR)

# Settings that cannot change a result.
NEUTRAL = ("tracker", "name", "output", "pieces", "piece")

WHOLE_BYTES = 64 * 2**20  # files up to this size are hashed whole, larger ones by size and ends
END_BYTES = 2**20


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the settled configuration (plain containers), leaving out the settings
    that cannot change a result."""
    kept = {key: value for key, value in config.items() if key not in NEUTRAL}
    if kept.get("normaliser") == "whisper":  # the default, as if it were not there
        del kept["normaliser"]
    if kept.get("streams") is None:  # likewise
        kept.pop("streams", None)
    model = kept.get("model")
    if isinstance(model, Mapping) and model.get("attention") is None:  # as if it were not there
        kept["model"] = {key: value for key, value in model.items() if key != "attention"}
    data = kept.get("data")
    if isinstance(data, Mapping):  # likewise
        unset = {key for key in ("align", "ids", "join_s", "per_speaker") if data.get(key) is None}
        kept["data"] = {key: value for key, value in data.items() if key not in unset}
    return _short(hashlib.sha256(json.dumps(kept, sort_keys=True).encode()))


def code_hash(target: str | None = None) -> str:
    """Return the hash of this project's code that can change a result, and of `target`'s file where
    that lies outside."""
    files = [
        file
        for name in CODE
        for file in sorted((HERE / name).rglob("*.py") if (HERE / name).is_dir() else [HERE / name])
        if file.name != "train.py"
    ]
    if target and not target.startswith("streaming_asr."):
        files.append(_file_of(target))
    return _files_hash(files)


def model_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the model's and the weights' files; a hub model counts by its name."""
    paths = [
        str(path)
        for path in (
            (config.get("model") or {}).get("path"),
            (config.get("method") or {}).get("weights"),
        )
        if path
    ]
    local = [Path(path).expanduser() for path in paths]
    files = [
        file for path in local for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
    ]
    hub = [name for name, path in zip(paths, local, strict=True) if not path.exists()]
    return _files_hash(files, hub)


def _file_of(target: str) -> Path:
    from streaming_asr.arguments import target_of

    return Path(inspect.getfile(target_of(target)))


def _files_hash(files: Iterable[Path], names: Iterable[str] = ()) -> str:
    digest = hashlib.sha256("\0".join(names).encode())
    for file in files:
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"\0{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= WHOLE_BYTES:
                digest.update(stream.read())
            else:
                digest.update(stream.read(END_BYTES))
                stream.seek(-END_BYTES, 2)
                digest.update(stream.read(END_BYTES))
    return _short(digest)


def _short(digest: Any) -> str:
    return str(digest.hexdigest()[:16])
