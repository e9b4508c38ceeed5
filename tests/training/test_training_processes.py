"""A recipe of the project on two processes: the weights of one, and an end where a rank fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pair import Recipe
from places import HANG_S
from tiny import tiny_folder
from toy_corpus import toy_corpus

HEAD = """
import sys
import time
from streaming_asr.training.launch import launch
from streaming_asr.training.loop import fit
code = launch(N_RANKS)
if code is not None:
    sys.exit(code)
import torch
torch.set_num_threads(1)
"""
TRAIN = """
from pair import Recipe, settings
fit(Recipe(*sys.argv[2:]), settings(sys.argv[1]))
"""
ONE = """
import sys
import torch
torch.set_num_threads(1)
from pair import Recipe, settings
from streaming_asr.training.loop import fit
one = Recipe(*sys.argv[2:])
one.accumulate = 2
fit(one, settings(sys.argv[1], accumulate=2))
"""
FAIL = """
import os
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(10_000)  # as if it waited for the other's gradients
"""
FAIL_LATER = """
import os
if os.environ["RANK"] == "0":
    sys.exit(0)
time.sleep(1)
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(10_000)
"""


pytestmark = pytest.mark.slow


def processes(
    tmp_path: Path, script: str, *arguments: str, n_ranks: int = 2
) -> subprocess.CompletedProcess:
    file = tmp_path / "train.py"
    file.write_text(HEAD.replace("N_RANKS", str(n_ranks)) + script)
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


def test_whisperrts_adapter_is_the_same_from_processes_and_from_one(tmp_path: Path) -> None:
    model, corpus = str(tiny_folder()), str(toy_corpus(tmp_path))
    ran = processes(tmp_path, TRAIN, str(tmp_path / "two"), model, corpus)
    assert ran.returncode == 0, ran.stderr
    assert "2 process(es)" in ran.stdout
    model_before = Recipe(model, corpus).model
    before = {n: p.detach().clone() for n, p in model_before.named_parameters() if p.requires_grad}
    # In a fresh process, as the two are. After other tests of a worker the weights differed.
    subprocess.run([sys.executable, "-c", ONE, str(tmp_path / "one"), model, corpus], check=True)
    ours, theirs = (torch.load(tmp_path / n / "checkpoint.pt")["model"] for n in ("two", "one"))
    assert ours.keys() == theirs.keys() == before.keys()
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name
        assert not torch.allclose(value, before[name], atol=1e-3), name


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    assert processes(tmp_path, FAIL).returncode == 3


def test_a_rank_that_fails_after_another_has_ended_ends_the_others(tmp_path: Path) -> None:
    assert processes(tmp_path, FAIL_LATER, n_ranks=3).returncode == 3
