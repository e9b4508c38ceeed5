"""What U2's tables and figure share: their chunks, and a figure that no metric holds."""

from __future__ import annotations

import statistics

from streaming_asr.events.log import read_log
from streaming_asr.score.results import Result

CHUNKS_MS = (100, 300, 500, 1000, 1500)


def finalise_ms(cell: Result) -> float | None:
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
