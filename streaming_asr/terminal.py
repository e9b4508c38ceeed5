"""What the commands share: the console their tables go to, numbers, how an error ends them."""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from streaming_asr.errors import UserError, unnameable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

BAD_INPUT = 2  # the exit status
SIGNALLED = 128  # and the signal's number, as a shell counts it
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
STOPPING = ("SIGTERM", "SIGHUP")


def command_parser(
    prog: str, description: str | None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser whose description and epilog keep their lines."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog, None, description, epilog, formatter_class=raw)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --json, which `files.give_json` serves."""
    text = "print JSON in place of the table, or write it to FILE"
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help=text)


def console(width: int = 100) -> Console:
    """Return a console as wide as the terminal; where the output is none, as wide as $COLUMNS says,
    and `width` columns without it."""
    from rich.console import Console

    # Rich would cut a pipe or a file at 80, and with COLUMNS=0 print nothing.
    terminal = Console()
    is_stated = terminal.is_terminal or "COLUMNS" in os.environ
    return terminal if is_stated and terminal.width > 0 else Console(width=width)


def wrapped(text: str, indent: int = 0, width: int = 80) -> str:
    """Return one paragraph in lines of `width` letters, those after the first indented; a longer
    word, such as a path, stays in one piece to be copied."""
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


@dataclass
class Grid:
    """A table that rich prints no wider than its console, with lines that explain it below.

    heads, rows: texts, row by row. text_columns: the columns of words, which wrap where there is
    little room; the others are numbers, which never wrap. spare: columns that are left out where
    there is no room, the first of them first. A table that is still too wide becomes several, each
    with the columns of words. legend: what a column means, printed where the column is. styles:
    rich's, one a row.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: Collection[int] = (0,)
    title: str = ""
    spare: Sequence[int] = ()
    legend: Mapping[int, str] = field(default_factory=dict)
    styles: Sequence[str | None] = ()

    GAP: ClassVar[int] = 2  # between two columns
    NAME: ClassVar[int] = 28  # of words, as most names have
    LEAST: ClassVar[int] = 12  # of a column of words, where it is longer

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        widths = [max(map(self._width, self._cells(at))) for at in range(len(self.heads))]
        numbers = [at for at in range(len(self.heads)) if at not in self.text_columns]
        needed = sum(widths[at] + self.GAP for at in numbers if at not in self.spare)
        words = self._words(options.max_width - needed)
        room = options.max_width - sum(width + self.GAP for width in words.values()) + self.GAP
        # A spare column is worth less than a name in one line.
        wishes = sum(min(widths[at], self.NAME) - width for at, width in words.items())
        for at in self.spare:
            if sum(widths[k] + self.GAP for k in numbers) > room - max(wishes, 0):
                numbers.remove(at)
        parts: list[list[int]] = [[]]
        for at in numbers:
            if parts[-1] and sum(widths[k] + self.GAP for k in [*parts[-1], at]) > room:
                parts.append([])
            parts[-1].append(at)
        if self.title:
            yield Text(self.title, style="italic")
        for part in parts:
            # What the numbers leave is shared by the words, as each lacks some.
            free = max(room - sum(widths[k] + self.GAP for k in part), 0)
            lacks = {at: widths[at] - width for at, width in words.items()}
            share = min(free / max(sum(lacks.values()), 1), 1)
            wider = {at: width + int(lacks[at] * share) for at, width in words.items()}
            yield self._table(sorted([*words, *part]), widths, wider)
        if self.legend:
            lines = [text for at, text in self.legend.items() if at in [*words, *numbers]]
            yield Text(wrapped(f"{'. '.join(lines)}.", width=options.max_width))

    def _cells(self, at: int) -> list[str]:
        return [self.heads[at], *(row[at] for row in self.rows)]

    @staticmethod
    def _width(text: str) -> int:
        from rich.cells import cell_len

        return max(map(cell_len, text.split("\n")))

    def _words(self, room: int) -> dict[int, int]:
        """Return the least width of each column of words: no word is broken where there is room for
        all of them, and else the longest are."""
        longest = {
            at: max(self._width(text.replace(" ", "\n")) for text in self._cells(at))
            for at in self.text_columns
        }
        most = max(longest.values(), default=0)
        while most > self.LEAST and sum(min(n, most) + self.GAP for n in longest.values()) > room:
            most -= 1
        return {at: min(n, most) for at, n in longest.items()}

    def _table(
        self, columns: Sequence[int], widths: Sequence[int], words: Mapping[int, int]
    ) -> RenderableType:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
        for at in columns:
            grid.add_column(
                Text(self.heads[at]),
                justify="left" if at in self.text_columns else "right",
                width=words.get(at, widths[at]),
                overflow="fold",
                no_wrap=at not in self.text_columns,
            )
        for k, row in enumerate(self.rows):
            # Text, not str: a cell's name may hold what rich reads as markup.
            style = self.styles[k] if self.styles else None
            grid.add_row(*(Text(row[at]) for at in columns), style=style)
        return grid


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], **how: Any) -> None:
    """Print a table; `how`: the settings of `Grid`."""
    console().print(Grid(heads, rows, **how), crop=False)


def loading(what: str) -> None:
    """Say on stderr what is about to load, which may take a minute in silence."""
    print(f"loading {what} ...", file=sys.stderr, flush=True)


def format_number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point, a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, with their number.

    A signal that is ignored, as under nohup, or handled elsewhere stays so.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    signals = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
    taken = [s for s in signals if signal.getsignal(s) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        taken = []
    for each in taken:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def stopped(error: KeyboardInterrupt, *, resumes: bool = True) -> int:
    """Say which signal ended the program and, where it resumes, how to go on; return the exit
    status, as a shell counts it: 128 and the signal's number."""
    number = signal.Signals(error.args[0] if error.args else signal.SIGINT)
    with suppress(OSError):  # after a SIGHUP there may be no terminal to say it to
        rest = "; the same command goes on from what is done" if resumes else ""
        print(f"stopped by {number.name}{rest}", file=sys.stderr, flush=True)
    return SIGNALLED + number


