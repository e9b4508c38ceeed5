"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.star.tables [--output outputs]

Reads <output>/{star,star_waits,star_strides,star_rates,star_noise}/*/metrics.json and
<output>/star_bench*.json and rewrites the blocks of this folder's README.md. A cell that is
missing is written as "not run".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.bench.star import verdicts
from experiments.tables import (
    NOT_RUN,
    caption,
    find,
    markdown,
    measure,
    paper_rows,
    read,
    write,
)
from streaming_asr.report.cells import Cell

WAITS = (1, 2, 3, 4, 5)
STRIDES_MS = (120, 200, 280, 360, 440)
RATES = (5, 12, 18, 30, 50)
SHARES = (0, 10, 20, 30, 40, 50)
CHUNKS_MS = (100, 200, 300, 1000)
STEPS = (5, 30, 97)
SPLITS = ("clean", "other")
COMPRESSORS = ("star", "cif", "cnn")
BENCHED = (None, 2, 5, 10, 20)
COMPARED = (("STAR", "segmenter"), ("CIF", "cif"))  # of one stage, trained for the same minutes
POINTS = ["WER % / DAL ms", *(f"wait-{k}" for k in WAITS)]
ENTRIES: dict[str, list[dict[str, Any]]] = {  # the curves of the figures of WER against DAL
    "figure5": [
        {"label": name, "weights": entry, "stride_s": None, "keep_all": False}
        for name, entry in COMPARED
    ],
    "figure6": [
        {"label": f"stride {ms} ms", "weights": "plain", "stride_s": ms / 1000} for ms in STRIDES_MS
    ],
    "figure9": [
        {
            "label": f"{name}{'-ALL' if keep_all else ''}, segments of 240 ms",
            "weights": entry,
            "stride_s": 0.24,
            "keep_all": keep_all,
        }
        for name, entry in COMPARED
        for keep_all in (False, True)
    ],
}


Cells = Sequence[Cell]


def points(cells: Cells, entries: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """WER / DAL in ms of wait-k 1 to 5, one line per network and settings."""
    lines = []
    for entry in entries:
        settings = {key: wanted for key, wanted in entry.items() if key != "label"}
        found = [find(cells, **settings, wait_k=k) for k in WAITS]
        shown = [
            NOT_RUN if c is None else f"{measure(c, 'wer')} / {measure(c, 'dal_cu_ms', 0)}"
            for c in found
        ]
        lines.append([entry["label"], *shown])
    return lines


def streaming(cells: Cells) -> str:
    """wait-k 1 and 3 by chunk and split."""
    metrics = (
        ("wer", 1),
        ("arwer_grid_ca", 1),
        ("word_latency_committed_p50_ca_s", 2),
        ("word_latency_committed_p90_ca_s", 2),
        ("dal_cu_ms", 0),
        ("dal_tokens_cu_ms", 0),
        ("compression", 1),
        ("decoder_cache_kib", 0),
        ("rtf_total", 3),
    )
    header = ["system", "chunk", "WER %", "ARWER grid %", "committed p50 s", "p90 s", "DAL ms"]
    header += ["DAL tokens ms", "frames per anchor", "cache KiB", "RTF"]
    parts = [caption(cells)]
    for split in SPLITS:
        lines = [
            [
                f"STAR wait-{k}",
                f"{chunk} ms",
                *(
                    measure(
                        find(cells, weights="any_chunk", chunk_ms=chunk, split=split, wait_k=k),
                        name,
                        digits,
                    )
                    for name, digits in metrics
                ),
            ]
            for chunk in CHUNKS_MS
            for k in (1, 3)
        ]
        parts += [f"`{split}`:", markdown(header, lines, n_text=2)]
    return "\n\n".join(parts)


def figure4(cells: Cells) -> str:
    """WER by compressor at 18 and 30, and how far STAR is ahead."""
    lines, notes = [], []
    whole = find(cells, weights="plain", rate=18)
    for rate in (18, 30):
        found = {name: find(cells, weights=f"{name}{rate}", rate=rate) for name in COMPRESSORS}
        shown = [measure(found[name], "wer") for name in COMPRESSORS]
        lines.append([str(rate), *shown, measure(whole, "wer")])
        for other in ("cif", "cnn"):
            ours, theirs = found["star"], found[other]
            if ours is not None and theirs is not None:
                ahead = float(theirs.metrics["wer"] or 0) - float(ours.metrics["wer"] or 0)
                word = "ahead of" if ahead > 0 else "behind"
                notes.append(
                    f"- r = {rate}: STAR is {word} {other.upper()} by {abs(ahead):.1f} points"
                )
    header = ["r", "STAR", "CIF", "CNN", "no compression"]
    return "\n\n".join([caption(cells), markdown(header, lines), "\n".join(notes)]).strip()


def figure8(cells: Cells) -> str:
    lines = [
        [f"{name.upper()}, trained at 18"]
        + [measure(find(cells, weights=f"{name}18", rate=rate), "wer") for rate in RATES]
        for name in ("star", "cif")
    ]
    return markdown(["WER %", *(f"r = {rate}" for rate in RATES)], lines)


def figure5(cells: Cells) -> str:
    return caption(cells) + "\n\n" + markdown(POINTS, points(cells, ENTRIES["figure5"]))


def figure6(cells: Cells) -> str:
    return caption(cells) + "\n\n" + markdown(POINTS, points(cells, ENTRIES["figure6"]))


def figure9(cells: Cells) -> str:
    return markdown(POINTS, points(cells, ENTRIES["figure9"]))


def table1(cells: Cells) -> str:
    """WER by the share of noise, the paper's in brackets."""
    printed = paper_rows("star", "1")
    paper = {(r.labels["model"], r.labels["noise"]): r.values["WER"] for r in printed}
    names = {"plain": "Vanilla S2T", "cnn18": "S2T + CNN", "cif18": "S2T + CIF"}
    names["star18"] = "S2T + STAR"
    lines = [
        [label]
        + [
            f"{measure(find(cells, weights=entry, path=str(share)), 'wer')} "
            f"({paper[label, f'{share}%']})"
            for share in SHARES
        ]
        for entry, label in names.items()
    ]
    header = ["WER % (paper)", *(f"{share} %" for share in SHARES)]
    return caption(cells) + "\n\n" + markdown(header, lines)


def table3(output: Path) -> str:
    """Memory by compression, the paper's in brackets; 100 % is no compression."""
    paper = {
        (r.labels["length"], r.labels["compression"]): r.values["memory"]
        for r in paper_rows("star", "3")
        if r.labels["stage"] == "Inference"
    }
    parts = []
    for attention in ("fused", "eager"):
        path = output / f"star_bench_{attention}.json"
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        rows = {row["frames"]: row["cells"] for row in content.get("memory", [])}
        for part, what in (("pass_mib", "one pass"), ("stream_mib", "what a stream holds")):
            lines = []
            for n in (1000, 2000, 3000, 4000, 5000):
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
    path = output / "star_bench_fused.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    step = content.get("step")
    header = ["chunk", "encoder", "decoder", "ours", "recompute", "speed-up"]
    if step is None:
        return "Not run yet.\n\n" + markdown(header, [[str(k), *[NOT_RUN] * 5] for k in STEPS])
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


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""

    def blocks(output: Path) -> dict[str, str]:
        waits, rates = read(output / "star_waits"), read(output / "star_rates")
        return {
            "star": streaming(read(output / "star")),
            "figure4": figure4(rates),
            "figure5": figure5(waits),
            "figure6": figure6(read(output / "star_strides")),
            "figure8": figure8(rates),
            "figure9": figure9(waits),
            "table1": table1(read(output / "star_noise")),
            "table3": table3(output),
            "step": steps(output),
        }

    return write(argv, __doc__, Path(__file__).parent / "README.md", blocks)


if __name__ == "__main__":
    sys.exit(main())
