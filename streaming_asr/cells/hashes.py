"""What a finished result stands for: a result is kept only while none of these has changed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from streaming_asr.files import HERE
from streaming_asr.models.hash import files_hash

PACKAGE = "streaming_asr"
# The rooms whose code can change what a method answers. Scoring is none of them: it can be repeated
# from the log, and METRICS_VERSION says when it must be. Nor is training: its result is hashed.
ROOMS = ("methods", "models", "simulate", "whisper")
FILES = (
    "chunking.py",
    "corpora/audio.py",
    "corpora/headers.py",
    "corpora/media.py",
    "corpora/noise.py",
    "method.py",
)
SIMULATOR = ("simulate/feeds.py", "corpora/noise.py")  # behind every result, whatever the method

# Settings that cannot change a result.
NEUTRAL = ("tracker", "name", "output", "pieces", "piece")


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the settled configuration (plain containers), leaving out the settings
    that cannot change a result."""
    kept = {key: value for key, value in config.items() if key not in NEUTRAL}
    if kept.get("normaliser") == "whisper":  # the default, as if it were not there
        del kept["normaliser"]
    if kept.get("streams") is None:  # likewise
        kept.pop("streams", None)
    if kept.get("gate") == "none":  # likewise
        del kept["gate"]
    data = kept.get("data")
    if isinstance(data, Mapping):  # likewise
        unset = {key for key in ("align", "ids", "join_s", "per_speaker") if data.get(key) is None}
        kept["data"] = {key: value for key, value in data.items() if key not in unset}
    method = kept.get("method")
    if isinstance(method, Mapping) and method.get("word_times") is None:  # likewise
        kept["method"] = {key: value for key, value in method.items() if key != "word_times"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def code_hash(target: str) -> str:
    """Return the hash of the code that can change what the method `target` (module.Class) answers.

    That is the method's own folder without its training, what it imports, and the simulator; of a
    method that lies outside of this project, its own file too.
    """
    files = {HERE / name for name in SIMULATOR}
    own = _source(target.rpartition(".")[0])
    if own is not None:
        files.add(own)
        if own.name == "__init__.py":
            files |= {file for file in own.parent.rglob("*.py") if file.name != "train.py"}
    waiting, seen = list(files), set(files)
    while waiting:
        file = waiting.pop()
        new = set(_imported(file, file.stat().st_mtime_ns)) - seen
        seen |= new
        waiting += new
    return files_hash(sorted(seen))


def _source(module: str) -> Path | None:
    """Return the file of a module; None where there is none."""
    if module.partition(".")[0] == PACKAGE:
        place = HERE.joinpath(*module.split(".")[1:])
        return next(
            (f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None
        )
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    origin = None if spec is None else spec.origin
    # Of what Python brings, the origin is a word.
    return Path(origin) if origin is not None and Path(origin).is_file() else None


@cache
def _imported(file: Path, changed_ns: int) -> tuple[Path, ...]:
    """Return the files of this project that a file imports anywhere in it and that can change a
    result; `changed_ns`, when it was changed, so that the cells of a sweep read it once."""
    return tuple(_imports(file)) if file.suffix == ".py" else ()


def _imports(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        for name in names:
            found = _source(name) if name.startswith(f"{PACKAGE}.") else None
            if found is None or found.name == "train.py":
                continue
            inside = found.relative_to(HERE)
            if inside.parts[0] in ROOMS or inside.as_posix() in FILES:
                yield found
