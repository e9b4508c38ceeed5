"""The measured tables of this folder's README, from the results of the sweep.

    python -m experiments.chunkformer.tables [--output outputs]

Reads <output>/chunkformer/*/metrics.json into results.jsonl and renders the blocks of this folder's
README.md from it. Programs of commit 00f21ede measured tables III and IV.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.tables import Row, Table, blocks_of, read, row_of, write
from streaming_asr.score.results import Result

CHUNKS, SIDES = (16, 64, 128, 256), (32, 128)
LENGTHS = {None: "one by one", 60: "a minute", 600: "ten minutes"}
WER, PRINTED = "WER %", "paper: memory / time / FLOPs"
TABLES = (
    Table("table2", {WER: ".1f"}, across="recordings"),
    Table(
        "table3",
        {
            **{f"{minutes} min: MiB": ".0f" for minutes in (1, 4, 16)},
            **{f"longest in {gib:g} GiB, min": ".0f" for gib in (8, 80)},
        },
    ),
    Table("table4", {"MiB": ".0f", "seconds": ".2f", "GFLOP": ".0f", PRINTED: ""}),
)


def context(cell: Result) -> str:
    """A row's name: `c, l, r`, or `full context`, a chunk that holds the recording and no sides."""
    method = cell.document["config"]["method"]
    sizes = [method[f"{side}_frames"] for side in ("chunk", "left", "right")]
    return ", ".join(map(str, sizes)) if any(sizes[1:]) else "full context"


def table2(cells: Sequence[Result]) -> list[Row]:
    """WER by context and by how long the recordings are."""
    by_context = {
        (context(cell), cell.document["config"]["data"].get("join_s")): cell for cell in cells
    }
    names = ["full context", *(f"{c}, {side}, {side}" for c in CHUNKS for side in SIDES)]
    return [
        row_of(
            "table2",
            {"context c, l, r": name, "recordings": length},
            by_context[name, join_s],
            {WER: "wer"},
        )
        for name in names
        for join_s, length in LENGTHS.items()
        if (name, join_s) in by_context
    ]


def rows(output: Path) -> list[Row]:
    """The rows of all that ran."""
    return table2(read(output / "chunkformer"))


blocks = partial(blocks_of, TABLES)
main = partial(
    write,
    about=__doc__,
    page=Path(__file__).with_name("README.md"),
    rows=rows,
    blocks=blocks,
)

if __name__ == "__main__":
    sys.exit(main())
