"""`score --metrics mine.py:function`, and the column set `live`."""

import json
import re
from dataclasses import replace

import pytest
from places import ROOT
from run_fakes import arguments

from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.metrics.live import COLUMNS
from streaming_asr.report import main as report
from streaming_asr.run import command as run
from streaming_asr.score import score_folder
from streaming_asr.score.columns import column_of, metric_named
from streaming_asr.score.command import main
from streaming_asr.score.task import PARTS, differing, title
from streaming_asr.utterance import TimedWord


@pytest.fixture
def cell(tmp_path):
    """Eight recordings of 2 s; the display of recording k changes twice, from the fifth on once."""
    folder = tmp_path / "cell"
    folder.mkdir()
    words = [TimedWord("the", 0.2, 0.5), TimedWord("cat", 0.6, 1.0)]
    header = {"config": {}, "versions": {}, "machine": {}, "metrics_version": 7}
    with EventWriter(folder / "events.jsonl", header) as writer:
        for k in range(8):
            partial = ["the"] if k < 4 else []
            steps = [
                Step("audio", 16_000, {"wall": 10**8}, partial=partial),
                Step("flush", 32_000, {"wall": 10**8}, committed=["the", " cat"]),
            ]
            writer.write_utterance(
                UtteranceLog(
                    utt=f"u{k}",
                    text="the cat",
                    duration_samples=32_000,
                    steps=steps,
                    words=words,
                    language="en",
                )
            )
    return folder


