"""Where the project's files are, and how files are written: completely or not at all.

A file is written next to its place and renamed, so that no file is ever incomplete. Downloads and
other things that are made once are in $XDG_CACHE_HOME/streaming_asr, or below ~/.cache.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError

HERE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (HERE / "conf", HERE.parent / "conf") if p.is_dir())

REMEMBERED_BYTES = 32 * 2**20
"""`remembered` writes what it computed of larger files to the cache, so that it outlasts the
process."""
_computed: dict[str, str] = {}

YAML_BYTES = 1_000_000  # a configuration has some thousand

STALE_S = 24 * 3600
"""A folder that `make_once` began so long ago was left by a process that was killed."""

NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path next to `path`. After the block, what it wrote there is renamed to `path`.

    A file replaces a file, a folder a folder. When the block raises, what it wrote is removed and
    `path` stays as it was. Raises UserError where `path` cannot be written.
    """
    scratch = path.with_name(f".{path.name[:100]}.{os.getpid()}.tmp")
    old = scratch.with_suffix(".old")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(scratch)
        yield scratch
        if path.is_dir():  # a folder with content cannot be replaced in one step
            path.rename(old)
        os.replace(scratch, path)
    except OSError as error:
        if old.is_dir() and not path.exists():
            old.rename(path)
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); make room, change its "
            "permissions or choose another folder"
        ) from error
    finally:
        for leftover in (scratch, old):
            with suppress(OSError):
                _remove(leftover)


def check_file(path: str | Path) -> None:
    """Raise UserError for a pipe or a device: reading one may wait or go on forever."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise UserError(f"{path}: is a pipe or a device; save what it gives to a file, name that")


def json_of(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} for any file without one that can be read."""
    try:
        check_file(path)
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UserError, OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def yaml_of(path: Path) -> Any:
    """Return the content of a YAML file of plain values; None for any that cannot be read, is
    larger than YAML_BYTES, or has aliases, a few lines of which can name endless content."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("has an alias")
            return super().compose_node(parent, index)

    try:
        check_file(path)
        with path.open("rb") as file:
            content = file.read(YAML_BYTES + 1)
        return None if len(content) > YAML_BYTES else yaml.load(content, Loader)
    except (UserError, OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def in_utf_8(path: Path) -> str:
    """Return a path as a text that can be printed and written: bytes of its name that are no UTF-8
    become escapes, as `caf\\xe9`."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def check_name(path: Path) -> None:
    """Raise UserError for a name that is no UTF-8 and therefore cannot be written to a file."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{str(path)!r}: its name is no UTF-8 text; rename it") from error


def short_name(name: str, most: int = 80) -> str:
    """Return a name of that many letters; a longer one is cut and ends with a hash of the whole."""
    if len(name) <= most:
        return name
    return f"{name[:most]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_text(path: Path, text: str) -> Path:
    """Write all of `text` in UTF-8, or nothing, and return `path`. Raises UserError."""
    if path.is_dir():  # which `replacing` would replace, with all that is in it
        raise UserError(f"{path}: is a folder; name a file in it")
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")
    return path


def give_json(value: Any, place: str) -> None:
    """Print a value as JSON where `place` is `-`, else write it to the file `place`. Raises
    UserError."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1, default=str)
    if place == "-":
        print(text)
    elif Path(place).is_dir():
        raise UserError(f"--json {place}: is a folder; write --json last, or give a file's name")
    else:
        write_text(Path(place), text + "\n")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- the cache ------------------------------------------------------------------------------


def cache_root() -> Path:
    """Return the folder of all files that this project writes except results."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "streaming_asr"


def make_once(target: Path, make: Callable[[Path], None], *, n_bytes: int = 0) -> Path:
    """Return the folder `target`, which `make` writes on first use.

    `make` gets a path next to `target` that does not exist yet. What it writes there is renamed to
    `target` when it returns and removed when it raises, so `target` is never incomplete.
    n_bytes: the space that it takes. Raises UserError where there is not enough, or no right to
    write.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(".making-*"):
            with suppress(FileNotFoundError):  # another process was faster
                if time.time() - leftover.stat().st_mtime > STALE_S:
                    shutil.rmtree(leftover, ignore_errors=True)
        if shutil.disk_usage(target.parent).free < n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
            scratch_file = Path(scratch) / "made"
            make(scratch_file)
            try:
                scratch_file.rename(target)
            except OSError:  # another process was faster
                if not target.is_dir():
                    raise
    except Exception as error:
        number = getattr(error, "errno", None)
        # Libraries in other languages (Rust) have the number in the message only.
        is_full = f"os error {errno.ENOSPC}" in str(error)
        if number not in NO_PLACE and not is_full:
            raise
        need = f", which takes {n_bytes / 1e6:.0f} MB" if n_bytes else ""
        reason = os.strerror(number) if number else "the disk is full"
        raise UserError(
            f"{target.parent}: no place for {target.name}{need} ({reason}); make room there, or "
            "name another cache with XDG_CACHE_HOME=<folder>"
        ) from error
    return target


def remembered(kind: str, files: Sequence[Path], compute: Callable[[], str]) -> str:
    """Return the result of `compute`, a function of `files`, computed again only after one of them
    changed in size or time of change.

    kind: names the computation. Results for small files are remembered in this process only.
    """
    stats = [(str(file.resolve()), file.stat()) for file in files]
    identity = json.dumps([kind, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]])
    if sum(stat.st_size for _, stat in stats) < REMEMBERED_BYTES:
        if identity not in _computed:
            _computed[identity] = compute()
        return _computed[identity]
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    place = cache_root() / "hashes" / key
    with suppress(OSError):
        return place.read_text(encoding="utf-8")
    value = compute()
    with suppress(UserError):  # without a cache it is computed again
        write_text(place, value)
    return value


def file_sha256(file: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits, remembered."""

    def compute() -> str:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    return remembered("sha256", [file], compute)


def check_sha256(expected: Mapping[Path, str], remedy: str) -> None:
    """Raise UserError, which ends with `remedy`, for the first file that is missing or has another
    sha256 than the expected one."""
    for file, sha256 in expected.items():
        actual = file_sha256(file) if file.is_file() else None
        if actual != sha256:
            problem = "is missing" if actual is None else f"has the sha256 {actual}, not {sha256}"
            raise UserError(f"{file} {problem}; {remedy}")
