"""What computing costs: `python -m experiments.bench COMMAND`; `COMMAND --help` says more.

A benchmark reports: its exit status is 0 whatever the figures are, and what misses a target is
said in words.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError

STEP = """\
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

Nothing is downloaded: only the dimensions are Whisper's. experiments/bench/README.md says what is
measured.
"""

CHUNKFORMER = """\
What ChunkFormer's paper claims, on this machine, with random weights and made-up audio:
the six recordings of table IV in a masked and in a padded batch; masks against a loop over the
audios; the author's package on the same weights where it is installed; ten hours streamed from
disk at constant memory.

  python -m experiments.bench chunkformer
  python -m experiments.bench chunkformer --only loop,author --size mini --repeats 1
  python -m experiments.bench chunkformer --only masked --size large --scale 1 --device cuda
"""

METHODS = """\
AlignAtt's decision beside building all rows anew; a round of UFAL beside the bare call of
faster-whisper and the hush word's encoder beside the padded one, random weights of Whisper base;
U2's search beside its plain form and its encoder beside encoding anew, random weights of Whisper
small.
"""

STAR = """\
Random weights: memory over 1,000 to 5,000 frames in the form of the paper's table 3, and STAR's
step at chunks 5, 30 and 97 beside encoding and decoding all anew.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description="What computing costs. `COMMAND --help` says more.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        run: Callable[[argparse.Namespace], dict[str, Any]], text: str, description: str
    ) -> Callable[..., argparse.Action]:
        """Adds a command; returns what adds an option to it, whose help shows the default."""
        added = commands.add_parser(
            run.__name__,
            help=text,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        added.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")

        def option(name: str, default: Any, text: str = "") -> argparse.Action:
            shown = "; ".join(filter(None, (text, "default: %(default)s")))
            return added.add_argument(name, type=type(default), default=default, help=shown)

        return option

    option = command(step, "time per chunk, beside a naive baseline", STEP)
    commands.choices["step"].add_argument(
        "--model",
        action="append",
        metavar="NAME|PATH",
        help="tiny, base, small, medium, large-v2 (random weights) or a Hugging Face folder; "
        "may be given several times (default: tiny and base)",
    )
    option("--chunk", "300ms", "length of a chunk")
    option("--at", "5,30,97", "chunks, counted from 1; each is the mean of five around it")
    option("--threads", 1)
    option("--repeats", 3, "the median of so many is shown")
    option("--device", "cpu", "cpu or cuda")

    option = command(
        score,
        "time and memory of scoring a large log, time of an interval's draws",
        "Scores a made-up log on one thread, and times the draws of an interval.",
    )
    option("--utterances", 2600)
    option("--seconds", 7.0, "of each")
    option("--speakers", 40)
    option("--chunk", "100ms", "length of a chunk")

    command(methods, "what a method adds to the model below it, beside a baseline", METHODS)
    commands.choices["methods"].add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help="alignatt, ufal, hush_word, u2_search, u2_encoder; default: all",
    )

    option = command(
        memory,
        "whether memory stays bounded over ten minutes",
        "The resident set over one recording of mini, one process per method.",
    )
    own = commands.choices["memory"]
    own.add_argument("--method", action="append", required=True, help="one, or several times")
    own.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="as `run` has it")
    option("--chunk", "1s", "length of a chunk")
    option("--split", "long600", "of mini")

    option = command(
        chunkformer,
        "masked against padded batch, masks against loops, the author's package, ten hours",
        CHUNKFORMER,
    )
    option("--size", "small", "mini, small or large")
    option("--scale", 20.0, "the paper's six recordings are so many times shorter")
    option("--audios", 100, "of the loop")
    option("--audio_s", 10.0, "their seconds")
    option("--hours", 10.0, "of the recording on disk")
    option("--threads", 1)
    option("--repeats", 3, "the median of so many is shown")
    option("--device", "cpu", "cpu or cuda")
    option("--only", "masked,loop,author,endless", "one or several of these")

    option = command(
        star, "memory with and without compression; a step beside recomputing everything", STAR
    )
    option("--lengths", "1000,2000,3000,4000,5000", "feature frames")
    option("--attention", "fused", "fused, or eager as the paper's")
    option("--model", "base", "of the step")
    option("--at", "5,30,97", "chunks")
    option("--repeats", 3)
    option("--only", "memory,step", "one or both of these")

    option = command(
        serve,
        "live sessions per core, and what sessions that are cut leave behind",
        "Whole servers on loopback, one core each, and clients that speak in real time.",
    )
    option("--methods", "whisperrt,simul_whisper")
    option("--model", "tiny.en")
    option("--chunk", "300ms", "length of a chunk")
    option("--seconds", 20.0, "of speech in each session")
    option("--most", 32, "sessions at once")
    option("--cut", 500, "sessions opened and cut at random points; 0: none")

    arguments = parser.parse_args(argv)
    try:
        result = arguments.run(arguments)
        if arguments.json:
            _write(arguments.json, result)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    return 0


def _write(path: Path, result: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--json {path}: cannot be written ({error.strerror}); "
            "name a file in a folder that exists"
        ) from error


def _taken(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


# Each command imports what it needs: --help answers without loading torch.


def step(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.settings import StepSettings

    settings = StepSettings.parse(
        models=arguments.model or ["tiny", "base"],
        **_taken(arguments, "chunk", "at", "threads", "repeats", "device"),
    )
    from experiments.bench.step import bench_step
    from experiments.bench.step_table import show

    result = bench_step(settings)
    show(result)
    return result


def score(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.score import ScoreSettings, bench_score, show

    settings = ScoreSettings(**_taken(arguments, "utterances", "seconds", "speakers", "chunk"))
    result = bench_score(settings)
    show(result)
    return result


def methods(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.methods import bench_methods, show

    result = bench_methods(arguments.rows)
    show(result)
    return result


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.memory import bench_memory, show

    result = bench_memory(arguments.method, arguments.chunk, arguments.split, arguments.set)
    show(result)
    return result


def chunkformer(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.chunkformer import Settings, bench_chunkformer
    from experiments.bench.chunkformer_table import show

    names = ("size", "scale", "audios", "audio_s", "hours", "threads", "repeats", "device")
    result = bench_chunkformer(Settings(**_taken(arguments, *names)), arguments.only.split(","))
    show(result)
    return result


def star(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.star import StarSettings, bench_star, show

    try:
        lengths = tuple(int(n) for n in arguments.lengths.split(","))
    except ValueError as error:
        raise UserError(
            f"--lengths {arguments.lengths}: whole numbers with commas between them"
        ) from error
    settings = StarSettings(
        lengths=lengths,
        parts=tuple(arguments.only.split(",")),
        **_taken(arguments, "attention", "model", "at", "repeats"),
    )
    result = bench_star(settings)
    show(result)
    return result


def serve(arguments: argparse.Namespace) -> dict[str, Any]:
    from experiments.bench.serve import ServeSettings, bench_serve, show

    names = ("model", "chunk", "seconds", "most", "cut")
    methods = tuple(arguments.methods.split(","))
    result = bench_serve(ServeSettings(methods=methods, **_taken(arguments, *names)))
    show(result)
    return result


if __name__ == "__main__":
    sys.exit(main())
