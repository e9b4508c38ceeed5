"""Keeps what one cell of a sweep loaded for the next cells that ask for the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
MOST_BYTES = 2**30
"""Weights kept while others load: a large model's never, so that a sweep needs no more memory."""

_kept: dict[Hashable, tuple[object, int]] | None = None
_stamp = ""


@contextmanager
def sharing() -> Iterator[None]:
    """Within it `shared` keeps what it loaded."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def forget() -> None:
    """Drop what is kept, which may be what memory ran out for."""
    if _kept is not None:
        _kept.clear()


def of_files(stamp: str) -> None:
    """Set the hash of the files that are loaded from now on: changed files are loaded again."""
    global _stamp
    _stamp = stamp


def shared(key: Hashable, load: Callable[[], T], n_bytes: Callable[[T], int]) -> T:
    """Return what `load` makes, or made for this key and these files.

    Nobody may change it. n_bytes: its size, which decides whether it stays together with others.
    """
    if _kept is None:
        return load()
    key = (_stamp, key)
    if key not in _kept:
        if sum(size for _, size in _kept.values()) > MOST_BYTES:
            _kept.clear()
        new = load()
        _kept[key] = (new, n_bytes(new))
    value: T = _kept[key][0]  # type: ignore[assignment]
    return value
