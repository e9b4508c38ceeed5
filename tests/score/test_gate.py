"""score compare --worse: the exit status says whether a run is surely worse than the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_cells import TEN_WORDS, write_cell

from streaming_asr.score.command import main


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cells <n>-<n_wrong>-<ms>: n utterances of one to four sentences with a wrong word in each of
    the first n_wrong, and the compute of a step."""
    root = tmp_path_factory.mktemp("cells")
    names = "20-0-20 20-3-20 20-3-20-b 20-5-20 20-19-20 20-0-400 3-0-20 3-3-20 3-0-40"
    for name in names.split():
        n, n_wrong, ms = map(int, name.removesuffix("-b").split("-"))
        said = {f"u{k:02}": " ".join([TEN_WORDS] * (1 + k % 4)) for k in range(n)}
        texts = {
            utt: (text, text.replace("early", "yearly", 1) if k < n_wrong else text)
            for k, (utt, text) in enumerate(said.items())
        }
        write_cell(root / name, texts=texts, compute_s=ms / 1000)
    return root


LACKS = "cannot be judged: "
THREE = (
    f"{LACKS}3 utterances (1 speaker, fewer than 10: too few to draw), and an interval needs 6: "
)


@pytest.mark.parametrize(
    ("baseline", "run", "margins", "status", "sentence"),
    [
        # 19 errors more in 500 words, in 19 of 20 utterances: 3.8 points.
        ("20-0-20", "20-19-20", "wer=0.5", 1, "wer: WORSE by more than 0.5 %"),
        ("20-0-20", "20-19-20", "wer=20", 0, "wer: not surely worse by more than 20 %"),
        ("20-19-20", "20-0-20", "wer=0", 0, "wer: not surely worse by more than 0 %"),
        ("20-0-20", "20-19-20", "coverage=1", 1, "coverage: WORSE by more than 1 %"),
        ("20-0-20", "20-19-20", "coverage=20", 0, "coverage: not surely worse by more than 20 %"),
        ("20-0-20", "20-0-400", "wer=0 commit_p90=100ms", 1, "commit_p90: WORSE by more than 0.1"),
        ("20-0-20", "20-0-400", "commit_p90=9s", 0, "commit_p90: not surely worse by more than 9"),
        # Runs that do not differ.
        (
            "20-3-20",
            "20-3-20-b",
            "wer=0 commit_p90=0s coverage=0",
            0,
            "wer: not worse by more than",
        ),
        # Too few that differ, or that there are, for an interval.
        ("20-0-20", "20-3-20", "wer=0.5", 1, f"wer: {LACKS}3 utterances differ, and an interval"),
        ("20-0-20", "20-5-20", "wer=20", 1, f"wer: {LACKS}5 utterances differ, and an interval"),
        ("3-0-20", "3-3-20", "wer=0.5", 1, f"wer: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "wer=0.5", 1, f"wer: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "commit_p50=9s", 1, f"commit_p50: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "commit_p90=9s", 1, f"commit_p90: {THREE}3 are missing"),
        ("20-0-20", "20-19-20", "memory=9MiB", 1, f"memory: {LACKS}it was not measured"),
        # What never has an interval. Steps of 0.3 s take 20 and 40 ms: RTF 0.068 and 0.136,
        # headroom 15 and 7.5.
        ("3-0-20", "3-0-40", "rtf=0.05", 1, "rtf: WORSE by more than 0.05"),
        ("3-0-20", "3-0-40", "rtf=0.08", 0, "rtf: not worse by more than 0.08"),
        ("3-0-40", "3-0-20", "rtf=0.05", 0, "rtf: not worse by more than 0.05"),
        ("3-0-20", "3-0-40", "headroom=7", 1, "headroom: WORSE by more than 7"),
        ("3-0-20", "3-0-40", "headroom=8", 0, "headroom: not worse by more than 8"),
        ("3-0-40", "3-0-20", "headroom=7", 0, "headroom: not worse by more than 7"),
        ("3-0-20", "3-0-40", "step_p50_ms=10ms", 1, "step_p50_ms: WORSE by more than 10 ms"),
        ("3-0-20", "3-0-40", "step_p50_ms=25ms", 0, "step_p50_ms: not worse by more than 25 ms"),
    ],
)
def test_the_gate(
    baseline: str,
    run: str,
    margins: str,
    status: int,
    sentence: str,
    cells: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = [str(cells / baseline), str(cells / run)]
    assert main(["compare", *pair, "--worse", *margins.split()]) == status
    assert f": {sentence}" in capsys.readouterr().out
    assert main(["compare", *pair]) == 0  # without a gate there is none


def test_a_short_name_is_of_the_clock_that_is_compared(
    cells: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(cells / "20-0-20"), str(cells / "20-0-400")]
    command = ["compare", *runs, "--worse", "commit_p90=100ms", "--clock"]
    assert main([*command, "ca"]) == 1
    assert main([*command, "cu"]) == 0  # the audio came at the same times
    assert "word_latency_committed_p90_cu_s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ("wer", "takes a number of 0 or more in %, as in wer=1%"),
        ("mean_beam=1", "mean_beam is not better high or low"),
        ("commit_p90=1", "takes a number of 0 or more in s or ms"),
        ("were=1", "no such metric; did you mean wer?"),
    ],
)
def test_a_wrong_margin_is_refused_before_anything_is_read(
    margin: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "nowhere", "--worse", margin]) == 2
    assert message in capsys.readouterr().err
