"""Draws a learning curve: WER on dev and the losses over the minutes of training.

python -m experiments.mini.plot_curve outputs/training/mini/offline/base/curve.jsonl --out FILE.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.svg import save_svg

LOSSES = {"token_loss": "tokens", "frame_loss": "frames"}
TOP = 120.0


def read_curve(path: Path) -> list[dict[str, float]]:
    """The rows in their order; of a training that was resumed, a step's last row counts."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    by_step = {row["step"]: row for row in rows}
    return [by_step[step] for step in sorted(by_step)]


def draw(rows: Sequence[Mapping[str, float]], out: Path) -> None:
    """Writes two panels with one axis of minutes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
    looked = [row for row in rows if "dev/wer" in row]
    wer = [min(r["dev/wer"], TOP) for r in looked]  # early on a text may be many times too long
    above.plot([r["minutes"] for r in looked], wer, "o-", ms=3)
    above.set_yscale("log")
    above.set_ylim(1, 1.1 * TOP)
    above.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    above.minorticks_off()
    above.set_ylabel("WER on dev, padded (%)")
    above.axhline(5, color="0.7", lw=0.8, ls="--")
    for key, name in LOSSES.items():
        of = [row for row in rows if key in row]
        below.plot([r["minutes"] for r in of], [r[key] for r in of], label=name)
    below.set_ylabel("loss, training")
    below.set_xlabel("minutes")
    below.set_ylim(bottom=0)
    below.legend(frameon=False)
    for axes in (above, below):
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        save_svg(figure, out, "mini")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("curve", type=Path)
    parser.add_argument("--out", type=Path, required=True, help=".svg")
    args = parser.parse_args()
    rows = read_curve(args.curve)
    draw(rows, args.out)
    print(f"{len(rows)} rows, written to {args.out}")


if __name__ == "__main__":
    main()
