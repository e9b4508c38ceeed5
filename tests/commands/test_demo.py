"""The first command of a newcomer: the best model and speech that can be had."""

from __future__ import annotations

import pytest

from streaming_asr.commands import demo
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError


@pytest.mark.parametrize(
    ("lacking", "overrides", "said"),
    [
        ((), ["model=tiny.en", "data=prompts", "data.split=dev", "limit=40"], ""),
        (("prompts",), ["model=tiny.en", "data=voices", "limit=20"], "the prompts cannot be had"),
        (("tiny.en", "prompts"), ["model=mini", "data=mini", "limit=60"], "tiny.en cannot be had"),
    ],
)
def test_the_demo_takes_the_best_that_can_be_had_and_says_what_it_does_without(
    lacking: tuple[str, ...],
    overrides: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def obtain(name: str) -> None:
        asked.append(name)
        if name in lacking:
            raise UserError("no network")

    monkeypatch.setattr(demo, "get_real", lambda: obtain("tiny.en"))
    monkeypatch.setattr(demo, "get_prompts", lambda language: obtain("prompts"))
    assert demo.choose() == overrides
    told = capsys.readouterr().err
    assert said in told and told.count("cannot be had here (no network)") == bool(lacking)
    assert asked == (["tiny.en"] if "tiny.en" in lacking else ["tiny.en", "prompts"])


@pytest.mark.parametrize(
    ("given", "split"), [([], "dev"), (["data=prompts"], "dev"), (["data=mini"], None)]
)
def test_the_demo_names_the_split_of_its_own_corpus_alone(
    given: list[str], split: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(demo, "get_real", lambda: None)
    monkeypatch.setattr(demo, "get_prompts", lambda language: None)
    monkeypatch.setattr("streaming_asr.run.command.main", lambda argv: started.append(argv) or 0)
    assert demo.main(given) == 0
    assert CommandLine(started[0]).get("data.split") == split
