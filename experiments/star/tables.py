"""STAR's tables. `bench star` of commit 00f21ede measured the rows of table 3 and of the step."""

from __future__ import annotations

from experiments.tables import Cells, Page, Table

TRAINED = ((12, 0), (18, 0), (18, 1), (30, 0))
"""Rates and seeds of the networks for whole recordings."""
WER = "WER %"


def figure4(table: str, folder: str) -> Cells:
    """WER on whole recordings by compressor, and by the rate and seed of training."""
    choices = [
        (
            {"r": str(rate), "seed": str(seed), "compressor": name.upper()},
            [{"weights": f"{name}{rate}_{seed}", "rate": rate}],
        )
        for rate, seed in TRAINED
        for name in ("star", "cif", "cnn")
    ]
    return Cells(table, [folder], choices, {WER: "wer"})


PAGE = Page(
    [
        figure4("figure4", "star_rates"),
        figure4("figure4_other", "star_rates_other"),
        Cells(
            "figure8",
            ["star_rates"],
            [
                (
                    {
                        "network": f"{name.upper()}, trained at {trained}",
                        "seed": str(seed),
                        "r": f"r = {rate}",
                    },
                    [{"weights": f"{name}{trained}_{seed}", "rate": rate}],
                )
                for trained, seed in TRAINED[:3]  # 30 ran at its own rate only
                for name in ("star", "cif")
                for rate in (5, 12, 18, 30, 50)
            ],
            {WER: "wer"},
        ),
        Cells(
            "table1",
            ["star_noise"],
            [
                (
                    {"compressor": name.upper(), "seed": str(seed), "noise": f"{share} %"},
                    [{"weights": f"{name}18_{seed}", "path": str(share)}],
                )
                for name in ("cnn", "cif", "star")
                for seed in (0, 1)
                for share in range(0, 51, 10)
            ],
            {WER: "wer"},
        ),
    ],
    [
        Table("figure4", {WER: ".1f"}, across="compressor"),
        Table("figure8", {WER: ".1f"}, plain=(WER,), across="r"),
        Table("table1", {WER: ".1f"}, plain=(WER,), across="noise"),
    ],
)
