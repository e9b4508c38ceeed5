"""A recipe and its settings for trainings in one process and in two."""

from __future__ import annotations

from pathlib import Path

from recipes import settings_of

from streaming_asr.methods.whisperrt.train import WhisperRTRecipe
from streaming_asr.training.loop import FitConfig


class Recipe(WhisperRTRecipe):
    """WhisperRT's adapter; each process, or each of two accumulated parts, has its own windows."""

    accumulate = 1

    def __init__(self, model: str, corpus: str) -> None:
        super().__init__(**settings_of("whisperrt", Path(corpus), model, rank=4, batch=2))

    def draw(self, step, *, rank, world, progress):
        if self.accumulate == 2:  # one process stands for both ranks
            step, rank, world = step // 2, step % 2, 2
        return super().draw(step, rank=rank, world=world, progress=progress)

    def evaluate(self):
        return {"score": 0.0}


def settings(out, **changes):
    return FitConfig(out=str(out), max_steps=3, max_minutes=1e6, lr=0.01, warmup_steps=1, **changes)
