"""The report page of the site: six methods on five people's recordings, from stored logs.

    python -m experiments.example outputs/example    # renews docs/example/logs.tar.xz

docs/report.md has the commands of the runs; `make docs` writes the page. The recordings lie next to
the logs: LibriSpeech dev-clean, CC BY 4.0. A step's time is its CPU time, so that a busy machine
may run them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import EVENTS, settings_of
from streaming_asr.errors import UserError
from streaming_asr.report import build
from streaming_asr.score import score_folder
from streaming_asr.terminal import exit_status

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "docs" / "example" / "logs.tar.xz"
TITLE = "Six methods on five recordings"
DOUBTS = (
    "a step's computing is its CPU time on a shared machine, longer than on an idle one",
    "five readers of LibriSpeech dev-clean (CC BY 4.0, Panayotov et al., openslr.org/12) are few",
)
# Fields of a line that a machine, and not the method, determines.
OF_MACHINE = {"memory_bytes", "memory_peak_bytes", "hashes"}


def page(out: Path, logs: Path = LOGS) -> Path:
    """Write the page of the stored logs to `out`. Reads no model."""
    out = out.resolve()
    # The logs name audio and weights from the root of the checkout.
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(ROOT):
        with tarfile.open(logs) as archive:
            archive.extractall(scratch, filter="data")
        for log in sorted(Path(scratch).glob(f"*/{EVENTS}")):
            score_folder(log.parent, experiment=TITLE)
        return build(scratch, out, [LOGS.parent])


def pack(folder: Path, logs: Path = LOGS) -> None:
    """Store the logs of the cells under `folder`. The same logs give the same file.

    Raises UserError where `folder` has no log.
    """
    cells = sorted(folder.glob(f"*/{EVENTS}"))
    if not cells:
        raise UserError(f"{folder}: no */{EVENTS} in it; run the commands of docs/report.md first")
    offline = False  # it has the same text at every chunk
    with tarfile.open(logs, "w:xz", preset=9) as archive:
        for log in cells:
            settings = settings_of(log.parent.name)
            method = settings["method"]
            if method == "offline" and offline:
                continue
            offline |= method == "offline"
            name = f"method={method},chunk={settings['chunk']}"
            with log.open(encoding="utf-8") as lines:
                text = "".join(f"{line}\n" for line in _stored(lines))
            content = text.encode()
            member = tarfile.TarInfo(f"{name}/{EVENTS}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _stored(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines of a log with CPU times and without the paths of this machine."""
    for line in lines:
        row: dict[str, Any] = json.loads(line.replace(f'"{ROOT}/', '"'))
        row = {key: value for key, value in row.items() if key not in OF_MACHINE}
        if row["kind"] == "header":
            row["config"].pop("output")
            row["machine"] = {key: row["machine"][key] for key in ("cpu", "cores", "threads")}
            row["warnings"] = DOUBTS
        elif "compute_ns" in row:
            times = row["compute_ns"]
            share = times["cpu"] / max(1, times["wall"])
            row["compute_ns"] = {
                name: int(ns * share) for name, ns in times.items() if name != "cpu"
            }
            row["compute_ns"] |= {"wall": times["cpu"], "cpu": times["cpu"]}
        yield json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", type=Path, help="of the runs, as outputs/example")
    pack(parser.parse_args(argv).folder)


if __name__ == "__main__":
    sys.exit(exit_status(program))
