"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.hush_word.tables [--output outputs]

Reads <output>/{real,hush_word,hush_word_paddings,hush_word_words,hush_word_ablation}/*/metrics.json
into results.jsonl, and renders the blocks of this folder's README.md from it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.tables import (
    Figure,
    Row,
    Table,
    blocks_of,
    duration,
    find,
    paper_rows,
    read,
    row_of,
    weights_name,
    write,
)
from streaming_asr.score.results import Result

PAGE = Path(__file__).with_name("README.md")
BEAM = 5
CHUNKS_MS = (300, 500, 1000)
LENGTHS_S = (0.5, 1.0, 2.0, 5.0)
PAPER_TABLE_1 = {"full": "pad to 30 s", "none": "no padding", "zeros 1": "1 s", "zeros 5": "5 s"}
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "beam 5, pruned": {"beam": BEAM, "prune": True},
    "beam 5": {"beam": BEAM, "prune": False},
    "greedy": {"beam": 1},
}
WORDS = {
    "raw_100": "samples, 0.1 s",
    "raw_500": "samples, 0.5 s",
    "raw_1000": "samples, 1 s",
    "mel_500": "log-mel, 0.5 s",
}
ABLATION = {
    "UFAL's policy, padded": ("full", False, "none"),
    "hush word (HW)": ("hush", False, "none"),
    "beam pruning (BP), padded": ("full", True, "none"),
    "HW + BP": ("hush", True, "none"),
    "HW + BP + pipeline (PL)": ("hush", True, "1:1"),
}
STREAMING = {
    "WER %": "wer",
    "committed p50 s": "word_latency_committed_p50_ca_s",
    "committed p90 s": "word_latency_committed_p90_ca_s",
    "light erasure": "light_erasure",
    "CPU RTF": "rtf_cpu",
}
"""The metric of each heading."""
WER, FINAL, CPU, WORK = "WER %", "committed p50 s", "CPU RTF", "encoder GMAC per s of audio"
PRINTED = "paper: WER / GMAC of a window"
TABLES = (
    Table("words", {WER: ".1f", FINAL: ".2f", CPU: ".2f"}, plain=(FINAL,)),
    Table("paddings", {WER: ".1f", WORK: ".2f", PRINTED: ""}),
    Table(
        "searches",
        {WER: ".1f", FINAL: ".2f", CPU: ".2f", "mean beam": ".2f"},
        plain=(FINAL,),
    ),
    Table(
        "ablation",
        {"word latency, mean s": ".2f", WER: ".1f", FINAL: ".2f", CPU: ".2f"},
        plain=(FINAL,),
    ),
)


def reduce_ratio(mean_beam: float | None, beam: int) -> float | None:
    """Return the share of decoder steps at width 1, of a search whose steps are 1 or `beam` wide.

    WhisperFlow's Table 4: mean = beam - (beam - 1) * ratio. None where nothing was decoded or the
    search is greedy.
    """
    if mean_beam is None or beam < 2:
        return None
    return (beam - mean_beam) / (beam - 1)


def paddings(cells: Sequence[Result]) -> list[Row]:
    """Whole prompts; with what the paper's table 1 has (medium, LibriSpeech)."""
    theirs = {row.labels["padding"]: row.values for row in paper_rows("whisperflow", "1")}
    kinds = ["full", "none", "hush"]
    kinds += [f"{kind} {s:g}" for kind in ("zeros", "noise") for s in LENGTHS_S]
    rows = []
    for kind in kinds:
        name, _, seconds = kind.partition(" ")
        cell = find(cells, padding=name, padding_s=float(seconds) if seconds else None)
        if cell is None:
            continue
        flops, share = (cell.metrics.get(m) for m in ("encoder_gflops_per_s", "padding_share"))
        printed = theirs.get(PAPER_TABLE_1.get(kind, ""))
        more: dict[str, Figure | None] = {
            WORK: None if flops is None else flops / 2,
            "padding, % of frames": None if share is None else 100 * share,
            PRINTED: f"{printed['WER']} / {printed['encoder GFLOPS']}" if printed else None,
        }
        rows.append(row_of("paddings", {"padding": _named(kind)}, cell, {WER: "wer"}, more))
    return rows


def _named(kind: str) -> str:
    name, _, seconds = kind.partition(" ")
    full = {"full": "zeros to the context", "hush": "hush word, 0.5 s"}
    return f"{name}, {seconds} s" if seconds else full.get(name, name)


def searches(cells: Sequence[Result]) -> list[Row]:
    """By chunk: the pruned search, the full one and the greedy one; widths as in table 4."""
    theirs = {
        int(row.labels["step length"].removesuffix("ms")): row.values
        for row in paper_rows("whisperflow", "4")
        if row.labels["model"] == "Base"
    }
    hush = [cell for cell in cells if cell.document["config"]["method"].get("padding") == "hush"]
    rows = []
    for chunk in CHUNKS_MS:
        for name, settings in SEARCHES.items():
            cell = find(hush, method="hush_word", chunk_ms=chunk, **settings)
            if cell is None:
                continue
            printed = theirs.get(chunk) if settings.get("prune") else None
            more = _widths(cell, settings.get("beam", BEAM))
            if printed:
                more["paper: base, TED-LIUM 3"] = (
                    f"{printed['avg beam']} / {printed['reduce ratio']}"
                )
            labels = {"search": name, "chunk": duration(chunk)}
            rows.append(row_of("searches", labels, cell, STREAMING, more))
    return rows


def _widths(cell: Result, beam: int = BEAM) -> dict[str, Figure | None]:
    """The mean width, and the ratio that follows from it: decoder steps are 1 or `beam` wide."""
    mean = cell.metrics.get("mean_beam")
    return {"mean beam": mean, "ratio": reduce_ratio(mean, beam)}


def words(cells: Sequence[Result]) -> list[Row]:
    """Hush words of other forms, each trained as long as the others."""
    by_name = {weights_name(cell): cell for cell in cells}
    return [
        row_of("words", {"word": name}, by_name[entry], STREAMING)
        for entry, name in WORDS.items()
        if entry in by_name
    ]


def ablation(cells: Sequence[Result]) -> list[Row]:
    """Best effort; the paper has a figure without numbers."""
    rows = []
    columns = {"word latency, mean s": "word_latency_committed_mean_ca_s", **STREAMING}
    for name, (padding, prune, pipeline) in ABLATION.items():
        cell = find(cells, padding=padding, prune=prune, pipeline=pipeline)
        if cell is not None:
            rows.append(row_of("ablation", {"system": name}, cell, columns, _widths(cell)))
    return rows


def rows(output: Path) -> list[Row]:
    """The rows of all finished cells."""
    return [
        *words(read(output / "hush_word_words")),
        *paddings(read(output / "hush_word_paddings")),
        *searches(read(output / "real", output / "hush_word")),
        *ablation(read(output / "hush_word_ablation")),
    ]


blocks = partial(blocks_of, TABLES)
main = partial(write, about=__doc__, page=PAGE, rows=rows, blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
