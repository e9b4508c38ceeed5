"""Uploads the W&B runs that a sweep kept offline.

    streaming-asr sync outputs/mini --entity ME
    streaming-asr sync outputs/mini --project other

Runs that were uploaded before are passed over, so a broken upload goes on when it is given again.
So are those of results that are unfinished or were replaced; of a cell the last run counts.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.machine import has_login
from streaming_asr.terminal import command_parser, exit_status

RESULTS = ("metrics.json", "*/training.json")
"""What a finished run and a training leave next to the runs of W&B."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 where W&B did not take a run."""
    parser = command_parser("streaming-asr sync", __doc__)
    parser.add_argument("folder", type=Path, help="a sweep or a cell, e.g. outputs/mini")
    parser.add_argument("--entity", help="the user or team that owns the project")
    parser.add_argument("--project", help="default: each run's own, as tracker.project= named it")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _sync(arguments))


def _sync(arguments: argparse.Namespace) -> int:
    offline = sorted(arguments.folder.rglob("wandb/offline-run-*/*.wandb"))
    newest = {run.parents[2]: run for run in offline}  # a run's name begins with its time
    runs = [run for folder, run in newest.items() if _is_current(folder)]
    if not offline:
        raise UserError(
            f"{arguments.folder}: holds no offline run of W&B; run with tracker=wandb, or name the "
            "folder of a sweep"
        )
    root = arguments.folder.resolve()
    # W&B's own logs are links to its cache, and are not sent.
    files = (path for run in runs for path in (run, *run.parent.rglob("*")))
    for path in (path for path in files if path.parent.name != "logs"):
        if not path.resolve().is_relative_to(root):
            raise UserError(
                f"{path}: leads out of {arguments.folder}, so it is not sent; remove it"
            )
    todo = [str(run.parent) for run in runs if not Path(f"{run}.synced").exists()]
    n_old = len(offline) - len(runs)
    left_out = f" ({n_old} of unfinished or replaced results left out)" if n_old else ""
    print(f"{len(todo)} of {len(runs)} runs to upload{left_out}", flush=True)
    if not todo:
        return 0
    if not has_login():
        raise UserError(
            f"{arguments.folder}: there is no login of W&B; give `wandb login` once, or set "
            "WANDB_API_KEY, then the same command again"
        )
    command = [sys.executable, "-m", "wandb", "sync"]
    command += ["--project", arguments.project] if arguments.project else []
    command += ["--entity", arguments.entity] if arguments.entity else []
    return 1 if subprocess.run([*command, *todo], check=False).returncode else 0


def _is_current(folder: Path) -> bool:
    """Whether the results in a folder are finished, and not set aside."""
    is_old = any(re.search(r"\.old-\d+$", part) for part in folder.parts)
    return not is_old and any(True for name in RESULTS for _ in folder.glob(name))
