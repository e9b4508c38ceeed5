"""The measured tables of this folder's README, beside the paper's, from the results of the sweeps.

    python -m experiments.whisperrt.tables [--output outputs]

Reads <output>/{table1_other,real_other,real_other_base,fig6_dev,table2}/*/metrics.json and
<output>/table5/table5.json, and rewrites what stands between `<!-- NAME:begin -->` and
`<!-- NAME:end -->` in this folder's README.md. What is missing stays as the page has it, or reads
"not run"; without table5.json that table stays as it is. `experiments.mini.tables` has the tables
of mini.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from experiments.papers import NONE as UNPRINTED
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

HERE = Path(__file__).parent
CHUNKS_MS = (40, 100, 200, 300, 1000)
BASELINE_CHUNKS_MS = (100, 200, 300, 1000)  # re-encoding does not keep up at 40 ms
SPLITS = CLEAN, _ = ("clean", "other")
BEAMS = {0: "greedy", 3: "beam 3"}
FIXED_MS = (100, 300)  # the chunks that mini has an adapter of its own for
FIG6_BEAMS = (0, 3, 5, 7)
MODELS = ("tiny.en", "base")
OTHERS_MS = (300, 1000)  # the chunks at which Simul-Whisper and UFAL stand beside WhisperRT
NEVER = ({"weights": "none", "truncation": None}, {"truncation": "never"})
TIMES = {"exact": "exact", "ctc": "U2's CTC head", "whisper": "tiny.en's cross-attention"}


@functools.cache
def printed(table: str) -> dict[tuple[str, ...], Mapping[str, str]]:
    """The paper's numbers in one of its tables, by the labels of their row."""
    return {tuple(row.labels.values()): row.values for row in paper_rows("whisperrt", table)}


def theirs(table: str, *labels: str, values: Sequence[str] = ("RWER", "ARWER", "WER")) -> str:
    """The values of a row of the paper's table, a dash where it has no such row."""
    row = printed(table).get(labels)
    return NONE if row is None else " / ".join(row[value] for value in values)


def pair(cell: Result | None, metric: str) -> str:
    """The median and 90th percentile of a word latency, seconds, computation-aware."""
    if cell is None:
        return NOT_RUN
    return " / ".join(measure(cell, f"word_latency_{metric}_{p}_ca_s", 2) for p in ("p50", "p90"))


def whisperrt(
    cells: Iterable[Result], chunk: int, beam: int, weights: str | None = None
) -> Result | None:
    """The exact cell of WhisperRT at a chunk and beam. weights: None for any but `none`."""
    wanted = {"method": "whisperrt", "chunk_ms": chunk, "beam": beam, "decoder_cache": False}
    if weights is not None:
        return find(cells, weights=weights, **wanted)
    return find((cell for cell in cells if weights_name(cell) != "none"), **wanted)


# -- the tables -----------------------------------------------------------------------------


def systems(cells: Sequence[Result], split: str) -> list[tuple[str, int | None, Result | None]]:
    """The rows of table I on one split: name, chunk in ms, cell."""
    own = [cell for cell in cells if cell.document["config"]["data"].get("split") == split]
    rows: list[tuple[str, int | None, Result | None]] = [
        ("offline", None, find(own, method="offline"))
    ]
    for chunk in CHUNKS_MS:
        if chunk in BASELINE_CHUNKS_MS:
            rows.append(("re-encoding", chunk, find(own, method="reencode", chunk_ms=chunk)))
            rows.append(("mask alone", chunk, whisperrt(own, chunk, 0, "none")))
        for beam, how in BEAMS.items():
            rows.append((f"WhisperRT {how}", chunk, whisperrt(own, chunk, beam)))
    return rows


