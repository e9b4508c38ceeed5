"""The measured tables of this folder's README, beside the paper's, from the results of the sweeps.

    python -m experiments.u2.tables [--output outputs]

Reads <output>/{u2,u2_finance,u2_delay,u2_int8,u2_long}/*/ and rewrites what stands between
`<!-- NAME:begin -->` and `<!-- NAME:end -->` in this folder's README.md. A cell that is missing is
written as "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.tables import (
    NONE,
    NOT_RUN,
    caption,
    duration,
    find,
    markdown,
    measure,
    number,
    paper_rows,
    read,
    with_interval,
    write,
)
from experiments.u2.results import CHUNKS_MS, SPLITS, finalise_ms, wer_of_parts
from streaming_asr.report.cells import Cell

HERE = Path(__file__).parent
SUBSETS = {"finance-half": "0.5 h", "finance-2h": "2 h"}
DELAYS_S = (4, 6, 8, 10)


def printed(table: str) -> list[tuple[list[str], list[str]]]:
    """Labels and numbers of the rows of one of the paper's tables."""
    rows = paper_rows("u2", table)
    return [(list(row.labels.values()), list(row.values.values())) for row in rows]


def table1(cells: Sequence[Cell]) -> str:
    """Adaptation by subset and tokenizer, the model before it, the control from random weights."""
    general = find(cells, method="u2", split="finance", weights="any_chunk")
    rows = [["none", with_interval(general, "wer"), NONE]]
    for adapter, hours in SUBSETS.items():
        single = find(cells, method="u2", split="finance", weights=adapter)
        hybrid = find(cells, method="u2", split="finance", weights=f"{adapter}-hybrid")
        rows.append([hours, with_interval(single, "wer"), with_interval(hybrid, "wer")])
    scratch = find(cells, method="u2", split="finance", weights="finance-scratch")
    rows.append(["2 h, from random weights", with_interval(scratch, "wer"), NONE])
    return (
        caption(cells)
        + "\n\n"
        + markdown(["finance speech", "single tokenizer", "hybrid tokenizer"], rows)
    )


def paper_table1() -> str:
    numbers = {tuple(labels): values[0] for labels, values in printed("1")}
    hours = list(dict.fromkeys(labels[0] for labels, _ in printed("1")))
    rows = [[each, numbers[each, "single"], numbers[each, "hybrid"]] for each in hours]
    return markdown(["training data", "single tokenizer", "hybrid tokenizer"], rows)


def by_chunk(cells: Sequence[Cell]) -> str:
    """Chunk sizes without and with rescoring, on every split."""
    beside = {(labels[0], labels[1]): values[0] for labels, values in printed("2")}
    rows = []
    for split in SPLITS:
        for chunk in CHUNKS_MS:
            first, both = (
                find(cells, method="u2", split=split, chunk_ms=chunk, rescore=n) for n in (0, 6)
            )
            row = [
                split,
                duration(chunk),
                with_interval(first, "wer"),
                with_interval(both, "wer"),
                measure(first, "wer_formatted"),
                measure(both, "wer_formatted"),
                measure(both, "word_latency_shown_p50_ca_s", 2),
                measure(both, "word_latency_committed_p50_ca_s", 2),
                measure(first, "rtf_total", 3),
                measure(both, "rtf_total", 3),
            ]
            row += [beside.get((f"{chunk}ms", how), NONE) for how in ("without", "with")]
            rows.append(row)
    header = ["split", "chunk", "WER, first pass", "WER, rescored"]
    header += ["formatted, first pass", "formatted, rescored", "shown p50 s", "committed p50 s"]
    header += ["RTF, first pass", "RTF, rescored"]
    header += ["paper, first pass", "paper, rescored"]
    used = [c for c in cells if round(1000 * (c.chunk_s or 0)) in CHUNKS_MS]
    return caption(used) + "\n\n" + markdown(header, rows, n_text=2)


def table3(cells: Sequence[Cell]) -> str:
    """Maximum delay against errors, RTF and the time to close a segment."""
    rows = []
    for delay in DELAYS_S:
        cell = find(cells, method="u2", split="long", max_delay_s=delay)
        closing = NOT_RUN if cell is None else number(finalise_ms(cell), 0)
        rows.append(
            [f"{delay} s", with_interval(cell, "wer"), measure(cell, "rtf_total", 3), closing]
        )
    header = ["maximum delay", "WER", "RTF", "closing a segment, ms"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def paper_table3() -> str:
    rows = [[*labels, *values] for labels, values in printed("3")]
    return markdown(["maximum delay", "WER", "RTF", "finalize latency, ms"], rows)


def int8(cells: Sequence[Cell]) -> str:
    """8-bit weights beside float32."""
    rows = []
    for split in SPLITS[:2]:
        pair = [find(cells, method="u2", split=split, dtype=dtype) for dtype in ("float32", "int8")]
        wer = [cell.metrics.get("wer") if cell else None for cell in pair]
        differ = f"{wer[1] - wer[0]:+.2f}" if wer[0] is not None and wer[1] is not None else NONE
        rows.append(
            [
                split,
                *(measure(cell, "wer", 2) for cell in pair),
                differ,
                *(measure(cell, "rtf_total", 3) for cell in pair),
            ]
        )
    header = ["split", "WER, float32", "WER, int8", "difference", "RTF, float32", "RTF, int8"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def long_form(cells: Sequence[Cell]) -> str:
    """Ten minutes in one piece against the same utterances one by one."""
    rows = []
    for method, name in (("u2", "U2, 1 s"), ("offline", "offline")):
        whole, single = (find(cells, split=split, method=method) for split in ("long600", "clean"))
        alone = wer_of_parts(single) if single else None
        joined = whole.metrics.get("wer") if whole else None
        rows.append(
            [
                name,
                NOT_RUN if single is None else number(alone),
                measure(whole, "wer"),
                NONE if alone is None or joined is None else f"{joined - alone:+.1f}",
            ]
        )
    header = ["system", "WER, one by one", "WER, in one piece", "difference"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def blocks(output: Path) -> dict[str, str]:
        finance, delay, small, long = (
            read(output / name) for name in ("u2_finance", "u2_delay", "u2_int8", "u2_long")
        )
        return {
            "table1": table1(finance),
            "paper-table1": paper_table1(),
            "table2": by_chunk(read(output / "u2")),
            "table3": table3(delay),
            "paper-table3": paper_table3(),
            "int8": int8(small),
            "long": long_form(long),
        }

    return write(argv, __doc__, HERE / "README.md", blocks)


if __name__ == "__main__":
    sys.exit(main())
