"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.ufal.tables [--output outputs] [--readme README.md]

Reads <output>/ufal/*/metrics.json and rewrites the block `ufal` of this folder's README.md, with
--readme also that of another file. A cell that is missing is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.rows import read_rows, table, write

SYSTEMS = ("UFAL", "UFAL compat")


def system(method: Mapping[str, Any]) -> str:
    return SYSTEMS[bool(method.get("compat"))]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def blocks(output: Path) -> dict[str, str]:
        return {"ufal": table(read_rows(output / "ufal", system), SYSTEMS, "Ufal-Whisper")}

    return write(argv, __doc__, Path(__file__).parent / "README.md", blocks, shared="ufal")


if __name__ == "__main__":
    sys.exit(main())
