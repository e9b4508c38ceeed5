"""The code blocks of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator


def expanded(block: str) -> Iterator[str]:
    """Yield the lines of a block with what earlier ones of the form name="..." set."""
    given: dict[str, str] = {}
    for line in map(str.strip, block.splitlines()):
        full = re.sub(r"\$(\w+)", lambda name: given.get(name[1], name[0]), line)
        if is_set := re.fullmatch(r'(\w+)="(.*)"', full):
            given[is_set[1]] = is_set[2]
        else:
            yield full