def table1(cells: Sequence[Result]) -> str:
    """All systems at all chunks on mini's `clean`; the paper's base model next to its beam."""
    rows = []
    for name, chunk, cell in systems(cells, CLEAN):
        printed = NONE
        if name == "WhisperRT beam 3":
            printed = theirs("I", "base", "WhisperRT", f"{chunk}ms", f"test-{CLEAN}")
        rows.append(
            [
                name,
                duration(chunk),
                NOT_RUN if cell is None else weights_name(cell),
                measure(cell, "rwer"),
                measure(cell, "arwer_cu"),
                measure(cell, "wer"),
                measure(cell, "arwer_grid_ca"),
                pair(cell, "stable"),
                pair(cell, "committed"),
                measure(cell, "rtf_total", 3),
                printed,
            ]
        )
    header = ["system", "chunk", "weights", "RWER", "ARWER", "WER", "ARWER grid"]
    header += ["stable p50 / p90", "committed p50 / p90", "RTF", "paper, base"]
    parts = [caption(cells, with_intervals=False), f"mini `{CLEAN}`:"]
    return "\n\n".join([*parts, markdown(header, rows, n_text=3), losses(cells)])


def table1_other(cells: Sequence[Result]) -> str:
    """WhisperRT with beam 3 by chunk, Simul-Whisper and UFAL beside it, on test-other."""
    if not cells:
        return caption(cells)
    rows = []
    for model in MODELS:
        own = [each for each in cells if _model(each) == model]
        for name, theirs_is, chunk, cell in _systems_other(own):
            where = UNPRINTED if chunk is None else f"{chunk}ms"
            rows.append(
                [
                    model,
                    name,
                    duration(chunk),
                    *(measure(cell, metric) for metric in ("rwer", "arwer_cu")),
                    *(with_interval(cell, metric) for metric in ("wer", "arwer_grid_ca")),
                    pair(cell, "stable"),
                    pair(cell, "committed"),
                    measure(cell, "rtf_cpu", 2),
                    theirs("I", model, theirs_is, where, "test-other"),
                ]
            )
    header = ["model", "system", "chunk", "RWER", "ARWER", "WER", "ARWER grid"]
    header += ["stable p50 / p90", "committed p50 / p90", "CPU RTF", "paper, base"]
    return caption(cells) + "\n\n" + markdown(header, rows, n_text=3)


def _systems_other(
    cells: Sequence[Result],
) -> Iterator[tuple[str, str, int | None, Result | None]]:
    """Yield name, the paper's name, chunk in ms, cell."""
    yield "offline, beam 5", "Offline Whisper", None, find(cells, method="offline", beam=5)
    for chunk in CHUNKS_MS:
        yield "WhisperRT, beam 3", "WhisperRT", chunk, whisperrt(cells, chunk, 3)
        if chunk in OTHERS_MS:
            wanted = {"method": "simul_whisper", "chunk_ms": chunk}
            never = (find(cells, **wanted, **each) for each in NEVER)
            found = next((each for each in never if each is not None), None)
            yield "Simul-Whisper, no detector", "Simul-Whisper", chunk, found
            yield "UFAL", "Ufal-Whisper", chunk, find(cells, method="ufal", chunk_ms=chunk)


def _model(cell: Result) -> str | None:
    return (cell.document["config"].get("model") or {}).get("name")


def losses(cells: Sequence[Result]) -> str:
    """Names the chunks at which WhisperRT (greedy) is worse than a baseline on `clean`."""
    lines = []
    rows = {(name, chunk): cell for name, chunk, cell in systems(cells, CLEAN)}
    for metric, what in (("wer", "WER"), ("arwer_grid_ca", "ARWER on the grid")):
        for baseline in ("re-encoding", "mask alone"):
            worse, compared = [], 0
            for chunk in BASELINE_CHUNKS_MS:
                ours, other = rows["WhisperRT greedy", chunk], rows[baseline, chunk]
                values = [r.metrics.get(metric) for r in (ours, other) if r is not None]
                if len(values) < 2 or values[0] is None or values[1] is None:
                    continue
                compared += 1
                if values[0] > values[1]:
                    worse.append(f"{CLEAN} {duration(chunk)}")
            if compared:
                where = f"at {', '.join(worse)}" if worse else f"nowhere ({compared} compared)"
                lines.append(f"- {what}: WhisperRT greedy is worse than {baseline} {where}.")
    return "\n".join(lines)


