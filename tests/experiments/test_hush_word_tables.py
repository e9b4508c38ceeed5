"""The rows of the hush word's experiment, from finished cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table_cells import by_labels

from experiments.hush_word import tables


def finished(folder: Path, chunk: str, method: dict[str, Any], wer: float, **figures: Any) -> None:
    """A finished cell's metrics.json as `run` writes it, as far as the tables read it."""
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {
            "method": {"name": "hush_word", **method},
            "chunk": chunk,
            "data": {"split": "clean"},
            "batch": 1,
        },
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "n_failed": 0,
        "metrics": {"wer": wer, **figures},
        "intervals": {"drawn": "speaker", "n_drawn": 12, "metrics": {"wer": [wer - 3, wer + 4]}},
    }
    cell = folder / f"method=hush_word,chunk={chunk},{len(list(folder.glob('*')))}"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text(json.dumps(document))


def test_a_padding_has_its_work_and_the_papers_figures(tmp_path: Path) -> None:
    folder = tmp_path / "hush_word_paddings"
    work = {"encoder_gflops_per_s": 4.0, "padding_share": 0.25}
    finished(folder, "25s", {"padding": "none", "padding_s": None}, 20.0, **work)
    finished(folder, "25s", {"padding": "zeros", "padding_s": 5.0}, 30.0, **work)
    finished(folder, "25s", {"padding": "noise", "padding_s": 5.0}, 40.0, **work)
    found = by_labels(tables.rows(tmp_path), "paddings")
    assert {labels: list(figures.values()) for labels, figures in found.items()} == {
        ("none",): [[20.0, 17.0, 24.0], 2.0, 25.0, "0.097 / 152.5"],
        ("zeros, 5 s",): [[30.0, 27.0, 34.0], 2.0, 25.0, "0.083 / 243.8"],
        ("noise, 5 s",): [[40.0, 37.0, 44.0], 2.0, 25.0],
    }


def test_a_search_has_its_width_and_other_paddings_are_left_out(tmp_path: Path) -> None:
    pruned = {"padding": "hush", "beam": 5, "prune": True}
    finished(tmp_path / "real", "500ms", pruned, 25.0, mean_beam=3.0)
    greedy = {"padding": "hush", "beam": 1, "prune": True}
    finished(tmp_path / "hush_word", "500ms", greedy, 26.0, mean_beam=1.0)
    silent = {"padding": "zeros", "beam": 5, "prune": False}
    finished(tmp_path / "hush_word", "500ms", silent, 99.0, mean_beam=5.0)
    found = by_labels(tables.rows(tmp_path), "searches")
    assert {labels: list(figures.values()) for labels, figures in found.items()} == {
        ("beam 5, pruned", "500 ms"): [[25.0, 22.0, 29.0], 3.0, 0.5, "2.794 / 0.552"],
        ("greedy", "500 ms"): [[26.0, 23.0, 30.0], 1.0],
    }


@pytest.mark.parametrize(
    ("folder", "chunk", "method", "labels"),
    [
        ("words", "1s", {"weights": "/a/mel_500"}, ("log-mel, 0.5 s",)),
        (
            "ablation",
            "20ms",
            {"padding": "hush", "prune": True, "pipeline": "1:1"},
            ("HW + BP + pipeline (PL)",),
        ),
        (
            "ablation",
            "20ms",
            {"padding": "hush", "prune": False, "pipeline": "none"},
            ("hush word (HW)",),
        ),
    ],
)
def test_a_cell_has_the_name_of_what_it_was_set_to(
    folder: str, chunk: str, method: dict[str, Any], labels: tuple[str], tmp_path: Path
) -> None:
    finished(tmp_path / f"hush_word_{folder}", chunk, method, 40.0)
    (found,) = tables.rows(tmp_path)
    assert found.key == (folder, *labels)
    assert found.figures == {"WER %": [40.0, 37.0, 44.0]}
