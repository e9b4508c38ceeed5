"""How the experiments' pictures are drawn and written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def drawn(path: Path, salt: str, *, title: str, x: str, y: str) -> Iterator[Any]:
    """Give an axis for lines with labels; when they are drawn, write the picture into `path`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    yield axis
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title, fontsize=10, loc="left")
    axis.legend()
    save_svg(figure, path, salt)


def save_svg(figure: Figure, path: Path, salt: str) -> None:
    """Write and close `figure`; the same figure gives the same file, and no setting stays for the
    next. `salt` goes into the ids of the file's parts."""
    import matplotlib
    from matplotlib import pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
