"""The tables of real Whisper on real speech, from the results of the protocol.

Renders pareto_other.svg, the table of README.md and those of docs/choosing.md too, with the
settings as they are typed. Differences from offline are paired; p is corrected over all
rows of a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.tables import (
    NONE,
    Cells,
    Figure,
    Page,
    Row,
    Table,
    chunk_ms,
    duration,
    find,
    markdown,
    method_name,
    paired,
    render,
    text_of,
)
from streaming_asr.metrics.intervals import holm
from streaming_asr.score.results import Result

ROOT = Path(__file__).parents[2]
SYSTEMS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "offline, beam 5": [{"method": "offline", "beam": 5}],
    "offline, greedy": [{"method": "offline", "beam": 0}],
    "WhisperRT, greedy": [{"method": "whisperrt", "beam": 0}],
    "WhisperRT, beam 3": [{"method": "whisperrt", "beam": 3}],
    "Simul-Whisper, detector": [
        {"method": "simul_whisper", "weights": "any_chunk"},
        {"method": "simul_whisper", "weights": "base.pt"},  # the authors'
    ],
    "Simul-Whisper, no detector": [
        {"method": "simul_whisper", "weights": "none", "truncation": None},
        {"method": "simul_whisper", "truncation": "never"},
    ],
    "UFAL": [{"method": "ufal"}],
    "hush word": [{"method": "hush_word", "padding": "hush", "beam": 5, "prune": True}],
    "U2, first pass": [{"method": "u2", "rescore": 0, "lm": "none"}],
    "U2, rescored": [
        {"method": "u2", "rescore": 6, "lm": "none"},
        {"method": "u2", "rescore": None, "lm": "none"},  # the default
    ],
    "U2, rescored, language model": [{"method": "u2", "rescore": 32, "lm": "auto"}],
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
TYPED = {
    OFFLINE: "method=offline method.beam=5",
    HUSH: "method=hush_word",
    UFAL: "method=ufal",
    BEAM: "method=whisperrt method.beam=3",
    WHISPERRT: "method=whisperrt",
    NEVER: "method=simul_whisper method.truncation=never",
}
"""The settings of a row of README and docs/choosing.md, as they are typed."""
COSTS = (
    (OFFLINE, None),
    *((system, chunk) for chunk in (300, 1000) for system in TYPED if system != OFFLINE),
)
"""The rows of one run on a machine that did nothing else."""
METRICS = {
    "WER %": "wer",
    "errors visible while speaking %": "arwer_grid_ca",
    "visible after p50 s": "word_latency_shown_p50_ca_s",
    "final after p50 s": "word_latency_committed_p50_ca_s",
    "final after p90 s": "word_latency_committed_p90_ca_s",
    "words right %": "word_latency_coverage",
    "words rewritten per word": "normalised_erasure",
    "CPU s per s": "rtf_cpu",
    "encoder GFLOP/s": "encoder_gflops_per_s",
    "B-WER %": "b_wer",
    "U-WER %": "u_wer",
    "words per minute": "words_on_nonspeech_per_min",
}
"""The metric of each heading."""
WER, FINAL, CPU = "WER %", "final after p50 s", "CPU s per s"
OVER, DIFFER, UNCORRECTED, HOLM = "over offline, beam 5, points", "differ", "p uncorrected", "p"
COMPARED_MS = (300, 320, 960, 1000)

LANGUAGES = ("en", "fr", "es", "it", "ru")
BASE = (OFFLINE, GREEDY, WHISPERRT, NEVER, UFAL)
BASE_ENGLISH = (*BASE, HUSH, ZEROS, FULL)
WHOLE = ("prompts", "speechocean762")
SIX = (GREEDY, WHISPERRT, DETECTOR, UFAL, HUSH, U2)
LISTS = (0, 10, 100)  # names in the prompts of the manifests names-N and quiet-N
PRECISIONS = {
    f"{n}, {dtype}": {"path": "names-0", "batch": n, "dtype": dtype}
    for n in (1, 16)
    for dtype in ("float32", "int8")
}
SETS = {
    "real_clean": "dev-clean",
    "real_native": "Common Voice",
    "real": "prompts",
    "real_voices": "`voices`",
    "real_speechocean762": "speechocean762",
}
"""The sets of one table each in the data, and together on the page."""


def is_on_the_page(row: Row) -> bool:
    """Whether the table of all sets shows the row; of the weights trained for an hour 1 s only."""
    system, chunk = row.labels.values()
    if system in (CHUNKFORMER, FIRST, DETECTOR) or chunk == "500 ms":
        return False
    return chunk != "300 ms" or system not in (U2, U2_LM, STAR)


COMPARED = {
    WER: ".1f",
    FINAL: ".2f",
    "final after p90 s": ".2f",
    CPU: ".2f",
    OVER: "+.1f",
}
LATE = ("final after p90 s",)
TABLES = (
    Table(
        "real_other", COMPARED, plain=LATE, takes=lambda row: row.labels["system"] != CHUNKFORMER
    ),
    Table("sets", {WER: ".1f"}, across="table", sources=SETS, takes=is_on_the_page),
    Table("real_other_base", COMPARED, plain=LATE),
    Table(
        "real_variants",
        {WER: ".1f", FINAL: ".2f", CPU: ".2f"},
        plain=(FINAL,),
        takes=lambda row: row.labels["system"] in (ALWAYS, MASK, REENCODE, ZEROS, FULL),
    ),
    Table("real_detector", {WER: ".1f", FINAL: ".2f"}, plain=(FINAL,)),
    Table("real_base", {WER: ".1f"}, across="language"),
    Table("names", {"B-WER %": ".1f", "U-WER %": ".1f", WER: ".1f"}, plain=(WER,), across="names"),
    Table("quiet", {"words per minute": ".1f"}, across="names"),
    Table("precision", {WER: ".1f"}, across="batch, dtype"),
)

# -- rows -----------------------------------------------------------------------------------


def over_offline(cell: Result, cells: Sequence[Result]) -> dict[str, Figure | None]:
    """A stream's WER minus that of offline with beam 5, in points with the interval, in how many of
    the clusters the two differ, and its p uncorrected."""
    offline = find(cells, **SYSTEMS[OFFLINE][0])
    if offline is None or method_name(cell) == "offline" or chunk_ms(cell) not in COMPARED_MS:
        return {}
    row = paired(offline, cell)
    if "difference" not in row:
        return {}
    interval = row["interval"]
    return {
        OVER: [row["difference"], *interval] if interval else row["difference"],
        DIFFER: row["n_differ"],
        UNCORRECTED: row["p_value"],
    }


def of_systems(
    table: str, choices: Sequence[tuple[str, int | None]], folders: Sequence[str] = ()
) -> Cells:
    """The rows of systems at their chunks in ms, None for any chunk."""
    return Cells(
        table,
        folders or [table],
        [
            (
                {"system": system, "chunk": duration(ms)},
                [{**each, **({} if ms is None else {"chunk_ms": ms})} for each in SYSTEMS[system]],
            )
            for system, ms in choices
        ],
        METRICS,
        over_offline,
    )


def by_value(
    table: str,
    heading: str,
    values: Mapping[str, Mapping[str, Any]],
    systems: Sequence[str],
    *more: str,
) -> Cells:
    """The rows of systems for each value, by its label: what `find` looks for, also in `more`."""
    choices = [
        ({heading: label, "system": name}, [{**value, **each} for each in SYSTEMS[name]])
        for label, value in values.items()
        for name in systems
    ]
    return Cells(table, [table, *more], choices, METRICS)


CELLS = [
    of_systems("real_other", MANY_VOICES),
    *(of_systems(name, OTHER_VOICES) for name in SETS if name != "real"),
    of_systems("real", ROWS, ["real", "real_u2", "star", "chunkformer_stream"]),
    of_systems("real_other_base", OTHER_BASE),
    of_systems("real_cost", COSTS),
    of_systems("real_variants", VARIANTS, ["real_variants", "real"]),
    of_systems("real_detector", DETECTORS),
    by_value("real_base", "language", {n: {"data.language": n} for n in LANGUAGES}, BASE_ENGLISH),
    by_value("real_all", "speech", {name: {"data.name": name} for name in WHOLE}, BASE[:3]),
    by_value("names", "names", {f"{n} names": {"path": f"names-{n}"} for n in LISTS}, SIX),
    by_value("quiet", "names", {f"{n} names": {"path": f"quiet-{n}"} for n in LISTS}, SIX),
    by_value("precision", "batch, dtype", PRECISIONS, SIX, "names"),
]


# -- the page -------------------------------------------------------------------------------


def with_holm(rows: Sequence[Row]) -> list[Row]:
    """The rows with p corrected over all rows of their table."""
    result = list(rows)
    for table in dict.fromkeys(row.table for row in rows):
        places = [at for at, row in enumerate(rows) if row.table == table and OVER in row.figures]
        p_values = holm([rows[at].value(UNCORRECTED) for at in places])
        for at, p_value in zip(places, p_values, strict=True):
            if p_value is not None:
                result[at] = replace(rows[at], figures={**rows[at].figures, HOLM: p_value})
    return result


def _value(row: Row, heading: str) -> float:
    value = row.value(heading)
    return math.inf if value is None else value


def in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows with p corrected; those of the sets in one order of the systems."""
    places = {(system, duration(chunk)): at for at, (system, chunk) in enumerate(ROWS)}
    return sorted(
        with_holm(rows),
        key=lambda row: places.get(tuple(row.labels.values()), 0) if row.table in SETS else 0,
    )


