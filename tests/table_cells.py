"""Reads Markdown tables back into numbers, so that tests assert figures and not their layout."""

from __future__ import annotations

import re
from pathlib import Path

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?|–")
Value = str | float | None | tuple[float | None, ...]


def empty_page(page: Path, folder: Path) -> Path:
    """A copy of the page with nothing between the marks of its tables."""
    text = re.sub(
        r"(<!-- (\S+):begin -->\n).*?(<!-- \2:end -->)", r"\1\3", page.read_text(), flags=re.S
    )
    copy = folder / page.name
    copy.write_text(text)
    return copy


def rows(text: str) -> list[list[tuple[str, str]]]:
    """Every row of every table: (heading, cell) in order."""
    found, header = [], []
    for line in text.splitlines():
        if not line.startswith("| "):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not header:
            header = cells
        elif set(cells[0]) != {"-"}:
            found.append(list(zip(header, cells, strict=True)))
    return found


def value(cell: str) -> Value:
    """A number, several as a tuple, None for a dash; any other text as it is."""
    if re.search("[a-zA-Z]", cell):
        return cell
    numbers = tuple(None if n == "–" else float(n) for n in NUMBER.findall(cell))
    return numbers if len(numbers) > 1 else numbers[0]


def labelled(text: str, *labels: str) -> list[dict[str, Value]]:
    """The rows that begin with these labels: heading -> value of what follows them."""
    n = len(labels)
    return [
        {name: value(cell) for name, cell in row[n:]}
        for row in rows(text)
        if tuple(cell for _, cell in row[:n]) == labels
    ]


def row(text: str, *labels: str) -> dict[str, Value]:
    """The one row that begins with these labels."""
    (found,) = labelled(text, *labels)
    return found


def figures(text: str, *labels: str) -> list[Value]:
    """The values of the one row that begins with these labels."""
    return list(row(text, *labels).values())
