"""ChunkFormer's tables: what is run, what is not, what fits into a memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table_cells import by_labels

from experiments import svg
from experiments.chunkformer import memory, tables
from experiments.tables import read


def finished(output: Path, data: dict[str, Any], wer: float, **method: Any) -> None:
    """A finished cell, as far as the tables read it."""
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {
            "method": {"name": "chunkformer", **method},
            "chunk": "320ms",
            "data": data,
            "batch": 1,
        },
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "n_failed": 0,
        "metrics": {"wer": wer, "rtf_total": 0.0625},
    }
    name = ",".join(f"{key}={value}" for key, value in {**method, **data}.items())
    folder = output / f"method=chunkformer,chunk=320ms,{name}"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(document))


def test_cells_are_found_by_their_context_and_others_are_not_run(tmp_path: Path) -> None:
    sizes = {"chunk_frames": 16, "left_frames": 32, "right_frames": 32}
    finished(tmp_path, {"name": "prompts", "join_s": None}, 11.0, **sizes)
    whole = {"chunk_frames": 8000, "left_frames": 0, "right_frames": 0}
    finished(tmp_path, {"name": "prompts", "join_s": 600}, 13.5, **whole)
    found = by_labels(tables.table2(read(tmp_path)))
    assert {labels: figures["WER %"] for labels, figures in found.items()} == {
        ("16, 32, 32", "one by one"): 11.0,
        ("full context", "ten minutes"): 13.5,
    }


def test_ours_has_the_papers_row_of_the_same_batch() -> None:
    row = {"mib": 120.4, "seconds": 3.25, "gflop": 800.0}
    (made,) = tables.table4(
        {"machine": {"cpu": "a processor"}, "masked": {"rows": {"encoder only": {"padded": row}}}}
    )
    assert made.key == ("table4", "encoder only", "ChunkFormer")
    assert list(made.figures.values()) == [120.4, 3.25, 800.0, "25.8 / 2.2 / 56.7"]
    assert tables.table4({}) == tables.table3({}) == []


@pytest.mark.parametrize(
    ("points", "kind", "minutes"),
    [
        ({1.0: 10.0, 2.0: 40.0}, "full", 4.0),  # 10 t^2
        ({8.0: 90.0, 4.0: 50.0}, "limited", 15.0),  # 10 + 10 t
        ({8.0: 90.0}, "limited", None),
        ({4.0: 50.0, 8.0: 50.0}, "limited", None),  # nothing to extrapolate
        ({4.0: 50.0, 8.0: 60.0}, "endless", None),
    ],
)
def test_what_fits_is_computed_from_the_last_two_figures(points, kind, minutes) -> None:
    assert memory.longest_minutes(points, kind, 160.0) == minutes


def test_the_third_table_and_its_picture_are_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {
        "size": "small",
        "device": "cpu",
        "machine": {"cpu": "a processor", "memory_gib": 16.0},
        "mib": {"full": {"1": 64.0, "2": 256.0}, "endless": {"1": 40.0, "2": 40.0}},
    }
    made = by_labels(tables.table3(result))
    assert [round(each) for each in made["full context",].values()] == [64, 256, 16, 11, 36]
    assert list(made["the same, endless",].values()) == [40, 40, *["no limit"] * 3]
    assert len(made) == 2
    drawn: list[Any] = []
    monkeypatch.setattr(svg, "save_svg", lambda figure, *_: drawn.append(figure))
    memory.draw(result, tmp_path / "memory.svg")
    (axis,) = drawn[0].axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert lines == {
        "full context": [[1, 64], [2, 256]],
        "the same, endless": [[1, 40], [2, 40]],
    }


def test_a_recording_in_pieces_is_measured_like_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.bench.chunkformer import BenchSettings
    from experiments.bench.models import SHAPES
    from streaming_asr.methods.chunkformer.encoder import Shape

    monkeypatch.setitem(SHAPES, "mini", Shape(16, 2, 1, 16, 20))
    for kind in memory.KINDS:
        assert memory.measure(BenchSettings(size="mini"), kind, 1.2) >= 0
