"""The tables of UFAL and Simul-Whisper on mini, from finished cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table_cells import empty_page, figures, labelled, row

from experiments import rows
from experiments.mini import tables
from experiments.tables import block_of
from streaming_asr.chunking import parse_duration
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.run.plan import plan


def finished(folder: Path, name: str, method: dict[str, Any], split: str, wer: float) -> None:
    """A finished cell: its metrics.json as `run` writes it, as far as the tables read it."""
    chunk = "300ms"
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {"method": method, "chunk": chunk, "data": {"split": split}, "batch": 1},
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "n_failed": 0,
        "metrics": {
            "wer": wer,
            "arwer_cu": wer + 2,
            "arwer_grid_ca": wer + 30,
            "word_latency_committed_p50_ca_s": 0.5,
            "word_latency_committed_p90_ca_s": 1.25,
            "rtf_total": 0.0625,
            "light_erasure": 0.125,
        },
        "intervals": {
            "drawn": "speaker",
            "n_drawn": 12,
            "metrics": {"wer": [wer - 3, wer + 4], "word_latency_committed_p50_ca_s": [0.25, 0.75]},
        },
    }
    cell = folder / f"method={method['name']},chunk={chunk},{name},data.split={split}"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text(json.dumps(document))


MEASURED = {
    "WER": (20.0, 17.0, 24.0),
    "ARWER": 22.0,
    "ARWER grid": 50.0,
    "committed p50": (0.5, 0.25, 0.75),
    "committed p90": 1.25,
    "RTF": 0.062,
    "light erasure": 0.12,
}


def written(output: Path, name: str) -> str:
    """The block of mini's page, of these results."""
    page = empty_page(tables.PAGE, output)
    assert tables.main(["--output", str(output), "--here", str(page)]) == 0
    return block_of(page.read_text(), name)


def test_ufal_stands_beside_the_paper_and_its_compat_form_beside_ufal(tmp_path: Path) -> None:
    finished(tmp_path / "mini", "a", {"name": "ufal", "compat": False}, "clean", 20.0)
    finished(tmp_path / "mini", "c", {"name": "star"}, "other", 20.0)  # another method's
    finished(tmp_path / "ufal", "b", {"name": "ufal", "compat": True}, "clean", 21.0)
    clean, other = written(tmp_path, "ufal").split("mini `other`:")
    assert row(clean, "UFAL", "300 ms") == MEASURED | {"paper, base": (8.21, 9.56, 7.6)}
    assert row(clean, "UFAL compat", "300 ms")["WER"] == (21.0, 18.0, 25.0)
    assert "60 recordings in a cell; intervals over 12 speakers." in clean
    assert len(labelled(clean, "UFAL")) == len(labelled(other, "UFAL")) == len(rows.CHUNKS_MS)
    absent = dict.fromkeys(MEASURED, "not run")
    assert row(other, "UFAL", "300 ms") == absent | {"paper, base": (16.78, 18.06, 15.45)}


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ({"truncation": "always"}, "Simul-Whisper, always"),
        ({"truncation": None, "weights": "/a/any_chunk"}, "Simul-Whisper, cif"),
        ({"truncation": None, "weights": None}, "Simul-Whisper, never"),
        ({"truncation": "never", "weights": "/a/any_chunk"}, "Simul-Whisper, never"),
    ],
)
def test_simul_whisper_is_named_by_its_truncation(method: dict[str, Any], name: str) -> None:
    assert tables.simul_whisper(method) == name


def test_simul_whisper_and_its_thresholds(tmp_path: Path) -> None:
    own = {"name": "simul_whisper", "truncation": "cif"}
    finished(tmp_path / "simul_whisper", "a", own, "other", 20.0)
    dev = own | {"frame_threshold": 12}
    finished(tmp_path / "simul_whisper_thresholds", "b", dev, "dev", 20.0)
    _, other = written(tmp_path, "simul_whisper").split("mini `other`:")
    printed = {"paper, base": (24.27, 27.85, 23.46)}
    assert row(other, "Simul-Whisper, cif", "300 ms") == MEASURED | printed
    thresholds = written(tmp_path, "thresholds")
    assert row(thresholds, "12") == MEASURED
    assert set(figures(thresholds, "4")) == {"not run"}


@pytest.mark.parametrize("name", ["ufal", "simul_whisper_cif"])
def test_the_sweeps_have_every_chunk_of_the_tables_and_no_impossible_one(name: str) -> None:
    params = compose_raw([f"experiment={name}"]).hydra.sweeper.params
    chunks = {parse_duration(chunk) for chunk in str(params["chunk"]).split(",")}
    assert chunks == set(rows.CHUNKS_MS)
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


def test_the_papers_rows_are_as_printed() -> None:
    printed = rows.printed_rates("Simul-Whisper")
    assert printed[40, "clean"] == "27.54 / 30.60 / 25.78"
    assert sorted({chunk for chunk, _ in printed}) == [40, 100, 200, 300]
