"""Figures 2 to 4 of the paper in form: WER by chunk of U2, UFAL and the offline pass.

    python -m experiments.u2.figures [--output outputs] [--out experiments/u2]

Reads <output>/{u2,u2_figures,ufal,mini}/*/ and draws fig2.svg (finance), fig3.svg (clean) and
fig4.svg (other). It says which split has no cell and leaves that out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.svg import save_svg
from experiments.tables import find, read
from experiments.u2.results import FIGURE_CHUNKS_MS, UFAL_CHUNKS_MS
from streaming_asr.errors import UserError
from streaming_asr.report.cells import Cell

HERE = Path(__file__).parent
SWEEPS = ("u2", "u2_figures", "ufal", "mini")
FIGURES = {"fig2": "finance", "fig3": "clean", "fig4": "other"}
CURVES: dict[str, dict[str, Any]] = {
    "U2, rescored": {"method": "u2", "rescore": 6},
    "U2, first pass": {"method": "u2", "rescore": 0},
    "UFAL": {"method": "ufal", "compat": False},
}


def points(cells: Sequence[Cell], split: str) -> dict[str, list[tuple[float, float]]]:
    """(chunk in seconds, WER) of each curve; the offline pass at every chunk that was run."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, wanted in CURVES.items():
        for chunk in sorted({*FIGURE_CHUNKS_MS, *UFAL_CHUNKS_MS}):
            cell = find(cells, split=split, chunk_ms=chunk, **wanted)
            if cell is not None and (wer := cell.metrics.get("wer")) is not None:
                found.setdefault(name, []).append((chunk / 1000, wer))
    offline = find(cells, split=split, method="offline")
    if offline is not None and (wer := offline.metrics.get("wer")) is not None:
        found["offline"] = [(chunk / 1000, wer) for chunk in FIGURE_CHUNKS_MS]
    return found


def draw(curves: dict[str, list[tuple[float, float]]], split: str, path: Path) -> None:
    """Draws one figure into `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, curve in curves.items():
        style: dict[str, Any] = {"linestyle": "--"} if name == "offline" else {"marker": "o"}
        axis.plot(*zip(*curve, strict=True), label=name, **style)
    axis.set_xscale("log")
    seconds = [chunk / 1000 for chunk in FIGURE_CHUNKS_MS]
    axis.set_xticks(seconds, [f"{s:g}" for s in seconds])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(bottom=0)
    axis.set_xlabel("chunk (s)")
    axis.set_ylabel("WER (%)")
    axis.set_title(f"mini, {split}", fontsize=10, loc="left")
    axis.legend()
    save_svg(figure, path, "u2")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the figures")
    arguments = parser.parse_args(argv)
    try:
        cells = read(*(arguments.output / name for name in SWEEPS))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, split in FIGURES.items():
        curves = points(cells, split)
        if not curves:
            print(f"{name}: not run ({split})")
            continue
        path = arguments.out / f"{name}.svg"
        draw(curves, split, path)
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
