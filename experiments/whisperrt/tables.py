"""The measured tables of this folder's README, from the results of the sweeps.

    python -m experiments.whisperrt.tables [--output outputs]
    python -m experiments.whisperrt.tables --show mini_table1

Reads <output>/{table1_other,real_other,real_other_base,fig6_dev,table2}/*/metrics.json,
<output>/table5/table5.json and, of mini, <output>/{table1,table3}/*/metrics.json into
results.jsonl, and renders the blocks of this folder's README.md from it. --show prints all figures
of a table; table I on mini is in the file only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.papers import NONE as UNPRINTED
from experiments.tables import (
    Row,
    Table,
    blocks_of,
    duration,
    find,
    paper_rows,
    read,
    read_json,
    row_of,
    weights_name,
    write,
)
from streaming_asr.score.results import Result

HERE = Path(__file__).parent
CHUNKS_MS = (40, 100, 200, 300, 1000)
BASELINE_CHUNKS_MS = (100, 200, 300, 1000)  # re-encoding does not keep up at 40 ms
SPLITS = ("clean", "other")
BEAMS = {0: "greedy", 3: "beam 3"}
FIXED_MS = (100, 300)  # the chunks that mini has an adapter of its own for
FIG6_BEAMS = (0, 3, 5, 7)
MODELS = ("tiny.en", "base")
OTHERS_MS = (300, 1000)  # the chunks at which Simul-Whisper and UFAL were run too
NEVER = ({"weights": "none", "truncation": None}, {"truncation": "never"})
TIMES = {"exact": "exact", "ctc": "U2's CTC head", "whisper": "tiny.en's cross-attention"}
METRICS = {
    "RWER": "rwer",
    "ARWER": "arwer_cu",
    "WER": "wer",
    "ARWER grid": "arwer_grid_ca",
    **{
        f"{kind} {p}": f"word_latency_{kind}_{p}_ca_s"
        for kind in ("stable", "committed")
        for p in ("p50", "p90")
    },
}
"""The metric of each heading; rates in percent, latencies in seconds with computing."""
PRINTED = "paper, base"
TABLES = (
    Table(
        "table1_other",
        {"WER": ".1f", "ARWER": ".1f", "CPU RTF": ".2f", PRINTED: ""},
        takes=lambda row: row.labels["model"] == "base",
    ),
    Table("table2", {"WER": ".1f", "committed p50 s": ".2f"}),
    Table(
        "mini_table3",
        {"WER": ".1f"},
        across="adapter",
        takes=lambda row: row.labels["decoding"] == "beam 3",
    ),
    Table(
        "fig6_dev",
        {
            "WER, exact": ".1f",
            "WER, cache kept": ".1f",
            "CPU RTF, exact": ".3f",
            "CPU RTF, cache kept": ".3f",
        },
    ),
    Table("table5", {"ms per chunk": ".1f", "RTF": ".3f", "paper: large-v2, s per chunk": ""}),
)


@functools.cache
def printed(table: str) -> dict[tuple[str, ...], Mapping[str, str]]:
    """The paper's numbers in one of its tables, by the labels of their row."""
    return {tuple(row.labels.values()): row.values for row in paper_rows("whisperrt", table)}


def theirs(table: str, *labels: str, value: str = "WER") -> str | None:
    """A value of a row of the paper's table; None where it has no such row."""
    row = printed(table).get(labels)
    return None if row is None else row[value]


def whisperrt(
    cells: Iterable[Result], chunk: int, beam: int, weights: str | None = None
) -> Result | None:
    """The exact cell of WhisperRT at a chunk and beam. weights: None for any but `none`."""
    settings = {"method": "whisperrt", "chunk_ms": chunk, "beam": beam, "decoder_cache": False}
    if weights is not None:
        return find(cells, weights=weights, **settings)
    return find((cell for cell in cells if weights_name(cell) != "none"), **settings)


# -- on mini --------------------------------------------------------------------------------


def of_split(cells: Iterable[Result], split: str) -> list[Result]:
    return [cell for cell in cells if cell.document["config"]["data"].get("split") == split]


def mini_table1(cells: Sequence[Result]) -> list[Row]:
    """All systems at all chunks on mini's `clean`."""
    clean = of_split(cells, "clean")
    systems: list[tuple[str, int | None, Result | None]] = [
        ("offline", None, find(clean, method="offline"))
    ]
    for chunk in CHUNKS_MS:
        if chunk in BASELINE_CHUNKS_MS:
            systems.append(("re-encoding", chunk, find(clean, method="reencode", chunk_ms=chunk)))
            systems.append(("mask alone", chunk, whisperrt(clean, chunk, 0, "none")))
        for beam, how in BEAMS.items():
            systems.append((f"WhisperRT {how}", chunk, whisperrt(clean, chunk, beam)))
    return [
        row_of(
            "mini_table1",
            {"system": name, "chunk": duration(chunk), "weights": weights_name(cell)},
            cell,
            {**METRICS, "RTF": "rtf_total"},
        )
        for name, chunk, cell in systems
        if cell is not None
    ]


