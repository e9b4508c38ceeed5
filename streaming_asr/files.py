"""Files and folders written beside their place and renamed, so that none is ever half there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a path in the same folder; what the block writes there is renamed to `path`.

    A file replaces a file, a folder a folder. When the block raises, what it wrote is removed and
    `path` is what it was. Raises UserError where `path` cannot be written.
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
        for left in (scratch, old):
            with suppress(OSError):
                _remove(left)


@cache
def validator(schema: Path) -> Callable[[Any], Any]:
    """Return what checks a document by the JSON Schema in a file, and raises fastjsonschema's error
    (a ValueError) for one that breaks it."""
    import fastjsonschema

    compiled: Callable[[Any], Any] = fastjsonschema.compile(json.loads(schema.read_text("utf-8")))
    return compiled


def write_text(path: Path, text: str) -> Path:
    """Write all of `text` in UTF-8, or nothing, and return `path`. Raises UserError."""
    with beside(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
