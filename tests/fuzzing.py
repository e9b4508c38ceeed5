"""What the fuzz tests share: how many cases, a limit of time, and ways to spoil text and JSON.

A case may end in a UserError or in a result that can be written as JSON; anything else is a fault.
"""

from __future__ import annotations

import copy
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from places import HANG_S

# The tests' shares add up to 200; `make test-all FUZZ_FACTOR=10` multiplies them.
FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))

WEIRD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, -0.5, 1e308, -1e308, math.nan, math.inf, -math.inf, 2**63, 10**12),
    *("", " ", "\ud800", "a\u2028b", "\x00", "maybe", "1", "../x", "x" * 300, "日本"),
    *([], {}, [[]], [1, "a"], {"a": 1}, [None], [["a", 1.0, 0.5]]),
)


def cases(share: int) -> Callable[[Any], Any]:
    """Run a test on so many of every 200 cases: the same ones in each run where FACTOR is 1.

    A higher one draws others in every run; a failure prints its case and a decorator with which
    the same test fails again.
    """
    return settings(
        max_examples=share * FACTOR,
        derandomize=FACTOR == 1,
        database=None,
        deadline=None,
        print_blob=True,
        # A fault is worth more now than a smaller one in ten minutes.
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def watched() -> Iterator[None]:
    """Raise TimeoutError in what has no answer within HANG_S."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {HANG_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def assert_finite(path: Path) -> dict[str, Any]:
    """Assert that a result holds no number that JSON has not, and return it."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{path}: holds {name}")

    result: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    for name, value in result["metrics"].items():
        assert value is None or math.isfinite(value), f"{name} is {value}"
    return result


# -- spoiled values -----------------------------------------------------------------------------


@st.composite
def spoiled(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some were cut off, overwritten, inserted, removed or repeated."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        end = at + draw(st.sampled_from((1, 2, 4, 16, 200)))
        piece = draw(st.binary(max_size=16))
        change = draw(st.sampled_from(("cut", "overwrite", "insert", "remove", "repeat")))
        if change == "cut":
            del data[at:]
        elif change == "overwrite":
            data[at : at + len(piece)] = piece
        elif change == "insert":
            data[at:at] = piece
        elif change == "remove":
            del data[at:end]
        else:
            data[at:at] = data[at:end]
    return bytes(data)


@st.composite
def edited(draw: st.DrawFn, value: Any) -> Any:
    """JSON of which up to three parts were replaced, removed or repeated."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(("replace", "replace", "remove", "repeat", "swap")))
        if change == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(WEIRD)))  # later edits change it
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, list):
            other = draw(st.integers(0, len(holder) - 1))
            if change == "repeat":
                holder.insert(other, copy.deepcopy(holder[key]))
            else:
                holder[key], holder[other] = holder[other], holder[key]
        else:
            holder[f"{key}2"] = holder[key]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    found = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in found:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def spoiled_lines(text: str) -> st.SearchStrategy[bytes]:
    """JSON Lines with edited rows, or with spoiled bytes."""
    rows = [json.loads(line) for line in text.splitlines()]
    as_rows = edited(rows).map(lambda rows: "".join(json.dumps(r) + "\n" for r in rows).encode())
    return st.one_of(as_rows, as_rows, spoiled(text.encode()))
