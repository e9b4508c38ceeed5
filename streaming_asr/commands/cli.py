"""Runs `streaming-asr NAME ...`, which is also `python -m streaming_asr NAME ...`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# What takes long to import is imported within `interruptible`.

# Name, module with a `main`, what it is for.
COMMANDS = {
    "demo": ("commands.demo", "real speech through real Whisper, or what can be had of both"),
    "transcribe": ("commands.transcribe", "your recordings: text as it comes, subtitles, JSON"),
    "compare": ("commands.compare", "methods side by side on one recording, in the player"),
    "live": ("live.command", "methods side by side on your microphone or a file"),
    "serve": ("serve", "the same for a browser and programs: OpenAI's Realtime wire format"),
    "run": ("run.command", "one method over one corpus, or a sweep (the default)"),
    "train": ("train", "train what a method needs: an adapter, a model"),
    "check": ("commands.check", "whether a method, yours too, keeps the contract of all methods"),
    "align": ("align", "word times of a corpus by forced alignment: mfa, ctc or whisper"),
    "data": ("data.command", "check a corpus; make training shards of it"),
    "score": ("score.command", "score, retime, compare logs; import simulstream's"),
    "advise": ("commands.advise", "which method, model and chunk serve your audio on this machine"),
    "audit": ("commands.audit", "where a stream loses against the same recogniser in batch mode"),
    "report": ("report", "table and HTML page of a folder of results"),
    "load": ("commands.load", "how many streams somebody's server carries, by playing them"),
    "sync": ("commands.sync", "upload the W&B runs that a sweep kept offline"),
    "export": ("commands.export", "a merged adapter, for other programs"),
    "list": ("commands.list", "methods, models, corpora and experiments there are"),
    "get": ("commands.get", "obtain weights and speech: tiny.en, base, prompts"),
    "doctor": ("commands.doctor", "what works on this machine"),
}

HELP = """\
streaming-asr compares methods of streaming speech recognition on equal terms.

  streaming-asr transcribe talk.m4a
      your recording, as in a live session; --srt, --vtt, --json write files
  streaming-asr compare audio=talk.m4a method=whisperrt,hush_word chunk=1s
      two methods on it, side by side in the player of the page
  streaming-asr method=whisperrt chunk=300ms limit=60
      run WhisperRT with tiny.en on 60 clips of the embedded voices
  streaming-asr -m method=offline,whisperrt chunk=100ms,300ms,1s
      a sweep of six cells; give the command again to go on after an interruption
  streaming-asr report outputs/default
      table and HTML page of what ran
  streaming-asr --cfg job
      the configuration; run --help lists methods, models, data and settings

commands (streaming-asr NAME ... is python -m streaming_asr NAME ...; NAME --help has more)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    with interruptible():
        from streaming_asr.terminal import exit_status

        program = _program(argv)
    return exit_status(program)


def _program(argv: list[str]) -> Callable[[], int | None]:
    """Import and return the program of a command line."""
    from importlib import import_module
    from pathlib import Path

    from streaming_asr import __version__
    from streaming_asr.corpora.audio import SUFFIXES

    if argv in ([], ["-h"], ["--help"], ["help"]):
        text = HELP + "\n".join(f"  {name:12} {use}" for name, (_, use) in COMMANDS.items())
        return lambda: print(text)
    if argv in (["--version"], ["-V"]):
        return lambda: print(f"streaming_asr {__version__}")
    command = "run"
    if argv[0] in COMMANDS:
        command = argv.pop(0)
    elif "=" not in argv[0] and Path(argv[0]).suffix.lower() in SUFFIXES:
        command = "transcribe"
    elif "=" not in argv[0] and not argv[0].startswith(("-", "~")):
        return lambda: _refuse(argv)
    module = import_module(f"streaming_asr.{COMMANDS[command][0]}")

    def run() -> int | None:
        before = sys.argv
        sys.argv = [f"streaming-asr {command}", *argv]
        try:
            status: int | None = module.main()
        finally:
            sys.argv = before
        return status

    return run


def _refuse(argv: Sequence[str]) -> None:
    from streaming_asr.config.command_line import check_bare
    from streaming_asr.errors import UserError, did_you_mean
    from streaming_asr.score.command import COMMANDS as OF_SCORE

    check_bare(argv)
    if argv[0] in OF_SCORE:
        raise UserError(f"{argv[0]}: a command of score; write streaming-asr score {argv[0]}")
    raise UserError(
        f"{argv[0]}: no such command{did_you_mean(argv[0], COMMANDS)}; "
        f"there are {', '.join(COMMANDS)}, and bare key=value runs"
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it Ctrl-C ends the process at once, with one line.

    KeyboardInterrupt would not do: a library that is being imported may raise another error for it.
    """

    def stop(number: int, _: Any) -> None:
        os.write(2, f"stopped by {signal.Signals(number).name}\n".encode())
        os._exit(128 + number)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it is ignored, or handled elsewhere
        return
    try:
        signal.signal(signal.SIGINT, stop)
    except ValueError:  # in another thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
