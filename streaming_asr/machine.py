"""The machine: what a result was computed with, the memory that a stream takes, the network.

torch and other large packages are not imported here; what they report is read where they are
loaded already.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

TIMEOUT_S = 5.0  # of a connection
PERIOD_S = 0.02  # between two samples of memory: cheap, and often enough to see a buffer
PACKAGES = ("torch", "transformers", "peft", "numpy", "jiwer", "hydra-core", "faster-whisper")


def let_waiting_threads_sleep() -> None:
    """Make OpenMP's threads sleep while they wait for each other, unless the user set how.

    Call it before torch loads. Threads that spin while they wait take the cores from each other on
    a machine with other work: with one of two cores busy, `run method=whisperrt chunk=300ms
    limit=20` took 0.23 s per second of audio with `threads=2` that spin, 0.035 s with two that
    sleep, 0.021 s with one.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@cache  # as installed; a sweep asks for every cell
def versions() -> Mapping[str, str]:
    """Return the versions of Python, this project, its git commit, and what computes results."""
    numbers = {"python": platform.python_version()}
    for package in ("streaming-asr", *PACKAGES):
        try:
            numbers[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = _git_commit()
    return numbers | ({"commit": commit} if commit else {})


def machine(*, device: str = "cpu", launcher: str = "basic") -> dict[str, Any]:
    """Return what a header states of the machine: processor, cores that this process may use,
    memory in GiB, threads of torch, the GPU `device` and the sweep's launcher."""
    usable_cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    facts: dict[str, Any] = {
        "platform": platform.platform(terse=True),
        "cpu": _cpu_name(),
        "cores": len(usable_cores) or os.cpu_count(),
        "launcher": launcher,
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        facts["memory_gib"] = round(n_bytes / 2**30, 1)
    if (torch := sys.modules.get("torch")) is not None:
        facts["threads"] = torch.get_num_threads()
        if device.startswith("cuda"):
            facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _cpu_name() -> str:
    return _cpu("model name") or platform.processor() or platform.machine()


@cache
def is_intel() -> bool:
    """Return whether the processor is Intel's, for which MKL has kernels that others do not get."""
    return "Intel" in (_cpu("vendor_id") or platform.processor())


def _cpu(key: str) -> str:
    """Return the value of a key in Linux's /proc/cpuinfo, of the first core; "" elsewhere."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _git_commit() -> str | None:
    """Return the commit of a checkout, `+` where files differ; None in an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        process = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip() or None


# -- memory ---------------------------------------------------------------------------------


@contextmanager
def one_collection() -> Iterator[None]:
    """Let the garbage collector run only at the end. What reading and scoring a log make stays
    until then, and to look through it again and again takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            gc.collect(0)  # all that is new


def give_back_memory() -> None:
    """Run the garbage collector, and return free memory to the device and the system.

    torch and glibc keep freed memory for later use. After the sessions of a server, or a cell that
    failed, that is most of what they took.
    """
    gc.collect()
    if (cuda := _cuda()) is not None:
        cuda.empty_cache()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


class MemoryMeter:
    """Measures the peak memory since `reset`, while the `with` block runs.

    On the CPU: the largest resident set of the samples that a thread takes, minus the one at the
    block's start, when the model is loaded already (ru_maxrss would include the loading). Where a
    CUDA device is in use: the peak of what torch allocated on it, the weights included.
    """

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._baseline = self._peak = 0
        self._lock = Lock()  # a sample under way must not undo a reset
        self._stop = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> MemoryMeter:
        self._baseline = self._peak = self._resident()
        if _cuda() is None:
            self._thread = Thread(target=self._watch, name="memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def reset(self) -> None:
        cuda = _cuda()
        if cuda is not None:
            cuda.reset_peak_memory_stats()
        with self._lock:
            self._peak = self._resident()

    def sample(self) -> None:
        with self._lock:
            self._peak = max(self._peak, self._resident())

    def peak_bytes(self) -> int:
        cuda = _cuda()
        if cuda is not None:
            return int(cuda.max_memory_allocated())
        self.sample()
        return max(self._peak - self._baseline, 0)

    def now_bytes(self) -> int:
        """Return the memory in use now, as `peak_bytes` counts it."""
        cuda = _cuda()
        if cuda is not None:
            return int(cuda.memory_allocated())
        return max(self._resident() - self._baseline, 0)

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.sample()


def _cuda() -> Any | None:
    """Return torch.cuda where a device is in use, else None; never imports torch."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, in torch, CTranslate2, numpy or Python itself."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "out of memory" in str(error).lower())
    )


def memory_remedy(error: BaseException, *, batch: int, device: str, dtype: str) -> str:
    """Return one sentence about an out-of-memory error, with the settings that need less memory,
    the one that costs least first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    settings = []
    if batch > 1:
        settings.append(f"batch={batch // 2}")
    if device != "cpu" and dtype == "float32":
        settings.append("dtype=float16")
    settings.append("a smaller model=")
    if device != "cpu":
        settings.append("device=cpu")
    return (
        f"out of memory on {device} ({reason}); end other programs that use it, or try "
        f"{', '.join(settings)}; the utterances done are kept, the same command goes on from there"
    )


# -- the network ----------------------------------------------------------------------------


def no_way(endpoint: str) -> str | None:
    """Return why the server at a URL (the hub) cannot be reached; None where it can, and behind a
    proxy. Takes TIMEOUT_S at most; the hub's own client would try for most of a minute."""
    # Behind a proxy a direct connection fails though the hub's client would succeed.
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return None
    address = endpoint.partition("://")[2].partition("/")[0]
    host, _, port = address.partition(":")
    try:
        default_port = 80 if endpoint.startswith("http://") else 443
        with socket.create_connection((host, int(port or default_port)), timeout=TIMEOUT_S):
            return None
    except OSError as error:
        return f"{host} cannot be reached ({error.strerror or type(error).__name__})"


def has_login() -> bool:
    """Return whether Weights & Biases has a login: in WANDB_API_KEY, or in a netrc file."""
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    text = netrc.read_text(encoding="utf-8", errors="replace") if netrc.is_file() else ""
    # For a server of one's own, `wandb login` writes no "wandb", but the line "login user".
    return "WANDB_API_KEY" in os.environ or "wandb" in text or "login user" in text
