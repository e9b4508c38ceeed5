"""What a result was computed with: package versions and the machine. Imports none of them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "peft", "numpy", "jiwer", "hydra-core", "faster-whisper")


def let_waiting_threads_sleep() -> None:
    """Make OpenMP's threads sleep while they wait for each other, unless the user set how.

    To be called before torch loads. Threads that spin starve on a machine with other work: beside
    one busy core of two, `run method=whisperrt chunk=300ms limit=20` took 0.23 s a second of audio
    with `threads=2` that spin, 0.035 with two that sleep, 0.021 with one.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this project (with its git commit where there is one) and
    of the packages that compute results."""
    found = {"python": platform.python_version()}
    for package in ("streaming-asr", *PACKAGES):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = _git_commit()
    return found | ({"commit": commit} if commit else {})


def machine(*, device: str = "cpu", launcher: str = "basic") -> dict[str, Any]:
    """Return processor, cores, memory, the GPU that `device` names and the sweep's launcher."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    found: dict[str, Any] = {
        "platform": platform.platform(terse=True),
        "cpu": _cpu_name(),
        "cores": len(mine) or os.cpu_count(),
        "launcher": launcher,
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found["memory_gib"] = round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1
        )
    if (torch := sys.modules.get("torch")) is not None:
        found["threads"] = torch.get_num_threads()
        if device.startswith("cuda"):
            found["gpu"] = torch.cuda.get_device_name(device)
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git_commit() -> str | None:
    """Return the commit of a checkout, `+` where files differ; None in an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        told = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None
