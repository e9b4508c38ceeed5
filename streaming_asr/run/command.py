"""Runs one method over one corpus: configuration -> method -> simulate -> score -> save.

    python -m streaming_asr.run method=whisperrt chunk=300ms limit=60
    python -m streaming_asr.run -m method=offline,whisperrt chunk=100ms,300ms,1s

A cell is one such run; its results lie in <output>/<name>/<cell>/. A cell that is finished is
skipped while its configuration, code, model and data are what they were; where one of them
changed, the old folder is renamed and the cell begins anew. A cell that was stopped, however
abruptly, goes on at the first utterance whose log is not closed. A cell that fails in a sweep
leaves failed.json, and the sweep goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from streaming_asr import machine
from streaming_asr.cells import folder as folders
from streaming_asr.cells import pieces
from streaming_asr.config.build import build
from streaming_asr.config.compose import check_name
from streaming_asr.config.settle import check_options, settle
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR, write_text
from streaming_asr.run.cell import run_cell, save_configuration
from streaming_asr.run.obtain import with_model
from streaming_asr.run.plan import Planned, plan
from streaming_asr.run.progress import show, show_segments
from streaming_asr.terminal import stoppable, stopped

EXIT_BAD_INPUT, EXIT_FAILED = 2, 1
MULTIRUN = ("-m", "--multirun")
LOST_SHOWN = 10  # recordings that failed


# -- the program ----------------------------------------------------------------------------


def job(config: DictConfig) -> dict[str, Any] | None:
    """Run one cell as Hydra calls it, in this process or in a launcher's."""
    node = HydraConfig.get()
    folder = Path(os.path.relpath(node.runtime.output_dir))
    sweeping = node.mode == RunMode.MULTIRUN
    launcher = str(node.runtime.choices["hydra/launcher"])
    if launcher != "basic" and not sweeping:
        print(f"error: hydra/launcher={launcher}: starts a sweep's jobs; add -m", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)
    machine.release_memory()
    if sweeping:
        print(f"[{node.job.num + 1}] {pieces.name_of(folder)}", flush=True)
    try:
        settled = settle(config, node.runtime.choices)
        result = run_cell(settled, folder, hydra_node=node, launcher=launcher, waits=not sweeping)
    except KeyboardInterrupt as error:
        raise SystemExit(stopped(error)) from None
    except folders.Busy:
        print(f"{folder.name}: another process is writing it; passed over", flush=True)
        return None
    except Exception as error:
        if machine.ran_out_of_memory(error):
            told = machine.memory_remedy(
                error, batch=config.batch, device=config.device, dtype=config.dtype
            )
            error = UserError(told).with_traceback(error.__traceback__)
        expected = isinstance(error, UserError)
        _save_failure(folder, str(error) if expected else f"{type(error).__name__}: {error}")
        if not (folder / ".hydra").exists():  # what was to run, for the row in the report
            with suppress(UserError):
                save_configuration(folder, config, node)
        if not sweeping and not expected:
            raise
        if not expected:
            import traceback

            traceback.print_exc()
        print(f"error: {folder.name if sweeping else ''}{': ' * sweeping}{error}", file=sys.stderr)
        if not sweeping:
            raise SystemExit(EXIT_BAD_INPUT) from None
        return None
    if not sweeping:
        show(pieces.cell_of(folder))
        show_segments(pieces.cell_of(folder))
    return {"cell": result["cell"], "wer": result["metrics"].get("wer")}


def _save_failure(folder: Path, error: str) -> None:
    with suppress(UserError):  # a full disk may be what failed
        text = json.dumps({"status": "failed", "error": error}, ensure_ascii=False)
        write_text(folder / "failed.json", text + "\n")


