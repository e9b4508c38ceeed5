"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.simul_whisper.tables [--output outputs] [--readme README.md]

Reads <output>/{simul_whisper,simul_whisper_thresholds}/*/metrics.json and rewrites the blocks of
this folder's README.md, with --readme also the block `simul_whisper` of another file. A cell that
is missing is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.rows import COLUMNS, caption, measures, read_rows, table, write
from experiments.whisperrt.tables import markdown

TRUNCATIONS = ("cif", "never", "always")
SYSTEMS = tuple(f"Simul-Whisper, {truncation}" for truncation in TRUNCATIONS)
THRESHOLDS = (4, 8, 12, 25)
LAST_THRESHOLDS = (0, 4)


def system(method: Mapping[str, Any]) -> str:
    """By what is done about a last word that may be cut off."""
    truncation = method.get("truncation") or ("cif" if method.get("adapter") else "never")
    return f"Simul-Whisper, {truncation}"


def thresholds(folder: Path) -> str:
    """The dev sweep, by frame_threshold and last_frame_threshold."""
    rows = read_rows(folder, lambda m: f"{m['frame_threshold']} {m['last_frame_threshold']}")
    lines = [
        [str(frames), str(last), *measures(rows.get((f"{frames} {last}", 300, "dev")))]
        for frames in THRESHOLDS
        for last in LAST_THRESHOLDS
    ]
    header = ["frame_threshold", "last_frame_threshold", *COLUMNS]
    return caption(rows) + "\n\n" + markdown(header, lines, n_text=0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def blocks(output: Path) -> dict[str, str]:
        rows = read_rows(output / "simul_whisper", system)
        return {
            "simul_whisper": table(rows, SYSTEMS, "Simul-Whisper"),
            "thresholds": thresholds(output / "simul_whisper_thresholds"),
        }

    own = Path(__file__).parent / "README.md"
    return write(argv, __doc__, own, blocks, shared="simul_whisper")


if __name__ == "__main__":
    sys.exit(main())
