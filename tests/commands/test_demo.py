"""The first command of a newcomer: the best model and speech that can be had."""

from __future__ import annotations

import pytest

from streaming_asr.commands import demo
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError


@pytest.mark.parametrize(
    ("lacking", "overrides", "said"),
    [
        ((), ["model=tiny.en", "data=prompts", "data.split=dev", "limit=15"], ""),
        (("prompts",), ["model=tiny.en", "data=voices", "limit=15"], "the prompts cannot be had"),
        (("tiny.en", "prompts"), ["model=mini", "data=mini", "limit=15"], "tiny.en cannot be had"),
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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[CommandLine]:
    """What the demo runs, without running it."""
    lines: list[CommandLine] = []

    def run(argv: list[str], *present: object) -> int:
        lines.append(CommandLine(argv))
        return 0

    monkeypatch.setattr(demo, "get_real", lambda: None)
    monkeypatch.setattr(demo, "get_prompts", lambda language: None)
    monkeypatch.setattr("streaming_asr.run.command.main", run)
    return lines


@pytest.mark.parametrize(
    ("given", "split"), [([], "dev"), (["data=prompts"], "dev"), (["data=mini"], None)]
)
def test_the_demo_names_the_split_of_its_own_corpus_only(
    given: list[str], split: str | None, started: list[CommandLine]
) -> None:
    assert demo.main(given) == 0
    assert [line.get("data.split") for line in started] == [split, split]


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        ([], [(True, "offline,whisperrt", "300ms", "15"), (True, "hush_word", "1s", "15")]),
        (["limit=4"], [(True, "offline,whisperrt", "300ms", "4"), (True, "hush_word", "1s", "4")]),
        (["method=ufal"], [(False, "ufal", "300ms", "15")]),
        (["chunk=1s"], [(False, "whisperrt", "1s", "15")]),
        (["-m", "method=ufal,u2"], [(True, "ufal,u2", "300ms", "15")]),
    ],
)
def test_the_demo_compares_methods_where_none_is_named(
    given: list[str], cells: list[tuple[bool, str, str, str]], started: list[CommandLine]
) -> None:
    assert demo.main(given) == 0
    keys = ("method", "chunk", "limit")
    assert [(line.multirun, *(line.get(key) for key in keys)) for line in started] == cells
    assert {line.get("name") for line in started} == {"demo"}


def test_ctrl_c_in_one_sweep_ends_the_demo(
    started: list[CommandLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(argv: list[str], *present: object) -> int:
        started.append(CommandLine(argv))
        return 130

    monkeypatch.setattr("streaming_asr.run.command.main", stopped)
    with pytest.raises(SystemExit) as end:
        demo.main([])
    assert end.value.code == 130
    assert len(started) == 1
