"""A sweep on a real Slurm, started here: killed, and completed by the same command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from places import ROOT

from experiments.slurm import PROGRAMS

HERE = all(map(shutil.which, PROGRAMS)) and os.geteuid() == 0


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="no Slurm to start here: as root, make slurm installs it")
def test_a_sweep_killed_on_slurm_equals_one_without() -> None:
    # By itself, since its settings of Slurm stand in the environment.
    done = subprocess.run([sys.executable, "-m", "experiments.slurm"], cwd=ROOT, check=False)
    assert done.returncode == 0
