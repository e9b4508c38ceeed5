"""Tensor files: read whole and finite for torch, or one by one for a hash without torch."""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_asr.errors import UserError

if TYPE_CHECKING:
    import torch

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def load_tensors(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises UserError where it is truncated or damaged, or
    where a tensor holds a number that is not finite."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, torch.Tensor] = load_file(file)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{file}: not a file of tensors, or not a whole one ({str(error).splitlines()[0]}); "
            "copy, download or train it again"
        ) from error
    refuse_not_finite(file, found.items())
    return found


def weights_at(path: str | Path, name: str, what: str, remedy: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, or of the file `name` in a folder.

    Raises UserError, naming `what` and the `remedy`, where there is no such file, and as
    `load_tensors` does.
    """
    place = Path(path).expanduser()
    place = place / name if place.is_dir() else place
    if not place.is_file():
        raise UserError(f"{what} {str(path)!r}: no {place.name} there; {remedy}")
    return load_tensors(place)


def refuse_not_finite(source: object, named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises UserError that names the tensors with a number that is not finite."""
    wrong = [n for n, value in named if value.is_floating_point() and not value.isfinite().all()]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise UserError(
            f"{source}: {wrong[0]}{more} holds numbers that are not finite; take weights that "
            "are, or another dtype where these are too large for it"
        )


def hash_of(named: Iterable[tuple[str, np.ndarray]]) -> str:
    """A hash of tensors rounded to float16, whatever their order and precision were."""
    digest = hashlib.sha256()
    each = {}
    for name, values in named:
        with np.errstate(over="ignore"):
            half = np.ascontiguousarray(values, dtype="<f2")
        each[name] = hashlib.sha256(f"{half.shape}".encode() + half.tobytes()).hexdigest()
    for name in sorted(each):
        digest.update(f"{name}\0{each[name]}\0".encode())
    return digest.hexdigest()[:16]


def of_folder(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """(name, values) of every weight in a Hugging Face folder, names as Whisper's whole model has
    them; the output layer, which is the embeddings, is left out."""
    for file in weight_files(folder):
        reads = _safetensors if file.suffix == ".safetensors" else _pickled
        for name, values in reads(file):
            if name != "proj_out.weight":
                yield name if name.startswith("model.") else f"model.{name}", values


def weight_files(folder: Path) -> list[Path]:
    """The files of weights in a Hugging Face folder, of the first form there is."""
    return next((files for kind in WEIGHTS if (files := sorted(folder.glob(kind)))), [])


def _safetensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    """safetensors' own numpy reader has no bfloat16: u64 header length, JSON header, values."""
    try:
        with file.open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        (length,) = struct.unpack_from("<Q", data)
        header: dict[str, Any] = json.loads(data[8 : 8 + length])
        for name, told in header.items():
            if name == "__metadata__" or told["dtype"] not in TYPES:
                continue
            kind = np.dtype(TYPES[told["dtype"]])
            start, end = told["data_offsets"]
            count = (end - start) // kind.itemsize
            values = np.frombuffer(data, kind, count, 8 + length + start).reshape(told["shape"])
            if told["dtype"] == "BF16":
                values = (values.astype("<u4") << 16).view("<f4")
            yield name, values
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: truncated or damaged ({error}); copy or download it again"
        ) from error


def _pickled(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    import pickle

    import torch

    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(
            f"{file}: truncated or damaged ({str(error).splitlines()[0]}); copy or download it "
            "again"
        ) from error
    for name, value in content.items():
        yield name, value.float().numpy()
