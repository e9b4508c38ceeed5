"""Figure 5 of the paper in form: WER against DAL for wait-k 1 to 5, one curve per chunk.

    python -m experiments.star.figures [--output outputs] [--out experiments/star/waits.svg]

Reads <output>/star/*/. Says so where nothing was run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.star.tables import CHUNKS_MS, WAITS, Cells
from experiments.svg import save_svg
from experiments.tables import duration, find, read
from streaming_asr.errors import UserError

HERE = Path(__file__).parent

Curve = list[tuple[float, float, int]]


def curve(cells: Cells, chunk_ms: int) -> Curve:
    """(DAL in ms, WER in percent, k) of the wait-k that were run."""
    found = []
    for k in WAITS:
        cell = find(cells, chunk_ms=chunk_ms, wait_k=k)
        dal, wer = (cell.metrics.get(name) if cell else None for name in ("dal_cu_ms", "wer"))
        if dal is not None and wer is not None:
            found.append((dal, wer, k))
    return found


def draw(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Draws the figure into `path`; every point says its k."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for label, points in curves.items():
        dal, wer, waits = zip(*points, strict=True)
        axis.plot(dal, wer, marker="o", label=label)
        for x, y, k in zip(dal, wer, waits, strict=True):
            axis.annotate(str(k), (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("DAL (ms)")
    axis.set_ylabel("WER (%)")
    axis.set_title(title, fontsize=10, loc="left")
    axis.legend(fontsize=8)
    save_svg(figure, path, "star")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--out", type=Path, default=HERE / "waits.svg", help="the figure")
    arguments = parser.parse_args(argv)
    try:
        cells = read(arguments.output / "star")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    curves = {duration(chunk): curve(cells, chunk) for chunk in CHUNKS_MS}
    curves = {label: points for label, points in curves.items() if points}
    if not curves:
        print("not run")
        return 0
    draw(curves, "tiny.en, prompts; at the points k of wait-k", arguments.out)
    print(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
