"""Published numbers that stand beside ours in the figures, as hollow marks.

A file in YAML, `marks.yaml` in the folder of results or another that is named:

    marks:
      - label: small, 300 ms      # beside the mark
        x: 300                    # in the units of the figure's axes
        y: 6.7
        source: arXiv 2508.12301, table I
        figure: arwer             # pareto (the default), arwer or rtf
        split: mini clean         # only beside this data; default beside every one
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError

FILE = "marks.yaml"
FIGURES = ("pareto", "arwer", "rtf")


@dataclass(frozen=True)
class Mark:
    """One published number. x, y: word latency (s) and WER (%) in `pareto`; chunk (ms) and grid
    ARWER (%) in `arwer`; chunk (ms) and real-time factor in `rtf`."""

    label: str
    x: float
    y: float
    source: str
    figure: str = FIGURES[0]
    split: str | None = None


def read_marks(folder: Path | str, path: Path | None = None) -> list[Mark]:
    """Return the marks of `path`, else of `folder`/marks.yaml where there is one, else none.

    Raises UserError for a file that cannot be read and for a mark that is wrong.
    """
    if path is None:
        path = Path(folder) / FILE
        if not path.is_file():
            return []
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not readable as YAML ({reason}); correct it") from error
    rows = content.get("marks") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise UserError(f"{path}: has no list `marks`; write one of label, x, y and source each")
    return [_mark(row, f"{path}, mark {number}") for number, row in enumerate(rows, 1)]


def _mark(row: Any, where: str) -> Mark:
    known = [each.name for each in fields(Mark)]
    if not isinstance(row, dict) or not {"label", "x", "y", "source"} <= row.keys() <= set(known):
        raise UserError(
            f"{where}: is {row!r}; it needs label, x, y, source and may have {known[-2:]}"
        )
    for name in ("x", "y"):
        value = row[name]
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise UserError(f"{where}: {name} is {value!r}; write a number in the axis's unit")
    mark = Mark(**row)
    if mark.figure not in FIGURES:
        raise UserError(f"{where}: figure is {mark.figure}; it is {', '.join(FIGURES)}")
    return mark
