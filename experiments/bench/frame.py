"""What the benchmarks share: clocks, tables, verdicts on targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

PARTS = ("feature", "encode", "decode", "total")
Times = dict[str, float]
"""Milliseconds by part. What is in no part (policy, words) is in the total."""


class Meter:
    """A recorder that adds up nanoseconds; on one thread of a CPU the time this thread ran.

    Other load on the machine then hardly shows; otherwise it is the time that passed.
    """

    def __init__(self, threads: int = 1, device: str = "cpu") -> None:
        is_single = threads == 1 and device == "cpu"
        self.clock: Callable[[], int] = time.thread_time_ns if is_single else time.perf_counter_ns
        self.clock_name = "CPU time of the thread" if is_single else "elapsed time"
        self._cuda = device.startswith("cuda")
        self.spent_ms: Times = {}

    def synchronise(self) -> None:
        """Wait for the device."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.synchronise()
        begin = self.clock()
        try:
            yield
        finally:
            self.synchronise()
            self.spent_ms[name] = self.spent_ms.get(name, 0.0) + (self.clock() - begin) / 1e6

    def count(self, **counts: float) -> None:
        return None

    def drain(self) -> Times:
        """Milliseconds by part since the last call."""
        drained, self.spent_ms = self.spent_ms, {}
        return {part: drained.get(part, 0.0) for part in PARTS}


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Within it torch computes on `n` threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def table(title: str, headings: Iterable[str]) -> Table:
    """An empty table; all columns except the first are numbers."""
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if i else "left", no_wrap=True)
    return grid


def verdict(reached: bool, text: str) -> str:
    """One line: `reached` or `missed`, and what was to be reached."""
    return f"{'reached' if reached else 'missed':9}{text}"