def with_p(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of test-other with the largest p of their differences."""
    blocks = {}
    for table in TABLES:
        p_values = [row.value(HOLM) for row in rows if row.table == table.name]
        if table.name.startswith("real_other") and (p_values := [p for p in p_values if p]):
            line = f"The p of the differences is {max(p_values):.4f} at most."
            blocks[table.name] = f"{render(table, rows)}\n\n{line}"
    return blocks


def cells_of(rows: Sequence[Row]) -> list[Result]:
    """The rows of the compared methods on test-other, each as a cell for the picture."""
    metric_of = {name: METRICS[name] for name in (WER, FINAL)}
    return [
        Result(
            folder=Path(*row.labels.values()),
            name=" ".join(row.labels.values()),
            method=SYSTEMS[row.labels["system"]][0]["method"],
            variant=row.labels["system"].partition(", ")[2],
            chunk_s=None
            if row.labels["chunk"] == "whole"
            else float(row.labels["chunk"].partition(" ")[0]) / 1000,
            split="",
            metrics={metric: row.value(name) for name, metric in metric_of.items()},
            document={
                "intervals": {
                    "metrics": {
                        metric: list(figure[1:])
                        for name, metric in metric_of.items()
                        if isinstance(figure := row.figures[name], Sequence)
                    }
                }
            },
        )
        for row in TABLES[0].of(rows)
        if set(metric_of) <= set(row.figures) and row.labels["system"] in TYPED
    ]


HIGHEST = 40.0  # WER (%) of the picture's axis


def picture(rows: Sequence[Row], folder: Path) -> None:
    """Draws the table of test-other."""
    if cells := cells_of(rows):
        from experiments.figures.draw import draw_cells

        draw_cells(cells, folder / "pareto_other.svg", HIGHEST)


def typed(row: Row) -> str:
    """The settings of a row as they are typed, with its chunk."""
    chunk = row.labels["chunk"]
    length = {"1000 ms": " chunk=1s", "whole": ""}.get(chunk, f" chunk={chunk.replace(' ', '')}")
    return f"`{TYPED[row.labels['system']]}{length}`"


def cost(row: Row, rows: Sequence[Row]) -> str:
    """The CPU time of a row: of tiny.en that of the run of all rows, where there is one."""
    same = [each for each in rows if each.table == "real_cost" and each.labels == row.labels]
    return text_of(same[0] if same and row.table == "real_other" else row, CPU, PLAIN)


def short(rows: Sequence[Row]) -> dict[str, str]:
    """README's table: offline and each method once at 1 s, on three sets of many speakers."""
    by_set = {"real_other": "test-other", "real_clean": "dev-clean", "real_native": "Common Voice"}
    row_of_key = {(row.table, *row.labels.values()): row for row in rows if row.table in by_set}
    many = [
        row_of_key[key]
        for system in TYPED
        if (key := ("real_other", system, "whole" if system == OFFLINE else "1000 ms"))
        in row_of_key
    ]
    lines = []
    for row in sorted(many, key=lambda row: _value(row, WER)):
        places = [row_of_key.get((table, *row.labels.values())) for table in by_set]
        lines.append(
            [
                typed(row),
                *(NONE if each is None else _wer_over_offline(each) for each in places),
                "the end" if row.labels["system"] == OFFLINE else text_of(row, FINAL, PLAIN),
                cost(row, rows),
            ]
        )
    sets = [f"WER %, {name}" for name in by_set.values()]
    return {"real": markdown(["settings", *sets, "final after, s", "CPU s per s"], lines)}


PLAIN = replace(TABLES[0], columns=COMPARED | {"visible after p50 s": ".2f"}, plain=tuple(METRICS))
"""The table of test-other without intervals."""


def _wer_over_offline(row: Row) -> str:
    """WER, and behind it the paired difference from offline with its interval."""
    wer = text_of(row, WER, PLAIN)
    return f"{wer} ({text_of(row, OVER, TABLES[0])})" if OVER in row.figures else wer


def choosing(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of docs/choosing.md: tiny.en and base on test-other, by WER."""
    columns = {
        "WER %": WER,
        "visible after, s": "visible after p50 s",
        "final after, s": FINAL,
        "one word in ten later than, s": "final after p90 s",
        "CPU s per s": CPU,
    }
    return {
        block: markdown(
            ["settings", *columns],
            [
                [
                    typed(row),
                    *(
                        "the end"
                        if row.labels["system"] == OFFLINE and heading not in (WER, CPU)
                        else (cost(row, rows) if heading == CPU else text_of(row, heading, PLAIN))
                        for heading in columns.values()
                    ),
                ]
                for row in sorted(rows, key=lambda row: _value(row, WER))
                if row.table == table and row.labels["system"] in TYPED
            ],
        )
        for block, table in (("other", "real_other"), ("other_base", "real_other_base"))
    }


PAGE = Page(
    CELLS,
    TABLES,
    also=with_p,
    rewritten={ROOT / "README.md": short, ROOT / "docs" / "choosing.md": choosing},
    draw=picture,
    corrected=in_order,
)
