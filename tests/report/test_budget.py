"""report --budget: the best run within limits, its runner-up, and what lies nearest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_cells import TEN_WORDS, write_cell, write_three

from streaming_asr.errors import UserError
from streaming_asr.report import main
from streaming_asr.report.budget import verdict
from streaming_asr.score.judge import Limit, judge, parse_limits
from streaming_asr.score.results import read_results


def parse_budget(texts: list[str]) -> list[Limit]:
    return parse_limits("--budget", texts)


def test_the_lowest_wer_within_the_budget_is_named_with_its_runner_up(tmp_path: Path) -> None:
    cells = read_results(write_three(tmp_path / "g"))
    late = {cell.method: cell.metrics["word_latency_committed_p90_ca_s"] for cell in cells}
    limit_s = (late["ufal"] + late["star"]) / 2  # type: ignore[operator]
    found = verdict(cells, parse_budget([f"commit_p90={limit_s:.3f}s", "rtf=0.9"]))
    assert found[1].endswith("2 of 3 runs are within it")
    assert found[2].startswith("  best: ufal 300 ms: WER 3.3 % (95 % interval ")
    assert "  runner-up: whisperrt 100 ms: WER 4.2 %" in found[-1]
    assert found[-1].endswith(
        "no significant difference: +0.83 points, they differ in 1, fewer than 6, of "
        "12 utterances (1 speaker, fewer than 10: too few to draw)"
    )


def test_where_none_reaches_it_the_nearest_is_told_with_what_it_misses(tmp_path: Path) -> None:
    cells = read_results(write_three(tmp_path / "g"))
    fast = next(cell for cell in cells if cell.method == "whisperrt")
    late_s = fast.metrics["word_latency_committed_p90_ca_s"] or 0
    found = verdict(cells, parse_budget([f"commit_p90={1000 * late_s - 50:.0f}ms"]))
    assert found[1] == "mini clean: none of 3 runs reaches it"
    assert found[2].startswith("  nearest: whisperrt 100 ms: WER 4.2 %")
    assert found[3] == "  it misses commit_p90 by 0.05 s"


def test_a_single_run_within_it_has_no_runner_up_and_failed_runs_are_counted(
    tmp_path: Path,
) -> None:
    root = write_three(tmp_path / "g")
    failed = root / "method=u2,chunk=300ms"
    failed.mkdir()
    (failed / "failed.json").write_text('{"error": "no weights"}')
    config = json.dumps({"data": {"_target_": "x.Mini", "split": "clean"}})
    (failed / ".hydra").mkdir()
    (failed / ".hydra" / "config.yaml").write_text(config)
    found = verdict(read_results(root), parse_budget(["wer=1%"]))
    assert "  best: star 1000 ms: WER 0.0 %" in found[2]
    assert "  no runner-up: no other run is within it" in found
    assert found[-1].startswith("  1 left out")


def test_an_interval_that_crosses_the_limit_is_said(tmp_path: Path) -> None:
    found = verdict(
        read_results(write_three(tmp_path / "g")), parse_budget(["wer=3.5%", "commit_p90=1200ms"])
    )
    assert any("interval of wer" in line and "crosses the limit" in line for line in found)


@pytest.mark.parametrize(
    ("n", "n_wrong", "limit", "state", "reason"),
    [
        (12, 3, "wer=8%", "within", ""),
        (12, 0, "wer=8%", "within", ""),  # no error: all draws say the same
        (3, 0, "wer=8%", "unknown", "3 utterances, and an interval needs 6: 3 are missing"),
        (5, 1, "wer=8%", "unknown", "5 utterances, and an interval needs 6: 1 is missing"),
        (3, 3, "wer=8%", "beyond", ""),
        (3, 0, "commit_p50=9s", "unknown", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "commit_p90=9s", "unknown", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "commit_p90=10ms", "beyond", ""),
        (3, 0, "coverage=80%", "unknown", "3 utterances, and an interval needs 6: 3 are missing"),
        (3, 0, "commit_p95=9s", "within", ""),
        (3, 0, "rtf=0.5", "within", ""),
        (3, 0, "headroom=3", "within", ""),
        (3, 0, "headroom=99", "beyond", ""),
        (3, 0, "memory=9MiB", "unknown", "it was not measured"),
    ],
)
def test_a_metric_without_the_interval_that_it_needs_cannot_be_judged(
    n: int,
    n_wrong: int,
    limit: str,
    state: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = {
        f"u{k}": (TEN_WORDS, TEN_WORDS.replace("early", "yearly") if k < n_wrong else TEN_WORDS)
        for k in range(n)
    }
    folder = write_cell(tmp_path / "g" / "method=ufal,chunk=300ms", texts=texts)
    (result,) = read_results(folder)
    (found,) = judge(result.figure, parse_budget([limit]))
    assert found.state == state
    assert found.reason.replace(" (1 speaker, fewer than 10: too few to draw)", "") == reason
    command = [str(folder), "--out", str(tmp_path / "page.html"), "--budget", limit]
    assert main(command) == (0 if state == "within" else 1)
    assert ("cannot be judged" in capsys.readouterr().out) == ("missing" in reason)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("comit_p90=1s", "no such metric; did you mean commit_p90?"),
        ("commit_p90=1", "takes a number above 0 in s or ms, as in commit_p90=1s"),
        ("commit_p90=0s", "a number above 0"),
        ("commit_p90=nan", "a number above 0"),
        ("commit_p90", "a number above 0"),
        ("rtf=0.3s", "takes a number above 0, as in rtf=1"),
        ("wer=0.1", "above 0 in %, as in wer=1%"),
        ("mean_beam=2", "not better high or low"),
    ],
)
def test_a_wrong_budget_is_refused_before_anything_is_written(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=told.replace("?", r"\?")):
        parse_budget([text])
    folder = write_cell(tmp_path / "method=ufal,chunk=300ms")
    assert main([str(folder), "--budget", text]) == 2
    assert not (folder / "report.html").exists()
    capsys.readouterr()


def test_the_exit_status_says_whether_a_run_is_within_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_three(tmp_path / "g")
    out = ["--out", str(tmp_path / "page.html")]
    assert main([str(root), *out, "--budget", "wer=8", "commit_p90=9s"]) == 0
    assert "3 of 3 runs are within it" in capsys.readouterr().out
    assert main([str(root), *out, "--budget", "wer=8", "commit_p90=1ms"]) == 1
    assert "none of 3 runs reaches it" in capsys.readouterr().out
    other = {"u1": ("good morning", "bad morning")}
    write_cell(root / "method=ufal,chunk=300ms,data.split=other", split="other", texts=other)
    assert main([str(root), *out, "--budget", "wer=8"]) == 1  # of each data one must be
    capsys.readouterr()


def test_a_metric_that_is_better_high_is_limited_from_below() -> None:
    (limit,) = parse_budget(["headroom=3"])
    assert str(limit) == "headroom at least 3"
    (limit,) = parse_budget(["commit_p90=800ms"])
    assert (limit.metric, limit.value) == ("word_latency_committed_p90_ca_s", 0.8)
