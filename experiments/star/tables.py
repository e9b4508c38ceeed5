"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.star.tables [--output outputs]

Reads <output>/{star_rates,star_rates_other,star_noise}/*/metrics.json and
<output>/star_bench*.json, and rewrites the blocks of this folder's README.md. What is missing stays
as the page has it, or reads "not run".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.bench.star import verdicts
from experiments.tables import (
    NOT_RUN,
    NOTHING_RUN,
    caption,
    find,
    markdown,
    measure,
    paper_rows,
    read,
    read_json,
    with_interval,
    write,
)
from streaming_asr.score.results import Result

OTHER_RATES = (5, 12, 18, 30, 50)
SHARES = (0, 10, 20, 30, 40, 50)
STEPS = (5, 30, 97)
TRAINED = ((12, 0), (18, 0), (18, 1), (30, 0))
"""Rates and seeds of the networks for whole recordings."""
COMPRESSORS = ("star", "cif", "cnn")
BENCHED = (None, 2, 5, 10, 20)
FRAMES = (1000, 3000, 5000)


Cells = Sequence[Result]


def figure4(cells: Cells, trained: Sequence[tuple[int, int]] = TRAINED) -> str:
    """WER on whole recordings by compressor, and by the rate and seed of `trained`."""
    rows = [
        [str(rate), str(seed)]
        + [
            with_interval(find(cells, weights=f"{name}{rate}_{seed}", rate=rate), "wer")
            for name in COMPRESSORS
        ]
        for rate, seed in trained
    ]
    return caption(cells) + "\n\n" + markdown(["r", "seed", "STAR", "CIF", "CNN"], rows, 2)


def figure8(cells: Cells) -> str:
    """Networks trained at 12 and at 18 at other rates."""
    rows = [
        [f"{name.upper()}, trained at {trained}", str(seed)]
        + [
            measure(find(cells, weights=f"{name}{trained}_{seed}", rate=rate), "wer")
            for rate in OTHER_RATES
        ]
        for trained, seed in TRAINED
        if trained != 30  # which ran at its own rate only
        for name in ("star", "cif")
    ]
    return markdown(["WER %", "seed", *(f"r = {rate}" for rate in OTHER_RATES)], rows, 2)


def table1(cells: Cells) -> str:
    """WER by the share of noise, the paper's in brackets."""
    printed = paper_rows("star", "1")
    paper = {(r.labels["model"], r.labels["noise"]): r.values["WER"] for r in printed}
    rows = []
    for name, seed in ((name, seed) for name in ("cnn", "cif", "star") for seed in (0, 1)):
        label = f"S2T + {name.upper()}"
        line = [label, str(seed)]
        for share in SHARES:
            cell = find(cells, weights=f"{name}18_{seed}", path=str(share))
            line.append(f"{measure(cell, 'wer')} ({paper[label, f'{share}%']})")
        rows.append(line)
    header = ["WER % (paper)", "seed", *(f"{share} %" for share in SHARES)]
    return caption(cells) + "\n\n" + markdown(header, rows, 2)


def table3(output: Path) -> str:
    """Memory by compression, the paper's in brackets; 100 % is no compression."""
    paper = {
        (r.labels["length"], r.labels["compression"]): r.values["memory"]
        for r in paper_rows("star", "3")
        if r.labels["stage"] == "Inference"
    }
    parts = []
    for attention in ("fused", "eager"):
        content = read_json(output / f"star_bench_{attention}.json")
        rows = {row["frames"]: row["cells"] for row in content.get("memory", [])}
        for part, what in (("pass_mib", "one pass"), ("stream_mib", "what a stream holds")):
            lines = []
            for n in FRAMES:
                cells = rows.get(n)
                base = "not run" if cells is None else f"{cells[0][part]:.0f} MiB"
                line = [str(n), base]
                for i, rate in enumerate(BENCHED[1:], start=1):
                    ours = NOT_RUN
                    if cells is not None:
                        ours = f"{100 * cells[i][part] / cells[0][part]:.0f} %"
                    theirs = 100 * float(paper[str(n), f"r={rate}"]) / float(paper[str(n), "none"])
                    line.append(f"{ours} ({theirs:.0f} %)" if part == "pass_mib" else ours)
                lines.append(line)
            header = ["frames", "no compression", *(f"r = {r}" for r in BENCHED[1:])]
            if part == "pass_mib" or attention == "fused":
                parts += [f"{what}, {attention} attention:", markdown(header, lines)]
    return "\n\n".join(parts)


def steps(output: Path) -> str:
    """Milliseconds per chunk early, in the middle and late, beside recomputing everything."""
    content = read_json(output / "star_bench_fused.json")
    step = content.get("step")
    header = ["chunk", "encoder", "decoder", "ours", "recompute", "speed-up"]
    if step is None:
        return NOTHING_RUN + "\n\n" + markdown(header, [[str(k), *[NOT_RUN] * 5] for k in STEPS])
    lines = [
        [
            str(row["chunk"]),
            *(f"{row[k]:.1f}" for k in ("encode_ms", "decode_ms", "ours_ms", "recompute_ms")),
            f"{row['recompute_ms'] / row['ours_ms']:.1f}",
        ]
        for row in step["rows"]
    ]
    same = "the same tokens" if step["same_tokens"] else "NOT the same tokens"
    notes = [f"- {step['n_tokens']} tokens: {same} from both"]
    notes += [f"- {verdict}" for verdict in verdicts(step)]
    said = f"Dimensions of Whisper {step['model']}, {step['clock']}, {content['machine']['cpu']}."
    return "\n\n".join([said, markdown(header, lines), "\n".join(notes)])


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    rates = read(output / "star_rates")
    return {
        "figure4": figure4(rates),
        "figure4_other": figure4(
            read(output / "star_rates_other"), [each for each in TRAINED if each[1] == 0]
        ),
        "figure8": figure8(rates),
        "table1": table1(read(output / "star_noise")),
        "table3": table3(output),
        "step": steps(output),
    }


main = partial(write, about=__doc__, page=Path(__file__).with_name("README.md"), blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