def test_the_example_of_the_page_is_scored_with_its_interval(cell, tmp_path, capsys, monkeypatch):
    page = (ROOT / "docs" / "new_protocol.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"`mine\.py`:\n\n```python\n(.*?)```", page, re.DOTALL)
    (named,) = re.findall(r"--metrics (wer,mine\.py:\w+)", page)
    (tmp_path / "mine.py").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main([str(cell), "--metrics", named, "--json", "runs.json"]) == 0
    shown = capsys.readouterr().out
    (run,) = json.loads((tmp_path / "runs.json").read_text(encoding="utf-8"))["runs"]
    # Two changes in 2 s for four recordings, one for the others: 1 and 0.5 per second.
    assert run["metrics"]["updates_per_s"] == pytest.approx(0.75)
    low, high = run["intervals"]["updates_per_s"]
    assert 0.5 <= low < 0.75 < high <= 1.0
    assert "updates per s" in shown and f"{low:.3f}–" in shown
    saved = json.loads((cell / "metrics.json").read_text(encoding="utf-8"))
    assert "updates_per_s" not in saved["metrics"]


def test_run_and_report_show_it_too(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text("def thirds(trace):\n    return 1 / 3\n")
    monkeypatch.chdir(tmp_path)
    given = arguments(tmp_path, "name=own")
    assert run.main([*given, "metrics=wer,mine.py:thirds"]) == 0
    assert "0.333" in capsys.readouterr().out
    assert report(["outputs/own", "--metrics", "mine.py:thirds"]) == 0
    assert "0.333" in capsys.readouterr().out
    assert run.main([*given, "metrics=mine.py:halves"]) == 2
    assert "metrics= mine.py:halves: mine.py has no function halves" in capsys.readouterr().err


def test_recordings_without_a_value_are_left_out(cell, tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("def f(trace):\n    return 3 if trace.utt == 'u2' else None\n")
    sort = ["--sort", "f", "--json", "-"]
    assert main([str(cell), "--metrics", f"{mine}:f", *sort]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["metrics"]["f"] == 3.0


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (None, "mine.py:f", "there is no file"),
        ("x = 1\n", "mine.py:f", "has no function f"),
        ("f = 1\n", "mine.py:f", "has no function f"),
        ("def f(", "mine.py:f", "cannot be loaded: SyntaxError"),
        ("import nothing_of_that_name\n", "mine.py:f", "cannot be loaded: ModuleNotFoundError"),
        ("raise SystemExit(0)\n", "mine.py:f", "cannot be loaded: SystemExit"),
        ("def wer(trace): return 1\n", "mine.py:wer", "is a metric already"),
        ("def f(trace): return 1\n", "mine.py:f,mine.py:f", "two functions have one name"),
        ("def f(trace): return 1 / 0\n", "mine.py:f", "fails on recording u0: ZeroDivisionError"),
        ("def f(trace): return 'a'\n", "mine.py:f", "returns 'a' for recording u0"),
        ("def f(trace): return float('nan')\n", "mine.py:f", "returns nan for recording u0"),
    ],
)
def test_a_function_that_cannot_be_used_is_an_error_of_one_line(
    cell, tmp_path, capsys, monkeypatch, content, name, reason
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    assert main([str(cell), "--metrics", name]) == 2
    error = capsys.readouterr().err
    assert reason in error and "mine.py" in error and error.count("\n") == 1


def test_live_is_a_set_of_columns(cell, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main([str(cell), "--metrics", "live,rtf"]) == 0
    shown = capsys.readouterr().out
    for name in COLUMNS:
        heading = column_of(name).title
        assert heading.rpartition(" ")[0] in shown and metric_named(heading) == name
    assert "RTF" in shown


def test_latencies_are_printed_with_ranks_and_sources(cell, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["latencies", str(cell), "--json", str(cell / "out.json")]) == 0
    shown = capsys.readouterr().out
    (figures,) = json.loads((cell / "out.json").read_text(encoding="utf-8"))["runs"].values()
    # Final after 2 s of audio and 0.1 s of computing; the last word ends at 1 s.
    assert figures["pipecat_ttfs"] == pytest.approx(1.1)
    assert figures["word_latency_committed_p50_ca"] == pytest.approx((1.1 + 1.6) / 2)
    assert "1.10 (1)" in shown and "pipecat-ai/stt-benchmark" in shown


# -- Tasks --


SPOKEN = UtteranceLog(
    utt="u1",
    text="The cat.",
    duration_samples=32_000,
    language="en",
    audio_hash="5ea",
    words=[TimedWord("The", 0.2, 0.5), TimedWord("cat.", 0.6, 1.0)],
    steps=[Step("flush", 32_000, {"wall": 10**8}, committed=["The", " cat."])],
)


def scored(folder, spoken=SPOKEN, **config):
    data = {"name": "voices", "split": "test", "path": str(folder)}
    header = {"config": {"data": data, **config}, "versions": {}, "machine": {"cpu": str(folder)}}
    with EventWriter(folder / "events.jsonl", header | {"metrics_version": 1}) as writer:
        writer.write_utterance(spoken)
    return dict(score_folder(folder)["task"])


def test_one_task_has_one_id_in_two_places(tmp_path):
    here = scored(tmp_path / "here" / "a", chunk="300ms")
    other = [Step("flush", 32_000, {"wall": 10**9}, committed=["A", " hat."])]
    there = scored(
        tmp_path / "there" / "b",
        replace(SPOKEN, steps=other, audio_path="/elsewhere.wav", feed="realtime"),
        chunk="1s",
        method={"name": "remote"},
    )
    assert here == there and not differing(here, there)
    assert (here["name"], here["version"]) == ("voices/test", 1)
    # SHA-256 of ["u1"], ["5ea"] and so on, by another program: it changes with VERSION alone.
    assert [here[part] for part in PARTS][:4] == [
        "b3b63cb33d04",
        "0804f853972a",
        "e21cd51e3cf8",
        "d22111d46799",
    ]
    assert title(here) == f"voices/test@1:{here['id']}"


@pytest.mark.parametrize(
    "spoken, config, told",
    [
        (replace(SPOKEN, utt="u2"), {}, "utterances"),
        (replace(SPOKEN, audio_hash="0ff"), {}, "audio"),
        (replace(SPOKEN, text="The cat!"), {}, "references"),
        (
            replace(SPOKEN, words=[TimedWord("The", 0.2, 0.5), TimedWord("cat.", 0.6, 1.2)]),
            {},
            "word times",
        ),
        (SPOKEN, {"normaliser": "identity"}, "protocol"),
    ],
)
def test_another_task_says_in_what(tmp_path, spoken, config, told):
    mine, other = scored(tmp_path / "a"), scored(tmp_path / "b", spoken, **config)
    assert differing(mine, other) == [told]
    assert mine["id"] != other["id"]


def test_what_a_log_does_not_know_differs_from_nothing(tmp_path):
    mine = scored(tmp_path / "a")
    imported = scored(tmp_path / "b", replace(SPOKEN, audio_hash=None, words=None))
    assert (imported["audio"], imported["words"]) == (None, None)
    assert not differing(mine, imported)


def test_runs_of_other_tasks_are_compared_only_when_told(tmp_path, capsys):
    late = [TimedWord("The", 0.3, 0.6), TimedWord("cat.", 0.7, 1.1)]
    scored(tmp_path / "a")
    scored(tmp_path / "b", replace(SPOKEN, words=late))
    scored(tmp_path / "c", replace(SPOKEN, audio_hash="0ff"))
    runs = ["compare", str(tmp_path / "a")]
    assert main([*runs, str(tmp_path / "b")]) == 2
    refused = capsys.readouterr().err
    assert "b and a are of different tasks, voices/test@1:" in refused
    assert "they differ in word times; score both alike, or compare" in refused
    assert main([*runs, str(tmp_path / "c")]) == 2
    assert "another audio for utterance u1" in capsys.readouterr().err
    assert main([*runs, str(tmp_path / "b"), str(tmp_path / "c"), "--other-task"]) == 0
    assert capsys.readouterr().out.count("task: voices/test@1:") == 2
    scored(tmp_path / "d", replace(SPOKEN, utt="u2"))
    assert main([*runs, str(tmp_path / "d"), "--other-task"]) == 2
    assert "of different utterances: 1 and 1, of which both have 0" in capsys.readouterr().err
