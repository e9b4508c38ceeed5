"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.simul_whisper.tables [--output outputs]

Reads <output>/{mini,simul_whisper,simul_whisper_thresholds}/*/metrics.json and rewrites the blocks
of this folder's README.md. What is missing stays as the page has it, or reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.rows import (
    COLUMNS,
    Rows,
    measures,
    read_rows,
    write_page,
)
from experiments.tables import caption, markdown

PAGE = Path(__file__).with_name("README.md")
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


def further(output: Path, _: Rows) -> dict[str, str]:
    return {"thresholds": thresholds(output / "simul_whisper_thresholds")}


main = partial(
    write_page,
    about=__doc__,
    page=PAGE,
    system=system,
    systems=SYSTEMS,
    paper="Simul-Whisper",
    further=further,
)

if __name__ == "__main__":
    sys.exit(main())
