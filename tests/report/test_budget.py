"""report --budget: the best run within limits, and what lies nearest."""

import pytest
from report_cells import TEN_WORDS, write_cell, write_failed, write_three

from streaming_asr.errors import UserError
from streaming_asr.report import main
from streaming_asr.score.judge import judge, parse_limits
from streaming_asr.score.results import read_results


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """star has no error and ufal and whisperrt 4 and 5 of 120 words; nine of ten words are final
    after 1.84, 1.12 and 0.12 s."""
    root = write_three(tmp_path_factory.mktemp("three") / "g")
    config = {"data": {"_target_": "x.Mini", "split": "clean"}}
    write_failed(root / "method=u2,chunk=300ms", "no weights", **config)
    return root


@pytest.mark.parametrize(
    ("budget", "status", "lines"),
    [
        (
            ["commit_p90=1.5s", "rtf=0.9"],
            0,
            [
                "budget: commit_p90 at most 1.5 s, rtf at most 0.9",
                "mini clean: 2 of 3 runs are within it",
                "  best: ufal 300 ms: WER 3.3 % (95 % interval 0.8 to 6.7), commit_p90 1.12 s, "
                "rtf 0.070",
            ],
        ),
        (
            ["commit_p90=70ms"],
            1,
            [
                "mini clean: none of 3 runs reaches it",
                "  nearest: whisperrt 100 ms: WER 4.2 % (95 % interval 1.7 to 7.5), commit_p90 "
                "0.12 s",
                "  it misses commit_p90 by 0.05 s",
            ],
        ),
        (
            ["wer=1%"],
            0,
            [
                "  best: star 1000 ms: WER 0.0 %",
                "  1 left out: failed, without these metrics, or unlike the others",
            ],
        ),
        (
            ["wer=3.5%", "commit_p90=1200ms"],
            0,
            ["  its 95 % interval of wer, 0.8 % to 6.7 %, crosses the limit"],
        ),
        (["wer=8", "headroom=3"], 0, ["budget: wer at most 8 %, headroom at least 3"]),
    ],
)
def test_the_answer_to_a_budget(budget, status, lines, three, tmp_path, capsys):
    command = [str(three), "--out", str(tmp_path / "page.html"), "--budget", *budget]
    assert main(command) == status
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line not in printed] == []


def test_a_run_of_each_data_must_be_within_the_budget(tmp_path):
    for split, said in (("clean", "good morning"), ("other", "bad morning")):
        texts = {"u1": ("good morning", said)}
        folder = tmp_path / "g" / f"method=ufal,chunk=300ms,data.split={split}"
        write_cell(folder, split=split, texts=texts)
        command = [str(tmp_path / "g"), "--out", str(tmp_path / "page.html")]
        assert main([*command, "--budget", "rtf=0.9"]) == 0
    assert main([*command, "--budget", "rtf=0.9", "wer=8"]) == 1


@pytest.mark.parametrize(
    ("n", "n_wrong", "limit", "state", "reason"),
    [
        (12, 3, "wer=8%", "within", ""),
        (12, 0, "wer=8%", "within", ""),  # no error: all draws are equal
        (3, 0, "wer=8%", "unknown", "3 utterances, and an interval needs 6: 3 are missing"),
        (5, 1, "wer=8%", "unknown", "5 utterances, and an interval needs 6: 1 is missing"),
        (3, 3, "wer=8%", "beyond", ""),
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
    n, n_wrong, limit, state, reason, tmp_path, capsys
):
    texts = {
        f"u{k}": (TEN_WORDS, TEN_WORDS.replace("early", "yearly") if k < n_wrong else TEN_WORDS)
        for k in range(n)
    }
    folder = write_cell(tmp_path / "g" / "method=ufal,chunk=300ms", texts=texts)
    (result,) = read_results(folder)
    (found,) = judge(result.figure, parse_limits("--budget", [limit]))
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
def test_a_wrong_budget_is_refused_before_anything_is_written(text, told, tmp_path, capsys):
    with pytest.raises(UserError, match=told.replace("?", r"\?")):
        parse_limits("--budget", [text])
    folder = write_cell(tmp_path / "method=ufal,chunk=300ms")
    assert main([str(folder), "--budget", text]) == 2
    assert not (folder / "report.html").exists()
    capsys.readouterr()
