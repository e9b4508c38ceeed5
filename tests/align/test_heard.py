"""Whose words get times where there is no reference, and whom the page names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from streaming_asr.align import heard
from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.score.folder import score_folder
from streaming_asr.score.results import read_results
from streaming_asr.score.table import remarks_of

TEXTS = {"a_method": "the cat", "b_method": "the hat sat", "c_method": ""}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three methods' logs of a recording; an aligner that gives each word a second."""
    sound = tmp_path / "talk.wav"
    soundfile.write(sound, np.zeros(64_000), 16_000)
    for name, text in TEXTS.items():
        header = {"config": {"method": {"name": name}, "data": {"name": "talk"}, "chunk": "1s"}}
        step = Step(
            "flush", 64_000, {"wall": 10**9}, committed=[f" {word}" for word in text.split()]
        )
        log = UtteranceLog("talk", "", 64_000, steps=[step], audio_path=str(sound))
        with EventWriter(tmp_path / "out" / f"method={name}" / "events.jsonl", header) as writer:
            writer.write_utterance(log)
        score_folder(tmp_path / "out" / f"method={name}")

    class Aligner:
        def align(self, utterances: list) -> list[SimpleNamespace]:
            words = utterances[0].text.split()
            return [SimpleNamespace(words=[(w, i + 0.1, i + 0.9) for i, w in enumerate(words)])]

    chosen = SimpleNamespace(name="ctc-toy", config=SimpleNamespace(aligner=None))
    monkeypatch.setattr(heard.AutoAligner, "choose", lambda *_: chosen)
    monkeypatch.setattr(heard, "build", lambda _: Aligner())
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ([], "a_method"),
        (["a_method", "b_method"], "a_method"),
        (["b_method", "a_method"], "b_method"),
        (["c_method", "b_method", "a_method"], "b_method"),  # c has no words
        (["c_method"], "a_method"),
    ],
)
def test_the_words_are_those_of_the_first_method_of_the_command_line(
    order: list[str], first: str, place: Path
) -> None:
    results = heard.time_results(place, [place / f"method={name}" for name in order])
    for name in TEXTS:
        (log,) = read_log(place / f"method={name}" / "events.jsonl").utterances
        assert [word.text for word in log.words or ()] == TEXTS[first].split()
    assert {result.words_from for result in results} == {f"method={first}"}
    remark = remarks_of(read_results(place))[0]
    assert f"of the words of {first}, which favours it: all of its words count" in remark
    assert "streaming-asr compare" not in remark  # this is it
