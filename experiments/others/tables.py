"""The tables of other programs next to ours, on the clock of audio, which a busy machine leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.tables import Cells, Figure, Page, Row, Table, find, method_name, paired
from streaming_asr.cells.folder import settings_of
from streaming_asr.chunking import parse_duration
from streaming_asr.score.results import Result

OURS = ("offline", "whisperrt", "hush_word", "simul_whisper", "ufal", "u2")
NEAREST = {  # the method of ours whose policy is nearest
    "whisper_streaming": "ufal",
    "whisperlivekit, local agreement": "ufal",
    "whisperlivekit, SimulStreaming": "simul_whisper",
    "simulstreaming": "simul_whisper",
    "simulstream": "hush_word",
    "whisper_cpp": "hush_word",
    "pieces": "hush_word",
}
ROWS = {
    **{name: {"method": name} for name in OURS},
    **{name: {"method": name} for name in NEAREST if "," not in name},
    "whisperlivekit, local agreement": {"method": "whisperlivekit", "policy": "localagreement"},
    "whisperlivekit, SimulStreaming": {"method": "whisperlivekit", "policy": "simulstreaming"},
    "pocketsphinx": {"method": "pocketsphinx"},
}
COLUMNS = {
    "WER %": "wer",
    "WER with marks and case %": "wer_formatted",
    "final after p50 s": "word_latency_committed_p50_cu_s",
    "final after p90 s": "word_latency_committed_p90_cu_s",
    "visible after p50 s": "word_latency_shown_p50_cu_s",
    "words rewritten per word, marks left out": "light_erasure",
    "CPU s per s": "rtf_cpu",
}
OVER, PRECISION = "WER over the nearest of ours", "precision"
FIXED = {"whisper_cpp": "float16", "pocketsphinx": "–"}  # programs without a choice
SETS = ("others", "others_prompts", "others_cv")
"""Names of runs and of their tables: voices, the prompts' dev, Common Voice's dev."""


def over_nearest(cell: Result, cells: Sequence[Result]) -> Mapping[str, Figure | None]:
    """The precision, and the paired difference in WER to the nearest method of ours, with its
    interval."""
    config = cell.document["config"]
    declared = config["method"].get(PRECISION) or config.get("dtype", "float32")
    figures: dict[str, Figure | None] = {PRECISION: FIXED.get(method_name(cell), declared)}
    name = next((name for name, what in ROWS.items() if find([cell], **what)), "")
    other = find(cells, **ROWS[NEAREST[name]]) if name in NEAREST else None
    if other is not None:
        row = paired(other, cell)
        interval = row.get("interval")
        figures[OVER] = [row["difference"], *interval] if interval else row.get("difference")
    return figures


FINAL = "final after p50 s"
LATEST_S = 3.0  # of the picture: whose text is final at the end only is not on it


def picture(rows: Sequence[Row], folder: Path) -> None:
    """Draws WER against the time until a word is final, of the clips of voices."""
    from experiments.figures.draw import draw_cells
    from streaming_asr.score.ranking import FRONT

    points = [
        (row, dict(zip(FRONT, (row.value(FINAL), row.value("WER %")), strict=True)))
        for row in rows
        if row.table == SETS[0] and (row.value(FINAL) or LATEST_S) < LATEST_S
    ]
    cells = [
        Result(Path(name), name, name, "", parse_duration(chunk) / 1000, "", metrics)
        for row, metrics in points
        for name, chunk in [
            (row.labels[""].replace("whisperlivekit, ", "livekit "), settings_of(row.cell)["chunk"])
        ]
    ]
    if cells:
        draw_cells(cells, folder / "others.svg", clock="computing left out")


COLUMN_FORMATS = {PRECISION: "", **dict.fromkeys(COLUMNS, ".2f"), "WER %": ".1f", OVER: "+.1f"}
del COLUMN_FORMATS["final after p90 s"]  # --show has it; the table fits a page without it
CHOICES = [({"": name}, [what]) for name, what in ROWS.items()]
PAGE = Page(
    [Cells(name, [name], CHOICES, COLUMNS, over_nearest) for name in SETS],
    [Table(name, COLUMN_FORMATS) for name in SETS],
    draw=picture,
)
