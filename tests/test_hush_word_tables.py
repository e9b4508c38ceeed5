"""The tables of the hush word's experiment, from finished cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from table_cells import figures, row

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
    finished(whole, "10s", {"padding": "none", "padding_s": None}, 20.0, **work)
    finished(whole, "10s", {"padding": "zeros", "padding_s": 5.0}, 30.0, **work)
    finished(whole, "10s", {"padding": "noise", "padding_s": None}, 40.0, **work)
    finished(tmp_path / "hush_word", "500ms", {"padding": "hush"}, 25.0, mean_beam=3.0)
    ablation = tmp_path / "hush_word_ablation"
    hush = {"padding": "hush", "prune": True}
    finished(ablation, "20ms", {**hush, "pipeline": "1:1"}, 50.0, mean_beam=2.0)
    late = {"word_latency_committed_mean_ca_s": 1.5}
    finished(ablation, "20ms", {**hush, "prune": False, "pipeline": "none"}, 60.0, **late)
    page = shutil.copy(Path(tables.__file__).parent / "README.md", tmp_path)
    assert tables.main(["--output", str(tmp_path), "--here", str(page)]) == 0
    text = Path(page).read_text()
    clean = {
        name: text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
        for name in ("paddings", "hush_word", "beams", "ablation")
    }
    clean |= {name: clean[name].split("mini `other`:")[0] for name in ("paddings", "hush_word")}
    paddings, beams, ablation = clean["paddings"], clean["beams"], clean["ablation"]
    assert figures(paddings, "none") == [(20.0, 17.0, 24.0), 2.0, 25.0, (0.097, 152.5)]
    assert figures(paddings, "zeros, 5 s") == [(30.0, 27.0, 34.0), 2.0, 25.0, (0.083, 243.8)]
    assert figures(paddings, "noise, 0.5 s") == [(40.0, 37.0, 44.0), 2.0, 25.0, None]
    assert figures(paddings, "hush word, 0.5 s") == [*["not run"] * 3, None]
    assert row(clean["hush_word"], "hush word", "500 ms")["WER"] == (25.0, 22.0, 29.0)
    assert figures(beams, "500 ms") == [(3.0, 0.5), "not run", (2.794, 0.552)]
    assert figures(beams, "760 ms") == ["not run", "not run", (2.807, 0.548)]
    piped = figures(ablation, "HW + BP + pipeline (PL)")
    assert piped[:3] == [None, (2.0, 0.75), (50.0, 47.0, 54.0)]
    assert figures(ablation, "hush word (HW)")[:3] == [1.5, (None, None), (60.0, 57.0, 64.0)]
    assert set(figures(ablation, "HW + BP")) == {"not run"}


def test_without_a_sweep_everything_is_not_run(tmp_path: Path) -> None:
    page = shutil.copy(Path(tables.__file__).parent / "README.md", tmp_path)
    assert tables.main(["--output", str(tmp_path), "--here", str(page)]) == 0
    text = Path(page).read_text()
    assert text.count("Not run yet.") == 3
    paddings = text.split("<!-- paddings:begin -->")[1].split("mini `other`:")[0]
    assert figures(paddings, "none")[:3] == ["not run"] * 3
