"""What commands cost as their work grows, next to another commit: the table of docs/bench.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.bench import inputs
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.files import json_of, write_text
from streaming_asr.terminal import exit_status, show_table

DESCRIPTION = """\
CPU time and peak memory of commands on work of several sizes, each in a process of its own, one
thread. The inputs are drawn by chance; `bound`, `peer` and `streams` run tiny.en on the prompts.

  python -m experiments.bench
      all rows
  git worktree add ../before 00f21ede
  python -m experiments.bench score limit --baseline ../before
      two rows, each size in turns with another checkout; its own .venv where it has one

rows
  score       one recording of --hours; both sides' figures are compared
  limit       run limit=2 on a manifest of --lines
  compare     score compare of --cells of 500 recordings
  sweep       a sweep on mini of 1 and 20 cells
  wandb       run limit=2 on mini, untracked and with W&B offline
  transcribe  one short recording, whisperrt at 300 ms
  bound       methods over the time that their matrix products need at this machine's best rate
  peer        offline over faster-whisper, in float32 and in int8
  streams     streams of whisperrt at 1 s that one core carries, 16 sharing their steps

A side stops at the size after one that took longer than --most CPU seconds. `growth` is the slope
of log time over log size. docs/bench.md has the results.
"""
LIMIT = "limit=6"
SPEECH = ("data=prompts", "data.split=dev", "data.align=none", "model=tiny.en")
METHODS = ("whisperrt", "hush_word", "offline", "u2")
MIB = 2**20


@dataclass(frozen=True)
class Side:
    """A checkout and the Python that runs it."""

    name: str
    checkout: Path
    python: str

    def run(self, arguments: Sequence[str]) -> tuple[float, float]:
        """Run `python -m ARGUMENTS` in the checkout; return its CPU seconds and its peak in MiB.
        Raises UserError with its last line where it fails."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.checkout)}
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                [self.python, "-m", *arguments],
                cwd=self.checkout,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            lines = output.read().decode(errors="replace").split("\n")
        if child.returncode:
            reason = next((line for line in reversed(lines) if line.strip()), "no output")
            raise UserError(f"{self.name}: {' '.join(arguments)}: {reason}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / MIB


@dataclass
class Line:
    """A line of the table: a value for each side, in `unit`; memory in MiB where it is measured."""

    work: str
    unit: str
    goal: str = ""
    values: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    remark: str = ""

    def cell(self, side: str) -> str:
        """Return the side's value as the table prints it."""
        if side not in self.values:
            return "-"
        memory = f", {self.memory[side]:.0f} MiB" if side in self.memory else ""
        return f"{self.values[side]:.3g} {self.unit}{memory}"


@dataclass
class Bench:
    """Measures rows on some sides. folder: for inputs and results. advance: called with what is
    measured next."""

    sides: list[Side]
    folder: Path
    most_s: float
    advance: Callable[[str], None]
    lines: list[Line] = field(default_factory=list)

    def grow(
        self,
        work: str,
        unit: str,
        goals: dict[Any, str],
        command: Callable[[Path, Any], list[str]],
    ) -> list[Line]:
        """Measure a command on the sizes of `goals`. command: writes its input to a folder and
        returns the arguments of `python -m`."""
        lines = [Line(f"{work}, {size} {unit}", "s", goal) for size, goal in goals.items()]
        for k, size in enumerate(goals):
            for side in self.sides:
                if k and lines[k - 1].values.get(side.name, math.inf) > self.most_s:
                    continue
                self.advance(f"{lines[k].work}, {side.name}")
                arguments = command(self.place(work, size, side.name), size)
                lines[k].values[side.name], lines[k].memory[side.name] = side.run(arguments)
        if len(lines) > 2:
            growths = (
                f"{side.name} {growth(lines, list(goals), side.name)}" for side in self.sides
            )
            lines[-1].remark = f"growth: {', '.join(growths)}"
        self.lines += lines
        return lines

    def between(self, work: str, goal: str, lines: Sequence[Line], n: int) -> None:
        """Add what one of `n` units costs that the last line has over the first."""
        first, last = lines[0].values, lines[-1].values
        line = Line(work, "s", goal)
        line.values = {name: (last[name] - first[name]) / n for name in last}
        self.lines.append(line)

    def place(self, *names: Any) -> Path:
        """Return a folder for these names, without the signs that settings may not have."""
        return self.folder.joinpath(*(re.sub(r"[^\w.-]+", "_", str(name)) for name in names))

    def factor(self, side: Side, *settings: str, limit: str = LIMIT) -> float:
        """Return the CPU seconds of a run's steps per second of audio."""
        self.advance(f"{' '.join(settings)}, {side.name}")
        output = self.place("runs", side.name, " ".join(settings))
        command = ["streaming_asr.run", *SPEECH, limit, "threads=1", "tracker=none", *settings]
        side.run([*command, f"output={output}"])
        (result,) = output.rglob("metrics.json")
        return float(json_of(result)["metrics"]["rtf_cpu"])

    def probe(self, *arguments: str) -> float:
        """Return the number that `experiments.bench.probe` writes to a file."""
        self.advance(" ".join(arguments))
        answer = self.folder / "probe.json"
        self.sides[0].run(["experiments.bench.probe", *arguments, str(answer)])
        return float(json_of(answer)["value"])


def growth(lines: Sequence[Line], sizes: Sequence[float], side: str) -> str:
    """Return the exponent of time over size, by least squares over their logarithms."""
    points = [
        (math.log(size), math.log(line.values[side]))
        for size, line in zip(sizes, lines, strict=True)
        if side in line.values
    ]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return (
        f"n^{sum((x - mean_x) * (y - mean_y) for x, y in points) / spread:.2f}" if spread else "-"
    )


# -- the rows -----------------------------------------------------------------------------------


def score(bench: Bench, sizes: argparse.Namespace) -> None:
    def command(folder: Path, hours: float) -> list[str]:
        inputs.log(folder / "events.jsonl", n=1, duration_s=round(hours * 3600))
        return ["streaming_asr", "score", str(folder)]

    goals = {
        hours: {1: "30 s, 512 MiB", 10: "300 s, 1024 MiB"}.get(hours, "") for hours in sizes.hours
    }
    for line, hours in zip(bench.grow("score", "h", goals, command), sizes.hours, strict=True):
        results = [
            json_of(bench.place("score", hours, name) / "metrics.json")["metrics"]
            for name in line.values
        ]
        differing = [
            name
            for name in results[0]
            if any(name in each and each[name] != results[0][name] for each in results)
        ]
        if differing:
            line.remark = f"{line.remark} DIFFERENT FIGURES: {', '.join(differing)}".strip()


def limit(bench: Bench, sizes: argparse.Namespace) -> None:
    def command(folder: Path, n: int) -> list[str]:
        folder.mkdir(parents=True)
        inputs.manifest(folder / "lines.jsonl", n)
        settings = ("model=mini", "limit=2", "data=manifest", "data.align=none", "tracker=none")
        places = (f"data.path={folder / 'lines.jsonl'}", f"output={folder}")
        return ["streaming_asr.run", *settings, *places]

    goals = {n: "8 s, 512 MiB" if n == 200_000 else "" for n in sizes.lines}
    bench.grow("run limit=2", "lines", goals, command)


def compare(bench: Bench, sizes: argparse.Namespace) -> None:
    def command(folder: Path, n: int) -> list[str]:
        for i in range(n):
            log = folder / f"cell-{i}" / "events.jsonl"
            inputs.log(log, n=500, duration_s=8, chunk=f"{100 * (i + 1)}ms", seed=i)
        return ["streaming_asr", "score", "compare", str(folder)]

    goals = {n: "10 s" if n == 50 else "" for n in sizes.cells}
    bench.grow("score compare", "cells", goals, command)


def sweep(bench: Bench, _: argparse.Namespace) -> None:
    def command(folder: Path, n: int) -> list[str]:
        chunks = ",".join(f"{100 * (i + 1)}ms" for i in range(n))
        settings = ("model=mini", "limit=1", "tracker=none", f"chunk={chunks}")
        return ["streaming_asr.run", "-m", *settings, f"output={folder}"]

    lines = bench.grow("sweep on mini", "cells", {1: "", 20: ""}, command)
    bench.between("each further cell of a sweep", "0.15 s", lines, 19)


def wandb(bench: Bench, _: argparse.Namespace) -> None:
    def command(folder: Path, tracker: str) -> list[str]:
        settings = ("model=mini", "limit=2", f"tracker={tracker}")
        return ["streaming_asr.run", *settings, f"output={folder}"]

    lines = bench.grow("run limit=2, tracker", "", {"none": "", "wandb": ""}, command)
    bench.between("W&B offline", "0.7 s", lines, 1)


def transcribe(bench: Bench, _: argparse.Namespace) -> None:
    def command(folder: Path, _: str) -> list[str]:
        recording = str(sorted((inputs.MINI / "audio" / "dev").glob("*.ogg"))[0])
        return ["streaming_asr", "transcribe", recording, "method=whisperrt", "chunk=300ms"]

    bench.grow("transcribe", "short recording", {1: "2 s"}, command)


def bound(bench: Bench, _: argparse.Namespace) -> None:
    goals = dict.fromkeys(METHODS, "") | {"whisperrt": "2.5"}
    for method, goal in goals.items():
        line = Line(f"{method} 1 s over its products at the best rate", "", goal)
        least = bench.probe("bound", method, *SPEECH, LIMIT)
        for side in bench.sides:
            line.values[side.name] = bench.factor(side, f"method={method}", "chunk=1s") / least
        bench.lines.append(line)


def peer(bench: Bench, _: argparse.Namespace) -> None:
    factors = {side.name: bench.factor(side, "method=offline") for side in bench.sides}
    for kind, goal in {"float32": "0.8", "int8": "1.0"}.items():
        theirs = bench.probe("peer", kind, *SPEECH, LIMIT)
        line = Line(f"offline over faster-whisper {kind}", "", goal)
        line.values = {name: value / theirs for name, value in factors.items()}
        bench.lines.append(line)


def streams(bench: Bench, _: argparse.Namespace) -> None:
    settings = ("method=whisperrt", "chunk=1s", "batch=16")
    line = Line("streams of whisperrt 1 s on a core", "", "30")
    for side in bench.sides:
        factor = bench.factor(side, *settings, limit="limit=16")
        line.values[side.name] = 1 / factor
    bench.lines.append(line)


ROWS = {row.__name__: row for row in (score, limit, compare, sweep, wandb, transcribe)}
ROWS |= {row.__name__: row for row in (bound, peer, streams)}
SIZES = {"hours": (0.25, 0.5, 1.0, 10.0), "lines": (2_000, 20_000, 200_000), "cells": (5, 50)}


# -- the command line ---------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="another commit's folder")
    for name, default in SIZES.items():
        parser.add_argument(
            f"--{name}", default=",".join(f"{n:g}" for n in default), help="default: %(default)s"
        )
    parser.add_argument("--most", default="60", help="CPU seconds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    return exit_status(lambda: _measure(parser.parse_args(argv)))


def numbers(option: str, text: str, kind: type) -> list[Any]:
    """Return the numbers of an option in ascending order. Raises UserError for one that is not
    above 0 or not of its kind."""
    try:
        values = sorted({kind(part) for part in text.split(",")})
        if not 0 < values[0] <= values[-1] < math.inf:
            raise ValueError
    except ValueError as error:
        form = "whole numbers" if kind is int else "numbers"
        raise UserError(f"--{option} {text}: give {form} above 0, commas between them") from error
    return values


def _measure(arguments: argparse.Namespace) -> None:
    check_one_of(ROWS, **{f"row {i}": row for i, row in enumerate(arguments.rows, start=1)})
    for name, default in SIZES.items():
        setattr(arguments, name, numbers(name, getattr(arguments, name), type(default[0])))
    (most_s,) = numbers("most", arguments.most, float)[-1:]
    sides = [Side("this", Path(__file__).parents[2], sys.executable)]
    if (checkout := arguments.baseline) is not None:
        checkout = checkout.resolve()
        if not (checkout / "streaming_asr" / "run").is_dir():
            raise UserError(f"--baseline {checkout}: no checkout of this project; give its folder")
        python = checkout / ".venv" / "bin" / "python"
        sides.append(Side("baseline", checkout, str(python) if python.exists() else sys.executable))
    rows = list(dict.fromkeys(arguments.rows)) or list(ROWS)
    from rich.console import Console
    from rich.progress import Progress

    with (
        Progress(console=Console(stderr=True), transient=True) as progress,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        task = progress.add_task("", total=len(rows))
        bench = Bench(
            sides, Path(folder), most_s, lambda what: progress.update(task, description=what)
        )
        failed = []
        for row in rows:
            try:
                ROWS[row](bench, arguments)
            except UserError as error:  # the other rows are still measured
                failed.append(str(error))
            progress.advance(task)
    show(bench)
    if arguments.json:
        write_text(
            arguments.json, json.dumps([asdict(line) for line in bench.lines], indent=1) + "\n"
        )
    if failed:
        raise UserError("; ".join(failed))


def show(bench: Bench) -> None:
    """Print the table and its remarks."""
    names = [side.name for side in bench.sides]
    rows = []
    for line in bench.lines:
        both = [line.values[name] for name in names if name in line.values]
        ratio = f"{both[0] / both[1]:.2f}" if len(both) == 2 and both[1] > 0 else "-"
        rows.append(
            (line.work, *map(line.cell, names), *((ratio,) if len(names) > 1 else ()), line.goal)
        )
    show_table(("work", *names, *(("ratio",) if len(names) > 1 else ()), "goal"), rows, (0,))
    for line in bench.lines:
        if line.remark:
            print(f"{line.work}: {line.remark}")


if __name__ == "__main__":
    sys.exit(main())