def end_if_stopped(status: int) -> None:
    """End the program where a signal ended a part of it, which has named the signal."""
    if status > SIGNALLED:
        raise SystemExit(status)


def with_settings(
    about: str | None,
    program: Callable[[list[str]], int | None],
    argv: Sequence[str] | None,
    *,
    resumes: bool = True,
) -> int:
    """Run a program of key=value settings and return its exit status; --help prints `about`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        print(about)
        return 0
    return exit_status(lambda: program(arguments), resumes=resumes)


def exit_status(program: Callable[[], int | None], *, resumes: bool = True) -> int:
    """Run a program and return its exit status; print a UserError, or what stopped it. resumes:
    given again it goes on from what is done.

    Where nobody reads on, as behind `| head`, it ends in silence, as if by SIGPIPE. A character
    that the output's encoding lacks is printed as an escape.
    """
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper) and output.errors == "strict":
            output.reconfigure(errors="backslashreplace")
    try:
        with stoppable():
            try:
                return program() or 0
            finally:
                sys.stdout.flush()
    except UserError as error:
        return _refused(error)
    except KeyboardInterrupt as error:
        return stopped(error, resumes=resumes)
    except BrokenPipeError:
        _write_no_more()
        return SIGNALLED + getattr(signal, "SIGPIPE", 13)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # what the terminal cannot show
            raise
        wrong = error.object[max(error.start - 40, 0) : error.end + 40]
        return _refused(f"{wrong!r}: is no UTF-8 text; rename the file, or write the text in UTF-8")
    except (OSError, ValueError) as error:
        if (refusal := unnameable(error)) is not None:
            return _refused(refusal)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        if error.errno in FORBIDDEN and error.filename is not None:
            return _refused(
                f"{error.filename}: cannot be read or written ({error.strerror}); change its "
                "permissions, or name another place"
            )
        if error.errno not in FULL:
            raise
        _write_no_more()
        place = error.filename or "the output"
        return _refused(f"{place}: cannot be written ({error.strerror}); make room there")


def _refused(why: object) -> int:
    with suppress(OSError):  # the errors may go to the same full disk
        print(f"error: {why}", file=sys.stderr, flush=True)
    return BAD_INPUT


def _write_no_more() -> None:
    """Let what is still to be printed vanish; Python would try again as it ends."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
