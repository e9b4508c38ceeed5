"""What a finished result depends on: a result is kept only while none of these has changed.

The code of a result is the programs of the modules that its method reaches. A program is a module's
syntax tree without docstrings, comments and line numbers, written in a form that every Python from
3.11 to 3.13 makes alike. `ast.dump` is no such form: it shows the fields that a version has added.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from streaming_asr.files import HERE

PACKAGE = "streaming_asr"

ALWAYS = (
    "simulate/feeds.py",
    "corpora/audio.py",
    "corpora/join.py",
    "corpora/noise.py",
    "whisper/detect.py",
    "whisper/gate.py",
    "run/method.py",
)
"""Code between a recording and every method, whatever the method imports."""

INSIDE = frozenset({*ALWAYS, "config/weights.py"})
"""Modules that count although OUTSIDE names their folder: weights.py scales adapters."""

OUTSIDE = {
    "__init__.py": "names the parts of the package",
    "config": "makes settings, which the configuration's hash holds",
    "corpora/__init__.py": "names the corpora, whose answers the data hash holds",
    "errors.py": "writes messages",
    "events": "records answers and checks the record",
    "files.py": "writes files",
    "machine.py": "describes the machine",
    "models/find.py": "finds weights, which the model hash holds",
    "models/hash.py": "makes the model hash",
    "models/hub.py": "obtains weights, which the model hash holds",
    "models/native.py": "checks settings, and names classes, whose modules count",
    "models/packages.py": "obtains weights, which the model hash holds",
    "terminal.py": "prints",
}
"""Reachable files and folders that cannot change a method's answer, with the reason."""


class Module(NamedTuple):
    """A module that was read: `digest` of its program, `imports`, the names that it may import."""

    digest: str
    imports: tuple[str, ...]


NEUTRAL = ("tracker", "name", "output", "pieces", "piece")
"""Settings that cannot change a result."""


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the settled configuration (plain containers), leaving out the settings
    that cannot change a result."""
    relevant = {key: value for key, value in config.items() if key not in NEUTRAL}
    if relevant.get("normaliser") == "whisper":  # the default, as if it were not there
        del relevant["normaliser"]
    if relevant.get("streams") is None:  # also the default
        relevant.pop("streams", None)
    if relevant.get("gate") == "none":  # also the default
        del relevant["gate"]
    data = relevant.get("data")
    if isinstance(data, Mapping):  # also the default
        unset = {key for key in ("align", "ids", "join_s", "per_speaker") if data.get(key) is None}
        relevant["data"] = {key: value for key, value in data.items() if key not in unset}
        if data.get("word_times") is not None:  # names the aligner, however it was chosen
            relevant["data"]["align"] = "auto"
    method = relevant.get("method")
    if isinstance(method, Mapping) and method.get("word_times") is None:  # also the default
        relevant["method"] = {key: value for key, value in method.items() if key != "word_times"}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def code_hash(*targets: str) -> str:
    """Return the hash of the code that can change the answer of these targets (`modules`)."""
    return hash_of(modules(*targets))


def hash_of(digests: Mapping[str, str]) -> str:
    """Return one hash of named digests, 16 hexadecimal digits."""
    text = "".join(f"{name}\0{digests[name]}\0" for name in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def targets_of(node: Any) -> list[str]:
    """Return every `_target_` in a configuration, the outermost first."""
    if isinstance(node, Mapping):
        targets = [str(node["_target_"])] if "_target_" in node else []
        return targets + [target for each in node.values() for target in targets_of(each)]
    if isinstance(node, list):
        return [target for each in node for target in targets_of(each)]
    return []


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ between two configurations, as `method.beam 0 -> 3`."""
    old, new = dict(_flat(before)), dict(_flat(now))
    names = [key for key in {**old, **new} if key.partition(".")[0] not in NEUTRAL]
    return [
        f"{key} {_shown(old.get(key))} -> {_shown(new.get(key))}"
        for key in names
        if old.get(key) != new.get(key)
    ]


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def modules(*targets: str) -> dict[str, str]:
    """Return the digest of every module that can change the answer of these targets.

    targets: names of classes, package.module.Class. Keys are module names. The modules of this
    package count unless OUTSIDE names them; of a user's own method, its module and all modules in
    the same folder tree that it imports, at the top of a file or inside a function.
    """
    digests: dict[str, str] = {}
    waiting = [f"{PACKAGE}.{name.removesuffix('.py').replace('/', '.')}" for name in ALWAYS]
    places = {name: file for name in waiting if (file := _file_in(HERE.parent, name))}
    roots = {name: HERE.parent for name in places}
    for target in targets:
        name = target.rpartition(".")[0]
        file = _file_of(name)
        if file is not None:
            waiting.append(name)
            places[name] = file
            roots[name] = _root(name, file)
    tried: set[tuple[Path, str]] = set()
    while waiting:
        name = waiting.pop()
        if name in digests or name not in places:
            continue
        file, root = places[name], roots[name]
        module = _module(name, file, file.stat().st_mtime_ns)
        digests[name] = module.digest
        for imported in module.imports:
            if _is_ours(name) and not _is_ours(imported):
                continue  # installed packages; the log's header has their versions
            for each in _with_parents(imported):
                inner = HERE.parent if _is_ours(each) else root
                if (inner, each) in tried:
                    continue
                tried.add((inner, each))
                source = _file_in(inner, each)
                if source is not None and _counts(each, source, name):
                    places[each], roots[each] = source, inner
                    waiting.append(each)
    return dict(sorted(digests.items()))


