"""score compare --worse: the exit status says whether a run is surely worse than the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cells import TEN_WORDS, write_cell

from streaming_asr.score.command import main


def cell(folder: Path, n_wrong: int, compute_s: float = 0.02) -> str:
    """20 utterances of one to four sentences; a word in each of the first `n_wrong` is wrong."""
    said = {f"u{k:02}": " ".join([TEN_WORDS] * (1 + k % 4)) for k in range(20)}
    texts = {
        utt: (text, text.replace("early", "yearly", 1) if k < n_wrong else text)
        for k, (utt, text) in enumerate(said.items())
    }
    return str(write_cell(folder, texts=texts, compute_s=compute_s))


def test_a_run_that_is_surely_worse_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = cell(tmp_path / "good", 0), cell(tmp_path / "bad", 19)
    # 19 errors more in 500 words, in 19 of 20 utterances: 3.8 points.
    assert main(["compare", good, bad, "--worse", "wer=0.5"]) == 1
    assert "bad: wer: WORSE by more than 0.5 %" in capsys.readouterr().out
    assert main(["compare", good, bad, "--worse", "wer=20"]) == 0
    assert "bad: wer: not surely worse by more than 20 %" in capsys.readouterr().out
    assert main(["compare", bad, good, "--worse", "wer=0"]) == 0
    assert main(["compare", good, bad]) == 0  # without a gate there is none
    capsys.readouterr()


def test_a_few_errors_more_are_not_surely_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, other = cell(tmp_path / "good", 0), cell(tmp_path / "other", 3)
    assert main(["compare", good, other, "--worse", "wer=0.5"]) == 0
    assert "but there is no interval" in capsys.readouterr().out


def test_latency_has_its_margin_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = cell(tmp_path / "fast", 0), cell(tmp_path / "slow", 0, compute_s=0.4)
    assert main(["compare", fast, slow, "--worse", "wer=0", "commit_p90=100ms"]) == 1
    said = capsys.readouterr().out
    assert "slow: commit_p90: WORSE by more than 0.1 s" in said
    assert main(["compare", fast, slow, "--worse", "commit_p90=9s"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "given, told",
    [
        ("wer", "takes a number of 0 or more in %, as in wer=1%"),
        ("rtf=0.3", "--worse rtf: only these are compared: wer, word_latency_committed_p50_ca_s"),
        ("commit_p90=1", "takes a number of 0 or more in s or ms"),
        ("were=1", "no such metric; did you mean wer?"),
    ],
)
def test_a_wrong_margin_is_refused_before_anything_is_read(
    given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "nowhere", "--worse", given]) == 2
    assert told in capsys.readouterr().err
