"""What the fuzz tests share: how many cases, a limit of time, and ways to spoil text and JSON.

A case may end in a UserError or in a result that can be written as JSON; anything else is a fault.
Where it is known that an input breaks a rule, a number that comes of it is a fault as well.
"""

from __future__ import annotations

import copy
import faulthandler
import io
import json
import logging
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import HealthCheck, Phase, assume, event, settings
from hypothesis import strategies as st

# The tests' shares add up to 500; `make fuzz` multiplies them by 10.
FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))
STDERR = os.fdopen(os.dup(2), "w")  # pytest puts a file in its place
INPUT_S = 600  # against an input that is never answered; most take less than a second

WEIRD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, -0.5, 1e308, -1e308, math.nan, math.inf, -math.inf, 2**63, 10**12),
    *("", " ", "\ud800", "a\u2028b", "\x00", "maybe", "1", "../x", "x" * 300, "日本"),
    *([], {}, [[]], [1, "a"], {"a": 1}, [None], [["a", 1.0, 0.5]]),
)


def cases(share: int) -> Callable[[Any], Any]:
    """Run a test on so many of every 500 cases: the same ones in each run where FACTOR is 1.

    A higher one draws by `--hypothesis-seed`, which `make fuzz` gives; a failure prints its case
    and a decorator with which the same test fails again.
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
    """Raise TimeoutError in what has no answer within INPUT_S; end the process, with a trace of
    where it is, where even that is not heard."""

    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {INPUT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(INPUT_S)
    faulthandler.dump_traceback_later(INPUT_S + 60, exit=True, file=STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Errors(logging.Handler):
    """Keeps what is logged with a trace, or as an error."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_errors() -> Iterator[None]:
    """Assert that nothing in the block logs an error or a trace."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.found, errors.found[0]


def run(main: Callable[[list[str]], int | None], *arguments: object) -> tuple[int, str]:
    """Run a command in this process; return its exit status, which is 0, 1 or 2, and what it
    printed in UTF-8. What it raises is a fault."""
    streams = [  # as a process has them
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        for errors in ("strict", "backslashreplace")
    ]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            status = main([str(each) for each in arguments])
        except SystemExit as left:  # argparse's
            status = left.code  # type: ignore[assignment]
    text = ""
    for each in streams:
        each.flush()
        text += each.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert status in (0, 1, 2), text
    assert "Traceback" not in text, text
    event(f"exit status {status}")
    return int(status), text


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


HEADER_BYTES = 2048


@st.composite
def fielded(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which one number in the header is another: 0, 1, the largest, or a neighbour."""
    n_bytes = draw(st.sampled_from((1, 2, 4, 8)))
    at = draw(st.integers(0, max(min(HEADER_BYTES, len(content)) - n_bytes, 0)))
    order = draw(st.sampled_from(("big", "little")))
    value = int.from_bytes(content[at : at + n_bytes], order)
    most = 2 ** (8 * n_bytes) - 1
    others = (0, 1, most, most // 2, most // 2 + 1, value + 1, value - 1, 2 * value, value // 2)
    field = (draw(st.sampled_from(others)) & most).to_bytes(n_bytes, order)
    return content[:at] + field + content[at + n_bytes :]


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
    as_rows = edited(rows).map(lines)
    return st.one_of(as_rows, as_rows, spoiled(text.encode()))


# -- values that break a schema -------------------------------------------------------------------

Place = tuple[str | int, ...]


@st.composite
def breaking(draw: st.DrawFn, value: Any, schema: dict[str, Any]) -> Any:
    """`value`, which obeys the schema, with one change by which it does not: another value at one
    place, a key less or a key more."""
    path = draw(st.sampled_from([(), *_paths(value)]))
    check = jsonschema.Draft202012Validator(schema)
    changed = [_with(value, path, new) for new in (*WEIRD, *_edges(schema))]
    if path:
        changed.append(_without(value, path))
    if isinstance(_at(value, path), dict):
        changed.append(_with(value, (*path, "no such key"), 1))
    wrong = [each for each in changed if not check.is_valid(each)]
    assume(wrong)
    return draw(st.sampled_from(wrong))


def _edges(schema: Any) -> Iterator[Any]:
    """Yield the values just outside of the bounds that stand in a schema."""
    if isinstance(schema, dict):
        for key, bound in schema.items():
            if key == "minimum":
                yield bound - 1
            elif key == "maximum":
                yield from (bound + 1, bound * 1.5)
            elif key == "maxLength":
                yield "x" * (bound + 1)
            else:
                yield from _edges(bound)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _edges(inner)


def _paths(value: Any, path: Place = ()) -> Iterator[Place]:
    found = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in found:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*path, key))


def _at(value: Any, path: Place) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: Place, new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    _at(changed, path[:-1])[path[-1]] = new
    return changed


def _without(value: Any, path: Place) -> Any:
    changed = copy.deepcopy(value)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def lines(rows: Sequence[Any]) -> bytes:
    """The rows as JSON Lines; what JSON lacks is written as Python does."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
