"""One table for methods that Table I of WhisperRT sets beside its own: from the cells of a sweep.

A row is a system at a chunk. Intervals are of 95 %, of those metrics that have one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from experiments.whisperrt.tables import NOT_RUN, duration, markdown, number, rewrite
from streaming_asr.errors import UserError
from streaming_asr.papers import NONE, read_paper
from streaming_asr.report.cells import Cell, read_cells

CHUNKS_MS = (100, 200, 300, 500, 1000)
SPLITS = ("clean", "other")
COLUMNS = ("WER", "ARWER", "ARWER grid", "committed p50", "committed p90", "RTF", "erasure")
METRICS = (
    ("wer", 1),
    ("arwer_cu", 1),
    ("arwer_grid_ca", 1),
    ("word_latency_committed_p50_ca_s", 2),
    ("word_latency_committed_p90_ca_s", 2),
    ("rtf_total", 3),
    ("normalised_erasure", 2),
)
LEGEND = (
    "Rates in percent, latencies in seconds from a word's end until it is committed, compute "
    "included; in brackets the 95 % interval. Erasure is words rewritten per final word."
)

Rows = Mapping[tuple[str, int, str], Cell]
"""Finished cells by system, chunk in ms and split."""


def read_rows(
    folder: Path, system: Callable[[Mapping[str, Any]], str], method: str | None = None
) -> dict[tuple[str, int, str], Cell]:
    """The finished cells under `folder`, of one method alone if it is named; `system` names a cell
    from its method's configuration."""
    if not folder.is_dir() or not any(folder.glob("*/metrics.json")):
        return {}
    rows = {}
    for cell in read_cells(folder):
        if cell.metrics and cell.chunk_s is not None:
            config = cell.document["config"]
            if method not in (None, config["method"]["name"]):
                continue
            key = system(config["method"]), round(1000 * cell.chunk_s), config["data"]["split"]
            rows[key] = cell
    return rows


def method_rows(
    output: Path, name: str, system: Callable[[Mapping[str, Any]], str]
) -> dict[tuple[str, int, str], Cell]:
    """A method's cells in the sweep of all methods and in its own, which has the last word."""
    return read_rows(output / "mini", system, name) | read_rows(output / name, system)


def caption(rows: Rows) -> str:
    """When, where and on how much it was measured, and over what the intervals are."""
    if not rows:
        return "Not run yet."
    documents = [cell.document for cell in rows.values()]
    days = sorted({str(date.fromtimestamp(_made(cell))) for cell in rows.values()})
    counts = sorted({document["n_utterances"] for document in documents})
    machines = sorted({(document.get("machine") or {}).get("cpu", "?") for document in documents})
    drawn = sorted(
        {f"{i['n_drawn']} {i['drawn']}s" for document in documents if (i := _intervals(document))}
    )
    failed = sum(int(document.get("n_failed") or 0) for document in documents)
    return (
        f"Measured {' to '.join(dict.fromkeys((days[0], days[-1])))} on {', '.join(machines)}, one "
        f"thread, {' or '.join(map(str, counts))} utterances of each split; intervals over "
        f"{' or '.join(drawn) or 'nothing'}."
        + (f" {failed} utterances failed; they count as empty." if failed else "")
    )


def table(rows: Rows, systems: Sequence[str], paper: str | None) -> str:
    """Both splits. The first of `systems` has a row for every chunk, the others where they were
    measured. paper: the name that WhisperRT's table I gives the method, whose base model stands
    beside the first."""
    printed = paper_rows(paper) if paper else {}
    parts = [caption(rows), LEGEND]
    for split in SPLITS:
        lines = []
        for chunk in CHUNKS_MS:
            for name in _shown(rows, systems, chunk, split):
                beside = printed.get((chunk, split), "–") if name == systems[0] else "–"
                cells = measures(rows.get((name, chunk, split)))
                lines.append([name, duration(chunk), *cells, *([beside] if paper else [])])
        header = ["system", "chunk", *COLUMNS, *(["paper, base"] if paper else [])]
        parts += [f"mini `{split}`:", markdown(header, lines, n_text=2)]
    if paper:
        parts.append(
            f"The last column is WhisperRT's table I for {paper} with Whisper base on LibriSpeech "
            "test-clean or test-other: RWER / ARWER / WER."
        )
    return "\n\n".join(parts)


def short_table(rows: Rows, systems: Sequence[str]) -> str:
    """`table` for another page: both splits in one, without intervals and the paper."""
    lines = [
        [name, duration(chunk), split, *measures(rows.get((name, chunk, split)), intervals=False)]
        for split in SPLITS
        for chunk in CHUNKS_MS
        for name in _shown(rows, systems, chunk, split)
    ]
    return (
        caption(rows) + "\n\n" + markdown(["system", "chunk", "split", *COLUMNS], lines, n_text=3)
    )


def _shown(rows: Rows, systems: Sequence[str], chunk: int, split: str) -> list[str]:
    return [name for name in systems if name == systems[0] or (name, chunk, split) in rows]


def measures(cell: Cell | None, *, intervals: bool = True) -> list[str]:
    """The columns of one cell."""
    if cell is None:
        return [NOT_RUN] * len(METRICS)
    bounds = _intervals(cell.document).get("metrics", {}) if intervals else {}
    cells = []
    for metric, digits in METRICS:
        text = number(cell.metrics.get(metric), digits)
        low_high = bounds.get(metric)
        if low_high:
            text += f" [{number(low_high[0], digits)}, {number(low_high[1], digits)}]"
        cells.append(text)
    return cells


def paper_rows(method: str) -> dict[tuple[int, str], str]:
    """RWER / ARWER / WER of the base model by chunk in ms and split, as printed."""
    (first,) = (t for t in read_paper("whisperrt").tables if t.name == "I")
    found = {}
    for row in first.rows:
        labels = row.labels
        if labels["model"] != "base" or labels["method"] != method or labels["chunk"] == NONE:
            continue
        split = {"test-clean": "clean", "test-other": "other"}.get(labels["data"])
        if split:
            chunk = int(labels["chunk"].removesuffix("ms"))
            found[chunk, split] = " / ".join(row.values[k] for k in ("RWER", "ARWER", "WER"))
    return found


def _intervals(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document.get("intervals") or {}


def _made(cell: Cell) -> float:
    return (cell.folder / "metrics.json").stat().st_mtime


def write(
    argv: Sequence[str] | None,
    about: str | None,
    page: Path,
    blocks: Callable[[Path], Mapping[str, str]],
    *,
    shared: str,
    short: Callable[[Path], str] | None = None,
) -> int:
    """The command line of a folder's tables; returns the exit status.

    blocks: from the folder where `run` wrote, what stands in `page`; shared: the one of them that
    `--readme` writes into another file too, there as `short` has it.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--here", type=Path, default=page, help="this folder's page")
    parser.add_argument("--readme", type=Path, help=f"also the block `{shared}` of this file")
    arguments = parser.parse_args(argv)
    try:
        written = blocks(arguments.output)
        rewrite(arguments.here, written)
        print(f"written: {arguments.here}")
        if arguments.readme is not None:
            block = written[shared] if short is None else short(arguments.output)
            rewrite(arguments.readme, {shared: block})
            print(f"written: {arguments.readme}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
