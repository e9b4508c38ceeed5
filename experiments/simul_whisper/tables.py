"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.simul_whisper.tables [--output outputs] [--readme README.md]

Reads <output>/{mini,simul_whisper,simul_whisper_thresholds}/*/metrics.json and rewrites the blocks
of this folder's README.md, with --readme also, shorter, the block `simul_whisper` of another file.
A missing cell is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.rows import (
    COLUMNS,
    Rows,
    measures,
    method_rows,
    read_rows,
    short_table,
    table,
)
from experiments.tables import caption, markdown, write

TRUNCATIONS = ("cif", "never", "always")
SYSTEMS = tuple(f"Simul-Whisper, {truncation}" for truncation in TRUNCATIONS)
THRESHOLDS = (4, 8, 12, 25)


def system(method: Mapping[str, Any]) -> str:
    """By what is done about a last word that may be cut off."""
    truncation = method.get("truncation") or ("cif" if method.get("weights") else "never")
    return f"Simul-Whisper, {truncation}"


def thresholds(folder: Path) -> str:
    """The dev sweep, by frame_threshold."""
    rows = read_rows(folder, lambda method: str(method["frame_threshold"]))
    lines = [[str(n), *measures(rows.get((str(n), 300, "dev")))] for n in THRESHOLDS]
    return (
        caption(rows.values()) + "\n\n" + markdown(["frame_threshold", *COLUMNS], lines, n_text=0)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    name = "simul_whisper"

    def rows(output: Path) -> Rows:
        return method_rows(output, name, system)

    def blocks(output: Path) -> dict[str, str]:
        return {
            name: table(rows(output), SYSTEMS, "Simul-Whisper"),
            "thresholds": thresholds(output / "simul_whisper_thresholds"),
        }

    own = Path(__file__).parent / "README.md"
    short = lambda output: short_table(rows(output), SYSTEMS)  # noqa: E731
    return write(argv, __doc__, own, blocks, shared=name, short=short)


if __name__ == "__main__":
    sys.exit(main())
