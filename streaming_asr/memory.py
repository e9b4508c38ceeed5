"""The memory that a stream takes, and what to do when there is not enough."""

from __future__ import annotations

import ctypes
import gc
import sys
from threading import Event, Thread
from typing import Any

PERIOD_S = 0.02  # between two samples: rare enough to cost nothing, often enough to see a buffer


def give_back() -> None:
    """Collect what only the collector can free, and hand free memory back to the system.

    glibc keeps what was freed for later use, in pieces between what is still used; after sessions
    of a server that is most of what they took.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


class MemoryMeter:
    """Peak memory since `reset`, while the `with` block runs.

    On the CPU: the largest resident set sampled, less the one at the block's start, when the model
    is loaded already (ru_maxrss would report the loading). Where a CUDA device is in use: the peak
    of what torch allocated on it, the weights included.
    """

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._baseline = self._peak = 0
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
        self._peak = self._resident()

    def sample(self) -> None:
        self._peak = max(self._peak, self._resident())

    def peak_bytes(self) -> int:
        cuda = _cuda()
        if cuda is not None:
            return int(cuda.max_memory_allocated())
        self.sample()
        return max(self._peak - self._baseline, 0)

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.sample()


def _cuda() -> Any | None:
    """Return torch.cuda where a device is in use; torch is never imported for the question."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def ran_out(error: BaseException) -> bool:
    """Return whether `error` says that memory ran out in torch, CTranslate2, numpy or Python."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "out of memory" in str(error).lower())
    )


def remedy(error: BaseException, *, batch: int, device: str, dtype: str) -> str:
    """Return what happened in one sentence and what makes room, the cheapest first."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    what = lines[0].strip().rstrip(".") if lines else type(error).__name__
    room = [f"batch={batch // 2}"] if batch > 1 else []
    room += ["dtype=float16"] if device != "cpu" and dtype == "float32" else []
    room += ["a smaller model="]
    room += ["device=cpu"] if device != "cpu" else []
    return (
        f"out of memory on {device} ({what}); end other programs that use it, or try "
        f"{', '.join(room)}; the utterances done are kept, the same command goes on from there"
    )


def release() -> None:
    """Give back what a failed cell left: its model lives on in torch's cache of blocks."""
    import gc

    gc.collect()
    cuda = _cuda()
    if cuda is not None:
        cuda.empty_cache()
