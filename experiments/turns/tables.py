"""The curve of `gate_silence`: delay of the ends of turns against the pauses that are cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.tables import Cells, Page, Row, Table

SILENCES = ("200ms", "300ms", "500ms", "700ms", "1s", "1500ms", "2s")
COLUMNS = {
    "end after p50 s": "turn_end_delay_p50_ca_s",
    "end after p90 s": "turn_end_delay_p90_ca_s",
    "pauses cut %": "pauses_cut_off",
    "cuts per minute": "turns_cut_off_per_min",
    "turns cut %": "turns_cut_off",
    "turns missed %": "turns_missed",
}
FORMS = {name: ".0f" if "%" in name else ".1f" if "minute" in name else ".2f" for name in COLUMNS}


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Draw curve.svg."""
    import matplotlib
    from matplotlib.figure import Figure

    delays = [row.value("end after p50 s") or 0.0 for row in rows]
    cut = [row.value("pauses cut %") or 0.0 for row in rows]
    with matplotlib.rc_context({"svg.hashsalt": "turns", "font.size": 10}):
        figure = Figure(figsize=(4.6, 3.2), layout="constrained")
        axis = figure.subplots()
        axis.plot(delays, cut, "o-", color="#0b62b8")
        for row, x, y in zip(rows, delays, cut, strict=True):
            axis.annotate(row.labels["silence"], (x, y), (6, 4), textcoords="offset points")
        axis.set_xlabel("end of a turn reported after (s, median)")
        axis.set_ylabel("pauses within turns cut (%)")
        axis.set(xlim=(0, None), ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(folder / "curve.svg", metadata={"Date": None})


PAGE = Page(
    [
        Cells(
            "turns", ["turns"], [({"silence": s}, [{"gate_silence": s}]) for s in SILENCES], COLUMNS
        )
    ],
    [Table("turns", FORMS)],
    draw=draw,
)
