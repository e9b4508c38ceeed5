"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.hush_word.tables [--output outputs]

Reads <output>/{mini,hush_word,hush_word_paddings,hush_word_ablation}/*/metrics.json and rewrites
the blocks of this folder's README.md. A missing cell is written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.rows import (
    CHUNKS_MS,
    COLUMNS,
    SPLITS,
    Rows,
    measures,
    read_rows,
    write_page,
)
from experiments.tables import (
    NONE,
    NOT_RUN,
    caption,
    duration,
    markdown,
    measure,
    number,
    paper_rows,
    with_interval,
)
from streaming_asr.report.cells import Cell

PAGE = Path(__file__).with_name("README.md")
BEAM = 5
WHOLE_MS = 10_000
BEST_EFFORT_MS = 20
NEAR_750_MS = 760  # chunks are whole encoder frames
LENGTHS_S = (0.5, 1.0, 2.0, 5.0)
SYSTEMS = ("hush word", "padded to the context")
PAPER_TABLE_1 = {"full": "pad to 30 s", "none": "no padding", "zeros 1": "1 s", "zeros 5": "5 s"}
ABLATION = (
    ("UFAL's policy, padded", "full, wide"),
    ("hush word (HW)", "hush, wide"),
    ("beam pruning (BP), padded", "full, pruned"),
    ("HW + BP", "hush, pruned"),
    ("HW + BP + pipeline (PL)", "hush, pruned, pipeline"),
)


def reduce_ratio(mean_beam: float | None, beam: int) -> float | None:
    """Return the share of decoder steps at width 1, of a search whose steps are 1 or `beam` wide.

    WhisperFlow's Table 4: mean = beam - (beam - 1) * ratio. None where nothing was decoded or the
    search is greedy.
    """
    if mean_beam is None or beam < 2:
        return None
    return (beam - mean_beam) / (beam - 1)


def system(method: Mapping[str, Any]) -> str:
    """A row of the tables by chunk."""
    return {"hush": "hush word", "full": "padded to the context"}.get(
        method["padding"], method["padding"]
    )


def padding(method: Mapping[str, Any]) -> str:
    """A row of the table of paddings: kind, and seconds where it has any."""
    if method["padding"] not in ("zeros", "noise"):
        return str(method["padding"])
    seconds = method.get("padding_s")
    return f"{method['padding']} {0.5 if seconds is None else seconds:g}"


def variant(method: Mapping[str, Any]) -> str:
    """A row of the ablation."""
    pruned = "pruned" if method.get("prune", True) else "wide"
    piped = ", pipeline" if method.get("pipeline", "none") != "none" else ""
    return f"{method['padding']}, {pruned}{piped}"


def paddings(rows: Rows) -> str:
    """Whole utterances; the paper's table 1 (medium, LibriSpeech) stands beside what it has."""
    theirs = {row.labels["padding"]: row.values for row in paper_rows("whisperflow", "1")}
    kinds = ["full", "none", "hush"]
    kinds += [f"{kind} {s:g}" for kind in ("zeros", "noise") for s in LENGTHS_S]
    parts = [caption(rows.values())]
    for split in SPLITS:
        lines = []
        for kind in kinds:
            cell = rows.get((kind, WHOLE_MS, split))
            values = theirs.get(PAPER_TABLE_1.get(kind, ""))
            beside = NONE if values is None else f"{values['WER']} / {values['encoder GFLOPS']}"
            lines.append(
                [_named(kind), with_interval(cell, "wer"), _work(cell), _share(cell), beside]
            )
        header = ["padding", "WER [95 %]", "encoder GMAC per s of audio", "padding, % of frames"]
        header += ["paper: WER / GMAC of a window"]
        parts += [f"mini `{split}`:", markdown(header, lines)]
    return "\n\n".join(parts)


def _named(kind: str) -> str:
    name, _, seconds = kind.partition(" ")
    full = {"full": "zeros to the context", "hush": "hush word, 0.5 s"}
    return f"{name}, {seconds} s" if seconds else full.get(name, name)


def _work(cell: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
    flops = cell.metrics.get("encoder_gflops_per_s")
    return number(None if flops is None else flops / 2, 3)


def _share(cell: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
    share = cell.metrics.get("padding_share")
    return number(None if share is None else 100 * share)


def beams(rows: Rows) -> str:
    """Mean beam and reduce ratio by chunk, beside the paper's table 4 for Whisper base."""
    theirs = {
        int(row.labels["step length"].removesuffix("ms")): row.values
        for row in paper_rows("whisperflow", "4")
        if row.labels["model"] == "Base"
    }
    lines = []
    for chunk in (*CHUNKS_MS[:-1], NEAR_750_MS, CHUNKS_MS[-1]):
        values = theirs.get(750 if chunk == NEAR_750_MS else chunk)
        cells = [rows.get(("hush word", chunk, split)) for split in SPLITS]
        beside = NONE if values is None else f"{values['avg beam']} / {values['reduce ratio']}"
        lines.append([duration(chunk), *map(_beam, cells), beside])
    header = ["chunk", *(f"mini `{split}`" for split in SPLITS), "paper: base, TED-LIUM 3"]
    about = f"Mean beam / reduce ratio, beam 5; the paper's 750 ms stand beside {NEAR_750_MS} ms."
    return about + "\n\n" + markdown(header, lines)


def _beam(cell: Cell | None) -> str:
    """The ratio follows from the mean: decoder steps are 1 or 5 wide."""
    if cell is None:
        return NOT_RUN
    mean = cell.metrics.get("mean_beam")
    return f"{number(mean, 3)} / {number(reduce_ratio(mean, BEAM), 3)}"


def ablation(rows: Rows) -> str:
    """Best effort on `clean`; the paper has a figure without numbers."""
    lines = []
    for name, key in ABLATION:
        cell = rows.get((key, BEST_EFFORT_MS, "clean"))
        latency = measure(cell, "word_latency_committed_mean_ca_s", 3)
        lines.append([name, latency, _beam(cell), *measures(cell)])
    header = ["system", "word latency, mean s", "mean beam / ratio", *COLUMNS]
    return caption(rows.values()) + "\n\n" + markdown(header, lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def further(output: Path, rows: Rows) -> dict[str, str]:
        return {
            "paddings": paddings(read_rows(output / "hush_word_paddings", padding)),
            "beams": beams(rows),
            "ablation": ablation(read_rows(output / "hush_word_ablation", variant)),
        }

    return write_page(argv, __doc__, PAGE, system, SYSTEMS, further=further)


if __name__ == "__main__":
    sys.exit(main())
