"""The report's first figure as a file for a paper: SVG, PNG or PDF, a panel for each data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.figures.labels import Label, place_labels
from streaming_asr.errors import UserError
from streaming_asr.score.ranking import FRONT, ceiling, front
from streaming_asr.score.results import Result, read_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
DPI = 200
# As on the page, in its light theme: one colour a method, one mark and dash a variant.
COLOURS = {
    "whisperrt": "#0b62b8",
    "ufal": "#b85c00",
    "simul_whisper": "#0a7f5a",
    "hush_word": "#a3338b",
    "star": "#7a5b00",
    "u2": "#007c91",
    "chunkformer": "#b3261e",
    "offline": "#5b6470",
    "reencode": "#1b1f24",
}
SHAPES, DASHES = "os^D*", ("-", "--", ":", "-.", (0, (8, 3)))
BEATEN, INK = "#a9b1bb", "#1b1f24"


def draw(folder: Path | str, out: Path) -> Path:
    """Draw WER against latency of the results under `folder` into `out`; its suffix is the format.

    Raises UserError for an unknown suffix, and where no run has the numbers.
    """
    if out.suffix not in SUFFIXES:
        raise UserError(f"--figure {out}: the suffix is {', '.join(SUFFIXES)}")
    cells = read_results(folder)
    if not any(map(_is_drawable, cells)):
        raise UserError(f"--figure {out}: no run under {folder} has its numbers")
    return draw_cells(cells, out)


def draw_cells(
    cells: Sequence[Result],
    out: Path,
    top: float | None = None,
    clock: str = "computing included",
) -> Path:
    """Draw these results, of which one at least has its numbers, into `out`.

    top: the WER (%) at which the axis ends; by default far above most runs only. clock: of the
    latency, for the axis.
    """
    splits = list(dict.fromkeys(cell.split for cell in cells if _is_drawable(cell)))

    import matplotlib
    from matplotlib.figure import Figure

    styles = _styles(cells)
    with matplotlib.rc_context({"svg.hashsalt": "report", "font.size": 9}):
        crowd = max(sum(_is_drawable(cell) and cell.split == split for cell in cells)
                    for split in splits)  # fmt: skip
        width, height = (6.4, 5.0) if crowd > 12 else (4.6, 3.6)
        figure = Figure(figsize=(width * len(splits), height), layout="constrained")
        labels: list[tuple[Axes, list[Label]]] = []
        for axis, split in zip(
            figure.subplots(1, len(splits), squeeze=False)[0], splits, strict=True
        ):
            here = [cell for cell in cells if cell.split == split and _is_drawable(cell)]
            labels.append((axis, _paint(axis, here, styles, top or ceiling(here))))
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_xlabel(f"Final after, median (s, {clock})")
            if len(splits) > 1:
                axis.set_title(split, loc="left", fontsize=9)
        drawn = {cell.label for cell in cells if _is_drawable(cell)}
        for cell in cells:
            if cell.error and cell.label not in drawn:  # a run that failed is named
                figure.axes[0].plot([], [], "x", color=styles[cell.label]["color"],
                                    label=f"{cell.label}: failed")  # fmt: skip
        legend = _unique(figure.axes)
        add_legend(figure, legend, min(len(legend), 3 * len(splits) + (crowd > 12)))
        for axis, names in labels:
            place_labels(axis, names)
        out.parent.mkdir(parents=True, exist_ok=True)
        # Without the date the same results give the same file.
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(out.suffix)
        figure.savefig(out, dpi=DPI, metadata=dated)
    return out


def add_legend(figure: Figure, legend: Sequence[tuple[Any, str]], n_columns: int) -> None:
    """A legend below, in as many columns as fit and at most `n_columns`; lays out the figure."""
    for n in range(n_columns, 0, -1):
        drawn = figure.legend(*zip(*legend, strict=True), loc="outside lower center", ncols=n,
                              frameon=False, fontsize=8)  # fmt: skip
        figure.draw_without_rendering()  # only now is it known where each thing will be
        if n == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()


def _unique(axes: Sequence[Axes]) -> list[tuple[Any, str]]:
    values: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            values.setdefault(label, handle)
    return [(handle, label) for label, handle in values.items()]


def _styles(cells: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """Return how each label is drawn."""
    variants: dict[str, list[str]] = {}
    for cell in cells:
        here = variants.setdefault(cell.method, [])
        if cell.label not in here:
            here.append(cell.label)
    spare = [name for name in COLOURS if name not in variants]
    return {
        label: {
            "color": COLOURS.get(method) or COLOURS[spare[at % len(spare)] if spare else "offline"],
            "marker": SHAPES[n % len(SHAPES)],
            "linestyle": DASHES[n % len(DASHES)],
        }
        for at, (method, labels) in enumerate(variants.items())
        for n, label in enumerate(labels)
    }


def _series(cells: Sequence[Result]) -> dict[str, list[Result]]:
    series: dict[str, list[Result]] = {}
    for cell in sorted(cells, key=lambda cell: cell.chunk_s or 0.0):
        series.setdefault(cell.label, []).append(cell)
    return series


def _paint(
    axis: Axes, cells: Sequence[Result], styles: dict[str, dict[str, Any]], top: float | None
) -> list[Label]:
    from matplotlib.patches import Rectangle

    fronts = front(cells)
    labels: list[Label] = []
    for label, series in _series(cells).items():
        style = styles[label]
        points = [(_value(cell, FRONT[0]), _value(cell, FRONT[1])) for cell in series]
        # Its label's mark in the legend keeps its colour, also where every point is grey.
        axis.plot(*zip(*points, strict=True), lw=0.7, markersize=0, color=style["color"],
                  linestyle=style["linestyle"], alpha=0.7)  # fmt: skip
        axis.plot([], [], ls="", color=style["color"], marker=style["marker"], label=label)
        for cell, (x, y) in zip(series, points, strict=True):
            is_beaten = fronts.get(cell.folder) is False
            colour = BEATEN if is_beaten else style["color"]
            # The last point of a series has its name, the others their chunks.
            name = f"{label} {cell.chunk}" if cell is series[-1] else cell.chunk
            # A grey run's label keeps its method's colour: it tells whose it is.
            if top is not None and y > top:
                axis.plot(x, 0.985 * top, marker="^", color=colour, ls="", markersize=5,
                          markeredgecolor=style["color"], markeredgewidth=0.7)  # fmt: skip
                labels.append(Label(x, 0.985 * top, f"{name}: {y:.0f} %", style["color"]))
                continue
            across, along = (cell.intervals.get(name) for name in FRONT)
            if across and along:
                box = Rectangle(
                    (across[0], along[0]), across[1] - across[0], along[1] - along[0],
                    facecolor=(colour, 0.05 if is_beaten else 0.13),
                    edgecolor=(colour, 0.35 if is_beaten else 0.7), lw=0.6, zorder=1,
                )  # fmt: skip
                axis.add_patch(box)
            elif along:
                axis.vlines(x, *along, color=colour, lw=0.8)
            axis.plot(x, y, marker=style["marker"], color=colour, ls="", markersize=5,
                      markeredgecolor=style["color"], markeredgewidth=0.7,
                      zorder=3 - is_beaten / 2)  # fmt: skip
            if cell.chunk:
                labels.append(Label(x, y, name, style["color"]))
    axis.autoscale_view()
    axis.set_xlim(left=min(0, axis.get_xlim()[0]))
    axis.set_ylim(0, top)
    best = sorted((_value(cell, FRONT[0]), _value(cell, FRONT[1]))
                  for cell in cells if fronts.get(cell.folder))  # fmt: skip
    if best:
        xs, ys = zip(*best, strict=True)
        end, right = axis.get_ylim()[1], axis.get_xlim()[1]
        axis.set_xlim(right=right)
        axis.step([xs[0], *xs, right], [end, *ys, ys[-1]], where="post", color=INK, lw=1,
                  alpha=0.75, zorder=0)  # fmt: skip
    axis.set_ylabel("WER (%)" if top is None else "WER (%); higher ones at the edge")
    return labels


def _value(cell: Result, metric: str) -> float:
    value = cell.metrics[metric]
    assert value is not None  # of a cell that is drawable
    return value


def _is_drawable(cell: Result) -> bool:
    return all(cell.metrics.get(name) is not None for name in FRONT)
