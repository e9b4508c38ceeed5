"""The tables of the hush word's experiment, from finished cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from table_cells import empty_page, figures, row

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


def test_each_table_has_its_cells_and_the_paper_beside_them(tmp_path: Path) -> None:
    whole = tmp_path / "hush_word_paddings"
    work = {"encoder_gflops_per_s": 4.0, "padding_share": 0.25}
    finished(whole, "25s", {"padding": "none", "padding_s": None}, 20.0, **work)
    finished(whole, "25s", {"padding": "zeros", "padding_s": 5.0}, 30.0, **work)
    pruned = {"padding": "hush", "beam": 5, "prune": True}
    finished(tmp_path / "real", "500ms", pruned, 25.0, mean_beam=3.0)
    greedy = {"padding": "hush", "beam": 1, "prune": True}
    finished(tmp_path / "hush_word", "500ms", greedy, 26.0, mean_beam=1.0)
    silent = {"padding": "zeros", "beam": 5, "prune": False}
    finished(tmp_path / "hush_word", "500ms", silent, 99.0, mean_beam=5.0)
    finished(tmp_path / "hush_word_words", "1s", {"weights": "/a/mel_500"}, 40.0)
    ablation = tmp_path / "hush_word_ablation"
    hush = {"padding": "hush", "prune": True}
    finished(ablation, "20ms", {**hush, "pipeline": "1:1"}, 50.0, mean_beam=2.0)
    late = {"word_latency_committed_mean_ca_s": 1.5}
    finished(ablation, "20ms", {**hush, "prune": False, "pipeline": "none"}, 60.0, **late)
    page = empty_page(Path(tables.__file__).parent / "README.md", tmp_path)
    assert tables.main(["--output", str(tmp_path), "--here", str(page)]) == 0
    text = Path(page).read_text()
    paddings, words, searches, ablation = (
        text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
        for name in ("paddings", "words", "searches", "ablation")
    )
    assert figures(paddings, "none") == [(20.0, 17.0, 24.0), 2.0, 25.0, (0.097, 152.5)]
    assert figures(paddings, "zeros, 5 s") == [(30.0, 27.0, 34.0), 2.0, 25.0, (0.083, 243.8)]
    assert figures(paddings, "hush word, 0.5 s") == [*["not run"] * 3, None]
    assert figures(words, "log-mel, 0.5 s")[0] == (40.0, 37.0, 44.0)
    assert figures(words, "samples, 1 s")[0] == "not run"
    assert row(searches, "beam 5, pruned", "500 ms")["WER %"] == (25.0, 22.0, 29.0)
    assert row(searches, "beam 5, pruned", "500 ms")["mean beam / ratio"] == (3.0, 0.5)
    assert row(searches, "greedy", "500 ms")["mean beam / ratio"] == (1.0, None)
    assert row(searches, "beam 5", "500 ms")["WER %"] == "not run"
    piped = figures(ablation, "HW + BP + pipeline (PL)")
    assert piped[:3] == [None, (2.0, 0.75), (50.0, 47.0, 54.0)]
    assert figures(ablation, "hush word (HW)")[:3] == [1.5, (None, None), (60.0, 57.0, 64.0)]
    assert set(figures(ablation, "HW + BP")) == {"not run"}


def test_without_a_sweep_everything_is_not_run(tmp_path: Path) -> None:
    page = empty_page(Path(tables.__file__).parent / "README.md", tmp_path)
    assert tables.main(["--output", str(tmp_path), "--here", str(page)]) == 0
    text = Path(page).read_text()
    assert text.count("Not run yet.") == 4
    paddings = text.split("<!-- paddings:begin -->")[1].split("<!-- paddings:end -->")[0]
    assert figures(paddings, "none")[:3] == ["not run"] * 3
