"""The benchmark: its inputs are valid logs, its table has both sides, wrong words are refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_folder

from experiments.bench import __main__ as bench
from experiments.bench import inputs
from streaming_asr.events.log import read_log

HERE = Path(__file__).parents[2]


def test_random_weights_load_as_a_multilingual_whisper(tmp_path, monkeypatch):
    from experiments.bench import models
    from streaming_asr.whisper.load import load_whisper

    monkeypatch.setitem(models.DIMENSIONS, "tiny", (16, 2, 1))
    whisper = load_whisper(models.random_whisper("tiny", tmp_path))
    assert whisper.eot == 50257
    assert whisper.prompt() == [50258, 50259, 50359, 50363]
    assert (whisper.n_mels, whisper.context_frames, whisper.max_tokens) == (80, 1500, 448)
    assert [w.text for w in whisper.detokenizer.words([7, 50256])] == [" w7", " w50256"]


def test_drawn_logs_have_one_reference_and_errors_by_seed(tmp_path):
    for seed in range(2):
        inputs.log(tmp_path / f"{seed}.jsonl", n=2, duration_s=60, seed=seed)
    logs = [read_log(tmp_path / f"{seed}.jsonl").utterances for seed in range(2)]
    assert [u.text for u in logs[0]] == [u.text for u in logs[1]]
    assert logs[0][0].steps != logs[1][0].steps
    assert len(logs[0][0].text.split()) == 150
    assert any(step.retracted for u in logs[0] for step in u.steps)


def test_growth_is_the_exponent_of_time():
    lines = [bench.Line("work", "s", values={"this": 3.0 * n**2}) for n in (1, 2, 4)]
    assert bench.growth(lines, [1, 2, 4], "this") == "n^2.00"
    del lines[2].values["this"], lines[1].values["this"]
    assert bench.growth(lines, [1, 2, 4], "this") == "-"


def test_the_command_measures_prints_and_writes(tmp_path, capsys):
    file = tmp_path / "figures.json"
    sizes = ["--hours", "0.01,0.02,0.03", "--cells", "2"]
    asked = ["score", "compare", "--baseline", str(HERE), *sizes, "--json", str(file)]
    assert bench.main(asked) == 0
    printed = capsys.readouterr().out
    assert "growth: this n^" in printed
    assert "DIFFERENT" not in printed
    lines = json.loads(file.read_text())
    assert [line["work"] for line in lines][0::3] == ["score, 0.01 h", "score compare, 2 cells"]
    for line in lines:
        assert set(line["values"]) == set(line["memory"]) == {"this", "baseline"}
        assert min(line["values"].values()) > 0
        assert min(line["memory"].values()) > 10


def test_a_row_that_fails_keeps_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inputs, "log", lambda file, **_: file.parent.mkdir(parents=True))
    monkeypatch.setitem(bench.ROWS, "wandb", lambda b, _: b.lines.append(bench.Line("W&B", "s")))
    assert bench.main(["score", "wandb"]) == 2
    out, err = capsys.readouterr()
    assert "W&B" in out
    assert "this: streaming_asr score" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["scores"], "did you mean score?"),
        (["--hours", "0,1"], "--hours 0,1: give numbers above 0"),
        (["--hours", "nan"], "--hours nan: give numbers above 0"),
        (["--lines", "2.5"], "--lines 2.5: give whole numbers above 0"),
        (["--most", "long"], "--most long: give numbers above 0"),
        (["--baseline", str(tiny_folder())], "no checkout of this project"),
    ],
)
def test_wrong_words_are_refused(words, complaint, capsys):
    assert bench.main(words) == 2
    assert complaint in capsys.readouterr().err


def test_help_teaches_without_torch():
    code = (
        "import sys\n"
        "from experiments.bench.__main__ import main\n"
        "try:\n    main(['--help'])\n"
        "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    asked = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert "python -m experiments.bench score limit" in asked.stdout
