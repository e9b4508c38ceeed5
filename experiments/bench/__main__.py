"""What computing costs: `python -m experiments.bench COMMAND`; `COMMAND --help` explains each.

A benchmark is a module with `bench(**options)`, which returns all figures as plain containers, and
`show(result)`, which prints them. It reports: its exit status is 0 whatever the figures are, and
a line names what misses a target.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.terminal import exit_status


class Command(NamedTuple):
    """What --help shows of a benchmark; the default of each option, whose type is the option's."""

    text: str
    description: str
    options: Mapping[str, Any]


COMMANDS = {
    "step": Command(
        "time per chunk, and that of a naive baseline",
        """\
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
only the dimensions are Whisper's. docs/bench.md explains what is measured.
""",
        {
            "model": ("tiny", "base"),
            "chunk": "300ms",
            "at": (5, 30, 97),
            "threads": 1,
            "repeats": 3,
            "device": "cpu",
        },
    ),
    "chunkformer": Command(
        "masked against padded batch, masks against loops, the author's package, ten hours",
        """\
What ChunkFormer's paper claims, on this machine, with random weights and made-up audio:
the six recordings of table IV, --scale times shorter, in a masked and in a padded batch; masks
against a loop over --audios audios of --audio_s seconds; the author's package on the same weights
where it is installed; --hours hours streamed from disk at constant memory.

  python -m experiments.bench chunkformer
  python -m experiments.bench chunkformer --only loop,author --size mini --repeats 1
  python -m experiments.bench chunkformer --only masked --size large --scale 1 --device cuda
""",
        {
            "size": "small",
            "scale": 20.0,
            "audios": 100,
            "audio_s": 10.0,
            "hours": 10.0,
            "threads": 1,
            "repeats": 3,
            "device": "cpu",
            "only": ("masked", "loop", "author", "endless"),
        },
    ),
    "star": Command(
        "memory with and without compression; a step compared with recomputing everything",
        """\
Random weights: memory over --lengths feature frames in the form of the paper's table 3, attention
fused or eager as the paper's, and STAR's step at chunks --at against encoding and decoding it all.
""",
        {
            "lengths": (1000, 2000, 3000, 4000, 5000),
            "attention": "fused",
            "model": "base",
            "at": (5, 30, 97),
            "repeats": 3,
            "only": ("memory", "step"),
        },
    ),
    "peers": Command(
        "our methods and the programs of others",
        """\
CPU time and texts of our methods and of others' programs on the same weights (tiny.en) and clips
(the first of data=voices): faster-whisper, transformers, whisper_streaming, SimulStreaming, the
authors' WhisperRT, WhisperLiveKit. What is not installed is left out: docs/bench.md explains how to
get it.
--checkouts: the folder with the checkouts of those that are no packages.

  python -m experiments.bench peers --limit 6
  python -m experiments.bench peers --only faster_whisper,transformers
""",
        {
            "checkouts": "outputs/peers",
            "limit": 6,
            "only": (
                *("faster_whisper", "transformers", "whisper_streaming", "simulstreaming"),
                *("whisperrt", "whisperlivekit"),
            ),
        },
    ),
}


def read(name: str, text: str, default: Any) -> Any:
    """Return the value of an option. Raises UserError where it is not of the default's type, and
    for numbers that are not above 0."""
    kind = type(default[0] if isinstance(default, tuple) else default)
    try:
        values = tuple(kind(part) for part in text.split(","))
        if kind is not str and (min(values) <= 0 or (len(values) > 1 and kind is type(default))):
            raise ValueError
    except ValueError as error:
        several = "numbers with commas between them" if isinstance(default, tuple) else "a number"
        whole = "whole, " if kind is int else ""
        raise UserError(f"--{name} {text}: {several}, {whole}above 0") from error
    if not isinstance(default, tuple):
        return values[0] if kind is not str else text
    if name == "only" and (unknown := set(values) - set(default)):
        raise UserError(f"--only {unknown.pop()}: one or several of {', '.join(default)}")
    return tuple(sorted(set(values)) if kind is int else dict.fromkeys(values))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description="What computing costs. `COMMAND --help` explains each.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.text,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
        for option, default in command.options.items():
            text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
            added.add_argument(f"--{option}", default=text, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _measure(arguments))


def _measure(arguments: argparse.Namespace) -> None:
    command = COMMANDS[arguments.command]
    options = {k: read(k, getattr(arguments, k), default) for k, default in command.options.items()}
    # A command imports what it needs: --help answers without loading torch.
    benchmark = importlib.import_module(f"experiments.bench.{arguments.command}")
    result = benchmark.bench(**options)
    benchmark.show(result)
    if arguments.json:
        write_text(arguments.json, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
