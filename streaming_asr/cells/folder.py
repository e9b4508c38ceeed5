"""Knows a cell's folder of results: its files, whether they still hold, its lock.

<output>/<experiment>/<cell>/          .<cell>.lock next to it while a process writes
    events.jsonl                       what happened
    metrics.json utterances.jsonl      what was scored
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

from streaming_asr.errors import UserError
from streaming_asr.files import check_file, json_of, write_text, yaml_of

EVENTS, RESULT, UTTERANCES = "events.jsonl", "metrics.json", "utterances.jsonl"
FAILED, PIECES, SAVED = "failed.json", "pieces", ".hydra"
CODE, SETTINGS = "code.json", "overrides.yaml"  # in SAVED


# -- names ----------------------------------------------------------------------------------


def is_piece(folder: Path) -> bool:
    """Return whether a path lies in a folder pieces/<k>-of-<n> of a cell split over jobs."""
    return re.search(rf"(^|/){PIECES}/\d+-of-\d+(/|$)", folder.as_posix()) is not None


def is_set_aside(path: Path) -> bool:
    """Return whether a search for results leaves out `path`: it lies in a folder `<cell>.old-<n>`,
    or in a piece, and the result of the whole cell is read instead of a piece's."""
    return is_piece(path) or any(re.search(r"\.old-\d+$", part) for part in path.parts)


def cell_of(folder: Path) -> Path:
    """Return the folder of the cell that `folder` is a piece of, or `folder` itself if it is no
    piece."""
    return folder.parent.parent if is_piece(folder) else folder


def piece_folder(cell: Path, k: int, n: int) -> Path:
    """Return the folder of the `k`-th of `n` pieces of a cell."""
    return cell / PIECES / f"{k}-of-{n}"


def name_of(folder: Path) -> str:
    """Return the name of a folder for messages: `<cell>`, or `<cell>, piece 2 of 4`."""
    cell = cell_of(folder)
    return folder.name if cell == folder else f"{cell.name}, piece {folder.name.replace('-', ' ')}"


def settings_of(name: str) -> dict[str, str]:
    """Return the values by key of a cell's name, as of `chunk=300ms,method=whisperrt`; a comma
    inside a value stays in it."""
    parts = re.split(r",(?=[+~\w./@]+=)", name)  # only at a comma that a key and = follow
    return dict(part.lstrip("+~").split("=", 1) for part in parts if "=" in part)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return a short text for each cell's name: its method and the settings that it does not share
    with all other cells, as `ufal 1s beam=3`. A short text that two cells would have is replaced by
    the name."""
    by_name = {name: settings_of(Path(name).name) for name in names}
    pairs_of_cells = [set(settings.items()) for settings in by_name.values()]
    shared = set.intersection(*pairs_of_cells) if len(pairs_of_cells) > 1 else set()
    short = {}
    for name, settings in by_name.items():
        words = []
        for key, value in settings.items():
            if key == "method" or (key, value) not in shared:
                last_part = key.rpartition(".")[2]
                words.append(value if key in ("method", "chunk") else f"{last_part}={value}")
        short[name] = " ".join(words) or name
    texts = list(short.values())
    return {name: text if texts.count(text) == 1 else name for name, text in short.items()}


# -- reading --------------------------------------------------------------------------------


def header_of(folder: Path) -> dict[str, Any] | None:
    """Return the header of a cell's log; None without a log and where the header is no whole line
    of JSON."""
    try:
        check_file(folder / EVENTS)
        with (folder / EVENTS).open(encoding="utf-8") as log:
            return dict(json.loads(log.readline()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def result_of(folder: Path) -> dict[str, Any]:
    """Return the content of metrics.json; {} where there is none that can be read."""
    return json_of(folder / RESULT)


def finished(folder: Path, hashes: Mapping[str, str], metrics_version: int) -> bool:
    """Return whether the folder holds a result of the same configuration, code, model and data
    (`hashes`), scored by the same version of the metrics."""
    result = result_of(folder)
    is_same_input = result.get("hashes") == dict(hashes)
    return bool(result) and is_same_input and result.get("metrics_version") == metrics_version


def failure(folder: Path) -> str | None:
    """Return the error for which a cell or a piece failed; None if it did not fail."""
    try:
        check_file(folder / FAILED)
        return str(json.loads((folder / FAILED).read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{FAILED} is unreadable"


def saved_configuration(folder: Path) -> Path | None:
    """Return the path of the configuration that a run saved before it began, which a failed run
    leaves too; that of the first piece if the cell has none; None if no piece has one."""
    of_pieces = sorted(folder.glob(f"{PIECES}/*/{SAVED}/config.yaml"))
    candidates = (folder / SAVED / "config.yaml", *of_pieces)
    return next((path for path in candidates if path.is_file()), None)


def saved_settings(folder: Path) -> list[str] | None:
    """Return the settings of a cell's command line; None if it saved none. Raises UserError for a
    file of another form. A stranger may have written them, so no command may just run them."""
    path = folder / SAVED / SETTINGS
    if not path.exists():
        return None
    settings = yaml_of(path)
    if not isinstance(settings, list) or not all(isinstance(each, str) for each in settings):
        raise UserError(f"{path}: is no list of settings, as `run` writes; remove the file")
    return settings


# -- writing --------------------------------------------------------------------------------


def check_writable(folder: Path, setting: str = "output=<folder>") -> None:
    """Make `folder` if it is missing, and raise UserError if no file can be written in it; the
    message names the `setting` with which the user gives another folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: results cannot be written there ({error.strerror}); name another folder "
            f"with {setting}"
        ) from error


