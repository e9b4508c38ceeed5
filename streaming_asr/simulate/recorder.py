"""Collects what a step of a method reports: the times of its parts and its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns

from streaming_asr.method import COUNTS, PARTS


class StepRecorder:
    """The recorder that the simulator passes to a method and empties after each step."""

    def __init__(self, synchronise: Callable[[], None] = lambda: None) -> None:
        """`synchronise` waits for the device that computes."""
        self._synchronise = synchronise
        self._parts_ns: dict[str, int] = {}
        self._counts: dict[str, float] = {}
        self._open: str | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to a part. Raises ValueError for misuse."""
        if name not in PARTS:
            raise ValueError(f"part {name!r} is none of {', '.join(PARTS)}")
        if self._open is not None:
            raise ValueError(f"part {name!r} begins within {self._open!r}; parts do not nest")
        self._open = name
        self._synchronise()
        begin = perf_counter_ns()
        try:
            yield
        finally:
            self._synchronise()
            self._parts_ns[name] = self._parts_ns.get(name, 0) + perf_counter_ns() - begin
            self._open = None

    def count(self, **counts: float) -> None:
        """Add to the counts. Raises ValueError for a name that COUNTS does not hold."""
        for name, value in counts.items():
            if name not in COUNTS:
                raise ValueError(f"count {name!r} is none of {', '.join(COUNTS)}")
            self._counts[name] = self._counts.get(name, 0) + value

    def drain(self) -> tuple[dict[str, int], dict[str, float]]:
        """Return (nanoseconds by part, counts) since the last call, and begin again at 0."""
        parts_ns, counts = self._parts_ns, self._counts
        self._parts_ns, self._counts = {}, {}
        return parts_ns, counts
