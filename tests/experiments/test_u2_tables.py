"""The tables and figures of the U2 experiment, from finished cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from table_cells import empty_page, row
from table_cells import figures as numbers

from experiments import svg
from experiments.u2 import tables

BLOCKS = ("table1", "table2", "table3", "int8", "long")
METHOD = {"name": "u2", "weights": "/a/any_chunk", "rescore": 6, "dtype": "float32"}


def finished(
    output: Path, experiment: str, wer: float, chunk: str = "1s", data: Any = None, **method: Any
) -> Path:
    """A finished cell: its metrics.json as `run` writes it, as far as the tables read it."""
    own = METHOD | method
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {"method": own, "chunk": chunk, "data": {"name": "prompts"} | (data or {})},
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "metrics": {
            "wer": wer,
            "wer_formatted": wer + 5,
            "word_latency_shown_p50_ca_s": 0.25,
            "word_latency_committed_p50_ca_s": 1.5,
            "rtf_cpu": 0.0625,
        },
        "intervals": {"metrics": {"wer": [wer - 1, wer + 2]}},
    }
    folder = (
        output / experiment / f"method={own['name']},chunk={chunk},{len(list(output.rglob('*')))}"
    )
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(document))
    return folder


def filled(output: Path) -> dict[str, str]:
    """The blocks of this experiment's page, with what `output` holds."""
    page = empty_page(tables.HERE / "README.md", output)
    assert tables.main(["--output", str(output), "--here", str(page)]) == 0
    text = page.read_text()
    return {
        name: text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]
        for name in BLOCKS
    }


def test_each_table_finds_its_cells_and_stands_beside_the_papers(tmp_path: Path) -> None:
    finished(tmp_path, "u2", 20.0, "300ms")
    finished(tmp_path, "u2", 21.0, "300ms", rescore=0)
    finished(tmp_path, "u2_tokens", 30.0, weights="/a/five_single_1")
    finished(tmp_path, "u2_tokens", 29.0, weights="/a/five_hybrid_1")
    finished(tmp_path, "real_u2", 40.0)
    finished(tmp_path, "u2_int8", 40.25, dtype="int8")
    blocks = filled(tmp_path)
    assert row(blocks["table1"], "5 h", "1") == {
        "single tokenizer": (30.0, 29.0, 32.0),
        "hybrid tokenizer": (29.0, 28.0, 31.0),
    }
    assert set(row(blocks["table1"], "0.5 h", "0").values()) == {"not run"}
    assert numbers(blocks["table1"], "paper: 1450 h")[1:] == [20.78, 18.97]
    assert row(blocks["table2"], "300 ms") == {
        "WER, first pass": (21.0, 20.0, 23.0),
        "WER, rescored": (20.0, 19.0, 22.0),
        "formatted, first pass": 26.0,
        "formatted, rescored": 25.0,
        "shown p50 s": 0.25,
        "committed p50 s": 1.5,
        "CPU RTF, first pass": 0.06,
        "CPU RTF, rescored": 0.06,
        "paper, first pass": 21.53,
        "paper, rescored": 21.2,
    }
    assert row(blocks["table2"], "1000 ms")["WER, rescored"] == (40.0, 39.0, 42.0)
    assert numbers(blocks["int8"], "float32") == [(40.0, 39.0, 42.0), 0.062]
    assert numbers(blocks["int8"], "int8") == [(40.25, 39.25, 42.25), 0.062]
    assert numbers(blocks["table3"], "12 s") == [*["not run"] * 3, (17.3, 0.3, 1126)]


def test_closing_a_segment_is_averaged_over_all_segments(tmp_path: Path, monkeypatch) -> None:
    from streaming_asr.events.log import Log, Step, UtteranceLog

    cell = finished(tmp_path, "u2_delay", 25.0, max_delay_s=12)

    def step(finalise_ms: int | None) -> Step:
        parts = {} if finalise_ms is None else {"finalise": finalise_ms * 1_000_000}
        return Step("audio", 16_000, {"wall": 1_000_000_000, **parts})

    logs = [UtteranceLog("a", "", 0, steps=[step(100), step(None)])]
    logs += [UtteranceLog("b", "", 0, steps=[step(400), step(100)])]
    monkeypatch.setattr(
        tables, "read_log", lambda path: {cell / "events.jsonl": Log({}, logs)}[path]
    )
    table3 = filled(tmp_path)["table3"]
    assert numbers(table3, "12 s")[:3] == [(25.0, 24.0, 27.0), 0.06, 200]
    assert numbers(table3, "8 s")[:3] == ["not run"] * 3


def test_one_piece_is_compared_with_the_prompts_it_is_made_of(tmp_path: Path) -> None:
    finished(tmp_path, "u2_long", 26.0, data={"join_s": 600})
    finished(tmp_path, "u2_long", 25.0, data={"join_s": None})
    finished(tmp_path, "u2_long", 10.0, name="offline", data={"join_s": None})
    long = filled(tmp_path)["long"]
    assert numbers(long, "U2, 1 s") == [(25.0, 24.0, 27.0), (26.0, 25.0, 28.0), 1.0]
    assert numbers(long, "offline") == [(10.0, 9.0, 12.0), "not run", None]


def test_the_figure_draws_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path, "u2", 20.0, "500ms")
    finished(tmp_path, "real_u2", 18.0, "1s")
    finished(tmp_path, "real", 25.0, "300ms", name="ufal")
    finished(tmp_path, "real", 15.0, "1s", name="offline")
    drawn = {}
    monkeypatch.setattr(svg, "save_svg", lambda figure, path, _: drawn.update({path: figure}))
    assert tables.chunks(tmp_path, tmp_path)
    (axis,) = drawn.pop(tmp_path / "chunks.svg").axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert not drawn and set(lines) == {"U2, rescored", "UFAL", "offline"}
    assert lines["U2, rescored"] == [[0.5, 20.0], [1.0, 18.0]]
    assert lines["UFAL"] == [[0.3, 25.0]]
    assert lines["offline"] == [[ms / 1000, 15.0] for ms in tables.CHUNKS_MS]


def test_without_a_run_there_is_no_figure(tmp_path: Path) -> None:
    assert not tables.chunks(tmp_path, tmp_path) and not (tmp_path / "chunks.svg").exists()


@pytest.mark.parametrize("block", ["table1", "table2", "table3", "int8", "long"])
def test_a_page_has_a_place_for_every_table(block: str, tmp_path: Path) -> None:
    between = filled(tmp_path)[block]
    assert between.startswith("\nNot run yet.\n") and "not run" in between
