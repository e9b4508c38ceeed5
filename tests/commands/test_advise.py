"""What serves these recordings on this machine: the answer, its budgets, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import soundfile
from report_cells import SENTENCE, write_cell

from streaming_asr.commands.advise import judged, main
from streaming_asr.config.command_line import CommandLine
from streaming_asr.corpora import Folder, Mini
from streaming_asr.corpora.loader import choose
from streaming_asr.errors import UserError
from streaming_asr.score import score_folder
from streaming_asr.score.results import BUSY


def test_a_quick_method_carries_more_and_two_runs_give_a_spread(tmp_path):
    write_cell(tmp_path / "a" / "method=whisperrt,chunk=300ms", compute_s=0.01)
    write_cell(tmp_path / "b" / "method=whisperrt,chunk=300ms", compute_s=0.02)
    write_cell(tmp_path / "a" / "method=ufal,chunk=300ms", compute_s=0.1)
    write_cell(tmp_path / "a" / "method=star,chunk=300ms", compute_s=0.4)
    choices, notes = judged([tmp_path / "a", tmp_path / "b"])
    assert notes == []
    served = {each.result.method: each.n_streams for each in choices}
    # A step of 20 ms each 300 ms loads a device with 15 streams, one of 100 ms with 3.
    few, many = served["whisperrt"]
    assert 8 <= few <= 15 < many <= 30
    assert 1 <= served["ufal"][0] <= 3
    assert served["star"] == [0]  # its step takes longer than the chunk


def test_what_cannot_be_judged_is_named_and_left_out(tmp_path):
    write_cell(tmp_path / "method=offline,chunk=300ms")
    with pytest.raises(UserError, match="no cell can be judged"):
        judged([tmp_path])
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    failed = tmp_path / "method=star,chunk=300ms"
    failed.mkdir()
    (failed / "failed.json").write_text('{"error": "no weights"}')
    choices, notes = judged([tmp_path])
    assert [each.result.method for each in choices] == ["ufal"]
    assert notes == ["left out: star 300ms: no weights"]


def test_a_failed_recording_is_named_and_counts_with_an_empty_text(tmp_path):
    cell = write_cell(tmp_path / "method=ufal,chunk=300ms")
    opening = {"kind": "utterance", "utt": "u3", "text": SENTENCE, "duration_samples": 16_000}
    end = {"kind": "end", "utt": "u3", "status": "failed", "error": "no sound"}
    with (cell / "events.jsonl").open("a") as log:
        log.writelines(json.dumps(line) + "\n" for line in (opening, end))
    score_folder(cell)
    (choice,), notes = judged([tmp_path])
    # Two errors of the other recordings, and the seven words of this one, of twenty.
    assert choice.result.metrics["wer"] == pytest.approx(100 * 9 / 20)
    assert notes == ["ufal 300ms: 1 of 3 recordings failed; they count with an empty text"]


def test_a_busy_machine_is_named_as_in_the_table(tmp_path):
    """The streams that such a log carries are fewer than a quiet machine has."""
    for method, cpu_share in (("ufal", 0.5), ("star", 0.9)):
        cell = write_cell(tmp_path / f"method={method},chunk=300ms")
        result = json.loads((cell / "metrics.json").read_text())
        metrics = result["metrics"]
        metrics["rtf_cpu"] = cpu_share * metrics["rtf_total"]
        (cell / "metrics.json").write_text(json.dumps(result))
    _, notes = judged([tmp_path])
    assert notes == [f"ufal 300ms: {BUSY}"]


@pytest.mark.parametrize(
    ("budget", "status", "use"),
    [
        ([], 0, "live method=ufal chunk=300ms gate=none"),
        (["streams=8"], 0, "serve method=whisperrt chunk=300ms gate=none method.beam=3"),
        (["streams=4000"], 1, None),
        (["lag=20ms"], 1, None),
    ],
)
def test_the_answer_is_within_the_budget(budget, status, use, tmp_path, capsys):
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
def test_bad_input_is_refused_before_anything_loads(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


SETTINGS = ["model=mini", "method=whisperrt", "chunk=1s", "--minutes", "0.2"]


def test_too_little_audio_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("talks").mkdir()
    soundfile.write("talks/a.wav", np.zeros(1), 16_000)
    soundfile.write("talks/b.wav", np.zeros(24_000), 16_000)
    assert main(["talks", *SETTINGS]) == 2
    rule = "error: talks: holds 1.50 s of audio, too little to measure; name 20 s or more"
    assert rule in capsys.readouterr().err


class Machine:
    """Replaces the clock and `run`: a cell takes its real-time factor times its audio."""

    RTF: ClassVar = {
        ("offline", "300ms"): 0.05,
        ("whisperrt", "1000ms"): 0.1,
        ("whisperrt", "300ms"): 0.2,
        ("simul_whisper", "1000ms"): 0.5,
        ("simul_whisper", "300ms"): 0.8,
        ("ufal", "1000ms"): 0.9,
        ("ufal", "300ms"): 2.0,
    }

    def __init__(self, slowdown: float) -> None:
        self.now = 0.0
        self.slowdown = slowdown  # of all that runs after the costs are measured

    def monotonic(self) -> float:
        return self.now

    def run(self, argv: list[str], _: object) -> int:
        line = CommandLine(argv)
        name = str(line.get("name")).strip("'")
        is_cost = name.endswith("cost")
        audio_s = 5.0 if is_cost else 10.0 * int(str(line.get("limit")))
        for method in str(line.get("method")).split(","):
            chunk = "1000ms" if line.get("chunk") == "1s" else "300ms"
            rtf = self.RTF[method, chunk] * (1 if is_cost else self.slowdown)
            folder = Path(str(line.get("output")), name, f"method={method},chunk={chunk}")
            # SENTENCE lasts 3.1 s: four steps of a second, eleven of 300 ms.
            write_cell(
                folder,
                chunk=chunk,
                texts={"u1": (SENTENCE, SENTENCE)},
                compute_s=rtf * 3.1 / (4 if chunk == "1000ms" else 11),
                model={"name": "tiny.en"},
            )
            (folder / ".hydra").mkdir()
            settings = ["data=folder", f"method={method}", f"chunk={line.get('chunk')}"]
            (folder / ".hydra" / "overrides.yaml").write_text(json.dumps(settings))
            self.now += rtf * audio_s
        return 0


@pytest.mark.parametrize(
    ("minutes", "slowdown", "seconds", "n", "left_out"),
    [
        # The costs take 22.5 s, so 157.5 s are left for 2.5 s per second of audio.
        ("3", 1.0, 175.5, 6, ["ufal 300ms and shorter: cannot keep up, RTF"]),
        # Twice as slow, the time is over behind the fourth of five.
        (
            "3",
            2.0,
            22.5 + 60 * 2 * 1.65,
            6,
            [
                "ufal 300ms and shorter: cannot keep up, RTF",
                "ufal 1s: no time; give more --minutes",
            ],
        ),
        # The longest chunk takes 7.5 s, more than half of the time; 20 s are always transcribed.
        (
            "0.2",
            1.0,
            7.5 + 20 * (0.05 + 0.1 + 0.5),
            2,
            [
                "chunk=300ms: no time; give more --minutes",
                "ufal 1s: no time; give more --minutes",
            ],
        ),
    ],
)
def test_measuring_stops_after_its_minutes_and_names_what_is_left_out(
    minutes, slowdown, seconds, n, left_out, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("talks").mkdir()
    noise = np.random.default_rng(0).normal(0, 0.1, 160_000)
    for k in range(12):  # 9.0 to 9.9 s
        soundfile.write(f"talks/{k}.wav", noise[: 144_000 + k * 16_000 // 12], 16_000)
        Path(f"talks/{k}.txt").write_text(SENTENCE)
    Path("talks/broken.wav").write_text("no sound")
    Path("talks/broken.txt").write_text(SENTENCE)
    machine = Machine(slowdown)
    monkeypatch.setattr("streaming_asr.commands.advise.time", machine)
    monkeypatch.setattr("streaming_asr.run.command.main", machine.run)
    methods = "method=whisperrt,simul_whisper,ufal"
    assert main(["talks", methods, "--minutes", minutes, "--json", "a.json"]) == 0
    assert machine.now == pytest.approx(seconds)
    notes = json.loads(Path("a.json").read_text())["notes"]
    broken, *others = [note for note in notes if note.startswith("left out: ")]
    assert "talks/broken.wav: not readable as audio" in broken
    for note, expected in zip(others, left_out, strict=True):
        assert note.startswith(f"left out: {expected}")
    used_s = sum(9 + int(each.id) / 12 for each in choose(Folder("talks").utterances(), n))
    assert f"transcribed: {n} recordings, {used_s:.0f} s" in notes


def test_of_one_long_recording_the_beginning_is_used(tmp_path, monkeypatch):
    """The cost takes 0.5 s, so 5.5 s are left for 0.1 s per second of audio."""
    monkeypatch.chdir(tmp_path)
    soundfile.write("talk.wav", np.random.default_rng(0).normal(0, 0.1, 960_000), 16_000)
    machine = Machine(1.0)
    monkeypatch.setattr("streaming_asr.commands.advise.time", machine)
    monkeypatch.setattr("streaming_asr.run.command.main", machine.run)
    arguments = ["method=whisperrt", "chunk=1s", "--minutes", "0.1", "--json", "a.json"]
    assert main(["talk.wav", *arguments]) == 0
    notes = json.loads(Path("a.json").read_text())["notes"]
    assert "only the first 55 s were used, without their text" in notes
    assert "transcribed: 1 recording, 55 s" in notes
    assert soundfile.info("outputs/advise/talk/audio/part.wav").duration == pytest.approx(55)


@pytest.mark.slow
@pytest.mark.parametrize("has_text", [True, False])
def test_recordings_are_measured_and_the_line_to_use_is_given(
    has_text, tmp_path, monkeypatch, capsys
):
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
    flat = " ".join(printed.split())  # the legend may break anywhere
    assert ("offline %" in flat) == ("from offline: words" in flat) == (not has_text)


@pytest.mark.slow
def test_a_recording_without_speech_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streaming_asr.commands.advise.KEEPS_UP", 1e9)
    soundfile.write("talk.wav", np.zeros(5 * 16_000, np.float32), 16_000)
    assert main(["talk.wav", *SETTINGS]) == 2
    assert "no speech was found" in capsys.readouterr().err
