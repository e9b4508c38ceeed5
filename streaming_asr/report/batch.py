"""Marks runs that stream in name only: offline's text, and nothing before the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streaming_asr.errors import UserError

if TYPE_CHECKING:
    from streaming_asr.report.cells import Cell

NOTE = "batch: its text is offline's everywhere, and it commits nothing before the end"


def mark_batch(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells, those noted as batch whose text equals that of an offline run of the same
    data in every utterance and which commit no word before the end of any."""
    offline = [cell for cell in cells if cell.method == "offline" and cell.metrics]
    return [
        replace(cell, notes=(*cell.notes, NOTE))
        if cell.metrics
        and cell.method != "offline"
        and any(_says_the_same(cell, each) for each in offline)
        and _commits_only_at_the_end(cell)
        else cell
        for cell in cells
    ]


def _says_the_same(cell: Cell, offline: Cell) -> bool:
    # Equal texts have equal error rates, which are at hand.
    same = ("wer", "cer", "wer_formatted")
    if cell.split != offline.split or any(
        cell.metrics.get(name) != offline.metrics.get(name) for name in same
    ):
        return False
    ours, theirs = _texts(cell), _texts(offline)
    return ours == theirs and ours is not None and any(ours.values())


def _texts(cell: Cell) -> dict[str, str] | None:
    from streaming_asr.data.manifest import text_lines

    try:
        lines = [json.loads(line) for line in text_lines(cell.folder / "utterances.jsonl")]
        return {line["utt"]: line["hypothesis"] for line in lines}
    except (OSError, ValueError, KeyError, TypeError):  # a result without it is shown unmarked
        return None


def _commits_only_at_the_end(cell: Cell) -> bool:
    from streaming_asr.events import read_log

    try:
        log = read_log(cell.folder / "events.jsonl")
    except UserError:  # the numbers stand without their log
        return False
    return not any(step.committed for each in log.utterances for step in each.steps[:-1])
