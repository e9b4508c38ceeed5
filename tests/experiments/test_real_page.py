"""The page on real models and corpora: its commands name groups, options and keys that exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import corpora_layouts as layouts
import pytest
from places import ROOT
from tiny import tiny_folder

from experiments.papers import compare as papers
from streaming_asr import train
from streaming_asr.config.compose import compose_raw
from streaming_asr.data import command as data_command
from streaming_asr.run import command as run

PAGE = ROOT / "docs" / "real.md"
COMMANDS = re.findall(
    r"^ {4}(?:python|torchrun \S+) -m streaming_asr\.(run|train) (?:-m )?(.*)$",
    PAGE.read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize(("program", "settings"), COMMANDS)
def test_a_command_of_the_page_composes(program: str, settings: str) -> None:
    # of a sweep, its first cell
    compose_raw(
        [re.sub(r"=([^,]*),.*", r"=\1", setting) for setting in settings.split()],
        config_name=program,
    )


def test_librispeech_in_five_commands(tmp_path: Path, monkeypatch, capsys) -> None:
    """As printed, but for the places, the model and how much of it all."""
    root = layouts.librispeech(tmp_path)
    chapter = root / "test-clean/121/121726"
    for name in ("train-clean-100", "dev-other"):  # the chapter with word times
        shutil.copytree(chapter, root / name / "121/121726")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## From LibriSpeech to a table\n")[2].partition("\n##")[0]
    command = r"^ {4}(?:python -m \w+\.|streaming-asr )(\w+) (.*)$"
    commands = re.findall(command, section, flags=re.MULTILINE)
    changed = {
        "data.path=/corpora/LibriSpeech": [f"data.path={root}"],
        "model=base": ["model=whisper", "model.name=base", f"model.path={tiny_folder()}"],
        "device=cuda": ["device=cpu", "limit=1"],
    }
    tiny = ["recipe.fit.max_steps=1", "recipe.target.batch=2"]
    programs = {"data": data_command, "train": train, "run": run, "papers": papers}
    for program, arguments in commands:
        given = [part for each in arguments.split() for part in changed.get(each, [each])]
        given += tiny if program == "train" else []
        given += ["tracker=none"] if program in ("train", "run") else []
        monkeypatch.setattr("sys.argv", [program, *given])
        assert not programs[program].main(), (program, capsys.readouterr())
    assert [program for program, _ in commands] == ["data", "data", "train", "run", "papers"]
    assert (tmp_path / "outputs/train/base/whisperrt/300ms/training.json").is_file()
    shown = capsys.readouterr().out
    assert "1 utterances written to outputs/librispeech/dev.jsonl" in shown
    assert "6.55" in shown and "first 1 utterances" in shown  # table I, and ours beside it
