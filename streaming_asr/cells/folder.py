"""Knows a cell's folder of results: its files, whether they still hold, its lock.

<output>/<experiment>/<cell>/          .<cell>.lock next to it while a process writes
    events.jsonl                       what happened
    metrics.json utterances.jsonl      what was scored
    segments.tsv                       the text with times, of long recordings
    failed.json                        why the cell stopped, until it runs again
    .hydra/                            its configuration, and its code's modules (code.json)
    pieces/<k>-of-<n>/                 the same, of a cell split over jobs
<output>/<experiment>/<cell>.old-<n>/  results that a changed rerun set aside
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from streaming_asr.errors import UserError
from streaming_asr.files import check_file, write_text

EVENTS, RESULT, UTTERANCES = "events.jsonl", "metrics.json", "utterances.jsonl"
FAILED, SEGMENTS, PIECES, SAVED = "failed.json", "segments.tsv", "pieces", ".hydra"
CODE, SETTINGS = "code.json", "overrides.yaml"  # in SAVED


# -- names ----------------------------------------------------------------------------------


def is_piece(folder: Path) -> bool:
    """Return whether a path lies in a folder pieces/<k>-of-<n> of a cell split over jobs."""
    return re.search(rf"(^|/){PIECES}/\d+-of-\d+(/|$)", folder.as_posix()) is not None


def is_set_aside(path: Path) -> bool:
    """Return whether `path` lies in a folder `<cell>.old-<n>`, or in a piece, whose whole cell is
    read in its place."""
    return is_piece(path) or any(re.search(r"\.old-\d+$", part) for part in path.parts)


def cell_of(folder: Path) -> Path:
    """Return the cell that a piece's folder is of; any other folder is its own cell."""
    return folder.parent.parent if is_piece(folder) else folder


def piece_folder(cell: Path, k: int, n: int) -> Path:
    """Return the folder of the `k`-th of `n` pieces of a cell."""
    return cell / PIECES / f"{k}-of-{n}"


def name_of(folder: Path) -> str:
    """Return how messages call a cell's or a piece's folder."""
    cell = cell_of(folder)
    return folder.name if cell == folder else f"{cell.name}, piece {folder.name.replace('-', ' ')}"


