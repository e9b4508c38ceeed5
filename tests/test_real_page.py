"""The page on real models and corpora: its commands name groups, options and keys that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streaming_asr.train  # noqa: F401 (it registers the schema of conf/train.yaml)
from streaming_asr.config import compose_raw

PAGE = Path(__file__).parent.parent / "docs" / "real.md"
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
