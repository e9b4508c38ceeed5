"""What U2's tables and figures share: their splits and chunks, and figures that no metric holds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming_asr.data.corpora import MINI
from streaming_asr.events import read_log
from streaming_asr.report.cells import Cell

SPLITS = ("clean", "other", "finance")
CHUNKS_MS = (100, 240, 500, 1000, 1500)
FIGURE_CHUNKS_MS = (*CHUNKS_MS, 6000)
UFAL_CHUNKS_MS = (100, 200, 300, 500, 1000)  # of experiment=ufal, on clean and other


def finalise_ms(cell: Cell) -> float | None:
    """Mean time of closing a segment (second pass, word times), over all segments of the cell.

    The metric `finalise_compute_s` is that of the last step of a recording alone.
    """
    times = [
        step.compute_ns["finalise"] / 1e6
        for utterance in read_log(cell.folder / "events.jsonl").utterances
        for step in utterance.steps
        if step.compute_ns.get("finalise")
    ]
    return statistics.fmean(times) if times else None


def wer_of_parts(cell: Cell) -> float | None:
    """WER of the utterances of `clean` that `long600` joins, from the cell of `clean`."""
    (joined,) = (MINI / "long600.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = {Path(part["audio_filepath"]).stem for part in json.loads(joined)["parts"]}
    lines = (cell.folder / "utterances.jsonl").read_text(encoding="utf-8").splitlines()
    found: list[Mapping[str, Any]] = [
        line for text in lines if (line := json.loads(text))["utt"] in wanted
    ]
    if len(found) < len(wanted):
        return None
    return 100 * sum(line["errors"] for line in found) / sum(line["n_words"] for line in found)
