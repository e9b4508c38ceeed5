"""Batches drawn ahead by worker processes.

A GPU takes a step faster than one process draws its batch: cuts, rooms and features are computed on
the CPU. With `fit.workers=n` so many processes draw the next batches meanwhile; they are the same.
"""

from __future__ import annotations

import multiprocessing
from itertools import count
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class DrawnAhead:
    """The batches of `recipe` from step `first` on, drawn in order by `workers` processes.

    A batch is drawn with the `progress` of the step that runs meanwhile, a few before its own.
    Errors of `recipe.draw` are raised by the `draw` of the batch."""

    def __init__(self, recipe: Any, workers: int, first: int, *, rank: int, world: int) -> None:
        """workers: processes. first: the first step. rank, world: as in `Recipe.draw`."""
        fork = multiprocessing.get_context("fork")  # not every recipe can be pickled
        self._progress = fork.Value("d", 0.0)
        loader = DataLoader(
            _Steps(recipe, rank, world, self._progress),
            batch_size=None,
            sampler=count(first),
            num_workers=workers,
            multiprocessing_context=fork,
            pin_memory=torch.cuda.is_available(),  # of what has `pin_memory`, as tensors do
        )
        self._batches = iter(loader)

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> Any:
        """Return the next batch, as `Recipe.draw` does; only `progress` is used."""
        self._progress.value = progress
        return next(self._batches)

    def clear(self) -> None:
        """End the processes."""
        del self._batches


class _Steps(Dataset[Any]):
    """The batches by step, in a worker process; `progress` is shared with the training."""

    def __init__(self, recipe: Any, rank: int, world: int, progress: Any) -> None:
        self._recipe, self._rank, self._world, self._progress = recipe, rank, world, progress

    def __getitem__(self, step: int) -> Any:
        progress = self._progress.value
        return self._recipe.draw(step, rank=self._rank, world=self._world, progress=progress)
