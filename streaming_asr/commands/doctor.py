"""Reports what works on this machine, and what to do about what does not.

    streaming-asr doctor [--offline]

Only what the two main commands need decides the exit status; everything else is optional.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.files import give_json
from streaming_asr.machine import has_login, no_way
from streaming_asr.terminal import add_json, command_parser, wrapped

NEEDED = ("torch", "transformers", "peft", "soundfile", "hydra-core", "jiwer", "whisper-normalizer")


class Check(NamedTuple):
    """One line: whether it works, what is there, what to do where it does not, and whether the
    main commands need it."""

    name: str
    works: bool
    seen: str
    remedy: str
    needed: bool = False

    @property
    def state(self) -> str:
        """Return ok, absent (an option that is not there) or broken (needed, not working)."""
        return "ok" if self.works else "broken" if self.needed else "absent"


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per check and return the exit status, 1 where something needed is broken."""
    parser = command_parser("streaming-asr doctor", "What works on this machine.")
    parser.add_argument("--offline", action="store_true", help="try no connection")
    add_json(parser)
    arguments = parser.parse_args(argv)
    checks = examine(offline=arguments.offline)
    broken = [check.name for check in checks if check.state == "broken"]
    if arguments.json is not None:
        rows = [check._asdict() | {"state": check.state} for check in checks]
        give_json({"checks": rows, "broken": broken}, arguments.json)
        return 1 if broken else 0
    width = max(len(check.name) for check in checks)
    for check in checks:
        remedy = "" if check.works else f": {check.remedy}"
        print(wrapped(f"{check.state:6}  {check.name:{width}}  {check.seen}{remedy}", width + 10))
    print(f"broken: {', '.join(broken)}" if broken else "everything needed works")
    return 1 if broken else 0


def examine(*, offline: bool) -> list[Check]:
    """Return all checks, in the order in which they are shown; they end at the first one that a
    missing package makes impossible."""
    is_supported = (3, 11) <= sys.version_info[:2] < (3, 14)
    checks = [
        Check("Python", is_supported, platform.python_version(), "use Python 3.11 to 3.13", True),
        *map(_package, NEEDED),
    ]
    try:
        checks += _parts(offline)
    except ModuleNotFoundError as error:
        checks.append(Check(str(error.name), False, "not installed", "pip install -e .", True))
    return checks


def _parts(offline: bool) -> list[Check]:
    """Return the checks of what is neither Python nor a package."""
    from streaming_asr.corpora import MINI

    mini = (MINI / "clean.jsonl").is_file() and (MINI / "model" / "config.json").is_file()
    mfa = shutil.which("mfa")
    return [
        _cuda(),
        Check("mini", mini, str(MINI), "install again", needed=True),
        *_models(),
        _hub(offline),
        Check("W&B", has_login(), "a login is there" if has_login() else "no login",
              "wandb login; runs are kept offline and can be sent with streaming-asr sync"),
        Check("MFA", mfa is not None, mfa or "not found",
              "conda install -c conda-forge montreal-forced-aligner; for word times"),
    ]  # fmt: skip


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name), "", needed=True)
    except PackageNotFoundError:
        return Check(name, False, "not installed", "pip install -e .", needed=True)


def _cuda() -> Check:
    gpus = []
    if find_spec("torch") is not None:
        import torch

        gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    seen = ", ".join(gpus) or "no GPU that torch can use"
    return Check("device=cuda", bool(gpus), seen, "everything runs on the CPU")


def _models() -> Iterator[Check]:
    """Yield a check for each model that packages carry."""
    from streaming_asr.models.find import find_here
    from streaming_asr.models.packages import packaged

    for hub, model in packaged().items():
        try:
            place = find_here(hub)
            seen = f"{place.where}: {place.folder}" if place else "not on this machine"
        except UserError as error:
            place, seen = None, str(error)
        remedy = f"streaming-asr get {model.model}"
        yield Check(f"model={model.model}", place is not None, seen, remedy)


def _hub(offline: bool) -> Check:
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    if offline or HF_HUB_OFFLINE:
        why: str | None = "not tried (--offline)" if offline else "HF_HUB_OFFLINE is set"
    else:
        why = no_way(ENDPOINT)
    seen = why or f"{ENDPOINT} answers"
    return Check("model hub", why is None, seen, "give model.path a local folder")
