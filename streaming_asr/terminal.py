"""What the commands share: the console their tables go to, numbers, how an error ends them."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from streaming_asr.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

BAD_INPUT = 2  # the exit status
FULL = (errno.ENOSPC, errno.EDQUOT)
STOPPING = ("SIGTERM", "SIGHUP")


def command_parser(
    prog: str, description: str | None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser whose description and epilog keep their lines."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog, None, description, epilog, formatter_class=raw)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Give a command the option --json, which `files.give_json` serves."""
    told = "print JSON in place of the table, or write it to FILE"
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help=told)


def console(width: int = 100) -> Console:
    """Return a console, at least `width` columns wide where the output is no terminal."""
    from rich.console import Console

    # Rich would cut a pipe or a file at 80.
    made = Console()
    return made if made.is_terminal else Console(width=max(made.width, width))


def wrapped(text: str, indent: int = 0) -> str:
    """Return one paragraph in lines of 80 letters, those after the first indented; a longer word,
    such as a path, stays in one piece to be copied."""
    return textwrap.fill(text, 80, subsequent_indent=" " * indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def shown(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits after the point, a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, with their number.

    A signal that is ignored, as under nohup, or handled elsewhere stays so.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    found = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
    taken = [s for s in found if signal.getsignal(s) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        taken = []
    for each in taken:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def stopped(error: KeyboardInterrupt) -> int:
    """Say which signal ended the program and how to go on; return the exit status, as a shell
    counts it: 128 and the signal's number."""
    number = signal.Signals(error.args[0] if error.args else signal.SIGINT)
    with suppress(OSError):  # after a SIGHUP there may be no terminal to say it to
        told = "the same command goes on from what is done"
        print(f"stopped by {number.name}; {told}", file=sys.stderr, flush=True)
    return 128 + number


def with_settings(
    about: str | None, program: Callable[[list[str]], int | None], argv: Sequence[str] | None
) -> int:
    """Run a program of key=value settings and return its exit status; --help prints `about`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(given):
        print(about)
        return 0
    return exit_status(lambda: program(given))


def exit_status(program: Callable[[], int | None]) -> int:
    """Run a program and return its exit status; print a UserError, or what stopped it.

    Where nobody reads on, as behind `| head`, it ends in silence, as if by SIGPIPE.
    """
    try:
        with stoppable():
            try:
                return program() or 0
            finally:
                sys.stdout.flush()
    except UserError as error:
        return _refused(error)
    except KeyboardInterrupt as error:
        return stopped(error)
    except BrokenPipeError:
        _write_no_more()
        return 128 + getattr(signal, "SIGPIPE", 13)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # what the terminal cannot show
            raise
        wrong = error.object[max(error.start - 40, 0) : error.end + 40]
        return _refused(f"{wrong!r}: is no UTF-8 text; rename the file, or write the text in UTF-8")
    except OSError as error:
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
