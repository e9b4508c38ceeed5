"""The table of defaults: what the commands take of it, and that conf/ agrees with it."""

from __future__ import annotations

from dataclasses import fields

import pytest
from omegaconf import MISSING, OmegaConf

from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.defaults import CHUNK, CHUNKS
from streaming_asr.config.schema import RunConfig
from streaming_asr.files import CONF_DIR


def test_the_chunks_are_of_methods_and_the_usual_one_is_that_of_a_run() -> None:
    assert {path.stem for path in (CONF_DIR / "method").glob("*.yaml")} > set(CHUNKS)
    assert OmegaConf.load(CONF_DIR / "run.yaml").chunk == CHUNK


def test_the_defaults_of_a_run_are_in_conf_only() -> None:
    run = OmegaConf.load(CONF_DIR / "run.yaml")
    assert {field.name: field.default for field in fields(RunConfig) if field.name in run} == {
        name: MISSING for name in run if name not in ("defaults", "hydra")
    }


@pytest.mark.parametrize(
    ("settings", "chunk"),
    [
        ([], "1s"),
        (["method=whisperrt"], "300ms"),
        (["method=ufal"], "1s"),
        (["method=simul_whisper"], "1s"),
        (["method=hush_word"], "1s"),
        # What is compared has one chunk: the longest.
        (["method=whisperrt,ufal"], "1s"),
        (["method=whisperrt,u2"], "300ms"),
        (["method=ufal", "chunk=500ms"], "500ms"),
        (["chunk=500ms"], "500ms"),
        (["method=mine,native"], "560ms"),
        (["experiment=real"], None),
    ],
)
def test_a_command_takes_the_chunk_of_its_methods(settings: list[str], chunk: str | None) -> None:
    line = CommandLine(settings)
    line.default_methods(1)
    assert line.get("chunk") == chunk
