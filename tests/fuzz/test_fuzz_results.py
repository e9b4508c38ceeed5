"""Fuzz: our own logs, results and checkpoints, damaged after they were written."""

from __future__ import annotations

import functools
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import assert_finite, cases, edited, spoiled, spoiled_lines, watched
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from report_cells import write_cell

from experiments.figures.tables import write_table
from streaming_asr.errors import UserError
from streaming_asr.events.check import SCHEMA
from streaming_asr.events.log import resume
from streaming_asr.report import build, table
from streaming_asr.score import score_folder

pytestmark = pytest.mark.slow

LOG = Draft202012Validator(SCHEMA)


@functools.cache
def cell(name: str) -> str:
    """The text of one file of a cell."""
    with tempfile.TemporaryDirectory() as place:
        return (write_cell(Path(place) / "method=ufal,chunk=300ms") / name).read_text()


# -- logs ---------------------------------------------------------------------------------------


@cases(25)
@given(st.deferred(lambda: spoiled_lines(cell("events.jsonl"))))
def test_a_damaged_log_is_scored_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place, watched():
        path = Path(place) / "cell" / "events.jsonl"
        path.parent.mkdir()
        path.write_bytes(content)
        with suppress(UserError):
            score_folder(path.parent)
            assert_finite(path.with_name("metrics.json"))
            build(path.parent)
            for line in content.split(b"\n")[:-1]:  # the reader has its own check of a step
                assert LOG.is_valid(json.loads(line)), line
        with suppress(UserError):
            resume(path)


# -- results ------------------------------------------------------------------------------------


@cases(10)
@given(st.deferred(lambda: edited(json.loads(cell("metrics.json")))))
def test_a_damaged_result_is_a_row_that_says_so_or_is_refused(result: Any) -> None:
    with tempfile.TemporaryDirectory() as place, watched():
        folder = Path(place) / "method=ufal,chunk=300ms"
        folder.mkdir()
        (folder / "metrics.json").write_text(json.dumps(result))
        (folder / "utterances.jsonl").write_text(cell("utterances.jsonl"))
        (folder / "events.jsonl").write_text(cell("events.jsonl"))
        for shows in (table, build, lambda root: write_table(root, root / "t.md")):
            with suppress(UserError):
                shows(Path(place))


# -- checkpoints --------------------------------------------------------------------------------


@functools.cache
def weights() -> bytes:
    from safetensors.numpy import save

    return save({"a.weight": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)})


@cases(10)
@given(st.deferred(lambda: spoiled(weights())))
def test_damaged_weights_are_read_as_numbers_or_refused(content: bytes) -> None:
    from streaming_asr.models.hash import weights_hash

    with tempfile.TemporaryDirectory() as place, watched():
        (Path(place) / "config.json").write_text('{"model_type": "whisper"}')
        (Path(place) / "model.safetensors").write_bytes(content)
        with suppress(UserError):
            weights_hash(place)
