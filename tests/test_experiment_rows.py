"""The tables of the ufal and simul_whisper experiments, from finished cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments import rows
from experiments.hush_word import tables as hush_word
from experiments.simul_whisper import tables as simul_whisper
from experiments.ufal import tables as ufal
from streaming_asr.cells import plan
from streaming_asr.config import compose_raw
from streaming_asr.durations import parse_duration


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
            "normalised_erasure": 0.125,
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


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


MEASURED = "20.0 [17.0, 24.0] | 22.0 | 50.0 | 0.50 [0.25, 0.75] | 1.25 | 0.062 | 0.12 |"


SHORT = "20.0 | 22.0 | 50.0 | 0.50 | 1.25 | 0.062 | 0.12 |"


def test_ufal_stands_beside_the_paper_and_its_compat_form_beside_ufal(tmp_path: Path) -> None:
    finished(tmp_path / "mini", "a", {"name": "ufal", "compat": False}, "clean", 20.0)
    finished(tmp_path / "mini", "c", {"name": "star"}, "other", 20.0)  # another method's
    finished(tmp_path / "ufal", "b", {"name": "ufal", "compat": True}, "clean", 21.0)
    page = shutil.copy(Path(ufal.__file__).parent / "README.md", tmp_path)
    readme = tmp_path / "top.md"
    readme.write_text("before\n<!-- ufal:begin -->\n<!-- ufal:end -->\nafter\n")
    assert ufal.main(["--output", str(tmp_path), "--here", str(page), "--readme", str(readme)]) == 0
    clean, other = Path(page).read_text().split("mini `other`:")
    assert f"| UFAL | 300 ms | {MEASURED} 8.21 / 9.56 / 7.60 |" in clean
    assert len(lines(clean, "| UFAL compat | 300 ms | 21.0 [18.0, 25.0]")) == 1
    assert "60 utterances of each split; intervals over 12 speakers." in clean
    assert len(lines(clean, "| UFAL")) == 6 and len(lines(other, "| UFAL")) == 5
    (row,) = lines(other, "| UFAL | 300 ms")
    assert row.count("not run") == 7 and row.endswith("| 16.78 / 18.06 / 15.45 |")
    short = readme.read_text()
    assert f"| UFAL | 300 ms | clean | {SHORT}" in short and "[" not in short
    assert "| UFAL compat | 300 ms | clean | 21.0 |" in short
    assert len(lines(short, "| UFAL")) == 11 and short.startswith("before") and "after" in short


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
    assert simul_whisper.system(method) == name


def test_simul_whisper_and_its_thresholds(tmp_path: Path) -> None:
    own = {"name": "simul_whisper", "truncation": "cif"}
    finished(tmp_path / "simul_whisper", "a", own, "other", 20.0)
    dev = own | {"frame_threshold": 12}
    finished(tmp_path / "simul_whisper_thresholds", "b", dev, "dev", 20.0)
    page = Path(shutil.copy(Path(simul_whisper.__file__).parent / "README.md", tmp_path))
    assert simul_whisper.main(["--output", str(tmp_path), "--here", str(page)]) == 0
    text = page.read_text()
    assert f"| Simul-Whisper, cif | 300 ms | {MEASURED} 24.27 / 27.85 / 23.46 |" in text
    assert f"| 12 | {MEASURED}" in text
    assert len(lines(text, "| 4 | not run")) == 1


@pytest.mark.parametrize("name", ["ufal", "simul_whisper_cif", "hush_word"])
def test_the_sweeps_have_every_chunk_of_the_tables_and_no_impossible_one(name: str) -> None:
    params = compose_raw([f"experiment={name}"]).hydra.sweeper.params
    chunks = {parse_duration(chunk) for chunk in str(params["chunk"]).split(",")}
    more = {hush_word.NEAR_750_MS} if name == "hush_word" else set()
    assert chunks == set(rows.CHUNKS_MS) | more
    assert params["data.split"] == "clean,other"


@pytest.mark.parametrize(
    ("command", "n_cells"),
    [
        ("experiment=ufal data.split=clean chunk=500ms,200ms", 2),
        ("experiment=ufal_compat limit=30", 2),
        ("experiment=simul_whisper_cif data.split=other method.weights=none", 5),
        ("experiment=simul_whisper chunk=300ms", 4),
        ("experiment=hush_word method.padding=full chunk=1s,300ms method.weights=none", 4),
    ],
)
def test_the_pages_commands_run_a_part_of_a_sweep(command: str, n_cells: int) -> None:
    assert len(plan(command.split())) == n_cells


def test_the_papers_rows_are_as_printed() -> None:
    printed = rows.paper_rows("Simul-Whisper")
    assert printed[40, "clean"] == "27.54 / 30.60 / 25.78"
    assert sorted({chunk for chunk, _ in printed}) == [40, 100, 200, 300]
