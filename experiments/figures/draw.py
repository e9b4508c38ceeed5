"""The report's figures as files for a paper: SVG, PNG or PDF, a panel for each data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.figures.labels import Label, place_labels
from streaming_asr.errors import UserError
from streaming_asr.score.front import FRONT, ceiling, front
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
PARTS = {
    "fill": ("chunk fills", "#c3cad3"),
    "lookahead": ("look-ahead", "#8f9aa8"),
    "policy": ("held back", "#e0a100"),
    "queue": ("queue", "#b3261e"),
    "compute": ("compute", "#0b62b8"),
}


def draw(folder: Path | str, out: Path, kind: str = "pareto") -> Path:
    """Draw a figure of the results under `folder` into `out`; its suffix is the format.

    kind: a key of `KINDS`. Raises UserError for an unknown kind or suffix, and where no run has the
    numbers.
    """
    if kind not in KINDS:
        raise UserError(f"--figure {kind}={out}: no such figure; there are {', '.join(KINDS)}")
    if out.suffix not in SUFFIXES:
        raise UserError(f"--figure {out}: the suffix is {', '.join(SUFFIXES)}")
    drawable, paint = KINDS[kind]
    cells = read_results(folder)
    splits = list(dict.fromkeys(cell.split for cell in cells if drawable(cell)))
    if not splits:
        raise UserError(f"--figure {kind}={out}: no run under {folder} has its numbers")

    import matplotlib
    from matplotlib.figure import Figure

    styles = _styles(cells)
    with matplotlib.rc_context({"svg.hashsalt": "report", "font.size": 9}):
        crowd = max(sum(drawable(cell) and cell.split == split for cell in cells)
                    for split in splits)  # fmt: skip
        width, height = (6.4, 5.0) if crowd > 12 else (4.6, 3.6)
        figure = Figure(figsize=(width * len(splits), height), layout="constrained")
        labels: list[tuple[Axes, list[Label]]] = []
        for axis, split in zip(
            figure.subplots(1, len(splits), squeeze=False)[0], splits, strict=True
        ):
            here = [cell for cell in cells if cell.split == split and drawable(cell)]
            labels.append((axis, paint(axis, here, styles)))
            axis.spines[["top", "right"]].set_visible(False)
            if len(splits) > 1:
                axis.set_title(split, loc="left", fontsize=9)
        drawn = {cell.label for cell in cells if drawable(cell)}
        for cell in cells:
            if cell.error and cell.label not in drawn:  # a run that failed is told, not left out
                figure.axes[0].plot([], [], "x", color=styles[cell.label]["color"],
                                    label=f"{cell.label}: failed")  # fmt: skip
        legend = _unique(figure.axes)
        add_legend(figure, legend, min(len(legend), 3 * len(splits) + (crowd > 12)))
        for axis, wanted in labels:
            place_labels(axis, wanted)
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
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return [(handle, label) for label, handle in found.items()]


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
    found: dict[str, list[Result]] = {}
    for cell in sorted(cells, key=lambda cell: cell.chunk_s or 0.0):
        found.setdefault(cell.label, []).append(cell)
    return found


def _pareto(axis: Axes, cells: Sequence[Result], styles: dict[str, dict[str, Any]]) -> list[Label]:
    from matplotlib.patches import Rectangle

    fronts = front(cells)
    top = ceiling(cells)
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
            # A grey run's label keeps its method's colour: it tells whose it is.
            if top is not None and y > top:
                axis.plot(x, 0.985 * top, marker="^", color=colour, ls="", markersize=5,
                          markeredgecolor=style["color"], markeredgewidth=0.7)  # fmt: skip
                labels.append(Label(x, 0.985 * top, f"{cell.chunk}: {y:.0f} %", style["color"]))
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
                labels.append(Label(x, y, cell.chunk, style["color"]))
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
    axis.set_xlabel("Word latency, committed, median (s, with compute)")
    axis.set_ylabel("WER (%)" if top is None else "WER (%); higher ones at the edge")
    return labels


def _against_chunk(metric: str, label: str, log: bool = False) -> Callable[..., list[Label]]:
    def paint(
        axis: Axes,
        cells: Sequence[Result],
        styles: dict[str, dict[str, Any]],
    ) -> list[Label]:
        from matplotlib.ticker import NullLocator, ScalarFormatter

        for name, series in _series(cells).items():
            chunks = [1000 * (cell.chunk_s or 0.0) for cell in series]
            values = [_value(cell, metric) for cell in series]
            axis.plot(chunks, values, label=name, markersize=5, lw=1.3, **styles[name])
        axis.set_xscale("log")
        axis.set_xticks(sorted({1000 * (cell.chunk_s or 0.0) for cell in cells}))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
        if log:
            axis.set_yscale("log")
            axis.axhline(1, color="#b3261e", lw=0.8, ls="--", label="real time")
        else:
            axis.set_ylim(bottom=0)
        axis.set_xlabel("Chunk (ms, log scale)")
        axis.set_ylabel(label)
        return []

    return paint


def _parts(axis: Axes, cells: Sequence[Result], styles: dict[str, dict[str, Any]]) -> list[Label]:
    names = [f"{cell.label} {cell.chunk}" for cell in cells]
    above, below = [0.0] * len(cells), [0.0] * len(cells)
    for part, (name, colour) in PARTS.items():
        values = [_value(cell, _part(part)) for cell in cells]
        begins = [above[n] if value >= 0 else below[n] for n, value in enumerate(values)]
        axis.barh(range(len(cells)), values, left=begins, color=colour, label=name, height=0.7)
        above = [end + max(value, 0.0) for end, value in zip(above, values, strict=True)]
        below = [end + min(value, 0.0) for end, value in zip(below, values, strict=True)]
    axis.set_yticks(range(len(cells)), names, fontsize=6.5)
    axis.invert_yaxis()
    axis.set_xlabel("Word latency, committed, mean (s, with compute)")
    return []


def _part(name: str) -> str:
    return f"word_latency_{name}_mean_ca_s"


def _value(cell: Result, metric: str) -> float:
    value = cell.metrics[metric]
    assert value is not None  # of a cell that is drawable
    return value


def _has(*names: str, chunk: bool = False) -> Callable[[Result], bool]:
    def has(cell: Result) -> bool:
        known = all(cell.metrics.get(name) is not None for name in names)
        return known and (cell.chunk_s is not None or not chunk)

    return has


KINDS: dict[str, tuple[Callable[[Result], bool], Callable[..., list[Label]]]] = {
    "pareto": (_has(*FRONT), _pareto),
    "arwer": (
        _has("arwer_grid_ca", chunk=True),
        _against_chunk("arwer_grid_ca", "Grid ARWER (%, with compute)"),
    ),
    "rtf": (
        _has("rtf_total", chunk=True),
        _against_chunk("rtf_total", "RTF, compute / audio (log scale)", log=True),
    ),
    "parts": (_has(*map(_part, PARTS)), _parts),
}
