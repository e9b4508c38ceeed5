"""Faults of a method that its log shows: numbers with a note, and a row that wins nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_cells import write_cell

from streaming_asr.cells.folder import EVENTS
from streaming_asr.events.invariants import contract_faults
from streaming_asr.events.log import read_log
from streaming_asr.score import score_folder
from streaming_asr.score.results import read_results

CELL = "method=mine,chunk=300ms"


def changed(folder: Path, **of_last: object) -> None:
    """Change the last step of the first utterance, and score again."""
    path = folder / EVENTS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    at = next(i for i, line in enumerate(lines) if line["kind"] == "flush")
    lines[at] |= of_last
    lines[at + 1]["commit_violations"] = int(bool(of_last.get("retracted")))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    score_folder(folder)


@pytest.mark.parametrize(
    ("of_last", "note"),
    [
        ({"retracted": 2, "committed": [" now"]}, "it took 2 final words back"),
        (
            {"committed": [" a", " b"], "words": [[0.1, 0.2, None], [0.3, 20.0, None]]},
            "it timed 1 words after the audio that it had",
        ),
        (
            {"committed": [" a", " b"], "words": [[0.4, 0.5, None], [0.3, 0.4, None]]},
            "it timed 1 words before the word in front of them",
        ),
    ],
)
def test_a_broken_contract_is_a_note_and_wins_nothing(
    of_last: dict[str, object], note: str, tmp_path: Path
) -> None:
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    changed(write_cell(tmp_path / CELL), **of_last)
    mine, ufal = read_results(tmp_path)
    assert f"breaks the contract: {note}" in mine.notes
    assert (mine.is_odd, ufal.is_odd) == (True, False)
    assert mine.metrics["wer"] is not None


def test_a_log_without_a_fault_has_no_note(tmp_path: Path) -> None:
    cell = write_cell(tmp_path / CELL)
    assert contract_faults(read_log(cell / EVENTS).utterances) == []


def test_words_final_before_they_begin_are_a_warning_with_numbers(tmp_path: Path) -> None:
    text = "a b c d e f g h i j k l"
    cell = write_cell(tmp_path / CELL, texts={"u1": (text, text)})
    path = cell / EVENTS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        if line["kind"] == "utterance":  # its words come in the last second
            end_s, n = line["duration_samples"] / 16_000, len(line["words"])
            line["words"] = [
                [word, end_s - 0.12 * (n - i), end_s - 0.12 * (n - i) + 0.1]
                for i, (word, _, _) in enumerate(line["words"])
            ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    document = score_folder(cell)
    assert document["metrics"]["wer"] is not None
    assert any("before they begin in the reference" in text for text in document["warnings"])