def check_links(folder: Path) -> None:
    """Raise UserError for a link among the files of a cell, whoever made it: what is written there
    would land elsewhere."""
    for path in (*folder.glob("*"), *folder.glob(f"{SAVED}/*")):
        if path.is_symlink():
            raise UserError(
                f"{path}: is a link; results are written to their folder only; remove it"
            )


def saved_code(folder: Path) -> dict[str, str]:
    """Return the digest of each module of a cell's code; {} of a cell that saved none."""
    return json_of(folder / SAVED / CODE)


def save_configuration(folder: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    """Write the configuration of a cell and the settings of its command line."""
    saved = folder / SAVED
    check_writable(saved)
    write_text(saved / "config.yaml", OmegaConf.to_yaml(config))
    write_text(saved / SETTINGS, OmegaConf.to_yaml(OmegaConf.create(list(overrides))))


def save_code(folder: Path, code: Mapping[str, str]) -> None:
    """Write the digest of each module of a cell's code."""
    write_text(folder / SAVED / CODE, json.dumps(dict(code), indent=1) + "\n")


def save_failure(folder: Path, error: str) -> None:
    """Write why a cell failed; do nothing if the file cannot be written."""
    with suppress(UserError):  # a full disk may be the reason of the failure
        text = json.dumps({"status": "failed", "error": error}, ensure_ascii=False)
        write_text(folder / FAILED, text + "\n")


def discard(folder: Path) -> bool:
    """Remove the folder of a cell that has no results, and the folders above it that are then
    empty; return False, and remove nothing, if the cell has results."""
    if any(path.name not in (SAVED, FAILED, EVENTS) for path in folder.glob("*")):
        return False
    log = folder / EVENTS
    with suppress(OSError):
        if log.exists() and len(log.read_bytes().splitlines()) > 1:
            return False  # more than a header: a recording has begun
        log.unlink(missing_ok=True)
        shutil.rmtree(folder / SAVED, ignore_errors=True)
        forget_failure(folder)
        experiment, output = folder.parents[:2]
        for each in (folder, experiment, output):
            each.rmdir()  # raises OSError at the first that is not empty
    return True


def forget_failure(folder: Path) -> None:
    """Remove what `save_failure` wrote."""
    (folder / FAILED).unlink(missing_ok=True)


def set_aside(folder: Path, *, keep: str | None = None) -> Path:
    """Move the content of a cell's folder, except the entry named `keep`, into a new folder
    `<cell>.old-<n>`, with the first free n; return the new folder."""
    n = 1
    while (old := folder.with_name(f"{folder.name}.old-{n}")).exists():
        n += 1
    if keep is None:
        folder.rename(old)
        folder.mkdir(exist_ok=True)  # another process may have made it in between
        return old
    old.mkdir()
    for path in list(folder.iterdir()):
        if path.name != keep:
            path.rename(old / path.name)
    return old


class Busy(UserError):
    """Another process is writing the cell, so this process leaves it."""


@contextmanager
def lock(folder: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes out of the cell while the `with` block runs, and make its folder.

    If another process holds the lock, call `on_wait` and wait for it; without `on_wait`, raise
    Busy. The system frees the lock of a process that dies. The lock is a hidden file next to the
    folder and not in it, because the folder may be renamed while the lock is held.
    """
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name(f".{folder.name}.lock")
    file_lock = FileLock(file)
    try:
        file_lock.acquire(blocking=False)
    except Timeout as error:
        if on_wait is None:
            raise Busy(
                f"{folder}: another process is writing there; wait for it or stop it"
            ) from error
        on_wait()
        file_lock.acquire()
    try:
        folder.mkdir(exist_ok=True)
        yield
    finally:
        # Before the release: removed after it, the file could be the next process's lock.
        with suppress(OSError):
            file.unlink()
        file_lock.release()
