"""Tensor files as torch takes them: whole, and every number finite."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.errors import UserError

if TYPE_CHECKING:
    import torch


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
