"""experiments/star: the noise of table 1, tables of cells that ran and of those that did not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from table_cells import by_labels

from experiments.star import picture, tables
from experiments.star.noisy import inject
from streaming_asr.config.command_line import CommandLine
from streaming_asr.run.plan import plan


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


def test_every_compressor_has_its_rate_and_seed(tmp_path):
    for name, wer in (("star18_0", 20.0), ("cif18_0", 21.5), ("cnn18_1", 19.0)):
        weights = f"outputs/train/tiny.en/star/{name}"
        cell(tmp_path / "star_rates", name, wer, weights=weights, rate=18.0)
    found = tables.rows(tmp_path)
    assert {labels: each["WER %"] for labels, each in by_labels(found, "figure4").items()} == {
        ("18", "0", "STAR"): 20.0,
        ("18", "0", "CIF"): 21.5,
        ("18", "1", "CNN"): 19.0,
    }
    assert {labels: each["WER %"] for labels, each in by_labels(found, "figure8").items()} == {
        ("STAR, trained at 18", "0", "r = 18"): 20.0,
        ("CIF, trained at 18", "0", "r = 18"): 21.5,
    }


def test_a_picture_marks_the_ends_of_the_segments_and_the_words(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(picture, "save_svg", lambda figure, *_: drawn.append(figure))
    audio = np.sin(np.arange(16_000, dtype=np.float32))
    picture.draw(audio, [("one", 0.1, 0.4)], [0.2, 0.9], tmp_path)
    (axis,) = drawn[0].axes
    marks = [[float(x) for (x, _), _ in lines.get_segments()] for lines in axis.collections]
    assert marks == [[0.2, 0.9], [0.1]]  # segments' ends, words' starts
    assert axis.get_ylabel() == "STAR\n2 segments"


@pytest.mark.parametrize(
    ("command", "n_cells"),
    [
        ("experiment=star_rates method.rate=12,30 method.weights=none", 2),
        ("experiment=star_segments method.weights=none", 6),
        ("experiment=star method.weights=none chunk=300ms", 5),
        ("experiment=u2_delay method.weights=none", 4),
    ],
)
def test_a_sweep_of_one_method_takes_that_methods_settings(command, n_cells):
    assert len(plan(CommandLine(command.split())).cells) == n_cells
