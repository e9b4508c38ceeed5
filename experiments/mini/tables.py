"""The tables of the papers' experiments on mini, from the results of the sweeps.

    python -m experiments.mini.tables [--output outputs]

Reads <output>/{table1,table3,fig6,mini,ufal,simul_whisper,simul_whisper_thresholds}/*/metrics.json
and rewrites the blocks of this folder's papers.md. What is missing stays as the page has it, or
reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.rows import COLUMNS, measures, method_rows, read_rows, table
from experiments.tables import caption, markdown, read, write
from experiments.whisperrt.tables import fig6, table1, table3

PAGE = Path(__file__).with_name("papers.md")
UFAL = ("UFAL", "UFAL compat")
SIMUL_WHISPER = tuple(f"Simul-Whisper, {kind}" for kind in ("cif", "never", "always"))
THRESHOLDS = (4, 8, 12, 25)


def ufal(method: Mapping[str, Any]) -> str:
    """The system that a cell of UFAL is."""
    return UFAL[bool(method.get("compat"))]


def simul_whisper(method: Mapping[str, Any]) -> str:
    """The system by what is done about a last word that may be cut off."""
    truncation = method.get("truncation") or ("cif" if method.get("weights") else "never")
    return f"Simul-Whisper, {truncation}"


def thresholds(folder: Path) -> str:
    """The dev sweep, by frame_threshold."""
    rows = read_rows(folder, lambda method: str(method["frame_threshold"]))
    lines = [[str(n), *measures(rows.get((str(n), 300, "dev")))] for n in THRESHOLDS]
    return (
        caption(rows.values()) + "\n\n" + markdown(["frame_threshold", *COLUMNS], lines, n_text=0)
    )


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    first, third = read(output / "table1"), read(output / "table3")
    of_ufal = method_rows(output, "ufal", ufal)
    of_simul_whisper = method_rows(output, "simul_whisper", simul_whisper)
    return {
        "table1": table1(first),
        # Table 1 ran a fixed adapter where it found one, so its cells serve here too.
        "table3": table3([*third, *first]),
        "fig6": fig6(read(output / "fig6"), split="clean"),
        "ufal": table(of_ufal, UFAL, "Ufal-Whisper"),
        "simul_whisper": table(of_simul_whisper, SIMUL_WHISPER, "Simul-Whisper"),
        "thresholds": thresholds(output / "simul_whisper_thresholds"),
    }


main = partial(write, about=__doc__, page=PAGE, blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
