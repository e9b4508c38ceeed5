"""Hashes of weights: of a Whisper in every form and precision, and of the files of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.files import check_file, remembered
from streaming_asr.models.find import Found, find_here, whole_name
from streaming_asr.models.tensors import damaged

WHOLE_BYTES = 64 * 2**20  # files up to this size are hashed whole, larger ones by size and ends
END_BYTES = 2**20
MOST_FILES = 1000  # of a model or its weights
NUMPY = ("F64", "F32", "F16")  # types that need no torch


def weights_hash(path: str | Path) -> str | None:
    """Return the hash of a Whisper's tensors, rounded to float16; None where they are not on this
    machine.

    path: a folder or a hub name. Hugging Face's and CTranslate2's forms of one model, in any
    floating-point type, have the same hash. Raises UserError on damaged files.
    """
    model = find_here(path)
    if model is None or not (files := model.weight_files):
        return None
    return remembered("weights", files, lambda: hash_of(_named(model)))


def hash_of(named: Iterable[tuple[str, Any]]) -> str:
    """Return a hash, 16 hex digits, of (name, tensor) pairs, the same in any order and precision:
    values are rounded to float16, so that a float16 copy of a model has the model's hash."""
    by_name = {}
    for name, values in named:
        with np.errstate(over="ignore"):
            numbers = values if isinstance(values, np.ndarray) else values.float().numpy()
            half = np.ascontiguousarray(numbers, dtype="<f2")
        by_name[name] = hashlib.sha256(f"{half.shape}".encode() + half.tobytes()).hexdigest()
    digest = hashlib.sha256()
    for name, tensor_hash in sorted(by_name.items()):
        digest.update(f"{name}\0{tensor_hash}\0".encode())
    return digest.hexdigest()[:16]


def _named(model: Found) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) of every weight; the output layer, which is the embeddings, is left
    out."""
    files = [] if model.is_ctranslate2 else model.weight_files
    plain = [_arrays(file) if file.suffix == ".safetensors" else None for file in files]
    arrays = chain.from_iterable(each for each in plain if each is not None)
    # Torch, which takes seconds to import, reads what numpy does not have.
    tensors = arrays if plain and None not in plain else model.tensors()
    return ((name, value) for name, value in tensors if name != "proj_out.weight")


def _arrays(file: Path) -> Iterator[tuple[str, np.ndarray]] | None:
    """Return (name, values) of a safetensors file; None where a type is one that numpy does not
    have, as bfloat16. Raises UserError."""
    from safetensors import SafetensorError, safe_open

    try:
        check_file(file)
        content = safe_open(file, "np")
        names = content.keys()
        if not all(content.get_slice(name).get_dtype() in NUMPY for name in names):
            return None
    except (SafetensorError, OSError) as error:
        raise damaged(file, error) from error
    return ((whole_name(name), content.get_tensor(name).astype("<f4")) for name in names)


def model_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of the files that `model.path`, `method.weights` and `method.lm` name, 16 hex
    digits; a model of the hub counts by its name.

    Raises UserError for a folder with more than 1000 files, which cannot be only weights.
    """
    files: list[Path] = []
    hub_names = []
    for section, key in (("model", "path"), ("method", "weights"), ("method", "lm")):
        name = (config.get(section) or {}).get(key)
        if name and name != "none":
            path = Path(str(name)).expanduser()
            entries = sorted(islice(path.rglob("*"), MOST_FILES + 1)) if path.is_dir() else [path]
            if len(entries) > MOST_FILES:
                raise UserError(
                    f"{section}.{key}={name}: holds more than {MOST_FILES} files; name the folder "
                    "that holds only the weights"
                )
            files += entries
            if not path.exists():
                hub_names.append(str(name))
    return files_hash(files, hub_names)


def files_hash(files: Iterable[Path], names: Iterable[str] = ()) -> str:
    """Return the hash of `names` and of the files' names and contents, 16 hex digits.

    Of a large file only its size, its first and its last MiB count; folders are left out.
    """
    digest = hashlib.sha256("\0".join(names).encode())
    for file in files:
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"\0{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            if size <= WHOLE_BYTES:
                digest.update(stream.read())
            else:
                digest.update(stream.read(END_BYTES))
                stream.seek(-END_BYTES, 2)
                digest.update(stream.read(END_BYTES))
    return digest.hexdigest()[:16]
