"""The finished cells of U2's sweeps, as the tables and figures ask for them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from streaming_asr.data.corpora import MINI
from streaming_asr.events import read_log
from streaming_asr.report.cells import Cell, read_cells

SPLITS = ("clean", "other", "finance")
CHUNKS_MS = (100, 240, 500, 1000, 1500)
FIGURE_CHUNKS_MS = (*CHUNKS_MS, 6000)
UFAL_CHUNKS_MS = (100, 200, 300, 500, 1000)  # of experiment=ufal, on clean and other


def read(folder: Path) -> list[Cell]:
    """The finished cells under `folder`; none where nothing has run."""
    if not folder.is_dir() or not any(folder.glob("*/metrics.json")):
        return []
    return [cell for cell in read_cells(folder) if cell.metrics]


def find(
    cells: Sequence[Cell],
    split: str,
    *,
    method: str = "u2",
    chunk_ms: int | None = None,
    **settings: Any,
) -> Cell | None:
    """The one cell of a split with these settings of its method; None where there is none.

    `weights` is compared by the name of its folder.
    """
    for cell in cells:
        own = dict(cell.config.get("method") or {})
        own["weights"] = Path(str(own.get("weights"))).name
        if (
            cell.method == method
            and (cell.config.get("data") or {}).get("split") == split
            and (chunk_ms is None or round(1000 * (cell.chunk_s or 0)) == chunk_ms)
            and all(own.get(key) == value for key, value in settings.items())
        ):
            return cell
    return None


def caption(cells: Sequence[Cell]) -> str:
    """When, where and on how much it was measured, and what failed."""
    if not cells:
        return "Not run yet."
    documents = [cell.document for cell in cells]
    made = sorted(
        str(date.fromtimestamp((cell.folder / "metrics.json").stat().st_mtime)) for cell in cells
    )
    counts = sorted({int(document["n_utterances"]) for document in documents})
    machines = sorted({str((document.get("machine") or {}).get("cpu")) for document in documents})
    failed = sum(int(document.get("n_failed") or 0) for document in documents)
    return (
        f"Measured {' to '.join(dict.fromkeys((made[0], made[-1])))} on {', '.join(machines)}, one "
        f"thread, {' or '.join(map(str, counts))} recordings in a cell."
        + (f" {failed} failed; they count as empty." if failed else "")
    )


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
