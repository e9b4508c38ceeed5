"""Folders of results as hypothesis draws them, and every command that reads one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from drawn_logs import logs
from fuzzing import assert_finite, run
from hypothesis import strategies as st
from report_cells import embedded

from experiments.figures.tables import write_table
from streaming_asr import report
from streaming_asr.commands import advise
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, UtteranceLog
from streaming_asr.score import command, score_folder
from streaming_asr.score.results import read_results

NAME = "method=ufal,chunk=1s"
HEADER = {
    "config": {
        "method": {"_target_": "streaming_asr.methods.ufal.UFAL"},
        "data": {"_target_": "streaming_asr.corpora.Mini", "split": "clean"},
        "model": {"name": "tiny.en"},
        "chunk": "1s",
        "first_chunk": "1s",
        "feed": "fixed",
        "batch": 1,
    },
    "versions": {"python": "3"},
    "machine": {"cpu": "abacus", "cores": 2},
    "hashes": {"data": "1"},
    "metrics_version": 4,
}


@st.composite
def corpora(draw: st.DrawFn) -> list[UtteranceLog]:
    """The logs of one to three utterances, all valid."""
    drawn = draw(st.lists(logs(), min_size=1, max_size=3))
    return [replace(log, utt=f"u{i}", speaker=f"s{i % 2}") for i, log in enumerate(drawn)]


def write(folder: Path, utterances: list[UtteranceLog], **header: Any) -> Path:
    with EventWriter(folder / "events.jsonl", HEADER | header) as writer:
        for each in utterances:
            writer.write_utterance(each)
    return folder / "events.jsonl"


def rows_of(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@contextmanager
def results(utterances: list[UtteranceLog]) -> Iterator[Path]:
    """A folder that holds one scored cell, and is cleared however its names are spoilt."""
    place = tempfile.mkdtemp()
    try:
        cell = Path(place) / "results" / NAME
        write(cell, utterances)
        score_folder(cell)
        yield cell
    finally:
        shutil.rmtree(os.fsencode(place))


# -- every command that reads a folder ----------------------------------------------------------

READERS: dict[str, Callable[[Path], tuple[int, str]]] = {
    "report": lambda root: run(report.main, root, "--budget", "wer=10%"),
    "score": lambda root: run(command.main, root, "--all"),
    "retime": lambda root: run(command.main, "retime", root, "--json", root / "out" / "r.json"),
    "longform": lambda root: run(command.main, "longform", root),
    "advise": lambda root: run(advise.main, root, "--json", root / "out" / "a.json"),
    "figures": lambda root: run(lambda _: table_of(root)),
}


def table_of(root: Path) -> int:
    """The table for a paper, which raises UserError where it has no row."""
    try:
        write_table(root, root / "table.md")
    except UserError as error:
        print(f"error: {error}")
        return 2
    return 0


def compared(root: Path, whole: list[UtteranceLog]) -> tuple[int, str]:
    """`score compare` of a whole cell, made beside the results, with those."""
    other = root.with_name("whole") / "method=offline"
    write(other, whole)
    return run(command.main, "compare", other, root, "--json", root / "out" / "c.json")


def shown(root: Path) -> dict[str, Any]:
    """The only row of the report of `root`, the same in the page and in the table's results."""
    status, text = READERS["report"](root)
    (result,) = read_results(root)
    assert status == 1 if result.error else status in (0, 1), text  # the budget's answer
    (row,) = embedded(root / "report.html")["cells"]
    assert row["metrics"] == dict(result.metrics) and bool(row["error"]) == bool(result.error)
    return dict(row)


def assert_no_number(root: Path) -> None:
    """The report has a row for the cell that says what is wrong, and no figure."""
    row = shown(root)
    assert row["error"] and not row["metrics"] and not row["intervals"]
    assert not any(any(c.isdigit() for c in text) for text in row["texts"].values())


def assert_log_is_refused(cell: Path, whole: list[UtteranceLog], reader: str) -> None:
    """No command takes a number from the cell's log, and its score is taken back."""
    root = cell.parent
    status, text = compared(root, whole) if reader == "compare" else READERS[reader](root)
    assert status == 2 and "error: " in text, text
    assert not [p for p in (root / "out").rglob("*") if p.is_file()]
    status, text = READERS["score"](root)
    assert status == 2, text
    if (cell / "metrics.json").exists():
        result = assert_finite(cell / "metrics.json")
        assert result.get("metrics") == {} or "no header" in text or "schema" in text, text
    if result.get("invalid"):
        assert not (cell / "utterances.jsonl").exists()
        assert_no_number(root)
