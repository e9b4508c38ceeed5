"""`check`: own methods in a folder outside the clone, one fault each."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_asr.commands import cli

FAULTS = {  # a class that breaks the contract, and a part of the sentence
    "fakes.Peeks": "it uses future audio",
    "fakes.Retracting": "takes 1 final words back",
    "fakes.TimesRunAhead": "times ahead of the audio",
    "fakes.TimesRunBackwards": "times go back",
    "fakes.OneStreamOnly": "two streams in turns: one changes the other",
    "fakes.Remembers": "the same audio a second time",
    "fakes.CountsPieces": "other text in other pieces",
    "fakes.LeavesPartial": "partial words are left after the last step",
    "fakes.NoBlanks": "have no blank between them; a word begins with it",
    "fakes.Draws": "with another seed",
    "fakes.BatchMatters": "a stream in a batch differs",
    "fakes.InventsWords": "an empty stream gives",
    "fakes.FailsOnEmpty": "it fails on empty audio: ArithmeticError",
    "fakes.FailsOnOneSample": "it fails on one sample: ArithmeticError",
    "fakes.FailsAtTheEnd": "it fails: ArithmeticError",
}


def own(folder: Path, target: str) -> list[str]:
    (folder / "method").mkdir(exist_ok=True)
    (folder / "method" / "mine.yaml").write_text(f"_target_: {target}\n")
    return ["check", "method=mine", "-cd", str(folder)]


@pytest.mark.parametrize("target", FAULTS)
def test_a_planted_fault_is_a_sentence(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(own(tmp_path, target)) == 1
    shown = capsys.readouterr().out
    assert FAULTS[target] in shown and "mine: breaks " in shown


def test_a_method_that_keeps_the_contract_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(own(tmp_path, "fakes.BatchedTicker")) == 0
    assert "mine: keeps the contract" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["method=a,b"], ["method=remote"]])
def test_what_is_no_method_to_check_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *words]) == 2
    assert "method" in capsys.readouterr().err
