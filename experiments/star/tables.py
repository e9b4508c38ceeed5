"""STAR's tables. `bench star` of commit 00f21ede measured the rows of table 3 and of the step."""

from __future__ import annotations

from experiments.tables import Cells, Page, Table

TRAINED = ((12, 0), (18, 0), (18, 1), (30, 0))
"""Rates and seeds of the networks for whole recordings."""
WER = "WER %"


PAGE = Page(
    [
        Cells(
            "figure4",
            ["star_rates"],
            [
                (
                    {"r": str(rate), "seed": str(seed)},
                    [{"weights": f"star{rate}_{seed}", "rate": rate}],
                )
                for rate, seed in TRAINED
            ],
            {WER: "wer"},
        ),
        Cells(
            "figure8",
            ["star_rates"],
            [
                (
                    {
                        "network": f"trained at {trained}",
                        "seed": str(seed),
                        "r": f"r = {rate}",
                    },
                    [{"weights": f"star{trained}_{seed}", "rate": rate}],
                )
                for trained, seed in TRAINED[:3]  # 30 ran at its own rate only
                for rate in (5, 12, 18, 30, 50)
            ],
            {WER: "wer"},
        ),
        Cells(
            "table1",
            ["star_noise"],
            [
                (
                    {"seed": str(seed), "noise": f"{share} %"},
                    [{"weights": f"star18_{seed}", "path": str(share)}],
                )
                for seed in (0, 1)
                for share in range(0, 51, 10)
            ],
            {WER: "wer"},
        ),
    ],
    [
        Table("figure4", {WER: ".1f"}),
        Table("figure8", {WER: ".1f"}, plain=(WER,), across="r"),
        Table("table1", {WER: ".1f"}, plain=(WER,), across="noise"),
    ],
)
