"""Experiment files compose, tables are filled from results."""

from __future__ import annotations

import functools
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from table_cells import by_labels

from experiments.chunkformer import tables as chunkformer_tables
from experiments.hush_word import tables as hush_word_tables
from experiments.real import tables as real_tables
from experiments.star import tables as star_tables
from experiments.tables import (
    DATA,
    PLACE,
    Row,
    Table,
    everything,
    find,
    markdown,
    merged,
    read,
    read_rows,
    render,
    rewrite,
    row_of,
    with_tables,
    write,
    write_rows,
)
from experiments.whisperrt import tables
from streaming_asr.config.build import new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR

EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))


@functools.cache
def composed(override: str):
    return compose_raw([override])


# -- experiment files -----------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_composes_and_says_its_question_cost_and_command(name: str) -> None:
    text = (CONF_DIR / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert header[0] == "# @package _global_"
    assert [word for word in ("# Question:", "# Cost:", "# Command:") if word not in text] == []
    composed(f"experiment={name}")


def test_the_sweeps_of_table_1_share_a_folder_and_fixed_adapters_stay_at_their_chunk() -> None:
    raw = {name: composed(f"experiment={name}") for name in EXPERIMENTS}
    for name in ("table1", "table1_offline", "table1_reencode", "table1_mask_alone"):
        assert (raw[name].name, raw[name].limit, raw[name].threads) == ("table1", 60, 1)
    assert raw["table1"].method.weights == "auto"
    assert raw["table3"].hydra.sweeper.params["method.weights"] == "any_chunk"
    assert raw["fig6"].hydra.sweeper.params["method.beam"] == "0,3,5,7"


def test_the_sweeps_of_mini_share_a_folder_and_leave_no_method_out() -> None:
    raw = {name: composed(f"experiment={name}") for name in EXPERIMENTS if name.startswith("mini")}
    assert {(each.name, each.limit, each.threads) for each in raw.values()} == {("mini", 60, 1)}
    assert {each.hydra.sweeper.params["data.split"] for each in raw.values()} == {"clean"}
    swept = {name: each.hydra.sweeper.params.method.split(",") for name, each in raw.items()}
    methods = {path.stem for path in (CONF_DIR / "method").glob("*.yaml")}
    assert {method for here in swept.values() for method in here} == methods - {"native", "remote"}
    # The detector is needed, not taken where there is one: without it the cells fail.
    assert raw["mini_simul_whisper"].method.weights == "auto"
    command = (CONF_DIR / "experiment" / "mini.yaml").read_text(encoding="utf-8")
    assert [name for name in raw if f" {name}" not in command.split("# Command:")[1]] == []


# -- the tables -----------------------------------------------------------------------------


def finished(
    output: Path,
    experiment: str,
    method: str,
    chunk: str,
    split: str,
    wer: float,
    *,
    weights: str | None = None,
    beam: int = 0,
    cache: bool = False,
    n_failed: int = 0,
    model: str = "mini",
    **settings: Any,
) -> None:
    """A finished cell: its metrics.json as `run` writes it, as far as the tables read it."""
    own = {"name": method, "weights": weights, "beam": beam, "decoder_cache": cache} | settings
    metrics = {
        "wer": wer,
        "rwer": wer + 1,
        "arwer_cu": wer + 2,
        "arwer_grid_ca": wer + 30,
        "word_latency_committed_p50_ca_s": 0.5,
        "word_latency_committed_p90_ca_s": 1.25,
        "word_latency_stable_p50_ca_s": 0.25,
        "word_latency_stable_p90_ca_s": None,
        "rtf_total": 0.0625,
        "rtf_cpu": 0.05,
    }
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {
            "method": own,
            "chunk": chunk,
            "data": {"split": split},
            "batch": 1,
            "model": {"name": model},
        },
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "n_failed": n_failed,
        "metrics": metrics,
    }
    rest = f"data.split={split},method.weights={Path(weights or 'none').name},beam={beam}"
    name = f"method={method},chunk={chunk},{rest},cache={cache},model={model}"
    folder = output / experiment / name
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(document))


