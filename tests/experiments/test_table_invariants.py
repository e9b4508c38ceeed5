"""What holds of every table: batch is called batch, and stability stands beside WER."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cells import SENTENCE, TAXI, write_cell

from experiments.figures.tables import write_table
from streaming_asr.metrics.table import next_to_wer, with_wer
from streaming_asr.score.command import main
from streaming_asr.score.results import BATCH, read_results

SAID = {"u1": (SENTENCE, SENTENCE), "u2": (TAXI, "call a tax for $25 please now")}
NEVER = 99  # words held back: all of them until the flush


def marked(root: Path) -> set[str]:
    return {cell.method for cell in read_results(root) if BATCH in cell.notes}


def test_a_row_with_offlines_text_that_commits_only_at_the_end_is_marked_as_batch(
    tmp_path: Path,
) -> None:
    write_cell(tmp_path / "method=offline,chunk=300ms", texts=SAID, ahead=NEVER)
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=SAID, ahead=NEVER)
    write_cell(tmp_path / "method=whisperrt,chunk=300ms", texts=SAID, ahead=1)
    other = SAID | {"u1": (SENTENCE, SENTENCE.replace("nine", "mine"))}
    write_cell(tmp_path / "method=star,chunk=300ms", texts=other, ahead=NEVER)
    # Neither the one that commits early, nor the one whose text differs in a word, nor offline.
    assert marked(tmp_path) == {"ufal"}


def test_offline_of_other_data_says_nothing(tmp_path: Path) -> None:
    write_cell(tmp_path / "method=offline,chunk=300ms", texts=SAID, ahead=NEVER, split="other")
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=SAID, ahead=NEVER)
    assert marked(tmp_path) == set()


def test_silence_everywhere_is_no_offline_text(tmp_path: Path) -> None:
    mute = {utt: (text, "") for utt, (text, _) in SAID.items()}
    write_cell(tmp_path / "method=offline,chunk=300ms", texts=mute, ahead=NEVER)
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=mute, ahead=NEVER)
    assert marked(tmp_path) == set()


def test_stability_is_shown_next_to_wer_and_not_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert next_to_wer(["light_erasure", "rtf_total"]) == ("wer", "light_erasure", "rtf_total")
    assert next_to_wer(["rtf_total"]) == ("rtf_total",)
    assert next_to_wer(["normalised_erasure", "wer"]) == ("normalised_erasure", "wer")
    assert with_wer({"wer": None, "light_erasure": 0.0, "rtf_total": 1.0}) == {
        "wer": None, "light_erasure": None, "rtf_total": 1.0,
    }  # fmt: skip
    assert with_wer({"wer": 3.0, "light_erasure": 0.0})["light_erasure"] == 0.0

    cell = write_cell(tmp_path / "method=ufal,chunk=300ms", texts=SAID)
    assert main([str(cell), "--metrics", "light_erasure"]) == 0
    assert "wer" in capsys.readouterr().out
    heads = write_table(cell, tmp_path / "t.md", ["light_erasure"]).read_text().splitlines()[0]
    assert "WER" in heads
    plain = write_table(cell, tmp_path / "t.tsv", ["light_erasure"]).read_text().splitlines()
    assert [len(line.split("\t")) for line in plain] == [5, 5] and "**" not in plain[1]


def test_a_corpus_without_references_has_no_stability_in_the_table(tmp_path: Path) -> None:
    unknown = {utt: ("", said) for utt, (_, said) in SAID.items()}
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=unknown)
    (cell,) = read_results(tmp_path)
    assert cell.document["metrics"]["normalised_erasure"] is not None
    assert cell.metrics["normalised_erasure"] is None
