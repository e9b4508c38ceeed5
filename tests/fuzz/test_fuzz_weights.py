"""Fuzz: a model's folder and a training's checkpoint, damaged after they were written."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import cases, spoiled, watched
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_folder
from torch import nn

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.training.loop import FitConfig, fit
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.slow

FILES = ("tokenizer.json", "config.json", "model.safetensors")


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(FILES))
    content = (tiny_folder() / name).read_bytes()
    return name, draw(spoiled(content))


@cases(10)
@given(damaged_files())
def test_a_damaged_model_says_words_or_is_refused(made: tuple[str, bytes]) -> None:
    name, content = made
    with tempfile.TemporaryDirectory() as place, watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of settings it does not know
        folder = Path(place) / "model"
        shutil.copytree(tiny_folder(), folder)
        (folder / name).write_bytes(content)
        with suppress(UserError):
            load_whisper(folder)
            method = new_method("offline", str(folder))
            method.step(method.start(), np.zeros(8000, np.float32), last=True)


class Line:
    """Least squares with two parameters; its dev score is 1."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> torch.Tensor:
        return torch.ones(2, 3) * step

    def loss(self, model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        return (model(batch) ** 2).mean(), {}

    def evaluate(self) -> dict[str, float]:
        return {"score": 1.0}

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)


def train(out: Path, n_steps: int) -> None:
    fit(Line(), FitConfig(out=str(out), max_steps=n_steps, max_minutes=1e6, lr=0.1, log_every=1))


@functools.cache
def trained() -> Path:
    out = Path(tempfile.mkdtemp(prefix="trained-"))
    train(out, 2)
    return out


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(("checkpoint.pt", "curve.jsonl")))
    return name, draw(spoiled((trained() / name).read_bytes()))


@cases(10)
@given(st.deferred(damaged))
def test_a_damaged_checkpoint_goes_on_or_is_refused(made: tuple[str, bytes]) -> None:
    name, content = made
    with tempfile.TemporaryDirectory() as place, watched():
        out = Path(place) / "run"
        shutil.copytree(trained(), out)
        (out / name).write_bytes(content)
        with suppress(UserError):
            train(out, 4)
            rows = (out / "curve.jsonl").read_text().splitlines()
            assert [json.loads(row)["step"] for row in rows][-1:] in ([4], [])
