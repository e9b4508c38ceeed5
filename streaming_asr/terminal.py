"""What the commands share: the console for their tables, numbers, how an error ends them."""

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
from pathlib import Path
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


def add_audio(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --audio (`report.page.sound_file`)."""
    about = (
        "folders or manifests whose recordings the page may play; without it only those that lie "
        "among the results, in the package, or where `get` put them"
    )

    def existing_path(text: str) -> Path:
        if not Path(text).exists():
            raise argparse.ArgumentTypeError(f"{text}: no such file or folder")
        return Path(text)

    parser.add_argument(
        "--audio", nargs="+", type=existing_path, default=(), metavar="PATH", help=about
    )


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """Give a command the option -cd; `config_dir` is a list: the option and its folder, or []."""

    def option(text: str) -> list[str]:
        if not Path(text).is_dir():
            raise argparse.ArgumentTypeError(f"{text}: no such folder")
        return ["-cd", text]

    about = "a folder of further configuration, as method/NAME.yaml of a method of your own"
    parser.add_argument(
        "-cd", "--config-dir", type=option, default=[], metavar="FOLDER", help=about
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --json, which `files.give_json` serves."""
    text = "print JSON in place of the table, or write it to FILE"
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help=text)


def console(width: int = 100) -> Console:
    """Return a console as wide as the terminal. Where the output is no terminal, it is as wide as
    $COLUMNS, and without that `width` columns wide."""
    from rich.console import Console

    class Ours(Console):
        """Leaves a closed pipe to `exit_status`; rich would end the program with status 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # Rich would cut a pipe or a file at 80, and with COLUMNS=0 print nothing.
    terminal = Ours()
    is_stated = terminal.is_terminal or "COLUMNS" in os.environ
    return terminal if is_stated and terminal.width > 0 else Ours(width=width)


def wrapped(text: str, indent: int = 0, width: int = 80) -> str:
    """Return one paragraph in lines of `width` characters, indented after the first. A longer word,
    such as a path, is not broken, so that it can be copied."""
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


@dataclass
class Grid:
    """A table that rich prints no wider than its console, with a legend below.

    heads, rows: the texts of the cells. text_columns: the columns of words, which wrap where there
    is little room; the others are numbers, which never wrap. spare: columns that are left out where
    there is no room, the first of them first. A table that is still too wide becomes several, each
    with the columns of words. legend: what a column means, for columns that are printed. styles:
    rich's, one a row. bold: cells in bold, as (row, column). Widths are in characters of the
    terminal.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: Collection[int] = (0,)
    title: str = ""
    spare: Sequence[int] = ()
    legend: Mapping[int, str] = field(default_factory=dict)
    styles: Sequence[str | None] = ()
    bold: Collection[tuple[int, int]] = ()

    GAP: ClassVar[int] = 2  # between two columns
    NAME: ClassVar[int] = 28  # the width of most names
    LEAST: ClassVar[int] = 12  # no column of words is made narrower

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the title, one or several tables, and the legend."""
        from rich.text import Text

        full_widths = [max(map(self._width, self._cells(i))) for i in range(len(self.heads))]

        def width_of(columns: Collection[int]) -> int:
            return sum(full_widths[i] + self.GAP for i in columns)

        numbers = [i for i in range(len(self.heads)) if i not in self.text_columns]
        needed = width_of([i for i in numbers if i not in self.spare])
        word_widths = self._word_widths(options.max_width - needed)
        words_width = sum(width + self.GAP for width in word_widths.values())
        room = options.max_width - words_width + self.GAP  # for numbers: the last has no gap
        # A name in one line is worth more than a spare column.
        wish = sum(min(full_widths[i], self.NAME) - width for i, width in word_widths.items())
        for i in self.spare:
            if width_of(numbers) > room - max(wish, 0):
                numbers.remove(i)
        parts: list[list[int]] = [[]]  # the columns of numbers of each table
        for i in numbers:
            if parts[-1] and width_of([*parts[-1], i]) > room:
                parts.append([])
            parts[-1].append(i)
        left_out = [" ".join(self.heads[i].split()) for i in self.spare if i not in numbers]
        if self.title:
            yield Text(self.title, style="italic")
        for part in parts:
            # The columns of words share the room that is left, each by what it lacks.
            free = max(room - width_of(part), 0)
            lack_of = {i: full_widths[i] - width for i, width in word_widths.items()}
            share = min(free / max(sum(lack_of.values()), 1), 1)
            widths = dict(enumerate(full_widths))
            widths |= {i: width + int(lack_of[i] * share) for i, width in word_widths.items()}
            yield self._table(sorted([*word_widths, *part]), widths)
        if left_out:
            hidden = f"no room for {', '.join(left_out)}; COLUMNS=160 before the command shows all"
            yield Text(wrapped(hidden, width=options.max_width))
        if self.legend:
            lines = [text for i, text in self.legend.items() if i in [*word_widths, *numbers]]
            yield Text(wrapped(f"{'. '.join(lines)}.", width=options.max_width))

    def _cells(self, column: int) -> list[str]:
        return [self.heads[column], *(row[column] for row in self.rows)]

    @staticmethod
    def _width(text: str) -> int:
        """Return the width of a text's longest line."""
        from rich.cells import cell_len

        return max(map(cell_len, text.split("\n")))

    def _word_widths(self, room: int) -> dict[int, int]:
        """Return the least width of each column of words: that of its longest word, if all columns
        then fit into `room`; else no more than a common limit, so that only long words break."""
        longest = {
            i: max(self._width(text.replace(" ", "\n")) for text in self._cells(i))
            for i in self.text_columns
        }
        limit = max(longest.values(), default=0)
        while limit > self.LEAST and sum(min(n, limit) + self.GAP for n in longest.values()) > room:
            limit -= 1
        return {i: min(n, limit) for i, n in longest.items()}

    def _table(self, columns: Sequence[int], widths: Mapping[int, int]) -> RenderableType:
        """Return rich's table of these columns, in these widths."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
        for i in columns:
            grid.add_column(
                Text(self.heads[i]),
                justify="left" if i in self.text_columns else "right",
                width=widths[i],
                overflow="fold",
                no_wrap=i not in self.text_columns,
            )
        for k, row in enumerate(self.rows):
            # Text, not str: rich would read brackets in a cell's name as markup.
            style = self.styles[k] if self.styles else None
            texts = (Text(row[i], style="bold" if (k, i) in self.bold else "") for i in columns)
            grid.add_row(*texts, style=style)
        return grid


def show_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Collection[int] = (0,),
    **settings: Any,
) -> None:
    """Print a table; settings: those of `Grid`."""
    console().print(Grid(heads, rows, text_columns, **settings), crop=False)


def loading(what: str) -> None:
    """Print on stderr what is about to load, since that may take a minute without other output."""
    print(f"loading {what} ...", file=sys.stderr, flush=True)


def format_number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point, a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise KeyboardInterrupt(number), so that they end a
    program as Ctrl-C does.

    A signal that is ignored, as under nohup, or handled elsewhere, is left as it is; so are all
    outside the main thread, where Python allows no handlers.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    handled = []
    if threading.current_thread() is threading.main_thread():
        existing = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
        handled = [each for each in existing if signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in handled:
            signal.signal(each, signal.SIG_DFL)


def stopped(error: KeyboardInterrupt, *, resumes: bool = True) -> int:
    """Print which signal ended the program, and return the exit status that shells use: 128 + the
    signal's number. resumes: whether the same command goes on from there, which is printed too."""
    number = signal.Signals(error.args[0] if error.args else signal.SIGINT)
    with suppress(OSError):  # after a SIGHUP there may be no terminal any more
        hint = "; the same command goes on from what is done" if resumes else ""
        print(f"stopped by {number.name}{hint}", file=sys.stderr, flush=True)
    return SIGNALLED + number


def end_if_stopped(status: int) -> None:
    """End the program with the exit status of a part of it that a signal ended; that part has
    printed which. Other statuses do nothing."""
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
    """Run a program and return its exit status; print a UserError, or the signal that stopped it.

    resumes: whether the same command goes on from what is done. Where the output is closed, as by
    `| head`, it ends without a message, as SIGPIPE would end it. A character that the output's
    encoding lacks is printed as an escape. Any other error is raised.
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
        if error.encoding != "utf-8":  # an output that could not be reconfigured
            raise
        wrong = error.object[max(error.start - 40, 0) : error.end + 40]
        return _refused(f"{wrong!r}: is no UTF-8 text; rename the file, or write the text in UTF-8")
    except (OSError, ValueError, RuntimeError) as error:
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
    """Send the rest of the output to the null device. Python would otherwise try to print it when
    it ends, and fail again."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
