"""The measured tables of real Whisper on real speech, from the results of the protocol.

    python -m experiments.real.tables [--output outputs] [--readme README.md]

Reads <output>/real_other/*/metrics.json (LibriSpeech test-other), real_clean (dev-clean),
real_native (Common Voice), real_other_base (test-other, base), {real,real_u2,star,
chunkformer_stream} (prompts), real_voices, real_speechocean762, real_variants, real_detector,
real_base and real_all, and rewrites the blocks of these names in this folder's results.md; with
--readme also the block `real` of that file, of real_other a row for each method at 1 s, intervals
in columns of their own. What is missing stays as the page has it, or reads "not run".
Rows that were never run are left out.
`real_other_within` and pareto_other.svg are made of the rows of real_other as the page then has
them. Differences from offline are paired (`score compare`); p is corrected over all rows that the
page then has, but for the variants.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.tables import (
    NONE,
    NOT_RUN,
    NOTHING_RUN,
    block_of,
    caption,
    duration,
    find,
    markdown,
    measure,
    read,
    rows_of,
    with_interval,
    write,
)
from streaming_asr.metrics.intervals import holm
from streaming_asr.score.compare import compare, read_runs
from streaming_asr.score.compare import table as differences
from streaming_asr.score.results import Result

PAGE = Path(__file__).with_name("results.md")
SYSTEMS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "offline, beam 5": [{"method": "offline", "beam": 5}],
    "offline, greedy": [{"method": "offline", "beam": 0}],
    "WhisperRT, greedy": [{"method": "whisperrt", "beam": 0}],
    "WhisperRT, beam 3": [{"method": "whisperrt", "beam": 3}],
    "Simul-Whisper, detector": [
        {"method": "simul_whisper", "weights": "any_chunk", "truncation_threshold": "dev"},
        {"method": "simul_whisper", "weights": "base.pt"},  # the authors'
    ],
    "Simul-Whisper, no detector": [
        {"method": "simul_whisper", "weights": "none", "truncation": None},
        {"method": "simul_whisper", "truncation": "never"},
    ],
    "UFAL": [{"method": "ufal"}],
    "hush word": [{"method": "hush_word", "padding": "hush", "beam": 5, "prune": True}],
    "U2, first pass": [{"method": "u2", "rescore": 0, "lm": "none"}],
    "U2, rescored": [{"method": "u2", "rescore": 6, "lm": "none"}],
    "U2, rescored, language model": [{"method": "u2", "rescore": 6, "lm": "auto"}],
    "STAR, wait-3": [{"method": "star", "wait_k": 3}],
    "ChunkFormer, look-ahead 320 ms": [
        {"method": "chunkformer", "mode": "stream", "right_frames": 4}
    ],
    "Simul-Whisper, last word always dropped": [
        {"method": "simul_whisper", "truncation": "always"}
    ],
    "re-encoding": [{"method": "reencode"}],
    "short encoder, zeros": [{"method": "hush_word", "padding": "zeros"}],
    "short encoder, full padding": [{"method": "hush_word", "padding": "full"}],
    "causal mask only": [{"method": "whisperrt", "weights": "none"}],
}
"""By the name of a system: what its cell is; of several the first that there is."""
OFFLINE, GREEDY, WHISPERRT, BEAM, DETECTOR, NEVER, UFAL, HUSH, *OTHERS = SYSTEMS
FIRST, U2, U2_LM, STAR, CHUNKFORMER, ALWAYS, REENCODE, ZEROS, FULL, MASK = OTHERS
METHODS = (WHISPERRT, BEAM, DETECTOR, NEVER, UFAL, HUSH, FIRST, U2, U2_LM, STAR)
ROWS = (
    (OFFLINE, None),
    (GREEDY, None),
    (WHISPERRT, 100),
    *((system, 300) for system in METHODS),
    (CHUNKFORMER, 320),
    (HUSH, 500),
    (CHUNKFORMER, 960),
    *((system, 1000) for system in METHODS),
)
MANY_VOICES = tuple(
    (system, chunk) for system, chunk in ROWS if chunk not in (100, 500) and system != DETECTOR
)
OTHER_VOICES = tuple((system, chunk) for system, chunk in MANY_VOICES if system != FIRST)
OTHER_BASE = (
    (OFFLINE, None),
    (GREEDY, None),
    *((system, 300) for system in (WHISPERRT, BEAM, NEVER, UFAL)),
    *((system, 1000) for system in (WHISPERRT, BEAM, NEVER, UFAL, HUSH)),
)
VARIANTS = (
    (OFFLINE, None),
    (GREEDY, None),
    *((system, chunk) for chunk in (300, 1000) for system in (NEVER, ALWAYS, MASK)),
    *((system, 1000) for system in (REENCODE, ZEROS, FULL)),
)
DETECTORS = tuple((system, chunk) for chunk in (300, 1000) for system in (NEVER, DETECTOR, ALWAYS))
SHORT = (HUSH, UFAL, BEAM, WHISPERRT, NEVER)
TRAINED_H = {WHISPERRT: 1.7, BEAM: 1.7, HUSH: 0.3}
"""Hours of one core that the weights of tiny.en learned, by the pages of their trainings."""
SHORT_COLUMNS = {
    "WER % [95 % interval]": ("wer", 1),
    "half of the words final within, s": ("word_latency_committed_p50_ca_s", 2),
    "CPU s per s of audio": ("rtf_cpu", 2),
}
"""By heading: the metric and its digits."""
COLUMNS = {
    "WER %": ("wer", 1),
    "committed p50 s": ("word_latency_committed_p50_ca_s", 2),
    "committed p90 s": ("word_latency_committed_p90_ca_s", 2),
    "coverage %": ("word_latency_coverage", 0),
    "erasure": ("normalised_erasure", 2),
    "CPU RTF": ("rtf_cpu", 2),
    "encoder GFLOP/s": ("encoder_gflops_per_s", 1),
}
WER, FINAL = "WER %", "committed p50 s"
MANY_COLUMNS = {
    WER: COLUMNS[WER],
    "ARWER grid %": ("arwer_grid_ca", 1),
    "first shown s": ("word_latency_shown_p50_ca_s", 2),
    **COLUMNS,
}
"""Those of the first table."""
PLAIN = ("coverage %",)
"""Columns without intervals."""
WITHIN = {WER: (15, 20, 25), FINAL: (1.2, 1.5, 2.0)}
UNCORRECTED, HOLM = "p uncorrected", "p"
COMPARED = ("over offline, beam 5, points", "differ", UNCORRECTED, HOLM)
CORPORA = ("real_clean", "real_native", "real_voices", "real_speechocean762")
COMPARED_BLOCKS = ("real_other", *CORPORA, "real_other_base", "real")
OTHER_BLOCKS = ("real_variants", "real_detector", "real_base", "real_all")
COMPARED_MS = (300, 320, 960, 1000)

LANGUAGES = ("en", "fr", "es", "it", "ru")
BASE = (OFFLINE, GREEDY, WHISPERRT, NEVER, UFAL)
BASE_ENGLISH = (*BASE, HUSH, ZEROS, FULL)
WHOLE = ("prompts", "speechocean762")

Rows = Sequence[tuple[str, int | None]]


def cell(cells: Sequence[Result], system: str, chunk: int | None) -> Result | None:
    """The finished cell of a system at a chunk in ms, None for any chunk."""
    at = {} if chunk is None else {"chunk_ms": chunk}
    found = (find(cells, **wanted, **at) for wanted in SYSTEMS[system])
    return next((each for each in found if each is not None), None)


def over_offline(cells: Sequence[Result], rows: Rows) -> dict[Path, tuple[str, ...]]:
    """By folder of a cell: its WER minus that of offline with beam 5, in points with the interval,
    in how many of the clusters the two differ, its p uncorrected and by Holm over these cells."""
    offline = cell(cells, OFFLINE, None)
    found = [cell(cells, system, chunk) for system, chunk in rows if chunk in COMPARED_MS]
    others = list(dict.fromkeys(each.folder for each in found if each is not None))
    if offline is None or not others:
        return {}
    comparisons = compare(read_runs([str(folder) for folder in (offline.folder, *others)]))
    wers = [row for row in differences(comparisons) if row["metric"] == "wer"]
    return {
        each.run.folder: (
            f"{row['difference']:+.1f}" + _bounds(row["interval"]),
            str(row["n_differ"]),
            NONE if row["p_value"] is None else f"{row['p_value']:.5f}",
            _shown(row["p_holm"]),
        )
        for each, row in zip(comparisons, wers, strict=True)
        if "difference" in row
    }


def _shown(p_value: float | None) -> str:
    return NONE if p_value is None else f"{p_value:.4f}"


def _bounds(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"


def table(
    cells: Sequence[Result],
    rows: Rows,
    *,
    compared: bool = True,
    columns: Mapping[str, tuple[str, int]] = COLUMNS,
) -> str:
    """The rows as Markdown, under what was measured and where."""
    against = over_offline(cells, rows) if compared else {}
    shown, used = [], []
    for system, chunk in rows:
        found = cell(cells, system, chunk)
        if found is not None:
            used.append(found)
        line = [
            system,
            duration(chunk),
            *_measured(found, columns),
        ]
        if compared:
            none = (NOT_RUN if found is None else NONE,) * len(COMPARED)
            line += none if found is None else against.get(found.folder, none)
        shown.append(line)
    header = ["system", "chunk", *columns, *(COMPARED if compared else [])]
    return _under_caption(used, header, shown)


def _measured(found: Result | None, columns: Mapping[str, tuple[str, int]] = COLUMNS) -> list[str]:
    """The figures of a cell in these columns."""
    return [
        (measure if name in PLAIN else with_interval)(found, *each)
        for name, each in columns.items()
    ]


def _under_caption(
    cells: Sequence[Result], header: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """The rows under what was measured and where; without any cell only that."""
    return caption(cells) + (f"\n\n{markdown(header, rows, 2)}" if cells else "")


def prompts(output: Path) -> list[Result]:
    """The finished cells on the prompts of the protocol."""
    return read(*(output / name for name in ("real", "real_u2", "star", "chunkformer_stream")))


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    variants = read(output / "real_variants", output / "real")
    return {
        "real_other": table(read(output / "real_other"), MANY_VOICES, columns=MANY_COLUMNS),
        **{name: table(read(output / name), OTHER_VOICES) for name in CORPORA},
        "real_other_base": table(read(output / "real_other_base"), OTHER_BASE),
        "real": table(prompts(output), ROWS),
        "real_variants": table(variants, VARIANTS),
        "real_detector": table(read(output / "real_detector"), DETECTORS, compared=False),
        "real_base": base(output),
        "real_all": whole(output),
    }


def derived(page: str) -> dict[str, str]:
    """The blocks of the page that are made of its blocks."""
    many = {name: block_of(page, name) for name in COMPARED_BLOCKS}
    corrected = {name: by_holm(block) for name, block in many.items()}
    others = {name: block_of(page, name) for name in OTHER_BLOCKS}
    shown = {name: measured_only(block) for name, block in (corrected | others).items()}
    return shown | {"real_other_within": within(shown["real_other"])}


def measured_only(block: str) -> str:
    """The table without rows that were not run; in the others a dash for what was not measured."""
    rows = [list(row.values()) for row in rows_of(block)]
    ran = [row for row in rows if set(row[2:]) - {NOT_RUN, NONE}]
    if not ran:
        return block
    shown = [[NONE if figure == NOT_RUN else figure for figure in row] for row in ran]
    return f"{block.partition(chr(10))[0]}\n\n{markdown(list(rows_of(block)[0]), shown, 2)}"


def by_holm(block: str) -> str:
    """The table with p corrected over all its rows, measured together or not."""
    rows = rows_of(block)
    tested = [row for row in rows if row[UNCORRECTED] != NOT_RUN and row[COMPARED[0]] != NONE]
    p_values = [None if row[UNCORRECTED] == NONE else float(row[UNCORRECTED]) for row in tested]
    for row, p_value in zip(tested, holm(p_values), strict=True):
        row[HOLM] = _shown(p_value)
    if not tested:
        return block
    lines = [list(row.values()) for row in rows]
    return f"{block.partition(chr(10))[0]}\n\n{markdown(list(rows[0]), lines, 2)}"


def within(block: str) -> str:
    """Which row of a table is soonest within so many errors, and which errs least within so much
    latency.

    It takes the table as printed, since no folder of outputs holds all of its rows."""
    rows = [
        {WER: _number(row[WER]), FINAL: _number(row[FINAL]), "row": row}
        for row in rows_of(block)
        if row["system"] not in (OFFLINE, GREEDY) and not {row[WER], row[FINAL]} & {NOT_RUN, NONE}
    ]
    if not rows:
        return NOTHING_RUN
    lines = []
    for limited, other in ((WER, FINAL), (FINAL, WER)):
        for limit in WITHIN[limited]:
            inside = [each for each in rows if each[limited] <= limit]
            best = min(inside, key=lambda each: (each[other], each[limited]), default=None)
            shown = ("system", "chunk", WER, FINAL)
            words = "{:g} % of the words wrong" if limited == WER else "final after {:g} s"
            lines.append(
                [words.format(limit), *(best["row"][name] if best else NONE for name in shown)]
            )
    header = ["at most", "best", "chunk", WER, FINAL]
    return f"{block.partition(chr(10))[0]}\n\n{markdown(header, lines, 2)}"


def _number(figure: str) -> float:
    """A figure without its interval."""
    return float(figure.partition(" ")[0])


_FIGURE = re.compile(r"-?[0-9.]+")


def cells_of(block: str) -> list[Result]:
    """The rows of a table as printed, each as a cell with what a picture shows of it."""
    found = []
    for row in rows_of(block):
        shown = {COLUMNS[name][0]: row[name] for name in (WER, FINAL)}
        if set(shown.values()) & {NOT_RUN, NONE}:
            continue
        bounds = {name: _FIGURE.findall(figure)[1:] for name, figure in shown.items()}
        found.append(
            Result(
                folder=Path(row["system"], row["chunk"]),
                name=f"{row['system']} {row['chunk']}",
                method=SYSTEMS[row["system"]][0]["method"],
                variant=row["system"].partition(", ")[2],
                chunk_s=None if row["chunk"] == "whole" else _number(row["chunk"]) / 1000,
                split="",
                metrics={name: _number(figure) for name, figure in shown.items()},
                document={
                    "intervals": {
                        "metrics": {name: list(map(float, each)) for name, each in bounds.items()}
                    }
                },
            )
        )
    return found


def picture(output: Path, folder: Path) -> bool:
    """Draws the page's table of test-other; whether there was a row to draw."""
    cells = cells_of(block_of((folder / PAGE.name).read_text(encoding="utf-8"), "real_other"))
    if not cells:
        return False
    from experiments.figures.draw import draw_cells

    draw_cells(cells, folder / "pareto_other.svg")
    return True


