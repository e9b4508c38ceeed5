"""The tables and figures of the U2 experiment, from finished cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from table_cells import figures as numbers
from table_cells import row

from experiments.u2 import figures, results, tables

METHOD = {"name": "u2", "weights": "/a/any_chunk", "rescore": 6, "dtype": "float32"}


def finished(
    output: Path, experiment: str, split: str, wer: float, chunk: str = "1s", **method: Any
) -> Path:
    """A finished cell: its metrics.json as `run` writes it, as far as the tables read it."""
    own = METHOD | method
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {"method": own, "chunk": chunk, "data": {"name": "mini", "split": split}},
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "metrics": {
            "wer": wer,
            "wer_formatted": wer + 5,
            "word_latency_shown_p50_ca_s": 0.25,
            "word_latency_committed_p50_ca_s": 1.5,
            "rtf_total": 0.0625,
        },
        "intervals": {"metrics": {"wer": [wer - 1, wer + 2]}},
    }
    rest = ",".join(f"{key}={value}" for key, value in method.items() if key != "weights")
    adapter = Path(str(own["weights"])).name
    folder = (
        output
        / experiment
        / (f"method={own['name']},chunk={chunk},{rest},data.split={split},method.weights={adapter}")
    )
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(document))
    return folder


def filled(output: Path) -> str:
    """This experiment's page, with what `output` holds."""
    page = Path(shutil.copy(tables.HERE / "README.md", output))
    assert tables.main(["--output", str(output), "--here", str(page)]) == 0
    return page.read_text()


def test_each_table_finds_its_cells_and_stands_beside_the_papers(tmp_path: Path) -> None:
    finished(tmp_path, "u2", "clean", 20.0, "240ms")
    finished(tmp_path, "u2", "clean", 21.0, "240ms", rescore=0)
    finished(tmp_path, "u2_finance", "finance", 50.0)
    finished(tmp_path, "u2_finance", "finance", 30.0, weights="/a/finance-2h")
    finished(tmp_path, "u2_finance", "finance", 29.0, weights="/a/finance-2h-hybrid")
    finished(tmp_path, "u2_int8", "other", 40.0)
    finished(tmp_path, "u2_int8", "other", 40.25, dtype="int8")
    text = filled(tmp_path)
    assert numbers(text, "2 h") == [(30.0, 29.0, 32.0), (29.0, 28.0, 31.0)]
    assert numbers(text, "none") == [(50.0, 49.0, 52.0), None]
    assert numbers(text, "0.5 h") == ["not run", "not run"]
    assert numbers(text, "1450 h") == [20.78, 18.97]
    assert row(text, "clean", "240 ms") == {
        "WER, first pass": (21.0, 20.0, 23.0),
        "WER, rescored": (20.0, 19.0, 22.0),
        "formatted, first pass": 26.0,
        "formatted, rescored": 25.0,
        "shown p50 s": 0.25,
        "committed p50 s": 1.5,
        "RTF, first pass": 0.062,
        "RTF, rescored": 0.062,
        "paper, first pass": 21.53,
        "paper, rescored": 21.2,
    }
    int8 = text.split("<!-- int8:begin -->")[1]
    assert numbers(int8.split("<!-- int8:end -->")[0], "other") == [40.0, 40.25, 0.25, 0.062, 0.062]
    assert numbers(text, "12 s") == [17.3, 0.3, 1126]


def test_closing_a_segment_is_averaged_over_all_segments(tmp_path: Path, monkeypatch) -> None:
    from streaming_asr.events import Log, Step, UtteranceLog

    cell = finished(tmp_path, "u2_delay", "long", 25.0, max_delay_s=6)

    def step(finalise_ms: int | None) -> Step:
        parts = {} if finalise_ms is None else {"finalise": finalise_ms * 1_000_000}
        return Step("audio", 16_000, {"wall": 1_000_000_000, **parts})

    logs = [UtteranceLog("a", "", 0, steps=[step(100), step(None)])]
    logs += [UtteranceLog("b", "", 0, steps=[step(400), step(100)])]
    monkeypatch.setattr(
        results, "read_log", lambda path: {cell / "events.jsonl": Log({}, logs)}[path]
    )
    text = filled(tmp_path)
    text = text.split("<!-- table3:begin -->")[1].split("<!-- table3:end -->")[0]
    assert numbers(text, "6 s") == [(25.0, 24.0, 27.0), 0.062, 200]
    assert numbers(text, "4 s") == ["not run"] * 3


def test_one_piece_is_compared_with_the_utterances_it_is_made_of(tmp_path: Path) -> None:
    finished(tmp_path, "u2_long", "long600", 26.0)
    cell = finished(tmp_path, "u2_long", "clean", 10.0)
    (joined,) = (results.MINI / "long600.jsonl").read_text().splitlines()
    names = [Path(part["audio_filepath"]).stem for part in json.loads(joined)["parts"]]
    rows = [{"utt": name, "errors": 1, "n_words": 4} for name in names]
    rows.append({"utt": "another", "errors": 9, "n_words": 9})
    (cell / "utterances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = filled(tmp_path)
    assert numbers(text, "U2, 1 s") == [25.0, 26.0, 1.0]
    assert numbers(text, "offline") == ["not run", "not run", None]


def test_the_figures_draw_what_was_run_and_say_what_was_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path, "u2", "clean", 20.0, "240ms")
    finished(tmp_path, "u2", "clean", 18.0, "6s")
    finished(tmp_path, "u2_figures", "clean", 22.0, "1500ms", name="ufal", compat=False)
    finished(tmp_path, "ufal", "clean", 24.0, "300ms", name="ufal", compat=True)
    finished(tmp_path, "mini", "clean", 25.0, "300ms", name="ufal", compat=False)
    finished(tmp_path, "u2_figures", "clean", 15.0, "300ms", name="offline")
    drawn = {}
    monkeypatch.setattr(figures, "save_svg", lambda figure, path, _: drawn.update({path: figure}))
    assert figures.main(["--output", str(tmp_path), "--out", str(tmp_path)]) == 0
    (axis,) = drawn.pop(tmp_path / "fig3.svg").axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert not drawn and set(lines) == {"U2, rescored", "UFAL", "offline"}
    assert lines["U2, rescored"] == [[0.24, 20.0], [6.0, 18.0]]
    assert lines["UFAL"] == [[0.3, 25.0], [1.5, 22.0]]
    assert lines["offline"] == [[ms / 1000, 15.0] for ms in results.FIGURE_CHUNKS_MS]
    out = capsys.readouterr().out
    assert "fig2: not run (finance)" in out and "fig4: not run (other)" in out


@pytest.mark.parametrize("block", ["table1", "table2", "table3", "int8", "long"])
def test_a_page_has_a_place_for_every_table(block: str, tmp_path: Path) -> None:
    text = filled(tmp_path)
    between = text.split(f"<!-- {block}:begin -->")[1].split(f"<!-- {block}:end -->")[0]
    assert between.startswith("\nNot run yet.\n") and "not run" in between
