"""The measured tables and the figure of this folder's README, from the results of the sweeps.

    python -m experiments.u2.tables [--output outputs]

Reads <output>/{real,real_u2,u2,u2_tokens,u2_delay,u2_int8,u2_long}/*/, rewrites the blocks of this
folder's README.md and draws chunks.svg. What is missing stays as the page has it, or reads "not
run".
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.svg import drawn
from experiments.tables import (
    NONE,
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
from streaming_asr.events.log import read_log
from streaming_asr.score.results import Result

HERE = Path(__file__).parent
CHUNKS_MS = (100, 300, 500, 1000, 1500)
CURVES: dict[str, dict[str, Any]] = {
    "U2, first pass": {"method": "u2", "rescore": 0},
    "U2, rescored": {"method": "u2", "rescore": 6},
    "UFAL": {"method": "ufal"},
}
HOURS = {"half": "0.5 h", "five": "5 h"}
TOKENIZERS = ("single", "hybrid")
SEEDS = (0, 1)
DELAYS_S = (8, 12, 16, 20)
PAPER_CHUNK = {300: 240}


def printed(table: str) -> list[tuple[list[str], list[str]]]:
    """Labels and numbers of the rows of one of the paper's tables."""
    rows = paper_rows("u2", table)
    return [(list(row.labels.values()), list(row.values.values())) for row in rows]


def table1(cells: Sequence[Result]) -> str:
    """Hours of speech, tokenizer and seed; then the paper's, whose hours are thousands."""
    rows = [
        [hours, str(seed), *(with_interval(cell, "wer") for cell in pair)]
        for entry, hours in HOURS.items()
        for seed in SEEDS
        for pair in [[find(cells, weights=f"{entry}_{each}_{seed}") for each in TOKENIZERS]]
    ]
    numbers = {tuple(labels): values[0] for labels, values in printed("1")}
    for hours in dict.fromkeys(labels[0] for labels, _ in printed("1")):
        rows.append([f"paper: {hours}", NONE, *(numbers[hours, each] for each in TOKENIZERS)])
    header = ["speech", "seed", "single tokenizer", "hybrid tokenizer"]
    return caption(cells) + "\n\n" + markdown(header, rows, 2)


def by_chunk(cells: Sequence[Result]) -> str:
    """Chunk sizes without and with rescoring."""
    beside = {(labels[0], labels[1]): values[0] for labels, values in printed("2")}
    rows, used = [], []
    for chunk in CHUNKS_MS:
        first, both = (
            find(cells, method="u2", chunk_ms=chunk, rescore=n, dtype="float32") for n in (0, 6)
        )
        used += [cell for cell in (first, both) if cell is not None]
        theirs = f"{PAPER_CHUNK.get(chunk, chunk)}ms"
        rows.append(
            [
                duration(chunk),
                with_interval(first, "wer"),
                with_interval(both, "wer"),
                measure(first, "wer_formatted"),
                measure(both, "wer_formatted"),
                measure(both, "word_latency_shown_p50_ca_s", 2),
                measure(both, "word_latency_committed_p50_ca_s", 2),
                measure(first, "rtf_cpu", 2),
                measure(both, "rtf_cpu", 2),
                *(beside.get((theirs, how), NONE) for how in ("without", "with")),
            ]
        )
    header = ["chunk", "WER, first pass", "WER, rescored"]
    header += ["formatted, first pass", "formatted, rescored", "shown p50 s", "committed p50 s"]
    header += ["CPU RTF, first pass", "CPU RTF, rescored"]
    header += ["paper, first pass", "paper, rescored"]
    return caption(used) + "\n\n" + markdown(header, rows)


def finalise_ms(cell: Result) -> float | None:
    """Return the mean time of closing a segment, over all segments of the cell.

    The metric `finalise_compute_s` is that of the last step of a recording alone.
    """
    times = [
        step.compute_ns["finalise"] / 1e6
        for utterance in read_log(cell.folder / "events.jsonl").utterances
        for step in utterance.steps
        if step.compute_ns.get("finalise")
    ]
    return statistics.fmean(times) if times else None


