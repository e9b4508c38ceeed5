"""Plans the cells of a run or a sweep: each composed once and checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.cells.folder import (
    RESULT,
    cell_of,
    is_piece,
    is_set_aside,
    name_of,
    piece_folder,
    settings_of,
    short_names,
)
from streaming_asr.cells.pieces import check_fits
from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine, is_path
from streaming_asr.config.compose import compose_raw, explain, parse, values_of
from streaming_asr.config.schema import key_of, value_of
from streaming_asr.config.settle import settle
from streaming_asr.errors import MissingWeights, Unpaired, UserError

SWEEP_FOLDER = ("hydra.sweep.dir", "hydra.sweep.subdir")
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
CHUNK = ("chunk", "first_chunk")  # what the text of the offline pass does not depend on
ONE_OFFLINE = "offline: it waits for the whole recording, so it runs at one chunk only"


@dataclass(frozen=True)
class Planned:
    """One cell that a command will run.

    full: as Hydra composed it. config: settled; None where its weights are missing, which `missing`
    has.
    """

    folder: Path
    full: DictConfig
    config: DictConfig | None
    missing: MissingWeights | None = None


@dataclass(frozen=True)
class Plan:
    """The cells of a command line, in the order in which they run.

    sweep: the folder above the cells of a sweep, None for one cell. launcher: Hydra's, `basic`
    where this process runs the cells itself. foreign_sweeper: another sweeper than Hydra's own
    chooses the cells as it goes, so that there are none here. notes: what the user should know.
    """

    cells: list[Planned]
    full: DictConfig
    sweep: Path | None
    launcher: str
    foreign_sweeper: bool = False
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """What messages call the cells: what differs between them, and a piece's number."""
        wholes = [cell_of(cell.folder).name for cell in self.cells]
        short = short_names(wholes)
        return [
            name_of(cell.folder).replace(whole, short[whole], 1)
            for cell, whole in zip(self.cells, wholes, strict=True)
        ]


def plan(line: CommandLine) -> Plan:
    """Return the cells of a command line, all checked. Raises UserError for the first wrong one.

    A sweep also plans cells whose weights are missing: they fail when their turn comes, while
    others can run. It leaves out a method with a model that it does not run. The offline pass has
    one cell for all chunks, that of an earlier result where there is one. -m asks for a sweep, as
    does an experiment file with `hydra.mode: MULTIRUN`.
    """
    overrides = parse(line.settings)
    # The first value of each setting: the only cell, or the first of a sweep.
    first = tuple(values_of(override)[0] for override in overrides)
    full = compose_raw(first, config_dir=line.config_dir)
    launcher = str(full.hydra.runtime.choices["hydra/launcher"])
    if not line.multirun and full.hydra.mode != RunMode.MULTIRUN:
        for override in overrides:
            if override.is_sweep_override():
                raise _several_values(override.input_line or "")
        before = _settings(full.hydra)
        cell = _planned(full, "hydra.run.dir")
        notes = () if _settings(full.hydra) == before else (ONE_OFFLINE,)
        return Plan(_in_pieces([cell]), full, None, launcher, notes=notes)
    sweep = _folder(full, "hydra.sweep.dir")
    if full.hydra.sweeper.get("_target_") != BASIC_SWEEPER:
        return Plan([], full, sweep, launcher, foreign_sweeper=True)
    # The axes of the experiment file come first, so that the command line has the last word.
    axes = [f"{key}={value}" for key, value in (full.hydra.sweeper.params or {}).items()]
    by_key = {o.get_key_element(): values_of(o) for o in (*parse(axes), *overrides)}
    for values in by_key.values():
        for value, n in Counter(values).items():
            if n > 1:
                raise UserError(f"{value}: is there twice; a sweep names each value once")
    cells: list[Planned] = []
    by_folder: dict[Path, tuple[str, ...]] = {}
    unpaired: Unpaired | None = None
    for settings in itertools.product(*by_key.values()):
        composed = full if settings == first else compose_raw(settings, config_dir=line.config_dir)
        try:
            cells.append(_planned(composed, *SWEEP_FOLDER))
        except MissingWeights as error:
            cells.append(Planned(_folder(composed, *SWEEP_FOLDER), composed, None, error))
        except Unpaired as error:
            unpaired = error
            continue
        other = by_folder.setdefault(cells[-1].folder, settings)
        pairs = [pair for pair in zip(other, settings, strict=True) if pair[0] != pair[1]]
        # A cell's pieces have its folder; their number is checked after the loop.
        one_folder = ("pieces", *CHUNK) if _is_offline(composed.hydra) else ("pieces",)
        if unequal := [pair for pair in pairs if key_of(pair[0]) not in one_folder]:
            # Other signs are _ in a name: the later cell gets a mark. A launcher takes no folder.
            mark = rf"\1-{hashlib.sha256(unequal[0][1].encode()).hexdigest()[:6]}"
            name = re.sub(
                rf"({re.escape(key_of(unequal[0][1]))}=[^,]*)", mark, cells[-1].folder.name
            )
            folder = cells[-1].folder.with_name(name)
            if launcher != "basic" or folder in by_folder:
                raise UserError(
                    f"{' and '.join(unequal[0])}: have one folder, {cells[-1].folder.name}, in "
                    "whose name other signs are _; rename one"
                )
            by_folder[folder] = settings
            cells[-1] = replace(cells[-1], folder=folder)
    if not cells and unpaired is not None:
        raise unpaired
    missing = [cell.missing for cell in cells if cell.missing is not None]
    if len(missing) == len(cells):
        raise missing[0]
    different = _one_offline(cells)
    notes = () if len(different) == len(cells) else (ONE_OFFLINE,)
    return Plan(_in_pieces(different), full, sweep, launcher, notes=notes)


