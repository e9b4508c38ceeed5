"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.star.tables [--output outputs]

Reads <output>/{star_rates,star_rates_other,star_noise}/*/metrics.json into results.jsonl and
renders the blocks of this folder's README.md from it. `bench star` of commit 00f21ede measured the
rows of table 3 and of the step.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.tables import Row, Table, blocks_of, find, read, row_of, write
from streaming_asr.score.results import Result

OTHER_RATES = (5, 12, 18, 30, 50)
SHARES = (0, 10, 20, 30, 40, 50)
TRAINED = ((12, 0), (18, 0), (18, 1), (30, 0))
"""Rates and seeds of the networks for whole recordings."""
COMPRESSORS = ("star", "cif", "cnn")
WER = "WER %"
TABLES = (
    Table("figure4", {WER: ".1f"}, across="compressor"),
    Table("figure8", {WER: ".1f"}, plain=(WER,), across="r"),
    Table("table1", {WER: ".1f"}, plain=(WER,), across="noise"),
)

Cells = Sequence[Result]


def figure4(table: str, cells: Cells) -> list[Row]:
    """WER on whole recordings by compressor, and by the rate and seed of training."""
    return [
        row_of(
            table,
            {"r": str(rate), "seed": str(seed), "compressor": name.upper()},
            cell,
            {WER: "wer"},
        )
        for rate, seed in TRAINED
        for name in COMPRESSORS
        if (cell := find(cells, weights=f"{name}{rate}_{seed}", rate=rate))
    ]


def figure8(cells: Cells) -> list[Row]:
    """Networks trained at 12 and at 18 at other rates."""
    rows = []
    for trained, seed in TRAINED:
        for name in ("star", "cif"):
            for rate in OTHER_RATES:
                cell = find(cells, weights=f"{name}{trained}_{seed}", rate=rate)
                if trained != 30 and cell is not None:  # 30 ran at its own rate only
                    network = f"{name.upper()}, trained at {trained}"
                    labels = {"network": network, "seed": str(seed), "r": f"r = {rate}"}
                    rows.append(row_of("figure8", labels, cell, {WER: "wer"}))
    return rows


def table1(cells: Cells) -> list[Row]:
    """WER by the share of noise."""
    return [
        row_of(
            "table1",
            {"compressor": name.upper(), "seed": str(seed), "noise": f"{share} %"},
            cell,
            {WER: "wer"},
        )
        for name in ("cnn", "cif", "star")
        for seed in (0, 1)
        for share in SHARES
        if (cell := find(cells, weights=f"{name}18_{seed}", path=str(share)))
    ]


def rows(output: Path) -> list[Row]:
    """The rows of all that ran."""
    rates = read(output / "star_rates")
    return [
        *figure4("figure4", rates),
        *figure4("figure4_other", read(output / "star_rates_other")),
        *figure8(rates),
        *table1(read(output / "star_noise")),
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
