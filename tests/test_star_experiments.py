"""experiments/star: the noise of table 1, tables of cells that ran and of those that did not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.star import figures, tables
from experiments.star.noisy import inject
from experiments.star.picture import draw
from streaming_asr.cells import plan


def test_noise_covers_its_share_of_the_recording_and_more_of_it_the_more():
    audio = 0.1 * np.sin(np.arange(8000, dtype=np.float32))
    assert np.array_equal(inject(audio, 0.0, "white", 1), audio)
    for share in (0.1, 0.5):
        changed = (inject(audio, share, "white", 1) != audio).nonzero()[0]
        assert len(changed) > 0.98 * share * 8000
        assert changed[-1] - changed[0] < share * 8000
    added = (inject(audio, 0.5, "pink", 2) - audio)[inject(audio, 0.5, "pink", 2) != audio]
    assert 0.5 < np.sqrt(np.mean(added**2)) / np.sqrt(np.mean(audio**2)) < 2


def cell(folder, name, wer, **method):
    (folder / name).mkdir(parents=True)
    config = {
        "method": {"_target_": "streaming_asr.methods.star.Star", **method},
        "data": {"split": "clean"},
        "chunk": "1s",
    }
    document = {
        "schema": 1,
        "config": config,
        "metrics": {"wer": wer, "dal_cu_ms": 800.0},
        "n_utterances": 60,
    }
    (folder / name / "metrics.json").write_text(json.dumps(document))


def test_the_table_says_by_how_much_star_is_ahead_or_not(tmp_path):
    for name, wer in (("star18", 20.0), ("cif18", 21.5), ("cnn18", 19.0)):
        cell(tmp_path, name, wer, weights=f"outputs/train/mini/star/{name}", rate=18.0)
    text = tables.figure4(tables.Cells(tmp_path))
    assert "| 18 | 20.0 | 21.5 | 19.0 | not run |" in text and "| 30 | not run" in text
    assert "STAR is ahead of CIF by 1.5 points" in text
    assert "STAR is behind CNN by 1.0 points" in text


def test_points_are_wer_and_dal(tmp_path):
    settings = {"stride_s": None, "keep_all": False}
    cell(tmp_path, "a", 33.3, weights="x/segmenter", wait_k=2, **settings)
    text = tables.figure5(tables.Cells(tmp_path))
    assert "| STAR | not run | 33.3 / 800 | not run | not run | not run |" in text


def test_the_figures_draw_what_was_run_and_say_what_was_not(tmp_path, capsys):
    settings = {"weights": "x/plain", "stride_s": 0.12}
    for k, wer in ((1, 40.0), (3, 30.0)):
        cell(tmp_path / "star_strides", str(k), wer, wait_k=k, **settings)
    (first, *rest) = tables.ENTRIES["figure6"]
    cells = tables.Cells(tmp_path / "star_strides")
    assert figures.curve(cells, first) == [(800.0, 40.0, 1), (800.0, 30.0, 3)]
    assert all(figures.curve(cells, other) == [] for other in rest)
    assert figures.main(["--output", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "<svg" in (tmp_path / "fig6.svg").read_text()
    assert "figure5: not run" in capsys.readouterr().out
    assert not (tmp_path / "fig9.svg").exists()


def test_the_papers_memory_stands_beside_ours(tmp_path):
    assert "| 5000 | not run | not run (80 %) | not run (68 %)" in tables.table3(tmp_path)


def test_the_step_stands_beside_recomputing_and_says_whether_it_is_flat(tmp_path):
    assert "| 97 | not run |" in tables.steps(tmp_path)
    rows = [
        {"chunk": k, "encode_ms": 6.0, "decode_ms": 3.0, "ours_ms": ours, "recompute_ms": 50.0}
        for k, ours in ((5, 10.0), (97, 12.5))
    ]
    step = {"model": "base", "clock": "CPU time", "rows": rows, "same_tokens": True, "n_tokens": 9}
    content = {"machine": {"cpu": "a processor"}, "step": step}
    (tmp_path / "star_bench_fused.json").write_text(json.dumps(content))
    text = tables.steps(tmp_path)
    assert "| 97 | 6.0 | 3.0 | 12.5 | 50.0 | 4.0 |" in text
    assert "9 tokens: the same tokens from both" in text
    assert "reached  chunk 97 takes 1.25 times chunk 5" in text


def test_a_picture_is_drawn(tmp_path):
    audio = np.sin(np.arange(16_000, dtype=np.float32))
    draw(audio, [("one", 0.1, 0.4)], {"STAR": [0.2, 0.9], "CIF": [0.5]}, tmp_path / "p.svg")
    assert "2 segments" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("command", "n_cells"),
    [
        ("experiment=star_rates method.rate=30 method.weights=none", 1),
        ("experiment=star_waits method.stride_s=0.24 method.keep_all=true method.weights=none", 5),
        ("experiment=star_strides limit=30 method.weights=none", 25),
        ("experiment=u2_delay method.weights=none", 4),
    ],
)
def test_a_sweep_of_one_method_takes_that_methods_settings(command, n_cells):
    assert len(plan(command.split())) == n_cells
