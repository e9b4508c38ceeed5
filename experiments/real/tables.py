"""The measured table of real Whisper on real speech, from the results of `experiment=real`.

    python -m experiments.real.tables [--output outputs] [--readme README.md]

Reads <output>/real/*/metrics.json and rewrites the block `real` of this folder's README.md; with
--readme also, with fewer rows, that of another file. A missing cell is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.tables import (
    caption,
    duration,
    find,
    markdown,
    read,
    with_interval,
    write,
)
from streaming_asr.report.cells import Cell

PAGE = Path(__file__).with_name("README.md")
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "offline": {"method": "offline"},
    "WhisperRT, greedy": {"method": "whisperrt", "beam": 0},
    "WhisperRT, beam 3": {"method": "whisperrt", "beam": 3},
    "Simul-Whisper, no detector": {"method": "simul_whisper"},
    "UFAL": {"method": "ufal"},
    "short encoder, zeros": {"method": "hush_word", "padding": "zeros"},
    "short encoder, full padding": {"method": "hush_word", "padding": "full"},
}
ROWS = (
    ("offline", None),
    *((system, chunk) for chunk in (300, 1000) for system in list(SYSTEMS)[1:5]),
    *((system, 1000) for system in list(SYSTEMS)[5:]),
)
SHORT = (ROWS[0], *((system, 300) for system in list(SYSTEMS)[1:3]), *ROWS[5:10])
COLUMNS = {
    "WER %": ("wer", 1),
    "ARWER grid %": ("arwer_grid_ca", 1),
    "first shown s": ("word_latency_first_shown_p50_ca_s", 2),
    "committed p50 s": ("word_latency_committed_p50_ca_s", 2),
    "committed p90 s": ("word_latency_committed_p90_ca_s", 2),
    "erasure": ("normalised_erasure", 2),
    "CPU RTF": ("rtf_cpu", 2),
}


def cell(cells: Sequence[Cell], system: str, chunk: int | None) -> Cell | None:
    """The finished cell of a system at a chunk in ms, None for any chunk."""
    wanted = {**SYSTEMS[system], **({} if chunk is None else {"chunk_ms": chunk})}
    return find(cells, **wanted)


def table(cells: Sequence[Cell], rows: Sequence[tuple[str, int | None]]) -> str:
    """The rows as Markdown, under what was measured and where."""
    shown = [
        [system, duration(chunk), *(with_interval(found, *COLUMNS[name]) for name in COLUMNS)]
        for system, chunk in rows
        for found in [cell(cells, system, chunk)]
    ]
    return f"{caption(cells)}\n\n{markdown(['system', 'chunk', *COLUMNS], shown, 2)}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def cells(output: Path) -> list[Cell]:
        return read(output / "real")

    return write(
        argv,
        __doc__,
        PAGE,
        lambda output: {"real": table(cells(output), ROWS)},
        shared="real",
        short=lambda output: table(cells(output), SHORT),
    )


if __name__ == "__main__":
    sys.exit(main())
