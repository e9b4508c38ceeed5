"""WhisperFlow's tables, next to what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.tables import Cells, Figure, Page, Table, chunk_ms, duration, paper_rows
from streaming_asr.score.results import Result

BEAM = 5
PAPER_TABLE_1 = {
    ("full", None): "pad to 30 s",
    ("none", None): "no padding",
    ("zeros", 1.0): "1 s",
    ("zeros", 5.0): "5 s",
}
PADDINGS = {
    "zeros to the context": ("full", None),
    "none": ("none", None),
    "hush word, 0.5 s": ("hush", None),
    **{
        f"{kind}, {seconds:g} s": (kind, seconds)
        for kind in ("zeros", "noise")
        for seconds in (0.5, 1.0, 2.0, 5.0)
    },
}
SEARCHES = {
    "beam 5, pruned": {"beam": BEAM, "prune": True},
    "beam 5": {"beam": BEAM, "prune": False},
    "greedy": {"beam": 1},
}
WORDS = {
    "raw_100": "samples, 0.1 s",
    "raw_500": "samples, 0.5 s",
    "raw_1000": "samples, 1 s",
}
ABLATION = {
    "UFAL's policy, padded": ("full", False),
    "hush word (HW)": ("hush", False),
    "beam pruning (BP), padded": ("full", True),
    "HW + BP": ("hush", True),
}
STREAMING = {
    "WER %": "wer",
    "final after p50 s": "word_latency_committed_p50_ca_s",
    "final after p90 s": "word_latency_committed_p90_ca_s",
    "light erasure": "light_erasure",
    "CPU s per s": "rtf_cpu",
}
"""The metric of each heading."""
WER, FINAL, CPU, WORK = "WER %", "final after p50 s", "CPU s per s", "encoder GMAC per s of audio"
PRINTED = "paper: WER / GMAC of a window"


def reduce_ratio(mean_beam: float | None, beam: int) -> float | None:
    """Return the share of decoder steps at width 1, of a search whose steps are 1 or `beam` wide.

    WhisperFlow's Table 4: mean = beam - (beam - 1) * ratio. None where nothing was decoded or the
    search is greedy.
    """
    if mean_beam is None or beam < 2:
        return None
    return (beam - mean_beam) / (beam - 1)


def work(cell: Result, _: Sequence[Result]) -> dict[str, Figure | None]:
    """The encoder's work with a padding, and what the paper's table 1 has (medium, LibriSpeech)."""
    settings = cell.document["config"]["method"]
    theirs = {row.labels["padding"]: row.values for row in paper_rows("whisperflow", "1")}
    printed = theirs.get(PAPER_TABLE_1.get((settings["padding"], settings.get("padding_s")), ""))
    flops, share = (cell.metrics.get(name) for name in ("encoder_gflops_per_s", "padding_share"))
    return {
        WORK: None if flops is None else flops / 2,
        "padding, % of frames": None if share is None else 100 * share,
        PRINTED: f"{printed['WER']} / {printed['encoder GFLOPS']}" if printed else None,
    }


def widths(cell: Result, _: Sequence[Result]) -> dict[str, Figure | None]:
    """The mean width of a search, and the ratio that follows from it; as table 4 has them."""
    settings = cell.document["config"]["method"]
    mean = cell.metrics.get("mean_beam")
    theirs = {
        int(row.labels["step length"].removesuffix("ms")): row.values
        for row in paper_rows("whisperflow", "4")
        if row.labels["model"] == "Base"
    }
    printed = theirs.get(chunk_ms(cell) or 0)
    is_table_4 = printed and settings.get("prune") and settings.get("beam") == BEAM
    return {
        "mean beam": mean,
        "ratio": reduce_ratio(mean, settings.get("beam", BEAM)),
        "paper: base, TED-LIUM 3": f"{printed['avg beam']} / {printed['reduce ratio']}"
        if printed and is_table_4
        else None,
    }


PAGE = Page(
    [
        Cells(
            "words",
            ["hush_word_words"],
            [({"word": name}, [{"weights": entry}]) for entry, name in WORDS.items()],
            STREAMING,
        ),
        Cells(
            "paddings",
            ["hush_word_paddings"],
            [
                ({"padding": name}, [{"padding": kind, "padding_s": seconds}])
                for name, (kind, seconds) in PADDINGS.items()
            ],
            {WER: "wer"},
            work,
        ),
        Cells(
            "searches",
            ["real", "hush_word"],
            [
                (
                    {"search": name, "chunk": duration(ms)},
                    [{"method": "hush_word", "padding": "hush", "chunk_ms": ms, **settings}],
                )
                for ms in (300, 500, 1000)
                for name, settings in SEARCHES.items()
            ],
            STREAMING,
            widths,
        ),
        Cells(
            "ablation",
            ["hush_word_ablation"],
            [
                ({"system": name}, [{"padding": padding, "prune": prune}])
                for name, (padding, prune) in ABLATION.items()
            ],
            {"word latency, mean s": "word_latency_committed_mean_ca_s", **STREAMING},
            widths,
        ),
    ],
    [
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
    ],
)
