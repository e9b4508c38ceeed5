"""What a run prints and keeps of cells and recordings that failed."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from streaming_asr import machine
from streaming_asr.cells import folder as folders
from streaming_asr.errors import UserError, unnameable
from streaming_asr.run.plan import Plan

EXIT_BAD_INPUT, EXIT_FAILED = 2, 1
LOST_SHOWN = 10  # recordings that failed


def failures_told(plan: Plan) -> int:
    """Print the failed cells and, of the others, the failed recordings; return the exit status:
    0, or EXIT_FAILED if there are any."""
    lines = [
        f"{cell.folder}: {why}" for cell in plan.cells if (why := folders.failure(cell.folder))
    ]
    if lines:
        lines.insert(0, f"{len(lines)} of {len(plan.cells)} cells failed:")
    for cell, name in zip(plan.cells, plan.names, strict=True):
        result = folders.result_of(cell.folder)
        failed = [f"  {each['utt']}: {each['error']}" for each in result.get("failed") or ()]
        if failed:
            n = f"{len(failed)} of {result['n_utterances']} recordings failed"
            lines += [f"{name}: {n}:", *failed[:LOST_SHOWN]]
        if len(failed) > LOST_SHOWN:
            lines.append(f"  and {len(failed) - LOST_SHOWN} more: {cell.folder / folders.RESULT}")
    print("".join(f"{line}\n" for line in lines), end="", file=sys.stderr)
    return EXIT_FAILED if lines else 0


def cell_failed(
    error: Exception, composed: DictConfig, node: Any, folder: Path, number: int | None
) -> int:
    """Print why a cell failed, write it into the cell's folder, and return the exit status.

    composed: the configuration before `settle`. node: Hydra's own. number: of the cell in a sweep.
    The folder of a single cell is removed if its settings were wrong and nothing ran.
    """
    if machine.ran_out_of_memory(error):
        settings = {key: composed[key] for key in ("batch", "device", "dtype")}
        error = UserError(machine.memory_remedy(error, **settings))
    error = unnameable(error) or error
    is_bad_input = isinstance(error, UserError)
    if is_bad_input and number is None and folders.discard(folder):
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    folders.save_failure(folder, str(error) if is_bad_input else f"{type(error).__name__}: {error}")
    if not (folder / folders.SAVED).exists():  # the report's row shows the settings
        with suppress(UserError):
            keys = [str(key) for key in composed if key != "hydra"]
            plain = OmegaConf.masked_copy(composed, keys)
            folders.save_configuration(folder, plain, node.overrides.task)
    if not is_bad_input:
        traceback.print_exception(error)
    prefix = "" if number is None else f"[{number}] "
    print(f"error: {prefix}{error}", file=sys.stderr)
    return EXIT_BAD_INPUT if is_bad_input and number is None else EXIT_FAILED
