"""Figures 2 to 4 of the paper in form: WER by chunk of U2, UFAL and the offline pass.

    python -m experiments.u2.figures [--output outputs] [--out experiments/u2/chunks.svg]

Reads <output>/{real,real_u2,u2}/*/, the prompts of experiments/real.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.svg import save_svg
from experiments.tables import find, read
from experiments.u2.results import CHUNKS_MS
from streaming_asr.errors import UserError
from streaming_asr.score.results import Result

PICTURE = Path(__file__).with_name("chunks.svg")
CURVES: dict[str, dict[str, Any]] = {
    "U2, first pass": {"method": "u2", "rescore": 0},
    "U2, rescored": {"method": "u2", "rescore": 6},
    "UFAL": {"method": "ufal"},
}


def points(cells: Sequence[Result]) -> dict[str, list[tuple[float, float]]]:
    """(chunk in seconds, WER) of each curve; the offline pass at every chunk of the others."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, wanted in CURVES.items():
        for chunk in CHUNKS_MS:
            cell = find(cells, chunk_ms=chunk, **wanted)
            if cell is not None and (wer := cell.metrics.get("wer")) is not None:
                found.setdefault(name, []).append((chunk / 1000, wer))
    offline = find(cells, method="offline")
    if offline is not None and (wer := offline.metrics.get("wer")) is not None:
        found["offline"] = [(chunk / 1000, wer) for chunk in CHUNKS_MS]
    return found


def draw(curves: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Draws the figure into `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, curve in curves.items():
        style: dict[str, Any] = {"linestyle": "--"} if name == "offline" else {"marker": "o"}
        axis.plot(*zip(*curve, strict=True), label=name, **style)
    axis.set_xscale("log")
    seconds = [chunk / 1000 for chunk in CHUNKS_MS]
    axis.set_xticks(seconds, [f"{s:g}" for s in seconds])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(bottom=0)
    axis.set_xlabel("chunk (s)")
    axis.set_ylabel("WER (%)")
    axis.set_title("60 prompts of one speaker, Whisper tiny.en", fontsize=10, loc="left")
    axis.legend()
    save_svg(figure, path, "u2")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the figure")
    arguments = parser.parse_args(argv)
    try:
        curves = points(read(*(arguments.output / name for name in ("real", "real_u2", "u2"))))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not curves:
        print("nothing to draw: run experiment=real_u2 and experiment=u2 first")
        return 0
    draw(curves, arguments.out)
    print(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