def base(output: Path) -> str:
    """Whisper base on prompts of each language at 1 s."""
    systems = {name: BASE if name != "en" else BASE_ENGLISH for name in LANGUAGES}
    return _by_data(read(output / "real_base"), "language", "language", systems)


def whole(output: Path) -> str:
    """The offline model and WhisperRT at 300 ms on all clips of a corpus."""
    systems = dict.fromkeys(WHOLE, (OFFLINE, GREEDY, WHISPERRT))
    return _by_data(read(output / "real_all"), "speech", "name", systems)


def _by_data(
    cells: Sequence[Result], heading: str, key: str, systems: Mapping[str, Sequence[str]]
) -> str:
    """Rows of systems for each value that `key` has in the cells' data."""
    rows = []
    for value, names in systems.items():
        heard = [each for each in cells if each.document["config"]["data"].get(key) == value]
        for name in names:
            rows.append([value, name, *_measured(cell(heard, name, None))])
    return _under_caption(cells, [heading, "system", *COLUMNS], rows)


def short(output: Path) -> str:
    """The table for another page: the baseline and each method once at 1 s, many voices, by WER."""
    cells = read(output / "real_other")
    baseline = GREEDY if cell(cells, OFFLINE, None) is None else OFFLINE
    methods = {system: cell(cells, system, 1000) for system in SHORT}

    def errors(system: str) -> float:
        found = methods[system]
        return math.inf if found is None else found.metrics["wer"]

    order = sorted(SHORT, key=errors)
    rows = {baseline: cell(cells, baseline, None), **{name: methods[name] for name in order}}
    shown = [
        [
            system,
            str(TRAINED_H.get(system, NONE)),
            *(with_interval(found, *each) for each in SHORT_COLUMNS.values()),
        ]
        for system, found in rows.items()
    ]
    used = [found for found in rows.values() if found is not None]
    headings = ["method", "our training, core hours", *SHORT_COLUMNS]
    return caption(used) + (f"\n\n{markdown(headings, shown)}" if used else "")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return write(
        argv,
        __doc__,
        page=PAGE,
        blocks=blocks,
        shared="real",
        short=short,
        derived=derived,
        draw=picture,
    )


if __name__ == "__main__":
    sys.exit(main())
