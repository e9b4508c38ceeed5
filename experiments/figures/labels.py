"""Labels next to the points of an exported figure, none over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

SIZE = 7  # of the type, in points
HALF_MARK = 3.5  # of a point's mark, in points


@dataclass(frozen=True)
class Label:
    """A text next to the point x, y (data coordinates of the axis)."""

    x: float
    y: float
    text: str
    colour: str


def place_labels(axis: Axes, labels: Sequence[Label]) -> None:
    """Write each label at the nearest place by its point where it covers no point and no other
    label, and no line if there is such a place; one that has no place is left out. The axis must
    have its final size."""
    from matplotlib.figure import Figure

    figure = axis.get_figure()
    assert isinstance(figure, Figure)
    scale = 72 / figure.dpi
    x_min, y_min = axis.transAxes.transform((0, 0)) * scale
    x_max, y_max = axis.transAxes.transform((1, 1)) * scale
    spots = [axis.transData.transform((label.x, label.y)) * scale for label in labels]
    taken = [_box(x - HALF_MARK, y - HALF_MARK, 2 * HALF_MARK, 2 * HALF_MARK) for x, y in spots]
    lines = _lines(axis, scale)
    for label, (x, y) in zip(labels, spots, strict=True):
        width = 0.6 * SIZE * len(label.text) + 2
        free = [
            box
            for box in _around(x, y, width)
            if x_min <= box.x0
            and box.x1 <= x_max + 20  # the margin is free
            and y_min <= box.y0
            and box.y1 <= y_max + 8
            and not any(box.overlaps(other) for other in taken)
        ]
        if not free:
            continue
        crossed = [sum(line.intersects_bbox(box, False) for line in lines) for box in free]
        best = free[crossed.index(min(crossed))]
        taken.append(best)
        axis.annotate(
            label.text, (label.x, label.y), (best.x0 - x, best.y0 - y + 1), color=label.colour,
            textcoords="offset points", fontsize=SIZE, annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3},
        )  # fmt: skip


def _lines(axis: Axes, scale: float) -> list[Path]:
    """The lines of the axis as they lie on the paper, in points."""
    from matplotlib.cbook import STEP_LOOKUP_MAP
    from matplotlib.path import Path

    drawn = [line for line in axis.get_lines() if line.get_linestyle() != "None"]
    lines = [STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data()) for line in drawn]
    points = [list(zip(*line, strict=True)) for line in lines]
    return [Path(axis.transData.transform(each) * scale) for each in points if len(each) > 1]


def _box(x: float, y: float, width: float, height: float) -> Bbox:
    from matplotlib.transforms import Bbox

    return Bbox.from_bounds(x, y, width, height)


def _around(x: float, y: float, width: float) -> Iterable[Bbox]:
    """Yield places for a label of this width, the best first: right, left, above, below."""
    height = SIZE + 1.5
    for gap in (1.0, height + 1.0, 2 * height + 1.0):
        near = HALF_MARK + 1.0
        for up in (y + gap, y - gap - height) if gap > 1.0 else (y - height / 2,):
            yield _box(x + near, up, width, height)
            yield _box(x - near - width, up, width, height)
        yield _box(x - width / 2, y + HALF_MARK + gap, width, height)
        yield _box(x - width / 2, y - HALF_MARK - gap - height, width, height)
