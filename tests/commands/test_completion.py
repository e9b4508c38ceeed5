"""Completion in a shell: Hydra's own, installed for the console script, asked as bash asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import HANG_S

SCRIPT = f"""#!{sys.executable}
import sys
from streaming_asr.commands.cli import main
sys.exit(main())
"""
BASH = shutil.which("bash")

# What readline does on a tab: the function of the command, with the line and the cursor.
TAB = """
eval "$(streaming-asr -sc install=bash)"
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p streaming-asr >&2
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="no bash here: apt install bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("streaming-asr method=whi", {"method=whisperrt"}),
        ("streaming-asr data.sn", {"data.snr_db="}),
    ],
)
def test_bash_completes_choices_and_settings(line: str, offered: set[str], tmp_path: Path) -> None:
    script = tmp_path / "bin" / "streaming-asr"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", TAB, "bash", line],
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert "-F hydra_bash_completion streaming-asr" in done.stderr
    assert {word.strip() for word in done.stdout.split()} == offered, done.stderr


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_each_shell_has_its_script(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    from streaming_asr.run import command as run

    assert run.main(["-sc", f"install={shell}"]) == 0
    assert "streaming-asr" in capfd.readouterr().out
