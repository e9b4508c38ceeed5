"""Rebuilds mini from nothing: corpus, tokenizer, base model, alignment heads, adapters, figures.

    python -m experiments.mini.rebuild            what is missing, in order (hours); `make mini`
    python -m experiments.mini.rebuild --list     the steps, their commands, and which are done
    python -m experiments.mini.rebuild --only align
    python -m experiments.mini.rebuild --from base
    python -m experiments.mini.rebuild --install  and put model and adapters into the package
    python -m experiments.mini.rebuild --install --splits      the test splits, too

A step whose result exists is skipped; a training that was stopped goes on where it was. --only and
--from do steps anew: their old results are removed first. All results lie below outputs/. The
splits in streaming_asr/data/mini are the reference and are replaced only by `--install --splits`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("streaming_asr/data/mini")
PACKAGES = (
    "espeak-ng flite festival festvox-us-slt-hts festvox-kallpc16k festvox-kdlpc16k"  # Debian's
)
ADAPTERS = ("any_chunk", "100ms", "300ms")
RECIPES = "hydra.searchpath=[experiments/mini]"  # where the base model's recipe lies


@dataclass(frozen=True)
class Step:
    """One command; it is done when `done` exists. `results` are removed to do it anew."""

    name: str
    command: tuple[str, ...]  # after `python`
    done: Path
    results: tuple[Path, ...]
    minutes: float  # expected, on 2 cores
    speaks: bool = False  # needs the synthesisers


@dataclass(frozen=True)
class Places:
    """Where things lie, relative to the project's folder."""

    out: Path = Path("outputs/mini")
    trained: Path = Path("outputs/train/mini")
    training: Path = Path("outputs/training/mini")
    package: Path = PACKAGE

    @property
    def model(self) -> Path:
        return self.trained / "offline/base"

    def record(self, step: str) -> Path:
        return self.out / "steps" / f"{step}.json"


def steps(places: Places, processes: int = 2, hours: float = 36.0) -> list[Step]:
    """All steps, in order."""
    out, model = places.out, places.model

    def corpus(name: str, kind: str, n_hours: float, minutes: float) -> Step:
        folder = out / kind
        command = (
            "-m",
            "experiments.mini.corpus",
            kind,
            "--hours",
            f"{n_hours:g}",
            "--out",
            folder,
        )
        return Step(name, _texts(*command), folder / "DONE", (folder,), minutes, True)

    def trained(name: str, method: str, entry: str, minutes: float, *settings: object) -> Step:
        command = ("-m", "streaming_asr.train", f"method={method}", "model=mini")
        command += (f"entry={entry}", *settings)
        command += (f"train_data={out / 'train'}", f"processes={processes}", "tracker=none")
        folder = places.trained / method / entry
        kind = "adapter_config.json" if method == "whisperrt" else "config.json"
        work = places.training / method / entry
        return Step(name, _texts(*command), folder / kind, (folder, work), minutes)

    def figures(name: str, minutes: float, *options: object) -> Step:
        path = out / f"{name}.json"
        command = ("-m", "experiments.mini.behaviour", "--model", model, *options, "--out", path)
        return Step(name, _texts(*command), path, (path,), minutes)

    def adapter(entry: str) -> Step:
        chunk = "recipe.target.random_chunks=true" if entry == "any_chunk" else f"chunk={entry}"
        return trained(f"adapter-{entry}", "whisperrt", entry, 20, chunk, f"model.path={model}")

    splits, init = out / "splits", out / "init"
    return [
        corpus("train", "train", hours, 8),
        corpus("finance", "finance-train", 2, 1),
        Step(
            "splits",
            _texts("-m", "experiments.mini.splits", "--out", splits, "--wav", out / "wav"),
            splits / "long600.jsonl",
            (splits, out / "wav"),
            5,
            True,
        ),
        Step(
            "init",
            _texts("-m", "experiments.mini.init_model", "--corpus", out / "train", "--out", init),
            init / "preprocessor_config.json",
            (init,),
            1,
        ),
        trained("base", "offline", "base", 95, f"model.path={init}", RECIPES),
        Step(
            "align",
            _texts("-m", "experiments.mini.align_heads", f"model.path={model}"),
            places.record("align"),
            (),
            2,
        ),
        *(adapter(entry) for entry in ADAPTERS),
        figures("behaviour-clean", 4, "--split", "clean"),
        figures("behaviour-other", 4, "--split", "other"),
        figures(
            "opus", 2, "--split", "clean", "--cuts", 0, "--data", splits, "--audio", out / "wav"
        ),
        Step(
            "curve",
            _texts(
                "-m",
                "experiments.mini.plot_curve",
                places.training / "offline/base/curve.jsonl",
                "--out",
                out / "curve.svg",
            ),
            out / "curve.svg",
            (out / "curve.svg",),
            0.2,
        ),
    ]


