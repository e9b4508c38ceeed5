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

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from streaming_asr.errors import UserError

FILE = "marks.yaml"
_Number = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]  # nor NaN, which JSON has not


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published number. x, y: word latency (s) and WER (%) in `pareto`; chunk (ms) and grid
    ARWER (%) in `arwer`; chunk (ms) and real-time factor in `rtf`."""

    label: str
    x: _Number
    y: _Number
    source: str
    figure: Literal["pareto", "arwer", "rtf"] = "pareto"
    split: str | None = None


class _File(msgspec.Struct):
    marks: list[Mark]


def read_marks(folder: Path | str, path: Path | None = None) -> list[Mark]:
    """Return the marks of `path`, else of `folder`/marks.yaml where there is one, else none.

    Raises UserError for a file that cannot be read and for a mark that is wrong.
    """
    if path is None:
        path = Path(folder) / FILE
        if not path.is_file():
            return []
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=_File).marks
    except (OSError, msgspec.MsgspecError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: no YAML with a list `marks` of label, x, y and source each ({reason}); "
            "correct it"
        ) from error
