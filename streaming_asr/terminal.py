"""What the commands share: the console their tables go to, numbers, how an error ends them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from streaming_asr.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

BAD_INPUT = 2  # the exit status


def console(width: int = 100) -> Console:
    """Return a console, `width` columns wide where the output is no terminal, since rich would cut
    a pipe or a file at 80."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal else Console(width=width)


def shown(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point, a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def exit_status(program: Callable[[], int | None]) -> int:
    """Run a program and return its exit status; print a UserError and return 2 for it."""
    try:
        return program() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