def _texts(*parts: object) -> tuple[str, ...]:
    return tuple(str(part) for part in parts)


def run(todo: Sequence[Step], places: Places, *, anew: bool = False) -> int:
    """Runs the steps that are not done (`anew`: all of them). Returns 0, or a failed step's status.

    Leaves a record of each: its command, when it ended, how long it took.
    """
    for step in todo:
        record = places.record(step.name)
        if step.done.exists():
            if not anew:
                print(f"{step.name}: done ({step.done})", flush=True)
                continue
            for path in (*step.results, record):
                _remove(path)
        print(f"\n{step.name}: about {step.minutes:g} min\n$ {shown(step)}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, *step.command], check=False).returncode
        seconds = time.monotonic() - began
        if code:
            print(
                f"{step.name}: failed with status {code} after {seconds:.0f} s; mend what it says "
                "and give the same command again, finished steps are skipped",
                file=sys.stderr,
            )
            return code
        record.parent.mkdir(parents=True, exist_ok=True)
        ended = time.strftime("%Y-%m-%dT%H:%M:%S")
        row = {"command": shown(step), "seconds": round(seconds, 1), "ended": ended}
        record.write_text(json.dumps(row) + "\n")
        if not step.done.exists():
            print(f"{step.name}: ended well, but {step.done} is not there", file=sys.stderr)
            return 1
        print(f"{step.name}: {seconds / 60:.1f} min", flush=True)
    return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def shown(step: Step) -> str:
    return shlex.join(["python", *step.command])


def install(places: Places, *, splits: bool = False) -> int:
    """Copy model and adapters (`splits`: audio and manifests, too) into the package."""
    copies = [(places.model, places.package / "model")]
    for entry in ADAPTERS:
        place = Path("whisperrt") / entry
        copies.append((places.trained / place, places.package / "weights" / place))
    if splits:
        built = places.out / "splits"
        copies.append((built / "audio", places.package / "audio"))
        copies += [(path, places.package / path.name) for path in sorted(built.glob("*.jsonl"))]
    missing = [source for source, _ in copies if not source.exists()]
    if not places.record("align").exists():
        missing.append(places.record("align"))
    if missing or (splits and not (places.out / "splits/long600.jsonl").exists()):
        print(f"nothing installed: {missing or places.out / 'splits'} missing", file=sys.stderr)
        return 1
    for source, target in copies:
        _remove(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        print(f"{source} -> {target}")
    ours = {target for _, target in copies}
    others = [p for p in sorted(places.package.glob("weights/*/*")) if p not in ours]
    if others:
        print("made for the model before, train them again: " + ", ".join(map(str, others)))
    return 0


def _can_speak() -> bool:
    from experiments.mini import espeak, festival, flite

    return all(engine.available() for engine in (espeak, festival, flite))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", metavar="STEP", help="this step, anew")
    which.add_argument("--from", metavar="STEP", dest="first", help="this step and the next, anew")
    which.add_argument("--list", action="store_true", help="print the steps; run nothing")
    parser.add_argument("--install", action="store_true", help="copy the results into the package")
    parser.add_argument("--splits", action="store_true", help="with --install: the splits, too")
    parser.add_argument("--hours", type=float, default=36.0, help="of training speech")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args(arguments)
    if args.splits and not args.install:
        parser.error("--splits goes with --install")
    os.chdir(ROOT)
    # the children find the package in this folder, installed or not
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(search)
    places = Places()
    todo = steps(places, args.processes, args.hours)
    names = [step.name for step in todo]
    chosen = args.only or args.first
    if chosen is not None and chosen not in names:
        parser.error(f"{chosen}: no such step; there are {', '.join(names)}")
    if args.list:
        for step in todo:
            state = "done" if step.done.exists() else f"about {step.minutes:g} min"
            print(f"{step.name:16} {state:14} {shown(step)}")
        return 0
    if chosen is not None:
        first = names.index(chosen)
        todo = todo[first : first + 1] if args.only else todo[first:]
    speaks = any(s.speaks and (chosen or not s.done.exists()) for s in todo)
    if speaks and not _can_speak():
        print(f"error: synthesisers are missing; apt-get install {PACKAGES}", file=sys.stderr)
        return 2
    code = run(todo, places, anew=chosen is not None)
    return code or (install(places, splits=args.splits) if args.install else 0)


if __name__ == "__main__":
    sys.exit(main())
