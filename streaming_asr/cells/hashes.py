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
from typing import Any, NamedTuple, TypeGuard

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
    that cannot change a result.

    Settings that were added later are left out at their default, so that earlier results, whose
    configuration does not have them, keep their hash.
    """
    relevant = {key: value for key, value in config.items() if key not in NEUTRAL}
    if relevant.get("normaliser") == "whisper":
        del relevant["normaliser"]
    if relevant.get("streams") is None:
        relevant.pop("streams", None)
    if relevant.get("gate") == "none":
        del relevant["gate"]
    data = relevant.get("data")
    if isinstance(data, Mapping):
        unset = {key for key in ("align", "ids", "join_s", "per_speaker") if data.get(key) is None}
        relevant["data"] = {key: value for key, value in data.items() if key not in unset}
        # word_times names the aligner, so the setting that chose it makes no difference.
        if data.get("word_times") is not None:
            relevant["data"]["align"] = "auto"
    method = relevant.get("method")
    if isinstance(method, Mapping) and method.get("word_times") is None:
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
        f"{key} {_as_yaml(old.get(key))} -> {_as_yaml(new.get(key))}"
        for key in names
        if old.get(key) != new.get(key)
    ]


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting of nested mappings as (`outer.inner`, value)."""
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_yaml(value: Any) -> str:
    return "null" if value is None else str(value)


def modules(*targets: str) -> dict[str, str]:
    """Return the digest of every module that can change the answer of these targets.

    targets: names of classes, package.module.Class. Keys are module names. The modules of this
    package count unless OUTSIDE names them; of a user's own method, its module and all modules in
    the same folder tree that it imports, at the top of a file or inside a function.
    """
    digests: dict[str, str] = {}
    # The search follows imports. Of each module name: its file, and the folder (`root`) in which
    # Python finds its first part, and so also the user's modules that it imports.
    files: dict[str, Path] = {}
    roots: dict[str, Path] = {}
    for path in ALWAYS:
        name = f"{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}"
        files[name], roots[name] = HERE / path, HERE.parent
    for target in targets:
        name = target.rpartition(".")[0]
        file = _file_of(name)
        if file is not None:
            files[name], roots[name] = file, _root(name, file)
    unread = list(files)
    searched: set[tuple[Path, str]] = set()
    while unread:
        name = unread.pop()
        if name in digests:
            continue
        file, root = files[name], roots[name]
        module = _module(name, file, file.stat().st_mtime_ns)
        digests[name] = module.digest
        for imported in module.imports:
            if _is_ours(name) and not _is_ours(imported):
                continue  # installed packages; the log's header has their versions
            for candidate in _with_parents(imported):
                candidate_root = HERE.parent if _is_ours(candidate) else root
                if (candidate_root, candidate) in searched:
                    continue
                searched.add((candidate_root, candidate))
                candidate_file = _file_in(candidate_root, candidate)
                if candidate_file is not None and _counts(candidate, candidate_file, name):
                    files[candidate], roots[candidate] = candidate_file, candidate_root
                    unread.append(candidate)
    return dict(sorted(digests.items()))


def digest(source: str) -> str:
    """Return the digest of a program, 16 hexadecimal digits. Raises SyntaxError."""
    text = "".join(_written(_without_docstrings(ast.parse(source))))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- which modules --------------------------------------------------------------------------


def is_outside(file: Path) -> bool:
    """Return whether a file of this package cannot change an answer (OUTSIDE, training)."""
    parts = file.relative_to(HERE).parts
    paths = {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}  # the file and its folders
    if paths & INSIDE:
        return False
    return bool(paths & OUTSIDE.keys()) or "train" in file.stem.split("_")


def _counts(name: str, source: Path, importer: str) -> bool:
    """Return whether the file `source` of the module `name`, which `importer` imports, can change
    an answer."""
    if _is_ours(name):
        return not is_outside(source)
    # Of installed packages only the one that holds the method counts.
    is_installed = bool({"site-packages", "dist-packages"} & set(source.parts))
    is_same_package = name.partition(".")[0] == importer.partition(".")[0]
    return is_same_package or not is_installed


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE


def _with_parents(name: str) -> list[str]:
    """Return a module's name and those of the packages around it, which Python imports first."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _file_in(root: Path, name: str) -> Path | None:
    """Return the file of a module below `root`; None where there is none."""
    parts = name.split(".")
    if _is_ours(name):  # a checkout's folder may have another name than the package
        root, parts = HERE, parts[1:]
    if not parts:
        return None
    path = root.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
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
    """Return the digest and the imports of a file. The cache reads it once for all cells of a sweep
    and again after a change, as the time of the change, `changed_ns`, is part of the key."""
    source = file.read_text(encoding="utf-8")
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return Module(digest(source), tuple(dict.fromkeys(_imports(ast.parse(source), package))))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield every name that a file in `package` may import, in functions and as `_target_` too.

    Of `from a import b` both a and a.b, as b may be a module; some names are thus no modules.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:  # one dot is this package, each further dot the one around it
                parts = package.split(".")
                base = parts[: len(parts) - node.level + 1] + base
            module = ".".join(base)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and _is_name_of_ours(node.value):
            yield node.value


def _is_name_of_ours(value: object) -> TypeGuard[str]:
    """Return whether a constant is a dotted name in this package, as a `_target_` is."""
    if not isinstance(value, str) or not value.startswith(f"{PACKAGE}."):
        return False
    return all(part.isidentifier() for part in value.split("."))


# -- what a program is ----------------------------------------------------------------------


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """Remove from a tree, and return it, every statement that is only a text."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            code = [statement for statement in body if not _is_only_text(statement)]
            node.body = code or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _is_only_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _is_empty_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


# Fields that change nothing: `ctx` (load or store) follows from where a name is, `kind` is the
# prefix u of a text, the others are comments.
_UNNEEDED = ("ctx", "kind", "type_comment", "type_ignores")


def _written(node: object) -> Iterator[str]:
    """Yield the text of a node, list or constant in pieces: the type of each node and its fields,
    without those that are empty or in _UNNEEDED."""
    if isinstance(node, ast.JoinedStr):  # an f-string
        # Python 3.12.1 ends a format with an empty string.
        yield "JoinedStr"
        yield from _written([v for v in node.values if not _is_empty_string(v)])
    elif isinstance(node, ast.Constant):  # the type tells 1 from True and 1.0
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
        for item in node:
            yield from _written(item)
            yield ";"
        yield "]"
    else:
        yield ascii(node)
