"""The command line of `python -m experiments.bench step`; --help answers without loading torch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.terminal import exit_status

DESCRIPTION = """\
Time per chunk of WhisperRT at early, middle and late chunks of one stream, and of a naive
baseline that recomputes what can be kept. Both emit the same tokens in the same run.

  python -m experiments.bench step
      random weights of Whisper tiny and base, 300 ms chunks 5, 30 and 97, one thread
  python -m experiments.bench step --model tiny --repeats 1
      the same in a fifth of the time, less steady
  python -m experiments.bench step --model small --chunk 1s --at 10,25 --json small.json
      another size, another chunk; all figures to a file
  python -m experiments.bench step --model streaming_asr/data/mini/model --at 30
      a model of your own, a Hugging Face folder

A model is tiny, base, small, medium, large-v2 or a folder. A chunk of --at is counted from 1; its
figure is the mean of five around it, of each the median over the repeats. Nothing is downloaded:
only the dimensions are Whisper's. docs/bench.md explains what is measured. The exit status is 0
whatever the figures are; a line names what misses a target.
"""
OPTIONS: dict[str, Any] = {
    "model": ("tiny", "base"),
    "chunk": "300ms",
    "at": (5, 30, 97),
    "threads": 1,
    "repeats": 3,
    "device": "cpu",
}


def read(name: str, text: str, default: Any) -> Any:
    """Return the value of an option. Raises UserError where it is not of the default's type, and
    for numbers that are not above 0."""
    several = isinstance(default, tuple)
    kind = type(default[0] if several else default)
    if kind is str:
        return tuple(dict.fromkeys(text.split(","))) if several else text
    try:
        values = {kind(part) for part in text.split(",")}
        if min(values) <= 0 or (len(values) > 1 and not several):
            raise ValueError
    except ValueError as error:
        form = "numbers with commas between them" if several else "a number"
        raise UserError(f"--{name} {text}: {form}, whole, above 0") from error
    return tuple(sorted(values)) if several else values.pop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["step"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    for option, default in OPTIONS.items():
        text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        parser.add_argument(f"--{option}", default=text, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _measure(arguments))


def _measure(arguments: argparse.Namespace) -> None:
    options = {key: read(key, getattr(arguments, key), value) for key, value in OPTIONS.items()}
    from experiments.bench import step

    result = step.bench(**options)
    step.show(result)
    if arguments.json:
        write_text(arguments.json, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
