"""Tensor files as torch takes them: whole, and every number finite."""

from __future__ import annotations

import re
import sys
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_asr.errors import UserError
from streaming_asr.files import check_file

if TYPE_CHECKING:
    import torch

AGAIN = "delete it, then copy, download or train it again"
# Modules of Python whose classes training scripts store with a checkpoint: settings, paths, dates.
DATA_MODULES = frozenset({"argparse", "collections", "datetime", "decimal", "enum", "pathlib"})
DATA_CLASSES = frozenset({"types.SimpleNamespace", "builtins.range", "builtins.frozenset"})


class StoredObject:
    """Takes the place of an object of a class that torch does not load: what it holds, no code."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        if isinstance(state, Mapping):
            self.__dict__.update(state)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars away."""
    from transformers.utils import logging

    has_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if has_bars:
            logging.enable_progress_bar()


def save_half(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write the tensors in fp16 as a safetensors file, its folder too."""
    from safetensors.torch import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    half = {name: value.detach().half().cpu().contiguous() for name, value in tensors.items()}
    save_file(half, file, metadata={"format": "pt"})


def load_pickled(file: Path, what: str) -> Any:
    """Return what torch.save wrote to a file. Objects of classes that torch does not load, as the
    settings of a training script, become `StoredObject`; none of their code is imported or run.

    Raises UserError, naming `what`, for a file that is damaged or holds calls of functions.
    """
    import torch

    classes = _foreign_classes(file)
    code = sorted(filter(_is_code, map(_python_3_name, classes)))
    if code:
        raise UserError(
            f"{what} holds code ({code[0]}), which is not run; take a file from a source that you "
            "trust, or save only its state_dict, with torch.save"
        )
    try:
        # weights_only: a pickle may otherwise run any code.
        with torch.serialization.safe_globals([(StoredObject, name) for name in classes]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes torch and pickle raise
        reason = re.split(r"\n|\. ", str(error))[0] or repr(error)
        raise UserError(
            f"{what} is not a plain file of tensors: {reason}; {AGAIN}, or save only its "
            "state_dict with torch.save"
        ) from error


def _foreign_classes(file: Path) -> list[str]:
    """Return the names (module.Class) in a file that torch does not load; [] for a damaged one."""
    import torch

    try:
        return list(torch.serialization.get_unsafe_globals_in_checkpoint(file))
    except Exception:  # a damaged file, or one in torch's old form; the loader reports it
        return []


def _python_3_name(name: str) -> str:
    """Return a name (module.Class) as Python 3 has it; torch.save writes those of Python 2."""
    module, _, attribute = name.rpartition(".")
    return f"{IMPORT_MAPPING.get(module, module)}.{attribute}"


def _is_code(name: str) -> bool:
    """Return whether a name in a pickle is of Python itself and not of a class that holds data."""
    module = name.partition(".")[0]
    if module in DATA_MODULES or name in DATA_CLASSES:
        return False
    return module in sys.stdlib_module_names


def load_tensors(file: Path, *, finite: bool = True) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, or of one that torch.save wrote.

    Raises UserError where it is truncated or damaged, holds anything but tensors of floating-point
    numbers, or, with `finite`, a number that is not finite.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        check_file(file)
        is_plain = file.suffix == ".safetensors"
        tensors: Any = load_file(file) if is_plain else load_pickled(file, str(file))
    except (SafetensorError, OSError) as error:
        raise damaged(file, error) from error
    if not isinstance(tensors, Mapping):
        raise UserError(f"{file}: holds no tensors by their names; {AGAIN}")
    for name, value in tensors.items():
        # Whole numbers are the sign of a damaged header.
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            kind = getattr(value, "dtype", type(value).__name__)
            raise UserError(
                f"{file}: {name} holds {kind}, and weights are floating-point numbers; {AGAIN}"
            )
    if finite:
        refuse_not_finite(file, tensors.items())
    return dict(tensors)


def damaged(file: Path, error: Exception) -> UserError:
    """Return the error for a file of weights that cannot be read, given the reason."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{file}: is missing; copy, download or train it again")
    reason = str(error).partition("\n")[0] or repr(error)
    return UserError(f"{file}: truncated or damaged ({reason}); {AGAIN}")


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
    """Raise UserError, naming `source`, where a tensor holds a number that is not finite.

    named: (name, tensor) pairs.
    """
    faulty = [name for name, x in named if x.is_floating_point() and not all_finite(x)]
    if faulty:
        more = f" and {len(faulty) - 1} more" if len(faulty) > 1 else ""
        raise UserError(
            f"{source}: {faulty[0]}{more} holds numbers that are not finite; take weights that "
            "are, or another dtype where these are too large for it"
        )


def all_finite(value: torch.Tensor) -> bool:
    """Return whether every number of a tensor is finite."""
    # A finite sum proves it in less time; the sum of large finite numbers may overflow.
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())
