"""A cell's folder of results: what it holds, whether that still holds, its lock."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError


def check_writable(folder: Path) -> None:
    """Raise UserError where no file can be written in `folder`, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: results cannot be written there ({error.strerror}); "
            "name another folder with output=<folder>"
        ) from error


def header_of(folder: Path) -> dict[str, Any] | None:
    """Return the header of a cell's log; None without a log and where the header is torn."""
    try:
        with (folder / "events.jsonl").open(encoding="utf-8") as log:
            return dict(json.loads(log.readline()))
    except (OSError, ValueError):
        return None


def finished(folder: Path, hashes: Mapping[str, str], metrics_version: int) -> bool:
    """Return whether the folder holds the whole result of these hashes, scored by these metrics."""
    try:
        result = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return result.get("hashes") == dict(hashes) and result["metrics_version"] == metrics_version


def set_aside(folder: Path) -> Path:
    """Rename a cell's folder to the first free `<cell>.old-<n>` and make an empty one."""
    n = 1
    while (old := folder.with_name(f"{folder.name}.old-{n}")).exists():
        n += 1
    folder.rename(old)
    folder.mkdir(exist_ok=True)  # another process may have been as fast
    return old


class Busy(UserError):
    """Another process is writing the cell, which is then none of this process's business."""


@contextmanager
def lock(folder: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep a second process out of the cell; the system frees the lock when the process dies.

    Where another process holds it, `on_wait` is called and this one waits; without `on_wait`, Busy
    is raised. The lock is a hidden file beside the folder, which may be set aside meanwhile.
    """
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name(f".{folder.name}.lock")
    held = FileLock(file)
    try:
        held.acquire(blocking=False)
    except Timeout as error:
        if on_wait is None:
            raise Busy(
                f"{folder}: another process is writing there; wait for it or stop it"
            ) from error
        on_wait()
        held.acquire()
    try:
        folder.mkdir(exist_ok=True)
        yield
    finally:
        with suppress(OSError):  # while held: who waits for the removed file opens a new one
            file.unlink()
        held.release()
