"""The measured tables of this folder's README, beside the paper's, from the results of the sweeps.

    python -m experiments.whisperrt.tables [--output outputs] [--readme README.md]

Reads <output>/{table1,table3,fig6}/*/metrics.json and <output>/table5/table5.json, and rewrites
what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` in this folder's README.md.
With --readme also the block `results` of that file. A cell that is missing is written as "not run";
without table5.json that table stays as it is.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.whisperrt.results import (
    BEAMS,
    CHUNKS_MS,
    SPLITS,
    Result,
    caption,
    find,
    read_results,
)
from streaming_asr.errors import UserError
from streaming_asr.papers import read_paper

HERE = Path(__file__).parent
FIG6_BEAMS = (0, 3, 5, 7)
NOT_RUN = "not run"


@functools.cache
def printed(table: str) -> dict[tuple[str, ...], Mapping[str, str]]:
    """The paper's numbers in one of its tables, by the labels of their row."""
    (found,) = (t for t in read_paper("whisperrt").tables if t.name == table)
    return {tuple(row.labels.values()): row.values for row in found.rows}


# -- writing --------------------------------------------------------------------------------


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], n_text: int = 1) -> str:
    """A Markdown table; the first `n_text` columns are flush left, the others right."""
    rule = ["---"] * n_text + ["---:"] * (len(header) - n_text)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def measure(result: Result | None, metric: str, digits: int = 1) -> str:
    return NOT_RUN if result is None else number(result.metrics.get(metric), digits)


def pair(result: Result | None, metric: str) -> str:
    """The median and 90th percentile of a word latency, seconds, computation-aware."""
    if result is None:
        return NOT_RUN
    values = (result.metrics.get(f"word_latency_{metric}_{p}_ca_s") for p in ("p50", "p90"))
    return " / ".join(number(value, 2) for value in values)


def theirs(table: str, *labels: str, values: Sequence[str] = ("RWER", "ARWER", "WER")) -> str:
    """The values of a row of the paper's table, a dash where it has no such row."""
    row = printed(table).get(labels)
    return "–" if row is None else " / ".join(row[value] for value in values)


def duration(chunk_ms: int | None) -> str:
    return "whole" if chunk_ms is None else f"{chunk_ms} ms"


def rewrite(path: Path, blocks: Mapping[str, str]) -> None:
    """Put each block between its markers in `path`. Raises UserError where one has no markers."""
    text = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise UserError(
                f"{path}: the table {name} has one place in a file; write the lines "
                f"{begin} and {end} once, where it shall stand"
            )
        text = pattern.sub(lambda _: f"{begin}\n{block}\n{end}", text)  # noqa: B023
    path.write_text(text, encoding="utf-8")


# -- the tables -----------------------------------------------------------------------------


def systems(results: Sequence[Result], split: str) -> list[tuple[str, int | None, Result | None]]:
    """The rows of table I on one split: name, chunk, result."""
    own = [result for result in results if result.split == split]
    adapted = [result for result in own if result.weights != "none"]
    rows: list[tuple[str, int | None, Result | None]] = [
        ("offline", None, find(own, method="offline"))
    ]
    for chunk in CHUNKS_MS:
        rows.append(("re-encoding", chunk, find(own, method="reencode", chunk_ms=chunk)))
        alone = find(own, method="whisperrt", weights="none", chunk_ms=chunk, beam=0)
        rows.append(("mask alone", chunk, alone))
        for beam, how in BEAMS.items():
            found = find(
                adapted, method="whisperrt", chunk_ms=chunk, beam=beam, decoder_cache=False
            )
            rows.append((f"WhisperRT {how}", chunk, found))
    return rows


def table1(results: Sequence[Result]) -> str:
    """All systems at all chunks; the paper's base model stands beside the beam it used."""
    parts = [caption(results)]
    for split in SPLITS:
        rows = []
        for name, chunk, result in systems(results, split):
            beside = "–"
            if name == "WhisperRT beam 3":
                beside = theirs("I", "base", "WhisperRT", f"{chunk}ms", f"test-{split}")
            rows.append(
                [
                    name,
                    duration(chunk),
                    NOT_RUN if result is None else result.weights,
                    measure(result, "rwer"),
                    measure(result, "arwer_cu"),
                    measure(result, "wer"),
                    measure(result, "arwer_grid_ca"),
                    pair(result, "stable"),
                    pair(result, "committed"),
                    measure(result, "rtf_total", 3),
                    beside,
                ]
            )
        header = ["system", "chunk", "weights", "RWER", "ARWER", "WER", "ARWER grid"]
        header += ["stable p50 / p90", "committed p50 / p90", "RTF", "paper, base"]
        parts += [f"mini `{split}`:", markdown(header, rows, n_text=3)]
    return "\n\n".join([*parts, losses(results)])


def losses(results: Sequence[Result]) -> str:
    """In words, where WhisperRT (greedy) is worse than a baseline at the same chunk."""
    lines = []
    for metric, what in (("wer", "WER"), ("arwer_grid_ca", "ARWER on the grid")):
        for baseline in ("re-encoding", "mask alone"):
            worse, compared = [], 0
            for split in SPLITS:
                rows = {(name, chunk): result for name, chunk, result in systems(results, split)}
                for chunk in CHUNKS_MS:
                    ours, other = rows["WhisperRT greedy", chunk], rows[baseline, chunk]
                    values = [r.metrics.get(metric) for r in (ours, other) if r is not None]
                    if len(values) < 2 or values[0] is None or values[1] is None:
                        continue
                    compared += 1
                    if values[0] > values[1]:
                        worse.append(f"{split} {duration(chunk)}")
            if compared:
                where = f"at {', '.join(worse)}" if worse else f"nowhere ({compared} compared)"
                lines.append(f"- {what}: WhisperRT greedy is worse than {baseline} {where}.")
    return "\n".join(lines)


