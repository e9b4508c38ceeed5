"""The table by chunk of methods that Table I of WhisperRT compares with its own.

A row is a system at a chunk. Intervals are of 95 %, of those metrics that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import papers
from experiments.tables import (
    NONE,
    caption,
    chunk_ms,
    duration,
    markdown,
    method_name,
    paper_rows,
    read,
    with_interval,
)
from streaming_asr.score.results import Result

CHUNKS_MS = (100, 200, 300, 500, 1000)
SPLITS = ("clean", "other")
COLUMNS = ("WER", "ARWER", "ARWER grid", "committed p50", "committed p90", "RTF", "light erasure")
METRICS = (
    ("wer", 1),
    ("arwer_cu", 1),
    ("arwer_grid_ca", 1),
    ("word_latency_committed_p50_ca_s", 2),
    ("word_latency_committed_p90_ca_s", 2),
    ("rtf_total", 3),
    ("light_erasure", 2),
)
LEGEND = (
    "Rates in percent, latencies in seconds from a word's end until it is committed, compute "
    "included; in brackets the 95 % interval.\nLight erasure is words rewritten per final word, "
    "whatever their case and punctuation."
)

Rows = Mapping[tuple[str, int, str], Result]
"""Finished cells by system, chunk in ms and split."""


def read_rows(
    folder: Path, system: Callable[[Mapping[str, Any]], str], method: str | None = None
) -> dict[tuple[str, int, str], Result]:
    """The finished cells under `folder`, of one method only if it is named.

    system: names a cell from its method's configuration."""
    rows = {}
    for cell in read(folder):
        config, chunk = cell.document["config"], chunk_ms(cell)
        if chunk is not None and method in (None, method_name(cell)):
            rows[system(config["method"]), chunk, config["data"]["split"]] = cell
    return rows


def method_rows(
    output: Path, name: str, system: Callable[[Mapping[str, Any]], str]
) -> dict[tuple[str, int, str], Result]:
    """A method's cells in the sweep of all methods and in its own, which has the last word."""
    return read_rows(output / "mini", system, name) | read_rows(output / name, system)


def table(rows: Rows, systems: Sequence[str], paper: str) -> str:
    """Both splits. The first of `systems` has a row for every chunk, the others where they were
    measured. paper: the name that WhisperRT's table I gives the method, whose base model is
    shown next to the first."""
    printed = printed_rates(paper)
    parts = [caption(rows.values()), LEGEND]
    for split in SPLITS:
        lines = []
        for chunk in CHUNKS_MS:
            for name in _shown(rows, systems, chunk, split):
                beside = printed.get((chunk, split), NONE) if name == systems[0] else NONE
                cells = measures(rows.get((name, chunk, split)))
                lines.append([name, duration(chunk), *cells, beside])
        header = ["system", "chunk", *COLUMNS, "paper, base"]
        parts += [f"mini `{split}`:", markdown(header, lines, n_text=2)]
    parts.append(
        f"The last column is WhisperRT's table I for {paper} with Whisper base on LibriSpeech "
        "test-clean or test-other: RWER / ARWER / WER."
    )
    return "\n\n".join(parts)


def _shown(rows: Rows, systems: Sequence[str], chunk: int, split: str) -> list[str]:
    return [name for name in systems if name == systems[0] or (name, chunk, split) in rows]


def measures(cell: Result | None) -> list[str]:
    """The columns of one cell."""
    return [with_interval(cell, metric, digits) for metric, digits in METRICS]


def printed_rates(method: str) -> dict[tuple[int, str], str]:
    """RWER / ARWER / WER of the base model by chunk in ms and split, as WhisperRT prints them."""
    rates = {}
    for row in paper_rows("whisperrt", "I"):
        labels = row.labels
        if (labels["model"], labels["method"]) != ("base", method):
            continue
        split = {"test-clean": "clean", "test-other": "other"}.get(labels["data"])
        if split and labels["chunk"] != papers.NONE:
            chunk = int(labels["chunk"].removesuffix("ms"))
            rates[chunk, split] = " / ".join(row.values[k] for k in ("RWER", "ARWER", "WER"))
    return rates