class ReportSweep(Callback):  # type: ignore[misc]
    """Shows the table of all cells and the page after a sweep."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir)
        if any(folder.glob("*/metrics.json")):
            show(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0; 1 where a cell or a recording failed; 2
    for bad input; 128 and the number of the signal that stopped it, which is 130 for Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    # Hydra's parser refuses -m between overrides; a stable sort moves nothing else.
    argv.sort(key=lambda argument: argument not in MULTIRUN)
    try:
        for argument in argv:
            try:
                argument.encode()
            except UnicodeEncodeError as error:
                raise UserError(f"{argument!r}: is no UTF-8 text; rename the file") from error
            check_name(argument)
        check_options(argv)
        machine.let_waiting_threads_sleep()
        argv = _own_speech(argv)
        with stoppable():
            if "hydra/launcher=submitit_slurm" in argv:
                _check_slurm()
            argv, planned = _in_pieces(argv, _plan(argv))
            for folder in {cell.folder.parent for cell in planned}:
                folders.check_writable(folder)
            for cell in planned:
                (cell.folder / "failed.json").unlink(missing_ok=True)
            _hydra(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt as error:
        return stopped(error)
    failed = [cell.folder for cell in planned if (cell.folder / "failed.json").exists()]
    wholes = {pieces.cell_of(cell.folder) for cell in planned} - {cell.folder for cell in planned}
    for whole in sorted(wholes):
        try:  # once more, since on a shared disk the last two jobs may not have seen each other
            if pieces.join(whole) and not (whole / "metrics.json").exists():
                from streaming_asr.score import score_folder

                score_folder(whole)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_FAILED
    if failed:
        print(f"{len(failed)} of {len(planned)} cells failed:", file=sys.stderr)
        for folder in failed:
            print(f"  {folder}: {pieces.failure(folder)}", file=sys.stderr)
    lost = [line for cell in planned for line in _lost(cell.folder)]
    print(*lost, sep="\n", end="\n" * bool(lost), file=sys.stderr)
    return EXIT_FAILED if failed or lost else 0


def _own_speech(argv: list[str]) -> list[str]:
    """Return the command line, with the corpus and the model that `data.path=FILE` alone means."""
    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    if "data.path" not in given or {"data", "experiment", "+experiment"} & given.keys():
        return argv
    kind = "manifest" if given["data.path"].endswith((".jsonl", ".json")) else "folder"
    return with_model([*argv, f"data={kind}"])


def _lost(folder: Path) -> list[str]:
    """Return what to say of the recordings of a cell that failed; nothing where none did."""
    try:
        result = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        failed = [f"  {each['utt']}: {each['error']}" for each in result["failed"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not failed:
        return []
    rest = [f"  and {len(failed) - LOST_SHOWN} more: {folder / 'metrics.json'}"]
    told = f"{folder.name}: {len(failed)} of {result['n_utterances']} recordings failed:"
    return [told, *failed[:LOST_SHOWN], *rest * (len(failed) > LOST_SHOWN)]


def _plan(argv: Sequence[str]) -> list[Planned]:
    """Return the cells this command line runs; none where it only asks (--help, --cfg)."""
    overrides, multirun, config_dir = [], False, None
    rest = iter(argv)
    for argument in rest:
        if argument in MULTIRUN:
            multirun = True
        elif argument in ("-cd", "--config-dir"):
            config_dir = next(rest, None)
        elif argument.startswith("-"):
            return []
        else:
            overrides.append(argument)
    return plan(overrides, multirun=multirun, config_dir=config_dir)


def _check_slurm() -> None:
    """Raise UserError where no job can be given to Slurm."""
    if shutil.which("sbatch") is None:
        told = "there is no sbatch here"
    else:
        asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, text=True)
        if not asked.returncode:
            return
        told = f"Slurm does not answer ({asked.stderr.strip().rpartition(chr(10))[2]})"
    raise UserError(
        f"hydra/launcher=submitit_slurm: {told}; give the command on a machine that submits to "
        "Slurm, or take hydra/launcher=joblib"
    )


def _in_pieces(argv: list[str], planned: list[Planned]) -> tuple[list[str], list[Planned]]:
    """Return the command line and its cells, one for each piece where cells are to be split.

    Raises UserError for more than one number of pieces, and for more pieces than utterances.
    """
    split = [cell for cell in planned if cell.config is not None and cell.config.pieces > 1]
    whole = [cell for cell in split if cell.config is not None and cell.config.piece is None]
    if not whole:
        return argv, planned
    numbers = sorted({cell.config.pieces for cell in planned if cell.config is not None})
    if len(numbers) > 1:
        raise UserError(f"pieces={','.join(map(str, numbers))}: a command has one number of pieces")
    lengths: dict[str, int] = {}
    for folder, config in ((cell.folder, cell.config) for cell in whole):
        assert config is not None
        key = f"{config.data} {config.limit}"
        if key not in lengths:
            lengths[key] = len(build(config.data).utterances(config.limit))
        pieces.check_fits(folder, numbers[0], lengths[key])
    argv = ["-m", *(a for a in argv if a not in MULTIRUN), f"piece=range(1,{numbers[0] + 1})"]
    return argv, _plan(argv)


def _hydra(argv: Sequence[str]) -> None:
    before = sys.argv
    # Completion is installed for the command that a shell sees.
    completes = argv[:1] in (["-sc"], ["--shell-completion"])
    sys.argv = ["streaming-asr" if completes else "run", *argv]
    try:
        hydra.main(config_path=str(CONF_DIR), config_name="run", version_base="1.3")(job)()
    finally:
        sys.argv = before
