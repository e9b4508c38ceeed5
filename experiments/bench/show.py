"""How the benchmarks print: one console, one form of a verdict on a target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"reached": "green", "missed": "red"}


def console() -> Console:
    """Standard output, 130 columns wide where it is no terminal."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=130)


def verdict(reached: bool, text: str) -> str:
    """One line: `reached` or `missed`, and what was to be reached."""
    return f"{'reached' if reached else 'missed ':9}{text}"


def print_lines(on: Console, lines: Iterable[str]) -> None:
    """Prints each line unbroken; the first word of a verdict is coloured."""
    for line in lines:
        word = line.split(" ", 1)[0]
        if word in COLOURS:
            line = f"[{COLOURS[word]}]{word}[/]{line[len(word) :]}"
        on.print(line, soft_wrap=True)
