"""The cells of a run or a sweep, planned and checked before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.config.compose import compose_raw, explain
from streaming_asr.config.settle import settle
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
