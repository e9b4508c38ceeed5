"""The finished cells of a sweep, as rows that the tables choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from streaming_asr.report.cells import read_cells

CHUNKS_MS = (40, 100, 200, 300, 1000)
SPLITS = ("clean", "other")
BEAMS = {0: "greedy", 3: "beam 3"}


@dataclass(frozen=True)
class Result:
    """One finished cell. weights: `none`, or the name of their folder (`any_chunk`, `300ms`).

    chunk_ms is None for the offline pass, which has no chunks.
    """

    method: str
    weights: str
    chunk_ms: int | None
    beam: int
    decoder_cache: bool
    split: str
    n_utterances: int
    n_failed: int
    metrics: Mapping[str, float | None]
    machine: str
    measured: date

    @property
    def name(self) -> str:
        """How the tables call it."""
        if self.method != "whisperrt":
            return {"offline": "offline", "reencode": "re-encoding"}.get(self.method, self.method)
        if self.weights == "none":
            return "mask alone"
        return f"WhisperRT {BEAMS.get(self.beam, f'beam {self.beam}')}"


def read_results(folder: Path) -> list[Result]:
    """The finished cells of one sweep; none where it has not been run."""
    if not folder.is_dir() or not any(folder.glob("*/metrics.json")):
        return []
    results = []
    for cell in read_cells(folder):
        if not cell.metrics:
            continue
        document = cell.document
        config = document["config"]
        method = config["method"]
        name = method.get("name") or cell.method
        weights = method.get("weights")
        machine = document.get("machine") or {}
        results.append(
            Result(
                method=name,
                weights="none" if weights in (None, "none") else Path(str(weights)).name,
                chunk_ms=None if name == "offline" or cell.chunk_s is None else _ms(cell.chunk_s),
                beam=int(method.get("beam") or 0),
                decoder_cache=bool(method.get("decoder_cache")),
                split=str(config["data"].get("split")),
                n_utterances=int(document["n_utterances"]),
                n_failed=int(document.get("n_failed") or 0),
                metrics=cell.metrics,
                machine=str(machine.get("gpu") or machine.get("cpu") or "an unnamed machine"),
                measured=date.fromtimestamp((cell.folder / "metrics.json").stat().st_mtime),
            )
        )
    return results


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def find(results: Iterable[Result], **wanted: Any) -> Result | None:
    """The one result with these fields; None where there is none."""
    for result in results:
        if all(getattr(result, key) == value for key, value in wanted.items()):
            return result
    return None


def caption(results: Sequence[Result]) -> str:
    """When, where and on how much it was measured, and what failed."""
    if not results:
        return "Not run yet."
    counts = sorted({result.n_utterances for result in results})
    days = sorted({result.measured for result in results})
    span = str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machines = ", ".join(sorted({result.machine for result in results}))
    failed = sum(result.n_failed for result in results)
    return (
        f"Measured {span} on {machines}, one thread, "
        f"{' or '.join(map(str, counts))} utterances of each split."
        + (f" {failed} utterances failed; they count as empty." if failed else "")
    )
