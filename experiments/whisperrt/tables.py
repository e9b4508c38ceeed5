"""WhisperRT's tables, next to what the paper prints. Table I on mini is in the file only."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.papers import NONE as UNPRINTED
from experiments.tables import (
    Cells,
    Figure,
    Page,
    Row,
    Table,
    chunk_ms,
    duration,
    find,
    method_name,
    paper_rows,
    read_json,
)
from streaming_asr.score.results import Result

BEAMS = {0: "greedy", 3: "beam 3"}
TIMES = {"exact": "exact", "ctc": "U2's CTC head", "whisper": "tiny.en's cross-attention"}
METRICS = {
    "RWER": "rwer",
    "ARWER": "arwer_cu",
    "WER": "wer",
    "errors visible while speaking": "arwer_grid_ca",
    **{
        f"{kind} {p}": f"word_latency_{kind}_{p}_ca_s"
        for kind in ("stable", "committed")
        for p in ("p50", "p90")
    },
}
"""The metric of each heading; rates in percent, latencies in seconds with computing."""
PRINTED = "paper, base"
THEIRS = {
    "offline": "Offline Whisper",
    "whisperrt": "WhisperRT",
    "simul_whisper": "Simul-Whisper",
    "ufal": "Ufal-Whisper",
}
SYSTEMS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "offline, beam 5": [{"method": "offline", "beam": 5}],
    "WhisperRT, beam 3": [
        {"method": "whisperrt", "beam": 3, "decoder_cache": False, "weights": "any_chunk"}
    ],
    "Simul-Whisper, no detector": [
        {"method": "simul_whisper", "weights": "none", "truncation": None},
        {"method": "simul_whisper", "truncation": "never"},
    ],
    "UFAL": [{"method": "ufal"}],
}
OFFLINE, WHISPERRT, *OTHERS = SYSTEMS
CHUNKS = [
    (OFFLINE, None),
    *((WHISPERRT, ms) for ms in (40, 100, 200)),
    *((name, ms) for ms in (300, 1000) for name in (WHISPERRT, *OTHERS)),
]


@functools.cache
def printed(table: str) -> dict[tuple[str, ...], Mapping[str, str]]:
    """The paper's numbers in one of its tables, by the labels of their row."""
    return {tuple(row.labels.values()): row.values for row in paper_rows("whisperrt", table)}


def theirs(table: str, *labels: str, value: str = "WER") -> str | None:
    """A value of a row of the paper's table; None where it has no such row."""
    row = printed(table).get(labels)
    return None if row is None else row[value]


def in_table_1(cell: Result, _: Sequence[Result]) -> dict[str, Figure | None]:
    """The paper's WER for a cell."""
    name = method_name(cell)
    where = UNPRINTED if name == "offline" else f"{chunk_ms(cell)}ms"
    return {PRINTED: theirs("I", str(cell.model), THEIRS[name], where, "test-other")}


def with_cache(cell: Result, cells: Sequence[Result]) -> dict[str, Figure | None]:
    """The figures of the same beam with the decoder's self-attention kept."""
    beam = cell.document["config"]["method"]["beam"]
    other = find(cells, beam=beam, decoder_cache=True)
    return {
        f"{heading}, cache kept": None if other is None else other.metrics.get(metric)
        for heading, metric in (("WER", "wer"), ("CPU s per s", "rtf_cpu"))
    }


def table5(output: Path) -> list[Row]:
    """What table5.py measured, of the systems that ran, with the paper's latencies."""
    document = read_json(output / "table5" / "table5.json")
    rows = []
    for row in document.get("rows", ()):
        if row["mean_ms"] is not None:
            labels = {"system": row["system"], "beam": str(row["beam"])}
            paper = theirs("V", *labels.values(), value="latency")
            figures = {"ms per chunk": row["mean_ms"], "RTF": row["rtf"]}
            figures |= {"paper: large-v2, s per chunk": paper} if paper else {}
            rows.append(
                Row("table5", labels, figures, [document["measured"]], [document["machine"]])
            )
    return rows


PAGE = Page(
    [
        Cells(
            "table1_other",
            ["table1_other", "real_other", "real_other_base"],
            [
                (
                    {"model": model, "system": name, "chunk": duration(ms)},
                    [
                        {"model": model, **each, **({} if ms is None else {"chunk_ms": ms})}
                        for each in SYSTEMS[name]
                    ],
                )
                for model in ("tiny.en", "base")
                for name, ms in CHUNKS
            ],
            {**METRICS, "CPU s per s": "rtf_cpu"},
            in_table_1,
        ),
        Cells(
            "table2",
            ["table2"],
            [({"word times": name}, [{"weights": f"times_{key}"}]) for key, name in TIMES.items()],
            {
                "WER": "wer",
                "errors visible while speaking": "arwer_grid_ca",
                "final after p50 s": "word_latency_committed_p50_ca_s",
                "p90 s": "word_latency_committed_p90_ca_s",
            },
        ),
        Cells(
            "fig6_dev",
            ["fig6_dev"],
            [
                (
                    {"decoding": f"beam {beam}" if beam else "greedy"},
                    [{"beam": beam, "decoder_cache": False}],
                )
                for beam in (0, 3, 5, 7)
            ],
            {"WER, exact": "wer", "CPU s per s, exact": "rtf_cpu"},
            with_cache,
        ),
        Cells(
            "mini_table3",
            ["table3", "table1"],  # table I ran a fixed adapter where it found one
            [
                (
                    {
                        "split": split,
                        "decoding": decoding,
                        "chunk": duration(ms),
                        "adapter": adapter,
                    },
                    [
                        {
                            "method": "whisperrt",
                            "data.split": split,
                            "chunk_ms": ms,
                            "beam": beam,
                            "weights": weights,
                        }
                    ],
                )
                for split in ("clean", "other")
                for beam, decoding in BEAMS.items()
                for ms in (100, 300)
                for adapter, weights in (("fixed", f"{ms}ms"), ("random", "any_chunk"))
            ],
            METRICS,
        ),
    ],
    [
        Table(
            "table1_other",
            {"WER": ".1f", "ARWER": ".1f", "CPU s per s": ".2f", PRINTED: ""},
            takes=lambda row: row.labels["model"] == "base",
        ),
        Table("table2", {"WER": ".1f", "final after p50 s": ".2f"}),
        Table(
            "mini_table3",
            {"WER": ".1f"},
            across="adapter",
            takes=lambda row: row.labels["decoding"] == "beam 3",
        ),
        Table(
            "fig6_dev",
            {
                "WER, exact": ".1f",
                "WER, cache kept": ".1f",
                "CPU s per s, exact": ".3f",
                "CPU s per s, cache kept": ".3f",
            },
        ),
        Table("table5", {"ms per chunk": ".1f", "RTF": ".3f", "paper: large-v2, s per chunk": ""}),
    ],
    table5,
)