def table2(cells: Sequence[Result]) -> str:
    """Adapters trained on the times of several aligners."""
    rows = []
    for name, aligner in TIMES.items():
        cell = find(cells, weights=f"times_{name}")
        shown = [with_interval(cell, "wer"), measure(cell, "arwer_grid_ca")]
        shown += [measure(cell, f"word_latency_committed_{p}_ca_s", 2) for p in ("p50", "p90")]
        rows.append([aligner, *shown])
    header = ["word times", "WER", "ARWER grid", "committed p50 s", "p90 s"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def table3(cells: Sequence[Result]) -> str:
    """One random-chunk adapter against one trained for exactly this chunk."""
    rows, used = [], []
    for split in SPLITS:
        own = [cell for cell in cells if cell.document["config"]["data"].get("split") == split]
        for beam, how in BEAMS.items():
            for chunk in FIXED_MS:
                fixed, random = (
                    whisperrt(own, chunk, beam, w) for w in (f"{chunk}ms", "any_chunk")
                )
                used += [cell for cell in (fixed, random) if cell]
                where = (f"{chunk}ms", f"test-{split}")
                papers = [theirs("I", "base", "WhisperRT", *where), theirs("III", "base", *where)]
                rows.append(
                    [
                        split,
                        how,
                        duration(chunk),
                        *(_rates(cell) for cell in (fixed, random)),
                        _difference(fixed, random),
                        *(papers if beam == 3 else [NONE, NONE]),
                    ]
                )
    header = ["split", "decoding", "chunk", "fixed", "random", "WER, random - fixed"]
    header += ["paper: fixed, base", "paper: random, base"]
    return caption(used, with_intervals=False) + "\n\n" + markdown(header, rows, n_text=3)


def _rates(cell: Result | None) -> str:
    if cell is None:
        return NOT_RUN
    return " / ".join(measure(cell, metric) for metric in ("rwer", "arwer_cu", "wer"))


def _difference(fixed: Result | None, random: Result | None) -> str:
    before, after = (cell.metrics.get("wer") if cell else None for cell in (fixed, random))
    return NONE if before is None or after is None else f"{after - before:+.1f}"


def fig6(cells: Sequence[Result], **wanted: str) -> str:
    """Beams with and without the decoder's self-attention kept from chunk to chunk.

    wanted: what the cells are beside, as their split."""
    if not cells:
        return caption(cells)
    rows = []
    for beam in FIG6_BEAMS:
        exact, kept = (
            find(cells, beam=beam, decoder_cache=cache, **wanted) for cache in (False, True)
        )
        rows.append(
            [
                f"beam {beam}" if beam else "greedy",
                with_interval(exact, "wer"),
                with_interval(kept, "wer"),
                measure(exact, "rtf_cpu", 3),
                measure(kept, "rtf_cpu", 3),
            ]
        )
    header = ["decoding", "WER, exact", "WER, cache kept", "CPU RTF, exact", "CPU RTF, cache kept"]
    return caption(cells) + "\n\n" + markdown(header, rows)


def table5(path: Path) -> str:
    """What table5.py measured, of the systems that ran, next to the paper's latencies."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [
            row["system"],
            str(row["beam"]),
            number(row["mean_ms"]),
            number(row["rtf"], 3),
            theirs("V", row["system"], str(row["beam"]), values=["latency"]),
        ]
        for row in document["rows"]
        if row["mean_ms"] is not None
    ]
    header = ["system", "beam", "ms per chunk", "RTF", "paper: large-v2, s per chunk"]
    return (
        f"Measured {document['measured']} on {document['machine']}, {document['device']}, "
        f"{document['threads']} thread(s): random weights of {document['size']} dimensions, "
        f"{document['duration_s']:g} s of audio in chunks of {document['chunk_ms']} ms.\n\n"
        + markdown(header, rows)
    )


def blocks(output: Path) -> dict[str, str]:
    """The tables of the page, by the names of their places."""
    other = read(*(output / name for name in ("table1_other", "real_other", "real_other_base")))
    written = {
        "table1_other": table1_other(other),
        "fig6_dev": fig6(read(output / "fig6_dev")),
        "table2": table2(read(output / "table2")),
    }
    fifth = output / "table5" / "table5.json"
    if fifth.is_file():  # it hangs on the machine alone: what was measured stands until then
        written["table5"] = table5(fifth)
    return written


main = functools.partial(write, about=__doc__, page=HERE / "README.md", blocks=blocks)

if __name__ == "__main__":
    sys.exit(main())
