"""Figures 5, 6 and 9 of the paper in form: WER against DAL, one curve per network and segments.

    python -m experiments.star.figures [--output outputs] [--out experiments/star]

Reads <output>/{star_waits,star_strides}/*/ and draws fig5.svg, fig6.svg and fig9.svg. It
says of which figure nothing was run and leaves that out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.star.tables import ENTRIES, WAITS, Cells
from experiments.svg import save_svg
from experiments.tables import find, read
from streaming_asr.errors import UserError

HERE = Path(__file__).parent
SWEEPS = {"figure5": "star_waits", "figure6": "star_strides", "figure9": "star_waits"}

Curve = list[tuple[float, float, int]]


def curve(cells: Cells, entry: Mapping[str, Any]) -> Curve:
    """(DAL in ms, WER in percent, k) of the wait-k that were run."""
    settings = {key: wanted for key, wanted in entry.items() if key != "label"}
    found = []
    for k in WAITS:
        cell = find(cells, **settings, wait_k=k)
        dal, wer = (cell.metrics.get(name) if cell else None for name in ("dal_cu_ms", "wer"))
        if dal is not None and wer is not None:
            found.append((dal, wer, k))
    return found


def draw(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Draws one figure into `path`; every point says its k."""
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
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the figures")
    arguments = parser.parse_args(argv)
    for name, sweep in SWEEPS.items():
        try:
            cells = read(arguments.output / sweep)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        curves = {str(entry["label"]): curve(cells, entry) for entry in ENTRIES[name]}
        curves = {label: points for label, points in curves.items() if points}
        if not curves:
            print(f"{name}: not run")
            continue
        path = arguments.out / f"{name.replace('ure', '')}.svg"
        draw(curves, "mini, clean; at the points k of wait-k", path)
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
