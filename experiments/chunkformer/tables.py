"""The measured tables of this folder's README, from the results of the sweeps and benchmarks.

    python -m experiments.chunkformer.tables [--output outputs]

Reads in <output>/chunkformer */metrics.json (the sweep), memory.json (of
experiments.chunkformer.memory) and bench.json (of `bench chunkformer --json`) into results.jsonl,
and renders the blocks of this folder's README.md from it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments import papers
from experiments.chunkformer.memory import KINDS, TARGETS_GIB, longest_minutes, points
from experiments.tables import (
    NONE,
    Figure,
    Row,
    Table,
    blocks_of,
    paper_rows,
    read,
    read_json,
    row_of,
    write,
)
from streaming_asr.score.results import Result

CHUNKS, SIDES = (16, 64, 128, 256), (32, 128)
LENGTHS = {None: "one by one", 60: "a minute", 600: "ten minutes"}
PAPERS_ROW = {"padded": "ChunkFormer", "masked": "+ Masked batch"}
WER, PRINTED = "WER %", "paper: memory / time / FLOPs"
TABLES = (
    Table("table2", {WER: ".1f"}, across="recordings"),
    Table(
        "table3",
        {
            **{f"{minutes} min: MiB": ".0f" for minutes in (1, 4, 16)},
            **{f"longest in {gib:g} GiB, min": ".0f" for gib in TARGETS_GIB},
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


def table3(result: Mapping[str, Any]) -> list[Row]:
    """The memory of one recording by its length, and the longest one by memory, which is computed
    from the last two figures."""
    rows = []
    for kind, label in KINDS.items() if result else ():
        measured = points(result, kind)
        if not measured:
            continue
        figures: dict[str, Figure] = {
            f"{length:g} min: MiB": mib for length, mib in measured.items()
        }
        own_gib = result["machine"].get("memory_gib")
        for gib in [*([own_gib] if own_gib else []), *TARGETS_GIB]:
            minutes = longest_minutes(measured, kind, gib * 1024)
            if minutes is not None or kind == "endless":
                figures[f"longest in {gib:g} GiB, min"] = "no limit" if minutes is None else minutes
        on = result["machine"]
        machines = [on.get("gpu", on["cpu"])]
        rows.append(Row("table3", {"ours, one recording": label}, figures, machines=machines))
    return rows


def table4(result: Mapping[str, Any]) -> list[Row]:
    """Padded against masked batch, with the paper's figures."""
    printed = {
        (row.labels["model"], row.labels["part"]): row.values
        for row in paper_rows("chunkformer", "IV")
    }
    measured = result.get("masked", {}).get("rows", {})
    rows = []
    for part in ("full model", "encoder only"):
        for kind, name in PAPERS_ROW.items():
            if (ours := measured.get(part, {}).get(kind)) is None:
                continue
            paper = printed[name, part]
            texts = " / ".join(paper[k] for k in ("memory", "time", "flops"))
            names = {"mib": "MiB", "seconds": "seconds", "gflop": "GFLOP"}
            figures: dict[str, Figure] = {names[key]: ours[key] for key in names}
            figures[PRINTED] = texts.replace(papers.NONE, NONE)
            on = result["machine"]
            machines = [on.get("gpu", on["cpu"])]
            rows.append(Row("table4", {"part": part, "batch": name}, figures, machines=machines))
    return rows


def rows(output: Path) -> list[Row]:
    """The rows of all that ran."""
    return [
        *table2(read(output / "chunkformer")),
        *table3(read_json(output / "chunkformer" / "memory.json")),
        *table4(read_json(output / "chunkformer" / "bench.json")),
    ]


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
