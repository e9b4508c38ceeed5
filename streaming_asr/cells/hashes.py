"""What a finished result depends on: a result is kept only while none of these has changed.

The code of a result is the programs of the modules that its method reaches. A program is a module's
syntax tree without docstrings, comments and line numbers, written in a form that every Python from
3.11 to 3.13 makes alike. `ast.dump` is no such form: it shows the fields that a version has added.
The cache keeps the digest of each program, by the bytes of its file.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import HERE, cache_root, write_text

PACKAGE = "streaming_asr"
ALWAYS = ("simulate/feeds.py", "corpora/audio.py", "corpora/join.py", "corpora/noise.py",
          "whisper/detect.py", "whisper/gate.py", "run/method.py")  # fmt: skip
"""Code between a recording and every method, whatever the method imports."""
INSIDE = frozenset({*ALWAYS, "config/weights.py"})
"""Modules that count although OUTSIDE names their folder: weights.py scales adapters."""
OUTSIDE = frozenset({
    "__init__.py", "errors.py", "files.py", "machine.py", "terminal.py",
    "config",  # the configuration's hash holds what it makes
    "corpora/__init__.py",  # the data hash holds what corpora answer
    "events",  # records answers
    # The model hash holds the weights that these find and obtain.
    "models/find.py", "models/hash.py", "models/hub.py", "models/native.py", "models/packages.py",
})  # fmt: skip
"""Reachable files and folders that cannot change a method's answer."""

