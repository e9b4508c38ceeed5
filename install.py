"""Installs the project into the Python that runs this, as `make` does; needs nothing but pip.

    .venv/bin/python install.py -c constraints.txt -e .      # arguments of `pip install`

PyTorch's default wheels for Linux carry CUDA. Where there is no NVIDIA driver, those for CPUs are
taken from PyTorch's own index if it answers. Where pip has an index of its own, that one decides.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TIMEOUT_S = 5.0
# Of everything, PyTorch being most of it (docs/getting_started.md).
FOR_CPUS = "with PyTorch for CPUs 0.4 GB to download, 1.7 GB on disk, 2 minutes or more"
WITH_CUDA = "3.0 GB to download where PyTorch comes with CUDA, 5.6 GB on disk, 6 minutes or more"


def has_driver() -> bool:
    """Return whether an NVIDIA driver is here, of Linux or of Windows below it."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def has_index(arguments: Sequence[str]) -> bool:
    """Return whether these arguments, pip's files or its variables name an index or refuse it."""
    pip = [sys.executable, "-m", "pip", "config", "list"]
    configured = subprocess.run(pip, capture_output=True, text=True, check=False).stdout
    return re.search(r"\bindex-url\b|\bno-index\b|^-i", f"{configured}\n" + "\n".join(arguments),
                     re.MULTILINE) is not None  # fmt: skip


def answers(index: str) -> bool:
    """Return whether the index has wheels of torch and says so within `TIMEOUT_S`."""
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=TIMEOUT_S) as page:
            return b".whl" in page.read()
    except (OSError, ValueError):
        return False


def for_cpus(arguments: Sequence[str], *, driver: bool, index: str = CPU_INDEX) -> list[str]:
    """Return what pip is told beside `arguments` to take PyTorch for CPUs, [] where it is not."""
    if driver or has_index(arguments) or not answers(index):
        return []
    return ["--extra-index-url", index]


def main(arguments: Sequence[str]) -> int:
    """Install, say what it takes, and return pip's exit status."""
    more = for_cpus(arguments, driver=has_driver())
    print(f"installs without a word; {FOR_CPUS if more else WITH_CUDA}", flush=True)
    begun = time.monotonic()
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    status = subprocess.run([*pip, *more, *arguments], check=False).returncode
    if status == 0:
        print(f"installed in {(time.monotonic() - begun) / 60:.1f} minutes")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
