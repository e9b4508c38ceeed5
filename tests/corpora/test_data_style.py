"""`data manifest style=RUN`: references take the style of a run's texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.data.command import main
from streaming_asr.events.log import EventWriter, UtteranceLog
from streaming_asr.events.record import StepLine

ROWS = {  # the reference, the run's text, the text that the manifest gets
    "same": ("MISTER FOX RAN", " Mr. Fox ran.", "Mr. Fox ran."),
    "other": ("THE FOX RAN", " The Fix, ran!", "The Fox, ran!"),
    "failed": ("A DOG", " A dog.", "A DOG"),
    "not run": ("A CAT", None, "A CAT"),
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = []
    for i, (name, (text, _, _)) in enumerate(ROWS.items()):
        soundfile.write(tmp_path / f"{i}.wav", np.full(16_000, 0.1), 16_000)
        words = [[word, k / 4, k / 4 + 0.2] for k, word in enumerate(text.split())]
        row = {"id": name, "audio_filepath": f"{i}.wav", "text": text, "words": words}
        lines.append(json.dumps({**row, "duration": 1.0, "language": "en"}))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    run = tmp_path / "run"
    run.mkdir()
    header = {"config": {}, "versions": {}, "machine": {}, "metrics_version": 1}
    with EventWriter(run / "events.jsonl", header) as log:
        for name, (reference, output, _) in ROWS.items():
            if output is not None:
                words = {"committed": [output], "partial": []}
                step = StepLine("flush", 16_000, {"wall": 1}, utt=name, **words)
                failure = {"status": "failed", "error": "?"} if name == "failed" else {}
                log.write_utterance(UtteranceLog(name, reference, 16_000, steps=[step], **failure))
    return tmp_path


def command(monkeypatch: pytest.MonkeyPatch, corpus: Path, *settings: str) -> int:
    arguments = ["data=manifest", f"data.path={corpus}/corpus.jsonl", f"out={corpus}/out.jsonl"]
    monkeypatch.setattr(sys, "argv", ["data", "manifest", *arguments, *settings])
    return main()


def test_texts_take_the_style_and_keep_their_times(monkeypatch, corpus) -> None:
    assert command(monkeypatch, corpus, f"style={corpus}/run") == 0
    found = {each.id: each for each in read_manifest(corpus / "out.jsonl")}
    assert {name: each.text for name, each in found.items()} == {
        name: text for name, (_, _, text) in ROWS.items()
    }
    for each in found.values():
        assert [word.text for word in each.words] == each.text.split()
        assert [word.start for word in each.words] == [k / 4 for k in range(len(each.words))]


def test_a_run_over_other_speech_is_refused(monkeypatch, corpus, capsys) -> None:
    rows = (corpus / "corpus.jsonl").read_text().replace('"id": "', '"id": "another ')
    (corpus / "corpus.jsonl").write_text(rows)
    assert command(monkeypatch, corpus, f"style={corpus}/run") != 0
    assert f"style={corpus}/run: has no text of these utterances" in capsys.readouterr().err
    assert not (corpus / "out.jsonl").exists()
    assert command(monkeypatch, corpus, f"style={corpus}/nothing") != 0
