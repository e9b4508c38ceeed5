"""A changed module of a copy of the package: its finished cells run again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_asr.files import CONF_DIR, HERE

COMMAND = "run model=mini method=ufal chunk=1s limit=3 tracker=none gate=speech threads=1"
COMMAND += " method.backend=torch"


@pytest.mark.slow
def test_a_cell_of_a_changed_commit_rule_runs_again(tmp_path: Path) -> None:
    copy = tmp_path / "package" / "streaming_asr"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("data", "conf", "__pycache__"))
    (copy / "data").symlink_to(HERE / "data")
    shutil.copytree(CONF_DIR, copy / "conf")
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}

    def run() -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "streaming_asr", *COMMAND.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return " ".join(ended.stdout.split())

    def delay(*folders: Path) -> list[float]:
        results = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
        return [result["metrics"]["word_latency_committed_p50_cu_s"] for result in results]

    run()
    assert "finished earlier, skipped" in run()
    file = copy / "text" / "tokens.py"
    source = file.read_text()
    file.write_text(source + "\n# The same program.\n")
    assert "finished earlier, skipped" in run()
    file.write_text(source + "\n\ndef common_prefix(a, b):\n    return 0\n")
    output = run()
    assert "code (text.tokens) changed; the old results are now" in output
    (old,) = (tmp_path / "outputs").rglob("*.old-1")
    before, now = delay(old, old.with_name(old.name.removesuffix(".old-1")))
    assert before < now  # nothing agrees, so all words wait for the end
