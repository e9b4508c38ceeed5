"""The scripts of the pages: the report's parts join to one module without an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_asr.report.page import HERE, SCRIPT, script

ROOT = Path(__file__).parents[2]
OXLINT = shutil.which("oxlint", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(not OXLINT, reason="no oxlint here: pip install -e '.[dev]'")
def test_the_parts_of_the_script_join_without_an_error(tmp_path: Path) -> None:
    """No two parts define one name, and none takes a name that is not there."""
    assert OXLINT
    file = tmp_path / "page.js"
    file.write_text(script(), encoding="utf-8")
    command = [OXLINT, "--config", str(ROOT / ".oxlintrc.json"), "--format", "unix", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_joined_script_has_every_part_and_imports_nothing() -> None:
    text = script()
    assert {file.stem for file in (HERE / "script").iterdir()} == set(SCRIPT)
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    heads = [(HERE / "script" / f"{name}.js").read_text("utf-8").splitlines()[0] for name in SCRIPT]
    assert [text.index(head) for head in heads] == sorted(text.index(head) for head in heads)
