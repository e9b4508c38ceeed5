"""The smallest operations on words and tokens, which decoders and metrics share.

They are outside the normaliser, so that a new normaliser does not change the code of a method.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Written without spaces: every letter counts as a word (Whisper paper, appendix C).
UNSPACED = frozenset({"zh", "yue", "ja", "th", "lo", "my"})


def pieces(text: str) -> tuple[str, ...]:
    """Return `text` cut before each blank, blanks kept: " the cat" -> (" the", " cat")."""
    return tuple(re.findall(r"\s*\S+", text))


NEAR = 32  # so many words (letters) from their end most texts of a stream differ first


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how many words (letters, tokens) `a` and `b` share from their start."""
    if type(a) is not type(b):
        a, b = tuple(a), tuple(b)
    low, high = 0, min(len(a), len(b))
    if high > NEAR:  # one comparison of nearly all of both, where halving needs two of half
        near = high - NEAR
        low, high = (near, high) if a[:near] == b[:near] else (0, near - 1)
    while low < high:  # slices are compared many times faster than words one by one
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low
