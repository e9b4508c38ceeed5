"""What serves these recordings on this machine: the answer, its budgets, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from report_cells import SENTENCE, write_cell

from streaming_asr.commands.advise import changed, judged, main
from streaming_asr.corpora import Mini
from streaming_asr.errors import UserError
from streaming_asr.score.results import read_results


def test_a_quick_method_carries_more_and_two_runs_give_a_spread(tmp_path: Path) -> None:
    write_cell(tmp_path / "a" / "method=whisperrt,chunk=300ms", compute_s=0.01)
    write_cell(tmp_path / "b" / "method=whisperrt,chunk=300ms", compute_s=0.02)
    write_cell(tmp_path / "a" / "method=ufal,chunk=300ms", compute_s=0.1)
    write_cell(tmp_path / "a" / "method=star,chunk=300ms", compute_s=0.4)
    choices, left_out = judged([tmp_path / "a", tmp_path / "b"])
    assert left_out == []
    served = {each.result.method: [s.n if s else 0 for s in each.served] for each in choices}
    # A step of 20 ms each 300 ms loads a device with 15 streams, one of 100 ms with 3.
    few, many = served["whisperrt"]
    assert 8 <= few <= 15 < many <= 30
    assert 1 <= served["ufal"][0] <= 3
    assert served["star"] == [0]  # its step takes longer than the chunk


def test_what_cannot_be_judged_is_named_and_left_out(tmp_path: Path) -> None:
    write_cell(tmp_path / "method=offline,chunk=300ms")
    with pytest.raises(UserError, match="no cell can be judged"):
        judged([tmp_path])
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    failed = tmp_path / "method=star,chunk=300ms"
    failed.mkdir()
    (failed / "failed.json").write_text('{"error": "no weights"}')
    choices, left_out = judged([tmp_path])
    assert [each.result.method for each in choices] == ["ufal"]
    assert left_out == ["star 300 ms: no weights"]


@pytest.mark.parametrize(
    ("budget", "status", "use"),
    [
        ([], 0, "live method=ufal chunk=300ms gate=none"),
        (["streams=8"], 0, "serve method=whisperrt chunk=300ms gate=none method.beam=3"),
        (["streams=4000"], 1, None),
        (["lag=20ms"], 1, None),
    ],
)
def test_the_answer_is_within_the_budget(
    budget: list[str],
    status: int,
    use: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """UFAL makes no error and carries few streams, WhisperRT the other way round."""
    cells = {"ufal": (0.1, SENTENCE), "whisperrt,method.beam=3": (0.01, SENTENCE[:-4])}
    for method, (compute_s, text) in cells.items():
        folder = tmp_path / "g" / f"method={method},chunk=300ms,limit=1"
        write_cell(folder, compute_s=compute_s, texts={"u1": (SENTENCE, text)})
    out = tmp_path / "a.json"
    assert main([str(tmp_path / "g"), *budget]) == status
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert (f"\n  streaming-asr {use}\n" in printed) == (use is not None)
    assert "\nwhisperrt beam=3 " in printed
    assert main([str(tmp_path / "g"), *budget, "--json", str(out)]) == status
    assert json.loads(out.read_text())["use"] == (use and use.partition(" ")[2])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lag=fast"], "lag=fast: not a duration"),
        (["streams=0"], "streams=0: a whole number from 1"),
        (["talk.wav"], "talk.wav: no such file"),
        (["voices", "talk.wav"], "name one recording"),
        (["data=mini"], "name the recordings by themselves"),
        (["--minutes", "0"], "--minutes=0.0: 0.1 or more"),
    ],
)
def test_bad_input_is_refused_before_anything_loads(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_change_of_speed_is_reported(tmp_path: Path) -> None:
    write_cell(tmp_path / "method=ufal,chunk=300ms", compute_s=0.1)
    (result,) = read_results(tmp_path)
    rtf = result.metrics["rtf_total"] or 0.0
    name = f"{result.label} {result.chunk}"
    assert changed({name: rtf}, [result]) == changed({name: 1.4 * rtf}, [result]) == []
    for factor in (0.5, 2.0):
        (note,) = changed({name: factor * rtf}, [result])
        assert "speed of this machine changed" in note and f"to {rtf:.2f}" in note


SETTINGS = ["model=mini", "method=whisperrt", "chunk=1s", "--minutes", "0.2"]


def test_too_little_audio_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talks").mkdir()
    soundfile.write("talks/a.wav", np.zeros(1), 16_000)
    soundfile.write("talks/b.wav", np.zeros(24_000), 16_000)
    assert main(["talks", *SETTINGS]) == 2
    rule = "error: talks: holds 1.50 s of audio, too little to measure; name 20 s or more"
    assert rule in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("has_text", [True, False])
def test_recordings_are_measured_and_the_line_to_use_is_given(
    has_text: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five seconds of one recording suffice for an answer, though not for an interval."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streaming_asr.commands.advise.LEAST_S", 60.0)
    clip = min(Mini().utterances(), key=lambda each: abs(each.duration_s - 5))
    soundfile.write("talk.wav", clip.load(), 16_000)
    if has_text:
        Path("talk.txt").write_text(clip.text)
    # On a busy machine nothing may keep up, which is no fault of the program.
    monkeypatch.setattr("streaming_asr.commands.advise.KEEPS_UP", 1e9)
    status = main(["talk.wav", *SETTINGS])
    printed = capsys.readouterr().out
    assert status in (0, 1)
    assert "transcribed: 1 recording, " in printed and "–" in printed
    assert "\nwhisperrt 1s " in printed
    assert Path("outputs/advise/talk/words/report.html").is_file()
    assert ("offline %" in printed) == (not has_text)


@pytest.mark.slow
def test_a_recording_without_speech_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streaming_asr.commands.advise.KEEPS_UP", 1e9)
    soundfile.write("talk.wav", np.zeros(5 * 16_000, np.float32), 16_000)
    assert main(["talk.wav", *SETTINGS]) == 2
    assert "no speech was found" in capsys.readouterr().err
