"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.ufal.tables [--output outputs] [--readme README.md]

Reads <output>/{mini,ufal}/*/metrics.json and rewrites the block `ufal` of this folder's README.md,
with --readme also, shorter, that of another file. A missing cell is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.rows import Rows, method_rows, short_table, table
from experiments.tables import write

SYSTEMS = ("UFAL", "UFAL compat")


def system(method: Mapping[str, Any]) -> str:
    return SYSTEMS[bool(method.get("compat"))]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def rows(output: Path) -> Rows:
        return method_rows(output, "ufal", system)

    return write(
        argv,
        __doc__,
        Path(__file__).parent / "README.md",
        lambda output: {"ufal": table(rows(output), SYSTEMS, "Ufal-Whisper")},
        shared="ufal",
        short=lambda output: short_table(rows(output), SYSTEMS),
    )


if __name__ == "__main__":
    sys.exit(main())
