"""Says what works on this machine, and what to do about what does not.

    python -m streaming_asr doctor [--offline]

Only what the two main commands need decides the exit status; everything else is optional.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.terminal import command_parser

NEEDED = ("torch", "transformers", "peft", "soundfile", "hydra-core", "jiwer", "whisper-normalizer")
# Name, the programs that serve, what to do without them.
PROGRAMS = (
    ("MFA", ("mfa",), "conda install -c conda-forge montreal-forced-aligner; for word times"),
    *((n, (n,), f"apt install {n}; to rebuild mini") for n in ("espeak-ng", "flite", "festival")),
    (
        "Chromium",
        ("chromium", "chromium-browser", "chrome", "google-chrome"),
        "apt install chromium; to test the report page",
    ),
)


@dataclass(frozen=True)
class Check:
    """One line: `state` is ok, absent (an option that is not there) or broken (needed and not
    working); `seen` is what is there, `remedy` what to do where it is not ok."""

    name: str
    state: str
    seen: str
    remedy: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per check and return the exit status, 1 where something needed is broken."""
    parser = command_parser("python -m streaming_asr doctor", "What works on this machine.")
    parser.add_argument("--offline", action="store_true", help="try no connection")
    checks = examine(offline=parser.parse_args(argv).offline)
    width = max(len(check.name) for check in checks)
    for check in checks:
        remedy = f": {check.remedy}" if check.remedy and check.state != "ok" else ""
        print(f"{check.state:6}  {check.name:{width}}  {check.seen}{remedy}")
    broken = [check.name for check in checks if check.state == "broken"]
    print(f"broken: {', '.join(broken)}" if broken else "everything needed works")
    return 1 if broken else 0


def examine(*, offline: bool) -> list[Check]:
    """Return all checks, in the order in which they are shown."""
    return [
        _needed((3, 11) <= sys.version_info[:2] < (3, 14), "Python", platform.python_version(),
                "use Python 3.11, 3.12 or 3.13"),
        *map(_package, NEEDED),
        _cuda(),
        _mini(),
        *_models(),
        _hub(offline),
        _wandb(),
        *(_program(*program) for program in PROGRAMS),
    ]  # fmt: skip


def _needed(works: bool, name: str, seen: str, remedy: str) -> Check:
    return Check(name, "ok" if works else "broken", seen, remedy)


def _optional(works: bool, name: str, seen: str, remedy: str) -> Check:
    return Check(name, "ok" if works else "absent", seen, remedy)


def _package(name: str) -> Check:
    try:
        return _needed(True, name, version(name), "")
    except PackageNotFoundError:
        return _needed(False, name, "not installed", "pip install -e .")


def _cuda() -> Check:
    if find_spec("torch") is None:
        return _optional(False, "device=cuda", "no torch", "everything runs on the CPU")
    import torch

    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    seen = ", ".join(gpus) or "no GPU that torch can use"
    return _optional(bool(gpus), "device=cuda", seen, "everything runs on the CPU")


def _mini() -> Check:
    from streaming_asr.corpora import MINI

    works = (MINI / "clean.jsonl").is_file() and (MINI / "model" / "config.json").is_file()
    return _needed(works, "mini", str(MINI), "install again, or make mini")


def _models() -> list[Check]:
    """Return a check for each model that packages carry."""
    from streaming_asr.models.find import find_here
    from streaming_asr.models.packages import packaged

    checks = []
    for hub, model in packaged().items():
        try:
            there = find_here(hub)
            seen = f"{there.where}: {there.folder}" if there else "not on this machine"
        except UserError as error:
            there, seen = None, str(error)
        remedy = f"python -m streaming_asr get {model.model}"
        checks.append(_optional(there is not None, f"model={model.model}", seen, remedy))
    return checks


def _hub(offline: bool) -> Check:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    from streaming_asr.models.find import no_way

    if offline or HF_HUB_OFFLINE:
        why: str | None = "not tried (--offline)" if offline else "HF_HUB_OFFLINE is set"
    else:
        why = no_way(ENDPOINT)
    seen = why or f"{ENDPOINT} answers"
    return _optional(why is None, "model hub", seen, "give model.path a local folder")


def _wandb() -> Check:
    if find_spec("wandb") is None:
        return _optional(False, "W&B", "not installed", "pip install wandb, or tracker=none")
    netrc = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    has_login = "WANDB_API_KEY" in os.environ or (
        netrc.is_file() and "wandb" in netrc.read_text(encoding="utf-8", errors="replace")
    )
    seen = "a login is there" if has_login else "no login"
    remedy = "wandb login; runs are kept offline and can be sent later with streaming-asr sync"
    return _optional(has_login, "W&B", seen, remedy)


def _program(name: str, programs: Sequence[str], remedy: str) -> Check:
    path = next(filter(None, map(shutil.which, programs)), None)
    return _optional(path is not None, name, path or "not found", remedy)
