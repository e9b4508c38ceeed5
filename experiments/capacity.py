"""Draws how many streams a device carries: python -m experiments.capacity OUT FOLDER ..."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.commands.capacity import Row, measure
from streaming_asr.errors import UserError
from streaming_asr.terminal import exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Draw into the first argument what the folders after it hold; return the exit status."""
    out, *folders = list(sys.argv[1:] if argv is None else argv) or [""]
    if Path(out).suffix not in (".svg", ".png", ".pdf") or not folders:
        raise UserError(f"{out}: give a .svg, .png or .pdf file and folders that run wrote")
    draw(measure(folders)[0], Path(out))
    print(f"figure: {out}")
    return 0


def draw(rows: Sequence[Row], out: Path) -> None:
    """Draw the capacities as bars, with the spread of several runs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.9 + 0.28 * len(rows)), layout="constrained")
    axis = figure.subplots()
    for y, row in enumerate(rows):
        axis.barh(y, row.least, color="#0b62b8", height=0.7)
        if row.most > row.least:
            axis.hlines(y, row.least, row.most, color="#1b1f24", lw=1.2)
        axis.text(row.most, y, f" {row.streams}", va="center", fontsize=7)
    names = [
        " ".join(filter(None, (p.label, p.model, p.chunk))) for p in (row.place for row in rows)
    ]
    axis.set_yticks(range(len(rows)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.1 * max(*(row.most for row in rows), 1))
    axis.set_xlabel("Streams on one device, lag p95 below one chunk and 1 s", fontsize=8)
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=200)


if __name__ == "__main__":
    sys.exit(exit_status(main))
