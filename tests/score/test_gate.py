"""score compare --worse: the exit status says whether a run is surely worse than the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cells import TEN_WORDS, write_cell

from streaming_asr.score.command import main


def cell(folder: Path, n_wrong: int, compute_s: float = 0.02, n: int = 20) -> str:
    """Utterances of one to four sentences; a word in each of the first `n_wrong` is wrong."""
    said = {f"u{k:02}": " ".join([TEN_WORDS] * (1 + k % 4)) for k in range(n)}
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


@pytest.mark.parametrize(
    ("n", "n_wrong", "margin", "reason"),
    [
        (20, 3, "wer=0.5", "3 utterances differ, and an interval needs 6: 3 are missing"),
        (20, 5, "wer=20", "5 utterances differ, and an interval needs 6: 1 is missing"),
        (3, 3, "wer=0.5", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "wer=0.5", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "commit_p50=9s", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "commit_p90=9s", "3 utterances, and an interval needs 6: 3 are missing"),
        (20, 20, "memory=9MiB", "it was not measured"),
    ],
)
def test_what_has_no_interval_but_needs_one_cannot_be_judged(
    n: int,
    n_wrong: int,
    margin: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three recordings that were 1.7 s later passed."""
    good, other = cell(tmp_path / "good", 0, n=n), cell(tmp_path / "other", n_wrong, n=n)
    assert main(["compare", good, other, "--worse", margin]) == 1
    name = margin.partition("=")[0]
    first = f"other: {name}: cannot be judged: {reason.partition(' (')[0]}"
    assert first.partition(",")[0] in capsys.readouterr().out
    assert main(["compare", good, other]) == 0
    capsys.readouterr()


def test_runs_that_do_not_differ_are_not_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = cell(tmp_path / "one", 3), cell(tmp_path / "other", 3)
    assert main(["compare", one, other, "--worse", "wer=0", "commit_p90=0s", "coverage=0"]) == 0
    assert "other: wer: not worse by more than 0 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("margin", "status", "sentence"),
    [
        # Steps of 0.3 s take 20 and 40 ms: RTF 0.068 and 0.136, headroom 15 and 7.5.
        ("rtf=0.05", 1, "rtf: WORSE by more than 0.05"),
        ("rtf=0.08", 0, "rtf: not worse by more than 0.08"),
        ("headroom=7", 1, "headroom: WORSE by more than 7"),
        ("headroom=8", 0, "headroom: not worse by more than 8"),
        ("step_p50_ms=10ms", 1, "step_p50_ms: WORSE by more than 10 ms"),
        ("step_p50_ms=25ms", 0, "step_p50_ms: not worse by more than 25 ms"),
    ],
)
def test_what_never_has_an_interval_is_judged_by_its_value(
    margin: str, status: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = cell(tmp_path / "fast", 0, n=3)
    slow = cell(tmp_path / "slow", 0, n=3, compute_s=0.04)
    assert main(["compare", fast, slow, "--worse", margin]) == status
    assert f"slow: {sentence}" in capsys.readouterr().out
    assert main(["compare", slow, fast, "--worse", margin]) == 0
    capsys.readouterr()


def test_coverage_is_compared_by_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = cell(tmp_path / "good", 0), cell(tmp_path / "bad", 19)
    # 19 of 500 words are not right.
    assert main(["compare", good, bad, "--worse", "coverage=1"]) == 1
    assert "bad: coverage: WORSE by more than 1 %" in capsys.readouterr().out
    assert main(["compare", good, bad, "--worse", "coverage=20"]) == 0
    assert "bad: coverage: not surely worse by more than 20 %" in capsys.readouterr().out


def test_a_short_name_is_of_the_clock_that_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = cell(tmp_path / "fast", 0), cell(tmp_path / "slow", 0, compute_s=0.4)
    command = ["compare", fast, slow, "--worse", "commit_p90=100ms", "--clock"]
    assert main([*command, "ca"]) == 1
    assert main([*command, "cu"]) == 0  # the audio came at the same times
    assert "word_latency_committed_p90_cu_s" in capsys.readouterr().out


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
        ("mean_beam=1", "mean_beam is not better high or low"),
        ("commit_p90=1", "takes a number of 0 or more in s or ms"),
        ("were=1", "no such metric; did you mean wer?"),
    ],
)
def test_a_wrong_margin_is_refused_before_anything_is_read(
    given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "nowhere", "--worse", given]) == 2
    assert told in capsys.readouterr().err
