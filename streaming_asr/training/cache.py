"""Batches stored on disk: features, and the outputs of frozen layers, computed once.

By default recipes draw new windows (cuts, noise, gain) for every step. With
`fit.cached_batches=n` a training goes through the same n batches again and again, as a training
in epochs over a fixed set does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError


class BatchCache:
    """The first `n` batches of `recipe`, in turn; each is drawn once and then read from `folder`.

    If the recipe has `precompute(batch) -> batch`, its result is stored, as the output of an
    encoder that is not trained. Batches that depend on `progress` stay as they were drawn first.
    Files of an earlier run are removed, since its settings may differ."""

    def __init__(self, recipe: Any, n: int, folder: Path, rank: int) -> None:
        self._recipe, self._n, self._folder, self._rank = recipe, n, folder, rank
        self._precompute: Callable[[Any], Any] = getattr(recipe, "precompute", lambda batch: batch)
        self.clear()
        folder.mkdir(parents=True, exist_ok=True)

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> Any:
        """Return the batch of step modulo n. Raises UserError where the disk is full."""
        file = self._folder / f"{self._rank}-{step % self._n}.pt"
        if file.exists():
            return torch.load(file, weights_only=False)  # written by this very process
        batch = self._recipe.draw(step % self._n, rank=rank, world=world, progress=progress)
        batch = self._precompute(batch)
        try:
            torch.save(batch, file)
        except (OSError, RuntimeError) as error:  # torch's writer raises RuntimeError
            with contextlib.suppress(OSError):
                file.unlink()
            raise UserError(
                f"{file}: cannot be written ({str(error).splitlines()[0]}); make room, or take a "
                f"smaller recipe.fit.cached_batches than {self._n}"
            ) from error
        return batch

    def clear(self) -> None:
        """Remove this rank's files, and the folder with the last of them."""
        for file in self._folder.glob(f"{self._rank}-*.pt"):
            file.unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()
