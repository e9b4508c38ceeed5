"""What works on this machine, what does not, and what that keeps from working.

    python -m streaming_asr doctor [--offline]

Only what the two main commands need decides the exit status; everything else is optional.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.terminal import command_parser

TIMEOUT_S = 5.0  # of a program that is asked for its version, and of a connection
NEEDED = ("torch", "transformers", "peft", "soundfile", "hydra-core", "jiwer", "whisper-normalizer")
BROWSERS = ("chromium", "chromium-browser", "chrome", "google-chrome")
SYNTHESISERS = ("espeak-ng", "flite", "festival")
MFA = "conda install -c conda-forge montreal-forced-aligner; only for word times of a corpus"
# Name, what it may be called, what to do without it.
PROGRAMS = (
    ("MFA", ("mfa",), MFA),
    *((n, (n,), f"apt install {n}; only to rebuild mini") for n in SYNTHESISERS),
    ("Chromium", BROWSERS, "apt install chromium; only to test the report page"),
)


@dataclass(frozen=True)
class Check:
    """One line: `state` is ok, absent (an option that is not there) or broken (needed and not
    working); `found` what was seen, `remedy` what to do where it is not ok."""

    name: str
    state: str
    found: str
    remedy: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per check and return the exit status, 1 where something needed is broken."""
    parser = command_parser("python -m streaming_asr doctor", "What works on this machine.")
    parser.add_argument("--offline", action="store_true", help="try no connection")
    arguments = parser.parse_args(argv)
    found = examine(connect=None if arguments.offline else _connect)
    width = max(len(check.name) for check in found)
    for check in found:
        remedy = f": {check.remedy}" if check.remedy and check.state != "ok" else ""
        print(f"{check.state:6}  {check.name:{width}}  {check.found}{remedy}")
    broken = [check.name for check in found if check.state == "broken"]
    print(f"broken: {', '.join(broken)}" if broken else "everything needed works")
    return 1 if broken else 0


def examine(connect: Callable[[str], str | None] | None) -> list[Check]:
    """Return all checks. `connect` tries a host and returns why it failed, or None where it
    answered; without `connect` no connection is tried."""
    return [
        _python(),
        *map(_package, NEEDED),
        *_devices(),
        _memory(),
        _mini(),
        *_models(),
        _audio_formats(),
        _hub(connect),
        _wandb(connect, os.environ),
        *(_program(*each) for each in PROGRAMS),
    ]


def _python() -> Check:
    version = platform.python_version()
    works = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Check("Python", "ok" if works else "broken", version, "use Python 3.11, 3.12 or 3.13")


def _package(name: str) -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, "broken", "not installed", "pip install -e .")


def _devices() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    cpu = Check("device=cpu", "ok", f"{torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        built = "torch without CUDA" if torch.version.cuda is None else "no CUDA GPU found"
        return [cpu, Check("device=cuda", "absent", built, "everything runs on the CPU")]
    gpus = ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
    return [cpu, Check("device=cuda", "ok", gpus)]


def _memory() -> Check:
    import psutil

    free_gib = psutil.virtual_memory().available / 2**30
    state = "ok" if free_gib > 1 else "broken"
    return Check("memory", state, f"{free_gib:.1f} GiB free", "end something; mini takes 1 GiB")


def _mini() -> Check:
    from streaming_asr.corpora import MINI

    n_splits = len(list(MINI.glob("*.jsonl")))
    if not n_splits:
        return Check("mini corpus", "broken", f"{MINI} holds no split", "install again")
    if not (MINI / "model" / "config.json").is_file():
        return Check("mini model", "broken", f"not in {MINI}", "install again, or make mini")
    adapters = sorted(path.name for path in (MINI / "weights").glob("*") if path.is_dir())
    return Check("mini", "ok", f"{n_splits} splits, trained: {', '.join(adapters) or 'base alone'}")


def _models() -> list[Check]:
    """Whether the models that packages carry are on this machine."""
    from streaming_asr.errors import UserError
    from streaming_asr.models.find import find_here
    from streaming_asr.models.packages import packaged

    checks = []
    for hub, model in packaged().items():
        name, remedy = f"model={model.model}", f"python -m streaming_asr get {model.model}"
        try:
            found = find_here(hub)
        except UserError as error:
            checks.append(Check(name, "absent", str(error)))
            continue
        told = "not on this machine" if found is None else f"{found.where}: {found.folder}"
        checks.append(Check(name, "absent" if found is None else "ok", told, remedy))
    return checks


def _audio_formats() -> Check:
    import soundfile

    wanted = {"WAV", "FLAC", "OGG", "MP3"}
    missing = wanted - set(soundfile.available_formats())
    state = "broken" if "OGG" in missing else "ok"
    found = f"libsndfile {soundfile.__libsndfile_version__}, " + (
        f"without {', '.join(sorted(missing))}"
        if missing
        else "wav, flac, ogg, mp3; what PyAV reads too, as m4a, mp4, webm"
    )
    return Check("audio files", state, found, "install a newer soundfile")


def _hub(connect: Callable[[str], str | None] | None) -> Check:
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE)
    n_models = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    held = f"{n_models} models held in {cache}"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return Check("model hub", "absent", f"HF_HUB_OFFLINE is set; {held}", "unset it to load")
    return _reached("model hub", "huggingface.co", connect, held, "give model.path a local folder")


def _wandb(connect: Callable[[str], str | None] | None, environment: Mapping[str, str]) -> Check:
    name = "W&B online"
    offline = "runs are kept offline and can be sent later with streaming-asr sync FOLDER"
    if importlib.util.find_spec("wandb") is None:
        return Check("W&B", "absent", "not installed", "pip install wandb, or tracker=none")
    netrc = Path(environment.get("NETRC") or Path.home() / ".netrc")
    has_login = "WANDB_API_KEY" in environment or (
        netrc.is_file() and "wandb" in netrc.read_text(encoding="utf-8", errors="replace")
    )
    if not has_login:
        return Check(name, "absent", "no login", f"wandb login; {offline}")
    base = environment.get("WANDB_BASE_URL", "https://api.wandb.ai")
    host = base.split("://")[-1].split("/")[0].split(":")[0]
    return _reached(name, host, connect, "a login is there", offline)


def _reached(
    name: str, host: str, connect: Callable[[str], str | None] | None, held: str, remedy: str
) -> Check:
    if connect is None:
        return Check(name, "absent", f"not tried (--offline); {held}")
    why = connect(host)
    if why is None:
        return Check(name, "ok", f"{host} answers; {held}")
    return Check(name, "absent", f"{host} does not answer ({why}); {held}", remedy)


def _connect(host: str) -> str | None:
    try:
        with socket.create_connection((host, 443), timeout=TIMEOUT_S):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__


def _program(name: str, names: Sequence[str], use: str) -> Check:
    """Return the first of `names` on the path, with the first line it prints as its version."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        return Check(name, "absent", "not found", use)
    version = "version" if name == "MFA" else "--version"
    try:
        done = subprocess.run(
            [path, version], capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, "absent", f"{path} does not run ({type(error).__name__})", use)
    lines = (done.stdout.strip() or done.stderr.strip() or path).splitlines()
    return Check(name, "ok", lines[0][:70])
