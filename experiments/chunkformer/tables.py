"""The measured tables of this folder's README, beside the paper's.

    python -m experiments.chunkformer.tables [--output outputs]

Reads in <output>/chunkformer */metrics.json (the sweep), memory.json (of
experiments.chunkformer.memory) and bench.json (of `bench chunkformer --json`), and rewrites the
blocks of this folder's README.md. What is missing stays as the page has it, or reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments import papers
from experiments.bench.chunkformer_table import verdicts
from experiments.chunkformer.memory import KINDS, TARGETS_GIB, longest_minutes, points
from experiments.tables import (
    NONE,
    NOT_RUN,
    NOTHING_RUN,
    caption,
    markdown,
    number,
    paper_rows,
    read,
    read_json,
    with_interval,
    write,
)
from streaming_asr.score.results import Result

CHUNKS, SIDES = (16, 64, 128, 256), (32, 128)
LENGTHS = {None: "one by one", 60: "a minute", 600: "ten minutes"}


# -- table II -----------------------------------------------------------------------------------


def context(cell: Result) -> str:
    """A row's name: `c, l, r`, or `full context`, a chunk that holds the recording and no sides."""
    method = cell.document["config"]["method"]
    sizes = [method[f"{side}_frames"] for side in ("chunk", "left", "right")]
    return ", ".join(map(str, sizes)) if any(sizes[1:]) else "full context"


def table2(cells: Sequence[Result]) -> str:
    """WER by context and by how long the recordings are."""
    found = {(context(cell), cell.document["config"]["data"].get("join_s")): cell for cell in cells}
    names = ["full context", *(f"{c}, {side}, {side}" for c in CHUNKS for side in SIDES)]
    lines = [
        [name, *(with_interval(found.get((name, join_s)), "wer") for join_s in LENGTHS)]
        for name in names
    ]
    return caption(cells) + "\n\n" + markdown(["context c, l, r", *LENGTHS.values()], lines)


# -- tables III and IV --------------------------------------------------------------------------


def table3(result: Mapping[str, Any] | None) -> str:
    """The longest recording by memory, and what was measured for it."""
    lengths = sorted({m for kind in KINDS for m in points(result, kind)}) if result else []
    own_gib = (result or {}).get("machine", {}).get("memory_gib")
    memories = [*([own_gib] if own_gib else []), *TARGETS_GIB]
    lines = []
    for kind, label in KINDS.items():
        measured = points(result, kind) if result else {}
        row = [label, *(number(measured.get(length), 0) for length in lengths)]
        for gib in memories:
            minutes = longest_minutes(measured, kind, gib * 1024)
            known = NOT_RUN if not measured else NONE if minutes is None else f"{minutes:.0f}"
            row.append("no limit" if kind == "endless" and measured else known)
        lines.append(row)
    header = [
        "ours, one recording",
        *(f"{length:g} min: MiB" for length in lengths),
        *(f"longest in {gib:g} GiB, min" for gib in memories),
    ]
    told = NOTHING_RUN
    if result:
        on = result["machine"]
        told = (
            f"Measured on {on.get('gpu', on['cpu'])}, the network `{result['size']}`; memory above "
            "the weights. The longest recordings are computed from the last two figures of a row, "
            "not tried."
        )
    return told + "\n\n" + markdown(header, lines)


PAPERS_ROW = {"padded": "ChunkFormer", "masked": "+ Masked batch"}


def table4(result: Mapping[str, Any] | None) -> str:
    """Padded against masked batch: ours beside the paper's; other models are not run."""
    printed = {
        (row.labels["model"], row.labels["part"]): row.values
        for row in paper_rows("chunkformer", "IV")
    }
    rows = (result or {}).get("masked", {}).get("rows", {})
    lines = []
    for part in ("full model", "encoder only"):
        for kind, name in PAPERS_ROW.items():
            ours = rows.get(part, {}).get(kind)
            values = ("mib", 0), ("seconds", 2), ("gflop", 0)
            measured = [number(ours[k], digits) for k, digits in values] if ours else [NOT_RUN] * 3
            paper = printed[name, part]
            beside = " / ".join(paper[k] for k in ("memory", "time", "flops"))
            lines.append([part, name, *measured, beside.replace(papers.NONE, NONE)])
    header = ["part", "batch", "MiB", "seconds", "GFLOP", "paper: memory / time / FLOPs"]
    told = NOTHING_RUN
    if result:
        settings, on = result["settings"], result["machine"]
        told = (
            f"Measured on {on.get('gpu', on['cpu'])}, {settings['threads']} thread(s), "
            f"{result['clock']}, the network `{settings['size']}`, context 64, 128, 128; "
            f"recordings 1/{settings['scale']:g} as long as the paper's."
        )
    return told + "\n\n" + markdown(header, lines, n_text=2)


def targets(result: Mapping[str, Any] | None) -> str:
    """What `bench chunkformer` says was reached and missed."""
    if not result:
        return NOTHING_RUN
    return "\n".join(f"- {' '.join(line.split())}" for line in verdicts(result))


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    return {
        "table2": table2(read(output / "chunkformer")),
        "table3": table3(read_json(output / "chunkformer" / "memory.json")),
        "table4": table4(read_json(output / "chunkformer" / "bench.json")),
        "targets": targets(read_json(output / "chunkformer" / "bench.json")),
    }


main = partial(write, about=__doc__, page=Path(__file__).with_name("README.md"), blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