def table3(results: Sequence[Result]) -> str:
    """One random-chunk adapter against one trained for exactly this chunk."""
    rows, used = [], []
    for split in SPLITS:
        for beam, how in BEAMS.items():
            for chunk in CHUNKS_MS[1:]:
                wanted = {"method": "whisperrt", "split": split, "beam": beam, "chunk_ms": chunk}
                wanted |= {"decoder_cache": False}
                name = f"{chunk}ms" if chunk < 1000 else f"{chunk // 1000}s"
                fixed = find(results, weights=name, **wanted)
                random = find(results, weights="any_chunk", **wanted)
                used += [result for result in (fixed, random) if result]
                where = (f"{chunk}ms", f"test-{split}")
                papers = [theirs("I", "base", "WhisperRT", *where), theirs("III", "base", *where)]
                rows.append(
                    [
                        split,
                        how,
                        duration(chunk),
                        *(_rates(result) for result in (fixed, random)),
                        _difference(fixed, random),
                        *(papers if beam == 3 else ["–", "–"]),
                    ]
                )
    header = ["split", "decoding", "chunk", "fixed", "random", "WER, random - fixed"]
    header += ["paper: fixed, base", "paper: random, base"]
    return caption(used) + "\n\n" + markdown(header, rows, n_text=3)


def _rates(result: Result | None) -> str:
    if result is None:
        return NOT_RUN
    return " / ".join(number(result.metrics.get(k)) for k in ("rwer", "arwer_cu", "wer"))


def _difference(fixed: Result | None, random: Result | None) -> str:
    values = [result.metrics.get("wer") if result else None for result in (fixed, random)]
    if values[0] is None or values[1] is None:
        return "–"
    return f"{values[1] - values[0]:+.1f}"


def fig6(results: Sequence[Result]) -> str:
    """Beams with and without the decoder's self-attention kept from chunk to chunk."""
    rows = []
    for beam in FIG6_BEAMS:
        exact, kept = (
            find(results, beam=beam, decoder_cache=cache, split="clean") for cache in (False, True)
        )
        rows.append(
            [
                f"beam {beam}" if beam else "greedy",
                measure(exact, "wer"),
                measure(kept, "wer"),
                measure(exact, "rtf_total", 3),
                measure(kept, "rtf_total", 3),
            ]
        )
    header = ["decoding", "WER, exact", "WER, cache kept", "RTF, exact", "RTF, cache kept"]
    return caption(results) + "\n\n" + markdown(header, rows)


def table5(path: Path) -> str:
    """What table5.py measured, beside the paper's latencies."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [
            row["system"],
            str(row["beam"]),
            number(row["mean_ms"]) if row["mean_ms"] is not None else NOT_RUN,
            number(row["rtf"], 3) if row["rtf"] is not None else NOT_RUN,
            theirs("V", row["system"], str(row["beam"]), values=["latency"]),
        ]
        for row in document["rows"]
    ]
    header = ["system", "beam", "ms per chunk", "RTF", "paper: large-v2, s per chunk"]
    return (
        f"Measured {document['measured']} on {document['machine']}, {document['device']}, "
        f"{document['threads']} thread(s): random weights of {document['size']} dimensions, "
        f"{document['duration_s']:g} s of audio in chunks of {document['chunk_ms']} ms.\n\n"
        + markdown(header, rows)
    )


def readme_results(results: Sequence[Result]) -> str:
    """The table of the project's README."""
    parts = [caption(results)]
    for split in SPLITS:
        rows = [
            [
                name,
                duration(chunk),
                measure(result, "wer"),
                measure(result, "arwer_grid_ca"),
                pair(result, "committed"),
                measure(result, "rtf_total", 3),
            ]
            for name, chunk, result in systems(results, split)
        ]
        header = ["system", "chunk", "WER %", "ARWER grid %", "word latency p50 / p90 s", "RTF"]
        parts += [f"`{split}`:", markdown(header, rows, n_text=2)]
    parts.append(
        "Word latency is from a word's end until it is committed, compute included.\n"
        "Offline and re-encoding commit only when the audio has ended."
    )
    return "\n\n".join([*parts, losses(results)])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="where run wrote")
    parser.add_argument("--here", type=Path, default=HERE / "README.md", help="this folder's page")
    parser.add_argument("--readme", type=Path, help="also the block `results` of this file")
    arguments = parser.parse_args(argv)
    first, third, sixth = (
        read_results(arguments.output / name) for name in ("table1", "table3", "fig6")
    )
    blocks = {
        "table1": table1(first),
        # Table 1 ran a fixed adapter where it found one, so its cells serve here too.
        "table3": table3([*third, *first]),
        "fig6": fig6(sixth),
    }
    fifth = arguments.output / "table5" / "table5.json"
    if fifth.is_file():  # it hangs on the machine alone: what was measured stands until then
        blocks["table5"] = table5(fifth)
    try:
        rewrite(arguments.here, blocks)
        print(f"written: {arguments.here}")
        if arguments.readme is not None:
            rewrite(arguments.readme, {"results": readme_results(first)})
            print(f"written: {arguments.readme}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
