"""ChunkFormer's tables. Programs of commit 00f21ede measured tables III and IV."""

from __future__ import annotations

from experiments.tables import Cells, Page, Table

SIDES = [(chunk, side) for chunk in (16, 64, 128, 256) for side in (32, 128)]
CONTEXTS = {
    "full context": {"left_frames": 0, "right_frames": 0},
    **{
        f"{c}, {side}, {side}": {"chunk_frames": c, "left_frames": side, "right_frames": side}
        for c, side in SIDES
    },
}
LENGTHS = {None: "one by one", 60: "a minute", 600: "ten minutes"}
WER = "WER %"
PAGE = Page(
    [
        Cells(
            "table2",
            ["chunkformer"],
            [
                (
                    {"context c, l, r": name, "recordings": length},
                    [{**frames, "data.join_s": join_s}],
                )
                for name, frames in CONTEXTS.items()
                for join_s, length in LENGTHS.items()
            ],
            {WER: "wer"},
        )
    ],
    [
        Table("table2", {WER: ".1f"}, across="recordings"),
        Table(
            "table3",
            {
                **{f"{minutes} min: MiB": ".0f" for minutes in (1, 4, 16)},
                **{f"longest in {gib:g} GiB, min": ".0f" for gib in (8, 80)},
            },
        ),
        Table(
            "table4",
            {"MiB": ".0f", "seconds": ".2f", "GFLOP": ".0f", "paper: memory / time / FLOPs": ""},
        ),
    ],
)
