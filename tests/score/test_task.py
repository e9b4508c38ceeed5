"""Task ids: equal where the same is heard and scored alike, wherever it was run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.score import score_folder
from streaming_asr.score.command import main
from streaming_asr.score.task import PARTS, differing, title
from streaming_asr.utterance import TimedWord

SPOKEN = UtteranceLog(
    utt="u1",
    text="The cat.",
    duration_samples=32_000,
    language="en",
    audio_hash="5ea",
    words=[TimedWord("The", 0.2, 0.5), TimedWord("cat.", 0.6, 1.0)],
    steps=[Step("flush", 32_000, {"wall": 10**8}, committed=["The", " cat."])],
)


def scored(folder: Path, spoken: UtteranceLog = SPOKEN, **config: Any) -> dict[str, Any]:
    data = {"name": "voices", "split": "test", "path": str(folder)}
    header = {"config": {"data": data, **config}, "versions": {}, "machine": {"cpu": str(folder)}}
    with EventWriter(folder / "events.jsonl", header | {"metrics_version": 1}) as writer:
        writer.write_utterance(spoken)
    return dict(score_folder(folder)["task"])


def test_one_task_has_one_id_in_two_places(tmp_path: Path) -> None:
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
def test_another_task_says_in_what(
    tmp_path: Path, spoken: UtteranceLog, config: dict[str, Any], told: str
) -> None:
    mine, other = scored(tmp_path / "a"), scored(tmp_path / "b", spoken, **config)
    assert differing(mine, other) == [told]
    assert mine["id"] != other["id"]


def test_what_a_log_does_not_know_differs_from_nothing(tmp_path: Path) -> None:
    mine = scored(tmp_path / "a")
    imported = scored(tmp_path / "b", replace(SPOKEN, audio_hash=None, words=None))
    assert (imported["audio"], imported["words"]) == (None, None)
    assert not differing(mine, imported)


def test_runs_of_other_tasks_are_compared_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
