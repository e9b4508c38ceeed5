"""The cells of a run or a sweep: planned before anything runs, kept while they still hold."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.config import compose_raw, explain, settle
from streaming_asr.errors import MissingWeights, UserError

SWEEP_FOLDER = ("hydra.sweep.dir", "hydra.sweep.subdir")
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass(frozen=True)
class Planned:
    """One cell that a command will run: its folder and its settled configuration, which is None
    where its weights are missing."""

    folder: Path
    config: DictConfig | None


def plan(
    overrides: Sequence[str], *, multirun: bool = False, config_dir: str | None = None
) -> list[Planned]:
    """Return the cells of a command line, all checked. Raises UserError for the first wrong one.

    A sweep also plans cells whose weights are missing: they fail when their turn comes, while
    others can run. `multirun` asks for a sweep, as does an experiment file with
    `hydra.mode: MULTIRUN`. Sweepers other than Hydra's own choose their cells as they go: for those
    the list is empty.
    """
    swept = [override for override in _parsed(overrides) if override.is_sweep_override()]
    given = [_values(override) for override in _parsed(overrides)]
    full = compose_raw([values[0] for values in given], config_dir=config_dir)
    if not multirun and full.hydra.mode != RunMode.MULTIRUN:
        if swept:
            raise UserError(
                f"{swept[0].input_line}: several values make a sweep; add -m to run one cell for "
                "each, or give one value"
            )
        return [_planned(full, "hydra.run.dir")]
    if full.hydra.sweeper.get("_target_") != BASIC_SWEEPER:
        return []
    # The axes of the experiment file come first, so that the command line has the last word.
    axes = [f"{key}={value}" for key, value in (full.hydra.sweeper.params or {}).items()]
    by_key = {o.get_key_element(): _values(o) for o in _parsed([*axes, *overrides])}
    planned, missing = [], []
    for cell in itertools.product(*by_key.values()):
        full = compose_raw(cell, config_dir=config_dir)
        try:
            planned.append(_planned(full, *SWEEP_FOLDER))
        except MissingWeights as error:
            missing.append(error)
            planned.append(Planned(_folder(full, *SWEEP_FOLDER), None))
    if len(missing) == len(planned):
        raise missing[0]
    return planned


def _parsed(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        reason = str(error).splitlines()[0].partition(" expecting ")[0]  # the rest is a grammar
        raise UserError(
            f"{' '.join(overrides)}: not key=value ({reason}); "
            "quote values that hold blanks or brackets"
        ) from error


def _values(override: Override) -> list[str]:
    """Return the override once for each of its values."""
    if not override.is_sweep_override():
        return [override.input_line or ""]
    if not override.is_discrete_sweep() or override.value_type == ValueType.GLOB_CHOICE_SWEEP:
        raise UserError(
            f"{override.input_line}: a sweep lists its values, as in chunk=100ms,300ms, or counts "
            "them, as in seed=range(0,3)"
        )
    return [f"{override.get_key_element()}={v}" for v in override.sweep_string_iterator()]


def _planned(full: DictConfig, *folder_keys: str) -> Planned:
    config = settle(full, full.hydra.runtime.choices)
    return Planned(_folder(full, *folder_keys), config)


def _folder(full: DictConfig, *folder_keys: str) -> Path:
    try:
        return Path(*(str(OmegaConf.select(full, key)) for key in folder_keys))
    except OmegaConfBaseException as error:
        raise explain(error) from error


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


# -- what a cell's folder holds -------------------------------------------------------------


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