def _is_offline(hydra_node: Any) -> bool:
    return str(hydra_node.runtime.choices.method) == "offline"


def _settings(hydra_node: Any) -> list[str]:
    """Return a cell's settings of the command line; a `${...}` in them stays."""
    return OmegaConf.to_container(hydra_node.overrides.task, resolve=False)  # type: ignore[return-value]


def _one_offline(cells: Sequence[Planned]) -> list[Planned]:
    """Return the cells with one for the chunks of each offline pass, the first."""
    same: dict[Any, Planned] = {}
    for cell in cells:
        omitted = CHUNK if _is_offline(cell.full.hydra) else ()
        settings = [each for each in _settings(cell.full.hydra) if key_of(each) not in omitted]
        same.setdefault(tuple(settings), cell)
    return list(same.values())


def take_finished(config: DictConfig, hydra_node: Any, folder: Path) -> Path:
    """Return the folder of a cell: `folder`, or of an offline pass the one next to it that has a
    result of the same settings at another chunk. The chunk of that one is set in place.

    config: as Hydra composed it. hydra_node: Hydra's own.
    """
    if not _is_offline(hydra_node) or is_piece(folder) or (folder / RESULT).exists():
        return folder
    ours = settings_of(folder.name)
    for other in sorted(folder.parent.glob("method=offline,chunk=*")):
        theirs = settings_of(other.name)
        if is_set_aside(other) or not (other / RESULT).exists():
            continue
        if all(ours.get(key) == theirs.get(key) for key in {*ours, *theirs} - {*CHUNK}):
            with read_write(config), open_dict(config), read_write(hydra_node):
                rest = [each for each in _settings(hydra_node) if key_of(each) not in CHUNK]
                axis = {key: theirs[key] for key in CHUNK if key in theirs}
                hydra_node.overrides.task = rest + [f"{key}={axis[key]}" for key in axis]
                config.chunk, config.first_chunk = axis["chunk"], axis.get("first_chunk")
            return other
    return folder


def _several_values(setting: str) -> UserError:
    """Return the refusal of a setting with several values outside a sweep."""
    key, value = key_of(setting), value_of(setting)
    quoted = f"; quote a path that holds a comma: \"{key}='{value}'\"" if is_path(key) else ""
    return UserError(
        f"{setting}: several values make a sweep; add -m to run one cell for each, or give one "
        f"value{quoted}"
    )


def _planned(full: DictConfig, *folder_keys: str) -> Planned:
    config, folder = settle(full, full.hydra), _folder(full, *folder_keys)
    taken = take_finished(full, full.hydra, folder)
    return Planned(taken, full, config if taken == folder else settle(full, full.hydra))


def _folder(full: DictConfig, *keys: str) -> Path:
    try:
        return Path(*(str(OmegaConf.select(full, key)) for key in keys))
    except OmegaConfBaseException as error:
        raise explain(error) from error


def _in_pieces(cells: list[Planned]) -> list[Planned]:
    """Return the cells or, with pieces=N, the N pieces of each cell, one after another.

    Raises UserError for two different numbers of pieces, and for more pieces than utterances.
    """
    configs = [cell.config for cell in cells if cell.config is not None]
    if all(config.pieces == 1 or config.piece is not None for config in configs):
        return cells
    numbers = sorted({config.pieces for config in configs})
    if len(numbers) > 1:
        raise UserError(f"pieces={','.join(map(str, numbers))}: a command has one number of pieces")
    n_pieces = numbers[0]
    n_utterances: dict[str, int] = {}  # of each corpus, which is built once for all cells
    pieces: list[Planned] = []
    for cell in cells:
        if cell.config is None:  # its weights are missing, so it is not split
            pieces.append(cell)
            continue
        corpus = f"{cell.config.data} {cell.config.limit}"
        if corpus not in n_utterances:
            n_utterances[corpus] = len(build(cell.config.data).utterances(cell.config.limit))
        check_fits(cell.folder, n_pieces, n_utterances[corpus])
        pieces += [_piece(cell, k, n_pieces) for k in range(1, n_pieces + 1)]
    return pieces


def _piece(cell: Planned, k: int, n: int) -> Planned:
    config: Any = OmegaConf.merge(cell.config, {"piece": k})
    return replace(cell, folder=piece_folder(cell.folder, k, n), config=config)