def settings_of(name: str) -> dict[str, str]:
    """Return the keys of `chunk=300ms,method=whisperrt`; a comma inside a value stays in it."""
    parts = re.split(r",(?=[+~\w./@]+=)", name)
    return dict(part.lstrip("+~").split("=", 1) for part in parts if "=" in part)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return for each cell's name what it does not share with all others, as `ufal 1s beam=3`; the
    name itself where two would look the same."""
    settings = {name: settings_of(Path(name).name) for name in names}
    every = [set(each.items()) for each in settings.values()]
    shared = set.intersection(*every) if len(every) > 1 else set()
    short = {}
    for name, each in settings.items():
        differing = {k: v for k, v in each.items() if k == "method" or (k, v) not in shared}
        plain = [
            v if k in ("method", "chunk") else f"{k.rpartition('.')[2]}={v}"
            for k, v in differing.items()
        ]
        short[name] = " ".join(plain) or name
    texts = list(short.values())
    return {name: text if texts.count(text) == 1 else name for name, text in short.items()}


# -- reading --------------------------------------------------------------------------------


def header_of(folder: Path) -> dict[str, Any] | None:
    """Return the header of a cell's log; None without a log and where the header is torn."""
    try:
        check_file(folder / EVENTS)
        with (folder / EVENTS).open(encoding="utf-8") as log:
            return dict(json.loads(log.readline()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def result_of(folder: Path) -> dict[str, Any]:
    """Return the content of metrics.json; {} where there is none that can be read."""
    try:
        check_file(folder / RESULT)
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def finished(folder: Path, hashes: Mapping[str, str], metrics_version: int) -> bool:
    """Return whether the folder holds the whole result of these hashes, scored by these metrics."""
    result = result_of(folder)
    return bool(result) and (result.get("hashes"), result.get("metrics_version")) == (
        dict(hashes),
        metrics_version,
    )


def failure(folder: Path) -> str | None:
    """Return why a cell or a piece failed; None where it did not."""
    try:
        check_file(folder / FAILED)
        return str(json.loads((folder / FAILED).read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{FAILED} is unreadable"


def saved_configuration(folder: Path) -> Path | None:
    """Return the file of the configuration that a run saved before it began, all that a failed one
    leaves; that of a piece where the cell has none of its own."""
    parts = sorted(folder.glob(f"{PIECES}/*/{SAVED}/config.yaml"))
    return next((path for path in (folder / SAVED / "config.yaml", *parts) if path.is_file()), None)


def saved_settings(folder: Path) -> list[str] | None:
    """Return the settings of a cell's command line; None where it saved none."""
    try:
        return list(OmegaConf.load(folder / SAVED / SETTINGS))
    except (OSError, ValueError, YAMLError):
        return None


# -- writing --------------------------------------------------------------------------------


def check_writable(folder: Path, setting: str = "output=<folder>") -> None:
    """Raise UserError where no file can be written in `folder`, which is made if need be; it names
    the `setting` that names another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: results cannot be written there ({error.strerror}); name another folder "
            f"with {setting}"
        ) from error


def saved_code(folder: Path) -> dict[str, str]:
    """Return the digest of each module of a cell's code; {} of a cell that saved none."""
    try:
        content = json.loads((folder / SAVED / CODE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def save_configuration(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    """Write the configuration of a cell and the settings of its command line."""
    place = folder / SAVED
    check_writable(place)
    write_text(place / "config.yaml", OmegaConf.to_yaml(config))
    write_text(place / SETTINGS, OmegaConf.to_yaml(OmegaConf.create(list(overrides))))


def save_code(folder: Path, code: Mapping[str, str]) -> None:
    """Write the digest of each module of a cell's code."""
    write_text(folder / SAVED / CODE, json.dumps(dict(code), indent=1) + "\n")


def save_failure(folder: Path, error: str) -> None:
    """Write why a cell failed, unless a full disk is what failed."""
    with suppress(UserError):
        text = json.dumps({"status": "failed", "error": error}, ensure_ascii=False)
        write_text(folder / FAILED, text + "\n")


def discard(folder: Path) -> bool:
    """Remove the folder of a cell of which nothing ran, with the empty folders above it; return
    whether it was one."""
    if any(path.name not in (SAVED, FAILED, EVENTS) for path in folder.glob("*")):
        return False
    with suppress(OSError):
        if (folder / EVENTS).exists() and len((folder / EVENTS).read_bytes().splitlines()) > 1:
            return False  # more than a header: it has begun
        (folder / EVENTS).unlink(missing_ok=True)
        shutil.rmtree(folder / SAVED, ignore_errors=True)
        forget_failure(folder)
        for each in (folder, *folder.parents[:2]):  # of the cell, the experiment, the output
            each.rmdir()
    return True


def forget_failure(folder: Path) -> None:
    """Remove what `save_failure` wrote."""
    (folder / FAILED).unlink(missing_ok=True)


def set_aside(folder: Path, *, but: str | None = None) -> Path:
    """Move what a cell's folder holds, except `but`, to the first free `<cell>.old-<n>`; return
    that folder. The cell's own stays, with only `but` in it."""
    n = 1
    while (old := folder.with_name(f"{folder.name}.old-{n}")).exists():
        n += 1
    if but is None:
        folder.rename(old)
        folder.mkdir(exist_ok=True)  # another process may have been as fast
        return old
    old.mkdir()
    for path in [path for path in folder.iterdir() if path.name != but]:
        path.rename(old / path.name)
    return old


class Busy(UserError):
    """Another process is writing the cell, which is then none of this process's business."""


@contextmanager
def lock(folder: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep a second process out of the cell; the system frees the lock when the process dies.

    Where another process holds it, `on_wait` is called and this one waits; without `on_wait`, Busy
    is raised. The lock is a hidden file next to the folder, which may be set aside meanwhile.
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
