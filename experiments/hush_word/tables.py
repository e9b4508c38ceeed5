"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.hush_word.tables [--output outputs]

Reads <output>/{real,hush_word,hush_word_paddings,hush_word_words,hush_word_ablation}/*/metrics.json
and rewrites the blocks of this folder's README.md. What is missing stays as the page has it, or
reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
    weights_name,
    with_interval,
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
    "WER %": ("wer", 1),
    "committed p50 s": ("word_latency_committed_p50_ca_s", 2),
    "committed p90 s": ("word_latency_committed_p90_ca_s", 2),
    "light erasure": ("light_erasure", 2),
    "CPU RTF": ("rtf_cpu", 2),
}


def reduce_ratio(mean_beam: float | None, beam: int) -> float | None:
    """Return the share of decoder steps at width 1, of a search whose steps are 1 or `beam` wide.

    WhisperFlow's Table 4: mean = beam - (beam - 1) * ratio. None where nothing was decoded or the
    search is greedy.
    """
    if mean_beam is None or beam < 2:
        return None
    return (beam - mean_beam) / (beam - 1)


def paddings(cells: Sequence[Result]) -> str:
    """Whole prompts; the paper's table 1 (medium, LibriSpeech) stands beside what it has."""
    theirs = {row.labels["padding"]: row.values for row in paper_rows("whisperflow", "1")}
    kinds = ["full", "none", "hush"]
    kinds += [f"{kind} {s:g}" for kind in ("zeros", "noise") for s in LENGTHS_S]
    lines = []
    for kind in kinds:
        name, _, seconds = kind.partition(" ")
        cell = find(cells, padding=name, padding_s=float(seconds) if seconds else None)
        values = theirs.get(PAPER_TABLE_1.get(kind, ""))
        beside = NONE if values is None else f"{values['WER']} / {values['encoder GFLOPS']}"
        lines.append([_named(kind), with_interval(cell, "wer"), _work(cell), _share(cell), beside])
    header = ["padding", "WER %", "encoder GMAC per s of audio", "padding, % of frames"]
    header += ["paper: WER / GMAC of a window"]
    return caption(cells) + "\n\n" + markdown(header, lines)


def _named(kind: str) -> str:
    name, _, seconds = kind.partition(" ")
    full = {"full": "zeros to the context", "hush": "hush word, 0.5 s"}
    return f"{name}, {seconds} s" if seconds else full.get(name, name)


def _work(cell: Result | None) -> str:
    if cell is None:
        return NOT_RUN
    flops = cell.metrics.get("encoder_gflops_per_s")
    return number(None if flops is None else flops / 2, 2)


def _share(cell: Result | None) -> str:
    if cell is None:
        return NOT_RUN
    share = cell.metrics.get("padding_share")
    return number(None if share is None else 100 * share)


def searches(cells: Sequence[Result]) -> str:
    """By chunk: the pruned search, the full one and the greedy one; widths as in table 4."""
    theirs = {
        int(row.labels["step length"].removesuffix("ms")): row.values
        for row in paper_rows("whisperflow", "4")
        if row.labels["model"] == "Base"
    }
    heard = [cell for cell in cells if _is_trained_word(cell)]
    lines, used = [], []
    for chunk in CHUNKS_MS:
        for name, wanted in SEARCHES.items():
            cell = find(heard, method="hush_word", chunk_ms=chunk, **wanted)
            used += [] if cell is None else [cell]
            figures = [with_interval(cell, *each) for each in STREAMING.values()]
            values = theirs.get(chunk) if wanted.get("prune") else None
            beside = NONE if values is None else f"{values['avg beam']} / {values['reduce ratio']}"
            lines.append([name, duration(chunk), *figures, _beam(cell, wanted), beside])
    header = ["search", "chunk", *STREAMING, "mean beam / ratio", "paper: base, TED-LIUM 3"]
    return caption(used) + "\n\n" + markdown(header, lines, 2)


def _is_trained_word(cell: Result) -> bool:
    return cell.document["config"]["method"].get("padding") == "hush"


def _beam(cell: Result | None, wanted: Mapping[str, Any]) -> str:
    """The ratio follows from the mean: decoder steps are 1 or 5 wide."""
    if cell is None:
        return NOT_RUN
    mean = cell.metrics.get("mean_beam")
    return f"{number(mean, 2)} / {number(reduce_ratio(mean, wanted.get('beam', BEAM)), 2)}"


def words(cells: Sequence[Result]) -> str:
    """Hush words of other forms, each trained as long as the others."""
    by_name = {weights_name(cell): cell for cell in cells}
    lines = [
        [name, *(with_interval(by_name.get(entry), *each) for each in STREAMING.values())]
        for entry, name in WORDS.items()
    ]
    return caption(cells) + "\n\n" + markdown(["word", *STREAMING], lines)


def ablation(cells: Sequence[Result]) -> str:
    """Best effort; the paper has a figure without numbers."""
    lines = []
    for name, (padding, prune, pipeline) in ABLATION.items():
        cell = find(cells, padding=padding, prune=prune, pipeline=pipeline)
        latency = measure(cell, "word_latency_committed_mean_ca_s", 2)
        figures = [with_interval(cell, *each) for each in STREAMING.values()]
        lines.append([name, latency, _beam(cell, {}), *figures])
    header = ["system", "word latency, mean s", "mean beam / ratio", *STREAMING]
    return caption(cells) + "\n\n" + markdown(header, lines)


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    return {
        "paddings": paddings(read(output / "hush_word_paddings")),
        "words": words(read(output / "hush_word_words")),
        "searches": searches(read(output / "real", output / "hush_word")),
        "ablation": ablation(read(output / "hush_word_ablation")),
    }


main = partial(write, about=__doc__, page=PAGE, blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