def page(folder: Path, *names: str) -> Path:
    """A page with a place for each of these tables."""
    path = folder / "page.md"
    places = [f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n" for name in names]
    path.write_text("# before\n" + "\n".join(places) + "after\n")
    return path


def test_table_1_of_mini_has_every_system_at_its_chunk(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "offline", "300ms", "clean", 4.0)
    finished(tmp_path, "table1", "reencode", "300ms", "clean", 6.0)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.5, weights="/a/300ms")
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.0, weights="/a/300ms", beam=3)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 40.0)
    finished(tmp_path, "table1", "whisperrt", "300ms", "other", 50.0, weights="/a/300ms")
    found = by_labels(tables.rows(tmp_path), "mini_table1")
    assert {labels: figures["WER"] for labels, figures in found.items()} == {
        ("offline", "whole", "none"): 4.0,
        ("re-encoding", "300 ms", "none"): 6.0,
        ("mask alone", "300 ms", "none"): 40.0,
        ("WhisperRT greedy", "300 ms", "300ms"): 7.5,
        ("WhisperRT beam 3", "300 ms", "300ms"): 7.0,
    }
    beam = found["WhisperRT beam 3", "300 ms", "300ms"]
    assert (beam["RWER"], beam["ARWER"], beam["ARWER grid"], beam["RTF"]) == (8, 9, 37, 0.0625)
    assert beam["stable p50"] == 0.25 and "stable p90" not in beam  # nothing to show


def test_table_3_has_the_random_adapter_and_the_one_of_this_chunk_only(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "whisperrt", "100ms", "clean", 8.0, weights="/a/100ms", beam=3)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.0, weights="/a/any_chunk", beam=3)
    finished(tmp_path, "table3", "whisperrt", "100ms", "clean", 9.5, weights="/a/any_chunk", beam=3)
    found = by_labels(tables.rows(tmp_path), "mini_table3")
    assert {labels: figures["WER"] for labels, figures in found.items()} == {
        ("clean", "beam 3", "100 ms", "fixed"): 8.0,
        ("clean", "beam 3", "100 ms", "random"): 9.5,
        ("clean", "beam 3", "300 ms", "random"): 7.0,
    }


def test_figure_6_has_the_kept_cache_next_to_the_exact_one(tmp_path: Path) -> None:
    for beam, exact, kept in ((0, 5.0, 6.0), (7, 4.5, 9.0), (3, 4.0, None)):
        for cache, wer in ((False, exact), (True, kept)):
            if wer is not None:
                finished(
                    tmp_path, "fig6_dev", "whisperrt", "300ms", "clean", wer, beam=beam,
                    cache=cache, weights="/a/300ms", n_failed=int(cache),
                )  # fmt: skip
    found = by_labels(tables.rows(tmp_path), "fig6_dev")
    assert set(found) == {("greedy",), ("beam 7",)}
    assert list(found["beam 7",].values()) == [4.5, 0.05, 9.0, 0.05]


def test_table_5_leaves_out_what_was_not_run(tmp_path: Path) -> None:
    rows = [
        {"system": "Ufal-Whisper", "beam": 5, "mean_ms": None, "rtf": None},
        {"system": "WhisperRT", "beam": 3, "mean_ms": 90.0, "rtf": 0.3},
    ]
    head = {"measured": "2026-01-31", "machine": "a processor", "device": "cpu", "threads": 1}
    head |= {"size": "base", "duration_s": 15.0, "chunk_ms": 300}
    (tmp_path / "table5").mkdir()
    (tmp_path / "table5" / "table5.json").write_text(json.dumps(head | {"rows": rows}))
    (found,) = tables.rows(tmp_path)
    assert found.key == ("table5", "WhisperRT", "3")
    assert list(found.figures.values()) == [90.0, 0.3, "0.094"]
    assert (found.dates, found.machines) == (["2026-01-31"], ["a processor"])