def digest(source: str) -> str:
    """Return the digest of a program, 16 hexadecimal digits. Raises SyntaxError."""
    text = "".join(_written(_without_docstrings(ast.parse(source))))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- which modules --------------------------------------------------------------------------


def is_outside(file: Path) -> bool:
    """Return whether a file of this package cannot change an answer (OUTSIDE, training)."""
    parts = file.relative_to(HERE).parts
    places = {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
    if places & INSIDE:
        return False
    return bool(places & OUTSIDE.keys()) or "train" in file.stem.split("_")


def _counts(name: str, source: Path, importer: str) -> bool:
    """Return whether the file of an imported module is part of the code."""
    if _is_ours(name):
        return not is_outside(source)
    # Of installed packages only the method's own.
    is_installed = {"site-packages", "dist-packages"} & set(source.parts)
    return not is_installed or name.partition(".")[0] == importer.partition(".")[0]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE


def _with_parents(name: str) -> list[str]:
    """Return a module's name and those of the packages around it, which Python imports first."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _file_in(root: Path, name: str) -> Path | None:
    """Return the file of a module below `root`; None where there is none."""
    parts = name.split(".")
    if _is_ours(name):  # the package's folder has any name
        root, parts = HERE, parts[1:]
    place = root.joinpath(*parts)
    candidates = (place.with_suffix(".py"), place / "__init__.py") if parts else ()
    return next((file for file in candidates if file.is_file()), None)


def _file_of(name: str) -> Path | None:
    """Return the file of any module that Python can import; None where there is none."""
    if _is_ours(name):
        return _file_in(HERE.parent, name)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    origin = None if spec is None else spec.origin
    # The origin of a built-in module is a word.
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _root(name: str, file: Path) -> Path:
    """Return the folder in which Python finds the first part of a module's name."""
    depth = name.count(".") + (file.name == "__init__.py")
    return file.parents[depth]


@cache
def _module(name: str, file: Path, changed_ns: int) -> Module:
    """Return what a file holds; `changed_ns` is when it changed, so that a sweep reads it once."""
    source = file.read_text(encoding="utf-8")
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return Module(digest(source), tuple(dict.fromkeys(_imports(ast.parse(source), package))))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield every name that a file may import, in functions and as `_target_` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            around = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(text := node.value, str):
            yield from [text] if _is_name_of_ours(text) else []


def _is_name_of_ours(text: str) -> bool:
    """Return whether a text is a name in this package, as a `_target_` is."""
    return text.startswith(f"{PACKAGE}.") and all(part.isidentifier() for part in text.split("."))


# -- what a program is ----------------------------------------------------------------------


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            code = [statement for statement in body if not _is_text(statement)]
            node.body = code or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_empty_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


# `ctx` follows from the place of a name, the others from comments and prefixes.
_UNNEEDED = ("ctx", "kind", "type_comment", "type_ignores")


def _written(node: object) -> Iterator[str]:
    """Yield the text of a tree: the kind of each node and its fields that hold something."""
    if isinstance(node, ast.JoinedStr):
        # Python 3.12.1 ends a format with an empty string.
        yield "JoinedStr"
        yield from _written([v for v in node.values if not _is_empty_string(v)])
    elif isinstance(node, ast.Constant):
        yield f"{type(node.value).__name__}:{node.value!a}"
    elif isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for field in node._fields:
            value = getattr(node, field, None)
            if field not in _UNNEEDED and value is not None and value != []:
                yield f"{field}="
                yield from _written(value)
                yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for each in node:
            yield from _written(each)
            yield ";"
        yield "]"
    else:
        yield ascii(node)
