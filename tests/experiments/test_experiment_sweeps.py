"""The sweeps of UFAL and Simul-Whisper on mini."""

from __future__ import annotations

import pytest

from streaming_asr.chunking import parse_duration
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.run.plan import plan


@pytest.mark.parametrize("name", ["ufal", "simul_whisper_cif"])
def test_the_sweeps_have_every_chunk(name: str) -> None:
    params = compose_raw([f"experiment={name}"]).hydra.sweeper.params
    chunks = {parse_duration(chunk) for chunk in str(params["chunk"]).split(",")}
    assert chunks == {100, 200, 300, 500, 1000}
    assert params["data.split"] == "clean,other"


@pytest.mark.parametrize(
    ("command", "n_cells"),
    [
        ("experiment=ufal data.split=clean chunk=500ms,200ms", 2),
        ("experiment=ufal_compat limit=30", 2),
        ("experiment=simul_whisper_cif data.split=other method.weights=none", 5),
        ("experiment=simul_whisper chunk=300ms", 4),
        ("experiment=hush_word method.beam=1 method.prune=true", 3),
    ],
)
def test_the_pages_commands_run_a_part_of_a_sweep(command: str, n_cells: int) -> None:
    assert len(plan(CommandLine(command.split())).cells) == n_cells