def test_table_1_of_real_whisper_takes_each_model_from_the_sweeps_that_have_it(
    tmp_path: Path,
) -> None:
    add = partial(finished, tmp_path, method="whisperrt", split="test-clean", beam=3)
    add("table1_other", chunk="40ms", wer=9.0, weights="/a/any_chunk", model="tiny.en")
    add("real_other", chunk="1s", wer=8.0, weights="/a/any_chunk", model="tiny.en")
    add("real_other", chunk="300ms", wer=99.0, weights="none", model="tiny.en")  # the mask alone
    add("real_other_base", chunk="1s", wer=7.0, weights="/a/any_chunk", model="base")
    add("table1_other", method="offline", chunk="300ms", wer=3.0, beam=5, model="base")
    add = partial(add, method="simul_whisper", beam=0, model="base")
    add("table1_other", chunk="300ms", wer=20.0, truncation="never")
    add("table1_other", chunk="1s", wer=1.0, truncation="always")
    found = by_labels(tables.rows(tmp_path), "table1_other")
    assert {
        labels: (figures["WER"], figures.get("paper, base")) for labels, figures in found.items()
    } == {
        ("tiny.en", "WhisperRT, beam 3", "40 ms"): (9.0, None),  # theirs is no tiny.en
        ("tiny.en", "WhisperRT, beam 3", "1000 ms"): (8.0, None),
        ("base", "offline, beam 5", "whole"): (3.0, "12.40"),
        ("base", "WhisperRT, beam 3", "1000 ms"): (7.0, None),  # no chunk of the paper
        ("base", "Simul-Whisper, no detector", "300 ms"): (20.0, "23.46"),
    }


# -- rows -----------------------------------------------------------------------------------


def test_a_row_has_its_figures_and_where_they_come_from(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "offline", "300ms", "clean", 4.0, n_failed=2)
    (cell,) = read(tmp_path / "table1")
    drawn = {"drawn": "speaker", "n_drawn": 12, "metrics": {"wer": [3.04, 5.06]}}
    cell.document.update(intervals=drawn, hashes={"code": "c0de"})
    made = row_of("a table", {"system": "x"}, cell, {"WER": "wer", "RTF": "rtf_total"}, {"more": 2})
    assert made.figures == {"WER": [4.0, 3.04, 5.06], "RTF": 0.0625, "more": 2}
    assert (made.n, made.drawn, made.n_failed) == (60, "12 speakers", 2)
    assert (made.machines, made.hashes) == (["a processor"], {"code": "c0de"})
    path = tmp_path / "rows.jsonl"
    write_rows(path, [made])
    assert read_rows(path) == [made]
    assert read_rows(tmp_path / "none.jsonl") == []


def a_row(table: str, wer: float, *labels: str) -> Row:
    return Row(table, {f"label {i}": label for i, label in enumerate(labels)}, {"WER": wer})


def test_what_was_measured_again_takes_its_place_and_what_is_new_follows_its_table() -> None:
    before = [a_row("t", 1, "a"), a_row("t", 2, "c"), a_row("u", 3, "a")]
    measured = [a_row("t", 9, "a"), a_row("t", 5, "b"), a_row("u", 6, "z"), a_row("v", 7, "a")]
    assert merged(before, measured) == [
        measured[0], measured[1], before[1], before[2], measured[2], measured[3]
    ]  # fmt: skip
    assert merged(before, []) == before and merged([], measured) == measured


def test_a_table_shows_the_rows_figures_in_its_formats() -> None:
    rows = [
        Row("t", {"system": "a", "chunk": "1 s"}, {"WER": [4.04, 3.0, 5.0], "d": [1.0, -2.0, 3.0]},
            ["2026-01-05"], ["new"], 60, "60 utterances"),
        Row("t", {"system": "b", "chunk": "1 s"}, {"WER": 5.06, "paper": "1 / 2"},
            ["2026-01-02", "2026-01-03"], ["old"], 272, "9 speakers", 3),
        Row("u", {"system": "b", "chunk": "1 s"}, {"WER": 1.0}),
    ]  # fmt: skip
    columns = {"WER": ".1f", "d": "+.1f", "paper": ""}
    assert render(Table("t", columns), rows).splitlines() == [
        "Measured 2026-01-02 to 2026-01-05 on new, old, one thread, "
        "60 or 272 recordings in a cell; intervals over 60 utterances or 9 speakers. "
        "3 recordings failed; they count as empty.",
        "",
        "| system | chunk | WER | d | paper |",
        "| --- | --- | ---: | ---: | ---: |",
        "| a | 1 s | 4.0 [3.0, 5.0] | +1.0 [-2.0, 3.0] | – |",
        "| b | 1 s | 5.1 | – | 1 / 2 |",
    ]
    assert "| a | 1 s | 4.0 | +1.0 |" in render(Table("t", columns, plain=("WER", "d")), rows)
    across = Table("x", {"WER": ".0f"}, across="table", sources={"u": "U", "t": "T"})
    assert render(across, rows).splitlines()[-2:] == [
        "| a | 1 s | – | 4 [3, 5] |",
        "| b | 1 s | 1 | 5 |",
    ]
    by_chunk = render(Table("t", {"WER": ".0f"}, across="chunk", with_caption=False), rows)
    assert by_chunk.splitlines()[0] == "| system | 1 s |"
    assert render(Table("none", columns), rows) == "Not run yet."
    assert everything(rows[:2]).splitlines()[1] == "a\t1 s\t4.04 [3.0, 5.0]\t1.0 [-2.0, 3.0]\t"


