"""Rebuilds mini from nothing: corpus, tokenizer, base model, alignment heads, adapters, figures.

    python -m experiments.mini.rebuild            what is missing, in order (hours); `make mini`
    python -m experiments.mini.rebuild --list     the steps, their commands, and which are done

A step whose result exists is skipped; a training that was stopped goes on where it was. All results
lie below outputs/; what is removed there is made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.mini import espeak, festival, flite

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "espeak-ng flite festival festvox-us-slt-hts festvox-kallpc16k festvox-kdlpc16k"  # Debian's
)
ADAPTERS = ("any_chunk", "100ms", "300ms")
RECIPES = "hydra.searchpath=[experiments/mini]"  # where the base model's recipe lies


@dataclass(frozen=True)
class Step:
    """One command; it is done when `done` exists."""

    name: str
    command: tuple[str, ...]  # after `python`
    done: Path
    minutes: float  # expected, on 2 cores
    speaks: bool = False  # needs the synthesisers


@dataclass(frozen=True)
class Places:
    """Where things lie, relative to the project's folder."""

    out: Path = Path("outputs/mini")
    trained: Path = Path("outputs/train/mini")

    def record(self, step: str) -> Path:
        return self.out / "steps" / f"{step}.json"


def steps(places: Places, processes: int = 2, hours: float = 36.0) -> list[Step]:
    """All steps, in order."""
    out, model = places.out, places.trained / "offline/base"

    def program(
        name: str, minutes: float, done: Path, *command: object, speaks: bool = False
    ) -> Step:
        words = ("-m", f"experiments.mini.{command[0]}", *map(str, command[1:]))
        return Step(name, words, done, minutes, speaks)

    def corpus(name: str, kind: str, n_hours: float, minutes: float) -> Step:
        folder = out / kind
        command = ("corpus", kind, "--hours", f"{n_hours:g}", "--out", folder)
        return program(name, minutes, folder / "DONE", *command, speaks=True)

    def trained(name: str, method: str, entry: str, minutes: float, *settings: str) -> Step:
        command = ("-m", "streaming_asr.train", f"method={method}", "model=mini")
        command += (f"entry={entry}", *settings)
        command += (f"train_data={out / 'train'}", f"processes={processes}", "tracker=none")
        kind = "adapter_config.json" if method == "whisperrt" else "config.json"
        return Step(name, command, places.trained / method / entry / kind, minutes)

    def adapter(entry: str) -> Step:
        chunk = "recipe.target.random_chunks=true" if entry == "any_chunk" else f"chunk={entry}"
        return trained(f"adapter-{entry}", "whisperrt", entry, 20, chunk, f"model.path={model}")

    splits, init = out / "splits", out / "init"
    init_command = ("init_model", "--corpus", out / "train", "--out", init)
    return [
        corpus("train", "train", hours, 8),
        corpus("finance", "finance-train", 2, 1),
        program("splits", 5, splits / "long600.jsonl", "splits", "--out", splits, speaks=True),
        program("init", 1, init / "preprocessor_config.json", *init_command),
        trained("base", "offline", "base", 95, f"model.path={init}", RECIPES),
        program("align", 2, places.record("align"), "align_heads", f"model.path={model}"),
        *(adapter(entry) for entry in ADAPTERS),
    ]


def run(todo: Sequence[Step], places: Places) -> int:
    """Runs the steps that are not done. Returns 0, or a failed step's status.

    Leaves a record of each: its command, when it ended, how long it took.
    """
    for step in todo:
        if step.done.exists():
            print(f"{step.name}: done ({step.done})", flush=True)
            continue
        print(f"\n{step.name}: about {step.minutes:g} min\n$ {command_text(step)}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, *step.command], check=False).returncode
        seconds = time.monotonic() - began
        if code:
            print(
                f"{step.name}: failed with status {code} after {seconds:.0f} s; correct it "
                "and give the same command again, finished steps are skipped",
                file=sys.stderr,
            )
            return code
        record = places.record(step.name)
        record.parent.mkdir(parents=True, exist_ok=True)
        ended = time.strftime("%Y-%m-%dT%H:%M:%S")
        row = {"command": command_text(step), "seconds": round(seconds, 1), "ended": ended}
        record.write_text(json.dumps(row) + "\n")
        if not step.done.exists():
            print(f"{step.name}: ended well, but {step.done} is not there", file=sys.stderr)
            return 1
        print(f"{step.name}: {seconds / 60:.1f} min", flush=True)
    return 0


def command_text(step: Step) -> str:
    return shlex.join(["python", *step.command])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the steps; run nothing")
    parser.add_argument("--hours", type=float, default=36.0, help="of training speech")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args(arguments)
    os.chdir(ROOT)
    # the children find the package in this folder, installed or not
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(search)
    places = Places()
    todo = steps(places, args.processes, args.hours)
    if args.list:
        for step in todo:
            state = "done" if step.done.exists() else f"about {step.minutes:g} min"
            print(f"{step.name:16} {state:14} {command_text(step)}")
        return 0
    speaks = any(step.speaks and not step.done.exists() for step in todo)
    if speaks and not all(engine.available() for engine in (espeak, festival, flite)):
        print(f"error: synthesisers are missing; apt-get install {PACKAGES}", file=sys.stderr)
        return 2
    return run(todo, places)


if __name__ == "__main__":
    sys.exit(main())
