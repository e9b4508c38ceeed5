"""How the experiments' pictures are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_svg(figure: Figure, path: Path, salt: str) -> None:
    """Write and close `figure`; the same figure gives the same file, and no setting stays for the
    next. `salt` goes into the ids of the file's parts."""
    import matplotlib
    from matplotlib import pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