def table3(cells: Sequence[Result]) -> str:
    """Maximum delay against errors, computing and the time to close a segment; the paper's."""
    beside = {labels[0]: values for labels, values in printed("3")}
    rows = []
    for delay in DELAYS_S:
        cell = find(cells, method="u2", max_delay_s=delay)
        closing = None if cell is None else finalise_ms(cell)
        rows.append(
            [
                f"{delay} s",
                with_interval(cell, "wer"),
                measure(cell, "rtf_cpu", 2),
                measure(cell, "wer") if cell is None else number(closing, 0),
                " / ".join(beside.get(f"{delay} s", [NONE])),
            ]
        )
    header = ["maximum delay", "WER", "CPU RTF", "closing a segment, ms"]
    header += ["paper: WER / RTF / closing, ms"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def int8(cells: Sequence[Result]) -> str:
    """8-bit weights beside float32, rescored at 1 s."""
    found = {
        dtype: find(cells, method="u2", dtype=dtype, chunk_ms=1000, rescore=6)
        for dtype in ("float32", "int8")
    }
    rows = [
        [dtype, with_interval(cell, "wer", 2), measure(cell, "rtf_cpu", 3)]
        for dtype, cell in found.items()
    ]
    used = [cell for cell in found.values() if cell is not None]
    return caption(used) + "\n\n" + markdown(["weights", "WER", "CPU RTF"], rows)


def long_form(cells: Sequence[Result]) -> str:
    """Prompts in one piece against the same prompts one by one."""
    rows = []
    for method, name in (("u2", "U2, 1 s"), ("offline", "offline")):
        of = [find(cells, method=method, join_s=join) for join in (None, 600)]
        wers = [None if cell is None else cell.metrics.get("wer") for cell in of]
        alone, joined = wers
        rows.append(
            [
                name,
                *(with_interval(cell, "wer") for cell in of),
                NONE if alone is None or joined is None else f"{joined - alone:+.1f}",
            ]
        )
    header = ["system", "WER, one by one", "WER, ten minutes in one piece", "difference"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def chunks(output: Path, folder: Path) -> bool:
    """Draw figures 2 to 4 in form: WER by chunk; the offline pass at every chunk of the others."""
    cells = read(*(output / name for name in ("real", "real_u2", "u2")))
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, wanted in (CURVES | {"offline": {"method": "offline"}}).items():
        for chunk in CHUNKS_MS:
            at = {} if name == "offline" else {"chunk_ms": chunk}
            cell = find(cells, **wanted, **at)
            if cell is not None and (wer := cell.metrics.get("wer")) is not None:
                curves.setdefault(name, []).append((chunk / 1000, wer))
    if not curves:
        return False
    from matplotlib.ticker import NullLocator

    title = "60 prompts of one speaker, Whisper tiny.en"
    with drawn(folder / "chunks.svg", "u2", title=title, x="chunk (s)", y="WER (%)") as axis:
        for name, curve in curves.items():
            style = {"linestyle": "--"} if name == "offline" else {"marker": "o"}
            axis.plot(*zip(*curve, strict=True), label=name, **style)
        axis.set_xscale("log")
        seconds = [chunk / 1000 for chunk in CHUNKS_MS]
        axis.set_xticks(seconds, [f"{s:g}" for s in seconds])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylim(bottom=0)
    return True


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    tokens, delay, long = (read(output / name) for name in ("u2_tokens", "u2_delay", "u2_long"))
    by_chunk_cells = read(*(output / name for name in ("real_u2", "u2", "u2_int8")))
    return {
        "table1": table1(tokens),
        "table2": by_chunk(by_chunk_cells),
        "table3": table3(delay),
        "int8": int8(by_chunk_cells),
        "long": long_form(long),
    }


main = partial(write, about=__doc__, page=HERE / "README.md", blocks=blocks, draw=chunks)

if __name__ == "__main__":
    sys.exit(main())