# -- pages ----------------------------------------------------------------------------------

PAGES = [chunkformer_tables, hush_word_tables, real_tables, star_tables, tables]


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.__name__.split(".")[1])
def test_a_page_has_a_place_for_each_table_of_its_rows(module: Any) -> None:
    folder = Path(module.__file__).parent
    paths = [path for name in ("README.md", "results.md") if (path := folder / name).is_file()]
    text = "".join(path.read_text("utf-8") for path in paths)
    blocks = module.blocks(read_rows(folder / DATA))
    assert blocks and set(blocks) <= set(PLACE.findall(text))
    shown = "".join(with_tables(path.read_text("utf-8"), folder) for path in paths)
    for name, block in blocks.items():
        assert block in shown and "Not run yet." not in block, name
    assert not PLACE.search(shown)


def test_a_command_puts_what_was_measured_into_the_rows_and_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other, data = page(tmp_path, "t"), tmp_path / "other.md", tmp_path / DATA
    other.write_text("top\n<!-- t:begin -->\nold\n<!-- t:end -->\nbottom\n")
    write_rows(data, [a_row("t", 1, "a"), a_row("t", 2, "b")])

    def call(*more: str, **settings: Any) -> int:
        return write(
            ["--output", str(tmp_path), "--data", str(data), *more],
            "About.",
            page=own,
            rows=lambda output: [a_row("t", 5, "b")],
            blocks=lambda rows: {"t": " ".join(str(row.figures["WER"]) for row in rows)},
            **settings,
        )

    assert call("--show", "t") == 0
    assert capsys.readouterr().out == "label 0\tWER\na\t1\nb\t2\n"
    assert call("--show", "x") == 2 and "no such table; give t" in capsys.readouterr().err
    assert call(also={other: lambda rows: {"t": "some"}}) == 0
    assert "t\n\n1 5\n" in capsys.readouterr().out
    assert [row.figures["WER"] for row in read_rows(data)] == [1, 5]
    assert other.read_text() == "top\n<!-- t:begin -->\nsome\n<!-- t:end -->\nbottom\n"


def test_a_page_without_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = page(tmp_path, "results")
    rewrite(path, {"results": "new"})
    assert "<!-- results:begin -->\nnew\n<!-- results:end -->" in path.read_text()
    with pytest.raises(UserError, match="the table fig6 has one place in a file"):
        rewrite(path, {"fig6": "new"})


def test_a_markdown_table_has_its_labels_flush_left() -> None:
    assert markdown(["a", "b"], [["x", "1.0"], ["y", "–"]]) == (
        "| a | b |\n| --- | ---: |\n| x | 1.0 |\n| y | – |"
    )


INTERVAL = re.compile(r"([+-]?\d+(?:\.\d+)?)( [a-z%]+)? \[([+-]?\d[\d.]*), ([+-]?\d[\d.]*)\]")


def triples(text: str) -> set[tuple[float, ...]]:
    """The numbers with intervals of a text, without sign: a difference may be told either way."""
    return {
        tuple(sorted(abs(float(number)) for number in (found[1], found[3], found[4])))
        for found in INTERVAL.finditer(text)
    }