NEUTRAL = ("tracker", "name", "output", "pieces", "piece")
"""Settings that cannot change a result."""


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the settled configuration (plain containers), leaving out the settings
    that cannot change a result.

    Settings that were added later are left out at their default, so that earlier results, whose
    configuration does not have them, keep their hash.
    """
    settings = _relevant(config)
    data, method = settings.get("data"), settings.get("method")
    if isinstance(data, Mapping):
        # word_times names the aligner, so the setting that chose it makes no difference.
        aligner = {"align": "auto"} if data.get("word_times") is not None else {}
        later = ("align", "ids", "join_s", "per_speaker")
        settings["data"] = _without(data, dict.fromkeys(later)) | aligner
    if isinstance(method, Mapping):
        settings["method"] = _without(method, {"word_times": None, "prompt": None})
    later_ones = {
        "normaliser": "whisper",
        "streams": None,
        "gate": "none",
        "gate_silence": "500ms",
        "prompt": None,
    }
    return _sha256(json.dumps(_without(settings, later_ones), sort_keys=True))


def _relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in NEUTRAL}


def _without(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that have their default."""
    return {k: v for k, v in settings.items() if k not in defaults or v != defaults[k]}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_of(digests: Mapping[str, str]) -> str:
    """Return one hash of named digests, 16 hexadecimal digits."""
    return _sha256("".join(f"{name}\0{digests[name]}\0" for name in sorted(digests)))


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
    old, new = _flat(_relevant(before)), _flat(_relevant(now))
    return [
        f"{key} {old.get(key, 'null')} -> {new.get(key, 'null')}"
        for key in old | new
        if old.get(key) != new.get(key)
    ]


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the settings of nested mappings by `outer.inner`; one of null is left out."""
    flat: dict[str, str] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def modules(*targets: str) -> dict[str, str]:
    """Return the digest of every module that can change the answer of these targets.

    targets: names of classes, package.module.Class. Keys are module names. The modules of this
    package count unless OUTSIDE names them; of a user's own method, its module and all modules in
    the same folder tree that it imports, at the top of a file or inside a function.
    """
    # Of each module: its name, its file, and the folder in which Python finds the name's first
    # part, and so also the user's modules that it imports.
    todo = [
        (f"{PACKAGE}.{path[:-3].replace('/', '.')}", HERE / path, HERE.parent) for path in ALWAYS
    ]
    for name in (target.rpartition(".")[0] for target in targets):
        if (file := _file_of(name)) is not None:
            depth = name.count(".") + (file.name == "__init__.py")
            todo.append((name, file, file.parents[depth]))
    digests: dict[str, str] = {}
    searched: set[tuple[Path, str]] = set()
    n_known = len(_programs())
    while todo:
        name, file, root = todo.pop()
        if name in digests:
            continue
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        digests[name], imports = _program(file, package)
        for imported in imports:
            if _is_ours(name) and not _is_ours(imported):
                continue  # installed packages; the log's header has their versions
            place = HERE.parent if _is_ours(imported) else root
            # Python imports the packages around a module first.
            for each in accumulate(imported.split("."), "{}.{}".format):
                if (place, each) not in searched:
                    searched.add((place, each))
                    other = _file_in(place, each)
                    if other is not None and _counts(each, other, name):
                        todo.append((each, other, place))
    if len(_programs()) > n_known:
        text = json.dumps(_programs())
        with suppress(UserError):  # without a cache they are computed again
            write_text(_cached(), f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    return dict(sorted(digests.items()))


# -- which modules --------------------------------------------------------------------------


def is_outside(file: Path) -> bool:
    """Return whether a file of this package cannot change an answer (OUTSIDE, training)."""
    # The file and its folders.
    paths = set(accumulate(file.relative_to(HERE).parts, "{}/{}".format))
    is_training = "train" in file.stem.split("_")
    return not paths & INSIDE and (bool(paths & OUTSIDE) or is_training)


def _counts(name: str, file: Path, importer: str) -> bool:
    """Return whether the module `name` of this file, which `importer` imports, can change an
    answer. Of installed packages only the one that holds the method counts."""
    if _is_ours(name):
        return not is_outside(file)
    is_installed = bool({"site-packages", "dist-packages"} & set(file.parts))
    return not is_installed or name.partition(".")[0] == importer.partition(".")[0]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE


def _file_in(root: Path, name: str) -> Path | None:
    """Return the file of a module below `root`; None where there is none."""
    parts = name.split(".")
    if _is_ours(name):  # a checkout's folder may have another name than the package
        root, parts = HERE, parts[1:]
    path = root.joinpath(*parts)
    files = (path.with_suffix(".py"), path / "__init__.py") if parts else ()
    return next((file for file in files if file.is_file()), None)


def _file_of(name: str) -> Path | None:
    """Return the file of any module that Python can import; None where there is none."""
    if _is_ours(name):
        return _file_in(HERE.parent, name)
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        if spec is not None and str(spec.origin).endswith(".py"):  # of a built-in one, a word
            return Path(str(spec.origin))
    return None


# -- what a program is ----------------------------------------------------------------------


def _cached() -> Path:
    return cache_root() / "hashes" / "programs.json"


@cache
def _programs() -> dict[str, tuple[str, list[str]]]:
    """Return digest and imports of the programs in the cache, by `_program`'s key; {} if the cache
    has none or is damaged. Its first line is the sha256 of the rest."""
    with suppress(OSError, ValueError):
        sha256, _, text = _cached().read_text(encoding="utf-8").partition("\n")
        if hashlib.sha256(text.encode()).hexdigest() == sha256:
            programs: dict[str, tuple[str, list[str]]] = json.loads(text)
            return programs if len(programs) < MOST_PROGRAMS else {}
    return {}


MOST_PROGRAMS = 5000  # in the cache, which then begins again


@cache
def _form() -> bytes:
    """Return the bytes of this file, on which digests depend, too."""
    return Path(__file__).read_bytes()


def _program(file: Path, package: str) -> tuple[str, list[str]]:
    """Return the digest of a file in `package`, and the names that it may import."""
    source = file.read_bytes()
    key = hashlib.sha256(b"\0".join((_form(), package.encode(), source))).hexdigest()[:32]
    if key not in _programs():
        text = source.decode()
        names = dict.fromkeys(_imports(ast.parse(text), package))
        _programs()[key] = digest(text), list(names)
    return _programs()[key]


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
        elif (text := _text(node) or "").startswith(f"{PACKAGE}."):
            yield from [text] if all(map(str.isidentifier, text.split("."))) else []


def digest(source: str) -> str:
    """Return the digest of a program, 16 hexadecimal digits. Raises SyntaxError."""
    return _sha256(_written(ast.parse(source)))


# Fields that change nothing: `ctx` (load or store) follows from where a name is, `kind` is the
# prefix u of a text, the others are comments.
_UNNEEDED = ("ctx", "kind", "type_comment", "type_ignores")


def _written(node: object) -> str:
    """Return the text of a node, list or constant: the type of each node and its fields, without
    docstrings and without fields that are empty or in _UNNEEDED."""
    if isinstance(node, list):
        return f"[{''.join(f'{_written(item)};' for item in node)}]"
    if isinstance(node, ast.Constant):  # the type tells 1 from True and 1.0
        return f"{type(node.value).__name__}:{node.value!a}"
    if isinstance(
        node, ast.JoinedStr
    ):  # an f-string; Python 3.12.1 ends a format with an empty one
        return "JoinedStr" + _written([each for each in node.values if _text(each) != ""])
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = {name: getattr(node, name, None) for name in node._fields if name not in _UNNEEDED}
    if isinstance(body := fields.get("body"), list):
        code = [e for e in body if not isinstance(e, ast.Expr) or _text(e.value) is None]
        fields["body"] = code or [ast.Pass()]
    parts = (
        f"{key}={_written(value)}," for key, value in fields.items() if value not in (None, [])
    )
    return f"{type(node).__name__}({''.join(parts)})"


def _text(node: ast.AST) -> str | None:
    """Return the text of a constant; None for any other node."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None
