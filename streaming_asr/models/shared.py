"""Keeps models that one cell of a sweep has loaded for the next cells that need the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
MOST_BYTES = 2**30
"""Weights beyond this are dropped before others load, so that a sweep needs no more memory."""

_cache: dict[Hashable, tuple[object, int]] | None = None
"""The objects and their sizes in bytes; None outside `sharing`."""
_stamp = ""


@contextmanager
def sharing() -> Iterator[None]:
    """Let `shared` keep what it loads inside the block."""
    global _cache
    outer, _cache = _cache, {}
    try:
        yield
    finally:
        _cache = outer


def forget() -> None:
    """Drop all that is kept, to free memory."""
    if _cache is not None:
        _cache.clear()


def of_files(stamp: str) -> None:
    """Set the hash of the files that `shared` loads from now on: changed files are loaded again."""
    global _stamp
    _stamp = stamp


def shared(key: Hashable, load: Callable[[], T], n_bytes: Callable[[T], int]) -> T:
    """Return the result of `load`, or that of an earlier call with this key and the same files.

    Callers must not change it. n_bytes: returns its size (see MOST_BYTES).
    """
    if _cache is None:
        return load()
    key = (_stamp, key)
    if key not in _cache:
        if sum(size for _, size in _cache.values()) > MOST_BYTES:
            _cache.clear()
        new = load()
        _cache[key] = (new, n_bytes(new))
    value: T = _cache[key][0]  # type: ignore[assignment]
    return value