def measured_triples() -> set[tuple[float, ...]]:
    found = set()
    for path in (ROOT / "experiments").glob(f"*/{DATA}"):
        for row in read_rows(path):
            for figure in row.figures.values():
                if isinstance(figure, list):
                    found |= {
                        tuple(sorted(abs(round(number, digits)) for number in figure))
                        for digits in (0, 1, 2)
                    }
    for path in (ROOT / "experiments").glob("*/differences.tsv"):
        for line in path.read_text("utf-8").splitlines()[1:]:
            numbers = line.split("\t")[2:6]
            if numbers[2]:
                found.add(tuple(sorted(abs(float(n)) for n in (numbers[0], *numbers[2:]))))
    return found


def test_every_number_with_an_interval_in_a_page_has_its_row() -> None:
    measured = measured_triples()
    assert triples("12.5 % [8.4, 18.4], 1.95 s [1.87, 2.09] and -0.5 points [-1.5, 0.6]") == {
        (8.4, 12.5, 18.4), (1.87, 1.95, 2.09), (0.5, 0.6, 1.5)
    }  # fmt: skip
    assert triples("12.5 % [8.4, 18.4]") <= measured and triples("12.5 [8.4, 18.5]") - measured
    missing = {}
    for path in [
        *(ROOT / "experiments").glob("*/*.md"),
        *(ROOT / "experiments").glob("*/claims.tsv"),
    ]:
        lacking = triples(path.read_text("utf-8")) - measured
        if lacking:
            missing[str(path.relative_to(ROOT))] = sorted(lacking)
    assert missing == {}


def test_a_cell_is_found_by_what_it_and_its_method_were_set_to(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "whisperrt", "1s", "clean", 7.0, weights="/a/any_chunk", beam=3)
    finished(tmp_path, "table1", "whisperrt", "1s", "clean", 9.0)
    cells = read(tmp_path / "table1", tmp_path / "absent")
    wanted = {"method": "whisperrt", "chunk_ms": 1000, "split": "clean"}
    for own, wer in (({"weights": "any_chunk"}, 7.0), ({"weights": "none"}, 9.0), ({"beam": 3}, 7)):
        found = find(cells, **wanted, **own)
        assert found is not None and found.metrics["wer"] == wer
    for other in ({"chunk_ms": 300}, {"split": "other"}, {"method": "u2"}, {"weights": "300ms"}):
        assert find(cells, **wanted | other) is None


# -- the two measurements of their own ------------------------------------------------------


def test_a_scheduled_decoder_writes_so_many_tokens_and_takes_none_back() -> None:
    from tiny import noise, tiny_folder

    from experiments.whisperrt.table5 import n_tokens, scheduled

    assert n_tokens(24_000) == 6
    audio = noise(1.5)
    for beam in (0, 3):
        method = new_method(
            "whisperrt", str(tiny_folder()), chunk_s=0.3, first_chunk_s=0.6, beam=beam
        )
        schedule = scheduled(method)
        state, seen, begin = method.start(), [], 0
        for end, n_text in ((9800, 2), (14_600, 3), (19_400, 5)):
            schedule.n_text = n_text
            method.step(state, audio[begin:end], last=False)
            seen.append(list(state.hypotheses[0].tokens))
            begin = end
        assert [len(tokens) for tokens in seen] == [2, 3, 5]
        assert all(len(h.tokens) == 5 for h in state.hypotheses)
        if beam == 0:
            assert seen[2][:3] == seen[1]
            assert seen[1][:2] == seen[0]


def test_what_a_masked_encoding_expects_depends_on_no_later_frame() -> None:
    import torch
    from tiny import noise, tiny_folder

    from experiments.whisperrt.fig3 import expectations
    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(tiny_folder())
    audio = torch.from_numpy(noise(2.0))
    ends = [30, 45, 60]
    masked = expectations(whisper, audio, ends, [70], masked=True)
    assert masked.shape == (3, whisper.config.vocab_size)
    assert masked.sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    changed = audio.clone()
    changed[45 * 320 + 200 :] = 0.0  # frame 44 needs 200 samples past its end
    again = expectations(whisper, changed, ends, [70], masked=True)
    assert torch.allclose(masked[:2], again[:2], atol=1e-6)
    assert not torch.allclose(masked[2], again[2], atol=1e-3)
    padded = expectations(whisper, audio, ends, [70], masked=False)
    assert not torch.allclose(masked, padded, atol=1e-3)