def mini_table3(cells: Sequence[Result]) -> list[Row]:
    """One random-chunk adapter, and one trained for exactly this chunk."""
    rows = []
    for split in SPLITS:
        of_this = of_split(cells, split)
        for beam, how in BEAMS.items():
            for chunk in FIXED_MS:
                for adapter, weights in (("fixed", f"{chunk}ms"), ("random", "any_chunk")):
                    cell = whisperrt(of_this, chunk, beam, weights)
                    labels = {"split": split, "decoding": how, "chunk": duration(chunk)}
                    if cell is not None:
                        labels["adapter"] = adapter
                        rows.append(row_of("mini_table3", labels, cell, METRICS))
    return rows


# -- on real speech -------------------------------------------------------------------------


def table1_other(cells: Sequence[Result]) -> list[Row]:
    """WhisperRT with beam 3 by chunk, Simul-Whisper and UFAL, on test-other."""
    rows = []
    for model in MODELS:
        of_model = [cell for cell in cells if cell.model == model]
        for name, theirs_is, chunk, cell in _systems_other(of_model):
            if cell is not None:
                where = UNPRINTED if chunk is None else f"{chunk}ms"
                labels = {"model": model, "system": name, "chunk": duration(chunk)}
                more = {PRINTED: theirs("I", model, theirs_is, where, "test-other")}
                columns = {**METRICS, "CPU RTF": "rtf_cpu"}
                rows.append(row_of("table1_other", labels, cell, columns, more))
    return rows


def _systems_other(
    cells: Sequence[Result],
) -> Iterator[tuple[str, str, int | None, Result | None]]:
    """Yield name, the paper's name, chunk in ms, cell."""
    yield "offline, beam 5", "Offline Whisper", None, find(cells, method="offline", beam=5)
    for chunk in CHUNKS_MS:
        yield "WhisperRT, beam 3", "WhisperRT", chunk, whisperrt(cells, chunk, 3)
        if chunk in OTHERS_MS:
            settings = {"method": "simul_whisper", "chunk_ms": chunk}
            never = (find(cells, **settings, **each) for each in NEVER)
            cell = next((each for each in never if each is not None), None)
            yield "Simul-Whisper, no detector", "Simul-Whisper", chunk, cell
            yield "UFAL", "Ufal-Whisper", chunk, find(cells, method="ufal", chunk_ms=chunk)


def table2(cells: Sequence[Result]) -> list[Row]:
    """Adapters trained on the times of several aligners."""
    columns = {
        "WER": "wer",
        "ARWER grid": "arwer_grid_ca",
        "committed p50 s": "word_latency_committed_p50_ca_s",
        "p90 s": "word_latency_committed_p90_ca_s",
    }
    return [
        row_of("table2", {"word times": aligner}, cell, columns)
        for name, aligner in TIMES.items()
        if (cell := find(cells, weights=f"times_{name}"))
    ]


def fig6(cells: Sequence[Result]) -> list[Row]:
    """Beams with and without the decoder's self-attention kept from chunk to chunk."""
    rows = []
    for beam in FIG6_BEAMS:
        exact, cached = (find(cells, beam=beam, decoder_cache=cache) for cache in (False, True))
        if exact is None or cached is None:
            continue
        labels = {"decoding": f"beam {beam}" if beam else "greedy"}
        row, other = (
            row_of("fig6_dev", labels, cell, {f"WER, {how}": "wer", f"CPU RTF, {how}": "rtf_cpu"})
            for cell, how in ((exact, "exact"), (cached, "cache kept"))
        )
        rows.append(replace(row, figures={**row.figures, **other.figures}))
    return rows


def table5(path: Path) -> list[Row]:
    """What table5.py measured, of the systems that ran, with the paper's latencies."""
    document = read_json(path)
    rows = []
    for row in document.get("rows", ()):
        if row["mean_ms"] is None:
            continue
        figures = {"ms per chunk": row["mean_ms"], "RTF": row["rtf"]}
        paper = theirs("V", row["system"], str(row["beam"]), value="latency")
        if paper is not None:
            figures["paper: large-v2, s per chunk"] = paper
        labels = {"system": row["system"], "beam": str(row["beam"])}
        about = {"dates": [document["measured"]], "machines": [document["machine"]]}
        rows.append(Row("table5", labels, figures, **about))
    return rows


def rows(output: Path) -> list[Row]:
    """The rows of all that ran."""
    other = read(*(output / name for name in ("table1_other", "real_other", "real_other_base")))
    first, third = read(output / "table1"), read(output / "table3")
    return [
        *table1_other(other),
        *table2(read(output / "table2")),
        *fig6(read(output / "fig6_dev")),
        *table5(output / "table5" / "table5.json"),
        *mini_table1(first),
        # Table I ran a fixed adapter where it found one, so its cells serve here too.
        *mini_table3([*third, *first]),
    ]


blocks = functools.partial(blocks_of, TABLES)
main = functools.partial(write, about=__doc__, page=HERE / "README.md", rows=rows, blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
