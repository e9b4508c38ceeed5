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


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return how many words (letters, tokens) `a` and `b` share from their start."""
    if len(a) <= len(b) and a == b[: len(a)]:
        return len(a)
    shared = min(len(a), len(b))
    return next((i for i in range(shared) if a[i] != b[i]), shared)
