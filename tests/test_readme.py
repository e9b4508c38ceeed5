"""The commands of the README: they name programs, groups, options and keys that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from streaming_asr.config import compose_raw

PAGE = Path(__file__).parent.parent / "README.md"
COMMANDS = re.findall(
    r"^ {4}python -m ([\w.]+) ?(.*?)(?: +#.*)?$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize(("program", "settings"), COMMANDS)
def test_a_command_of_the_readme_exists_and_its_settings_compose(
    program: str, settings: str
) -> None:
    importlib.import_module(program)
    name = program.removeprefix("streaming_asr.")
    if name not in ("run", "train") or settings == "--help":
        return
    axes = [setting.split("=", 1) for setting in settings.removeprefix("-m ").split()]
    first = [f"{key}={values.split(',')[0]}" for key, values in axes]
    for method in dict(axes)["method"].split(","):  # of a sweep, its first cell of each method
        compose_raw([*first, f"method={method}"], config_name=name)
