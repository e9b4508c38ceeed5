"""The bar of a run counts audio: what was heard of each recording, however it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fakes
import pytest
from report_cells import write_cell

from streaming_asr.run.progress import EVERY_S, Progress, show


def test_a_recording_that_failed_is_not_one_without_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"a": ("", "good morning"), "b": ("", ""), "c": ("", "")}
    cell = write_cell(tmp_path / "method=ufal,chunk=300ms", texts=texts)
    path = cell / "metrics.json"
    document = json.loads(path.read_text())
    document |= {"n_failed": 1, "failed": [{"utt": "b", "error": "not readable"}]}
    path.write_text(json.dumps(document))
    show(cell)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[:3] in ("a: ", "b: ", "c: ")] == [
        "a: good morning",
        "b: (failed)",
        "c: (no words)",
    ]


class Told:
    """A tracker that keeps what is logged."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.points.append((step, values))


def test_progress_is_audio_heard() -> None:
    long = replace(fakes.utterance("long"), duration_s=3600.0)
    short = replace(fakes.utterance("short"), duration_s=60.0, text="two words one")
    track = Told()
    with Progress("a cell", [long, short], lambda: track, "whisper") as progress:
        assert progress.description() == "0 of 2 recordings, 0:00:00 of 1:01:00"
        progress.heard(long, 1200.0)
        progress.heard(long, 1800.0)
        assert progress.description() == "0 of 2 recordings, 0:30:00 of 1:01:00"
        progress.closed(short, " Two words, one strange")
        assert progress.description() == "1 of 2 recordings, 0:31:00 of 1:01:00"
        progress.heard(long, 0.0)  # run again by itself
        progress.closed(long)  # by an earlier process
        assert progress.description() == "2 of 2 recordings, 1:01:00 of 1:01:00"
    (point,) = track.points  # three words of the reference, one too many
    assert point == (1, {"utterances_done": 1, "wer_so_far": pytest.approx(100 / 3)})


def test_a_pipe_gets_a_line_after_the_first_recording_and_then_one_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("streaming_asr.run.progress.perf_counter", lambda: now_s)
    many = [replace(fakes.utterance(f"u{k}"), duration_s=60.0) for k in range(10)]
    with Progress("a cell", many, Told, "whisper") as progress:
        assert progress.left_s() is None
        progress.closed(many[0])  # by an earlier process
        assert capsys.readouterr().err == ""
        now_s += 5.0
        progress.closed(many[1], "text")
        # 60 s of audio took 5 s, 480 s are left.
        told = "a cell: 2 of 10 recordings, 0:02:00 of 0:10:00, about 0:00:40 left\n"
        assert capsys.readouterr().err == told
        progress.closed(many[2], "text")
        assert capsys.readouterr().err == ""
        now_s += EVERY_S
        progress.heard(many[3], 30.0)
        assert capsys.readouterr().err.startswith("a cell: 3 of 10 recordings, 0:03:30")
        for each in many[3:]:
            progress.closed(each, "text")
        assert capsys.readouterr().err == ""
