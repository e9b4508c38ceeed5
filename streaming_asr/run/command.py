"""Runs one method over one corpus: configuration -> method -> simulate -> score -> save.

    python -m streaming_asr.run method=whisperrt chunk=300ms limit=60
    python -m streaming_asr.run -m method=offline,whisperrt chunk=100ms,300ms,1s

A cell is one such run; its results lie in <output>/<name>/<cell>/. A cell that is finished is
skipped while its configuration, code, model and data are what they were; where one of them
changed, the old folder is renamed and the cell begins again. A cell that was stopped, however
abruptly, goes on at the first utterance whose log is not closed. A cell that fails in a sweep
leaves failed.json, and the sweep goes on.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from streaming_asr import machine
from streaming_asr.cells import folder as folders
from streaming_asr.cells import pieces
from streaming_asr.config.build import begin, by_hydra
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import mini_data
from streaming_asr.config.schema import key_of
from streaming_asr.config.settle import settle
from streaming_asr.errors import UserError
from streaming_asr.models.shared import forget, sharing
from streaming_asr.run.cell import run_cell
from streaming_asr.run.failures import EXIT_FAILED, cell_failed, failures_told
from streaming_asr.run.obtain import planned
from streaming_asr.run.plan import Plan, take_finished
from streaming_asr.run.progress import data_places, show
from streaming_asr.terminal import exit_status, stopped

Present: TypeAlias = Callable[..., None]


def main(argv: Sequence[str] | None = None, present: Present = show) -> int:
    """Run the command line and return its exit status: 0; 1 where a cell or a recording failed; 2
    for bad input; 128 and the number of the signal that stopped it, which is 130 for Ctrl-C.

    present: shows the results of a folder; its other arguments: what the settings name as data, and
    the columns of `metrics=` with the metrics of one's own among them.
    """
    arguments = sys.argv[1:] if argv is None else argv
    return exit_status(lambda: _main(CommandLine(arguments), present))


def _main(line: CommandLine, present: Present) -> int:
    machine.let_waiting_threads_sleep()
    if line.asks:
        # Completion is installed for the command that a shell sees.
        completes = line.argv[:1] in (["-sc"], ["--shell-completion"])
        by_hydra("run", job, line.argv, "streaming-asr" if completes else "run")
        return 0
    chosen: tuple[Any, ...] = ()  # columns, and the metrics of one's own among them
    if (metrics := line.pop("metrics")) is not None:
        from streaming_asr.score.own import chosen_columns

        chosen = chosen_columns(metrics, "metrics=")
    line.default_data()
    launcher = line.get("hydra/launcher")
    if launcher in ("slurm", "submitit_slurm") and shutil.which("sbatch") is None:
        raise UserError(
            f"hydra/launcher={launcher}: there is no sbatch here; give the command on a machine "
            "that submits to Slurm, or take hydra/launcher=joblib"
        )
    plan = planned(line)
    if plan.sweep is None and plan.launcher != "basic":
        raise UserError(f"hydra/launcher={plan.launcher}: starts a sweep's jobs; add -m")
    for note in plan.notes:
        print(note)
    for parent in {cell.folder.parent for cell in plan.cells}:
        folders.check_writable(parent)
    for cell in plan.cells:
        folders.forget_failure(cell.folder)
    is_sweep = plan.sweep is not None or len(plan.cells) > 1
    status = 0
    if plan.launcher == "basic" and not plan.foreign_sweeper:
        begin(plan.full)
        with sharing():
            for number, cell in enumerate(plan.cells, start=1):
                config = cell.missing if cell.config is None else cell.config
                each = number if is_sweep else None
                if is_sweep:
                    title = f"[{number} of {len(plan.cells)}] {plan.names[number - 1]}"
                    print(title, flush=True)
                status, _ = _attempt(config, cell.full, cell.full.hydra, cell.folder, each)
    else:
        for argv in _for_hydra(line, plan):
            by_hydra("run", job, argv, "run")
    if status and not is_sweep:
        return status
    status = _join(plan)
    configs = [cell.config for cell in plan.cells if cell.config is not None]
    places = [each for config in configs for each in data_places(config)]
    place = plan.sweep or folders.cell_of(plan.cells[0].folder)
    if not is_sweep or any(place.rglob(folders.RESULT)):
        present(place, places, *chosen)
    return max(status, failures_told(plan))


def _for_hydra(line: CommandLine, plan: Plan) -> list[list[str]]:
    """Return the command lines for Hydra's launchers and sweepers, which compose each cell again:
    one, or two where the offline pass has fewer chunks than the other methods."""
    settings = [*line.settings, *mini_data(line.settings)]
    split = [c.config for c in plan.cells if c.config is not None and c.config.piece is not None]
    if split and line.get("piece") is None:
        settings.append(f"piece=range(1,{split[0].pieces + 1})")
    parts = [settings]
    if plan.notes:
        methods = {str(c.full.hydra.runtime.choices.method): c.full.chunk for c in plan.cells}
        axes = plan.full.hydra.sweeper.get("params") or {}

        def part(**chosen: str) -> list[str]:
            rest = [each for each in settings if key_of(each) not in chosen]
            axis = "hydra.sweeper.params.{}='{}'"
            return rest + [
                axis.format(k, v) if k in axes else f"{k}={v}" for k, v in chosen.items()
            ]

        others = ",".join(name for name in methods if name != "offline")
        parts = [part(method=others)] if others else []
        parts.append(part(method="offline", chunk=methods["offline"], first_chunk="null"))
    lines = []
    for line.settings in parts:
        line.multirun = True
        lines.append(line.argv)
    return lines


def _join(plan: Plan) -> int:
    """Join the pieces of the plan's cells once more, since on a shared disk the last two jobs may
    not have seen each other; return the exit status."""
    for whole in sorted(
        {folders.cell_of(c.folder) for c in plan.cells if folders.is_piece(c.folder)}
    ):
        try:
            if pieces.join(whole) and not (whole / folders.RESULT).exists():
                from streaming_asr.score import score_folder

                score_folder(whole)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_FAILED
    return 0


# -- one cell -------------------------------------------------------------------------------


def job(config: DictConfig) -> float | None:
    """Run one cell as Hydra calls it, in this process or in a launcher's; return its WER in
    percent, which a sweeper makes small, None where the cell failed."""
    node = HydraConfig.get()
    folder = Path(os.path.relpath(node.runtime.output_dir))
    number = node.job.num + 1 if node.mode == RunMode.MULTIRUN else None
    if number is not None:
        print(f"[{number}] {folders.name_of(folder)}", flush=True)
    config = config.copy()
    asked, folder = folder, take_finished(config, node, folder)
    if folder != asked:
        with suppress(OSError):
            asked.rmdir()  # Hydra made it
    settled: DictConfig | UserError
    try:
        settled = settle(config, node)
    except UserError as error:
        settled = error
    try:
        return _attempt(settled, config, node, folder, number)[1]
    except KeyboardInterrupt as error:
        raise SystemExit(stopped(error)) from None


def _attempt(
    config: DictConfig | UserError | None,
    composed: DictConfig,
    node: Any,
    folder: Path,
    number: int | None,
) -> tuple[int, float | None]:
    """Run one cell; return its exit status and its WER.

    config: settled, or why it cannot be. composed: what it was settled of. node: Hydra's own.
    number: of the cell in a sweep, which goes on whatever happens to it.
    """
    try:
        if not isinstance(config, DictConfig):
            raise config or UserError(f"{folder}: no configuration")
        launcher = str(node.runtime.choices["hydra/launcher"])
        result = run_cell(config, folder, hydra_node=node, launcher=launcher, number=number)
    except folders.Busy:
        print(f"[{number}] another process is writing it; passed over", flush=True)
        return 0, None
    except Exception as error:
        status = cell_failed(error, composed, node, folder, number)
    else:
        return 0, result["metrics"].get("wer")
    forget()
    machine.give_back_memory()  # now that the failure and what it held are gone
    return status, None
