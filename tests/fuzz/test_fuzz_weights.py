"""Fuzz: a model's folder and a training's checkpoint, damaged after they were written."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fuzzing import cases, spoiled, watched
from hypothesis import given
from hypothesis import strategies as st
from line import Line, settings
from safetensors.numpy import save
from tiny import tiny_folder

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.models.hash import weights_hash
from streaming_asr.training.loop import fit
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


@functools.cache
def tensors() -> bytes:
    return save({"a.weight": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)})


@cases(10)
@given(st.deferred(lambda: spoiled(tensors())))
def test_damaged_weights_are_read_as_numbers_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place, watched():
        (Path(place) / "config.json").write_text('{"model_type": "whisper"}')
        (Path(place) / "model.safetensors").write_bytes(content)
        with suppress(UserError):
            weights_hash(place)


def train(out: Path, n_steps: int) -> None:
    fit(Line(), settings(out, max_steps=n_steps, log_every=1))


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
