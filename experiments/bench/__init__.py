"""What computing costs: `python -m experiments.bench step`, and `bench score` what scoring does.

`bench methods` says what other methods add to the model below them, `bench memory` whether their
memory stays bounded.
A benchmark reports: its exit status is 0 whatever the figures are, and what misses a target is
said in words.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HELP = """\
Time per chunk of WhisperRT at early, middle and late chunks of one stream, beside a naive
baseline that recomputes what can be kept. Both emit the same tokens in the same run.

  python -m experiments.bench step
      random weights of Whisper tiny and base, 300 ms chunks 5, 30 and 97, one thread
  python -m experiments.bench step --model tiny --repeats 1
      the same in a fifth of the time, less steady
  python -m experiments.bench step --model small --chunk 1s --at 10,25 --json small.json
      another size, another chunk; all figures to a file
  python -m experiments.bench step --model streaming_asr/data/mini/model --at 30
      a model of your own, a Hugging Face folder

Nothing is downloaded: only the dimensions are Whisper's. docs/bench.md says what is measured.
"""

CHUNKFORMER_HELP = """\
What ChunkFormer's paper claims, on this machine, with random weights and made-up audio:
the six recordings of table IV in a masked and in a padded batch; masks against a loop over the
audios; the author's package on the same weights where it is installed; ten hours streamed from
disk at constant memory.

  python -m experiments.bench chunkformer
  python -m experiments.bench chunkformer --only loop,author --size mini --repeats 1
  python -m experiments.bench chunkformer --only masked --size large --scale 1 --device cuda
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description="What computing costs. `COMMAND --help` says more.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    step = commands.add_parser(
        "step",
        help="time per chunk, beside a naive baseline",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    step.add_argument(
        "--model",
        action="append",
        metavar="NAME|PATH",
        help="tiny, base, small, medium, large-v2 (random weights) or a Hugging Face folder; "
        "may be given several times (default: tiny and base)",
    )
    step.add_argument("--chunk", default="300ms", help="length of a chunk (default: %(default)s)")
    step.add_argument(
        "--at",
        default="5,30,97",
        help="chunks to measure, counted from 1; each is the mean of five around it "
        "(default: %(default)s)",
    )
    step.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    step.add_argument("--repeats", type=int, default=3, help="median of so many (default: 3)")
    step.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    score = commands.add_parser(
        "score",
        help="time and memory of scoring a large log, time of an interval's draws",
        description="Scores a made-up log on one thread, and times the draws of an interval.",
    )
    score.add_argument("--utterances", type=int, default=2600, help="default: %(default)s")
    score.add_argument("--seconds", type=float, default=7.0, help="of each; default: %(default)s")
    score.add_argument("--speakers", type=int, default=40, help="default: %(default)s")
    score.add_argument("--chunk", default="100ms", help="length of a chunk; default: %(default)s")
    methods = commands.add_parser(
        "methods",
        help="what a method adds to the model below it, beside a baseline",
        description="AlignAtt's decision beside building all rows anew; a round of UFAL beside the "
        "bare call of faster-whisper and the hush word's encoder beside the padded one, random "
        "weights of Whisper base; U2's search beside its plain form and its encoder beside "
        "encoding anew, random weights of Whisper small.",
    )
    methods.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help="alignatt, ufal, hush_word, u2_search, u2_encoder; default: all",
    )
    memory = commands.add_parser(
        "memory",
        help="whether memory stays bounded over ten minutes",
        description="The resident set over one recording of mini, one process per method.",
    )
    memory.add_argument("--method", action="append", required=True, help="one, or several times")
    memory.add_argument("--chunk", default="1s", help="length of a chunk; default: %(default)s")
    memory.add_argument("--split", default="long600", help="of mini; default: %(default)s")
    memory.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="as `run` has it")
    chunkformer = commands.add_parser(
        "chunkformer",
        help="masked against padded batch, masks against loops, the author's package, ten hours",
        description=CHUNKFORMER_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chunkformer.add_argument("--size", default="small", help="mini, small or large")
    chunkformer.add_argument(
        "--scale",
        type=float,
        default=20,
        help="the paper's six recordings are so many times shorter",
    )
    chunkformer.add_argument("--audios", type=int, default=100, help="of the loop; default: 100")
    chunkformer.add_argument("--audio_s", type=float, default=10, help="their seconds; default: 10")
    chunkformer.add_argument("--hours", type=float, default=10, help="of the recording on disk")
    chunkformer.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    chunkformer.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    chunkformer.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    chunkformer.add_argument(
        "--only", default=None, help="masked,loop,author,endless; default: all"
    )
    star = commands.add_parser(
        "star",
        help="memory with and without compression; a step beside recomputing everything",
        description="Random weights: memory over 1,000 to 5,000 frames in the form of the paper's "
        "table 3, and STAR's step at chunks 5, 30 and 97 beside encoding and decoding all anew.",
    )
    star.add_argument("--lengths", default="1000,2000,3000,4000,5000", help="feature frames")
    star.add_argument("--attention", default="fused", help="fused, or eager as the paper's")
    star.add_argument("--model", default="base", help="of the step; default: %(default)s")
    star.add_argument("--at", default="5,30,97", help="chunks; default: %(default)s")
    star.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    star.add_argument("--only", default="memory,step", help="default: %(default)s")
    for command in (step, score, methods, memory, chunkformer, star):
        command.add_argument(
            "--json", type=Path, metavar="FILE", help="also write all figures here"
        )
    arguments = parser.parse_args(argv)

    from streaming_asr.errors import UserError

    try:
        result = COMMANDS[arguments.command](arguments)
        if arguments.json:
            try:
                arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            except OSError as error:
                raise UserError(
                    f"--json {arguments.json}: cannot be written ({error.strerror}); "
                    "name a file in a folder that exists"
                ) from error
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    return 0


def _step(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.settings import StepSettings

    settings = StepSettings.parse(
        models=arguments.model or ["tiny", "base"],
        chunk=arguments.chunk,
        at=arguments.at,
        threads=arguments.threads,
        repeats=arguments.repeats,
        device=arguments.device,
    )
    from experiments.bench.step import bench_step
    from experiments.bench.table import show

    result = bench_step(settings)
    show(result)
    return result


def _score(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.score import ScoreSettings, bench_score, show

    names = ("utterances", "seconds", "speakers", "chunk")
    result = bench_score(ScoreSettings(**{name: getattr(arguments, name) for name in names}))
    show(result)
    return result


def _methods(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.methods import bench_methods, show

    result = bench_methods(arguments.rows)
    show(result)
    return result


def _memory(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.memory import bench_memory, show

    result = bench_memory(arguments.method, arguments.chunk, arguments.split, arguments.set)
    show(result)
    return result


def _chunkformer(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.chunkformer import PARTS, Settings, bench_chunkformer
    from experiments.bench.chunkformer_table import show

    names = ("size", "scale", "audios", "audio_s", "hours", "threads", "repeats", "device")
    settings = Settings(**{name: getattr(arguments, name) for name in names})
    parts = PARTS if arguments.only is None else tuple(arguments.only.split(","))
    result = bench_chunkformer(settings, parts)
    show(result)
    return result


def _star(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.star import StarSettings, bench_star, show
    from streaming_asr.errors import UserError

    try:
        lengths = tuple(int(n) for n in arguments.lengths.split(","))
    except ValueError as error:
        raise UserError(
            f"--lengths {arguments.lengths}: whole numbers with commas between them"
        ) from error
    parts = tuple(arguments.only.split(","))
    options = {name: getattr(arguments, name) for name in ("attention", "model", "at", "repeats")}
    result = bench_star(StarSettings(lengths=lengths, parts=parts, **options))
    show(result)
    return result


COMMANDS = {
    "step": _step,
    "score": _score,
    "methods": _methods,
    "memory": _memory,
    "chunkformer": _chunkformer,
    "star": _star,
}
