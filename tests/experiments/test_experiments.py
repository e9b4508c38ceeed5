"""Experiment files compose, tables are filled from results."""

from __future__ import annotations

import functools
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from table_cells import empty_page, figures, row

from experiments.mini import tables as mini_tables
from experiments.mini.fingerprint import RECORD, cells
from experiments.tables import (
    duration,
    find,
    markdown,
    measure,
    number,
    read,
    rewrite,
    with_interval,
    write,
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


def test_the_record_of_texts_has_every_method_and_variant() -> None:
    assert {" ".join(cell) for cell in cells()} == set(json.loads(RECORD.read_text("utf-8")))


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


def test_table_1_is_written_from_the_results_and_says_where_whisperrt_loses(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "offline", "300ms", "clean", 4.0)
    finished(tmp_path, "table1", "reencode", "300ms", "clean", 6.0)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.5, weights="/a/300ms")
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.0, weights="/a/300ms", beam=3)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 40.0)
    own = page(tmp_path, "table1", "table3")
    assert mini_tables.main(["--output", str(tmp_path), "--here", str(own)]) == 0

    filled = own.read_text()
    assert filled.startswith("# before\n<!-- table1:begin -->\n") and filled.endswith("after\n")
    text = filled.split("<!-- table1:end -->")[0]
    assert "old" not in text
    assert "a processor, one thread, 60 recordings in a cell." in text
    clean = text.split("mini `clean`:")[1]
    for system, chunk, wer in (
        ("offline", "whole", 4.0),
        ("WhisperRT greedy", "300 ms", 7.5),
        ("WhisperRT beam 3", "300 ms", 7.0),
        ("mask alone", "300 ms", 40.0),
    ):
        there = row(clean, system, chunk)
        assert [there[name] for name in ("RWER", "ARWER", "WER")] == [wer + 1, wer + 2, wer]
        assert (there["ARWER grid"], there["RTF"]) == (wer + 30, 0.062)
        assert there["committed p50 / p90"] == (0.5, 1.25)
    absent = row(clean, "re-encoding", "100 ms")
    assert {absent[name] for name in ("WER", "ARWER grid", "RTF")} == {"not run"}
    # It loses to re-encoding, and the table says so.
    assert "- WER: WhisperRT greedy is worse than re-encoding at clean 300 ms." in text
    assert "- WER: WhisperRT greedy is worse than mask alone nowhere (1 compared)." in text

    beam = row(clean, "WhisperRT beam 3", "300 ms", "300ms")
    assert beam["stable p50 / p90"] == (0.25, None)
    assert beam["paper, base"] == (7.53, 8.12, 6.55)


def test_table_3_sets_the_random_adapter_beside_the_one_of_this_chunk_alone(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "whisperrt", "100ms", "clean", 8.0, weights="/a/100ms", beam=3)
    finished(tmp_path, "table1", "whisperrt", "300ms", "clean", 7.0, weights="/a/any_chunk", beam=3)
    finished(tmp_path, "table3", "whisperrt", "100ms", "clean", 9.5, weights="/a/any_chunk", beam=3)
    found = [r for name in ("table3", "table1") for r in read(tmp_path / name)]
    text = tables.table3(found)
    at_100, at_300 = (row(text, "clean", "beam 3", f"{ms} ms") for ms in (100, 300))
    assert at_100 == {
        "fixed": (9.0, 10.0, 8.0),
        "random": (10.5, 11.5, 9.5),
        "WER, random - fixed": 1.5,
        "paper: fixed, base": (9.28, 9.99, 7.75),
        "paper: random, base": (10.58, 11.26, 9.0),
    }
    assert (at_300["fixed"], at_300["random"]) == ("not run", (8.0, 9.0, 7.0))
    assert at_300["WER, random - fixed"] is None


def test_figure_6_sets_the_kept_cache_beside_the_exact_one(tmp_path: Path) -> None:
    for beam, exact, kept in ((0, 5.0, 6.0), (7, 4.5, 9.0)):
        for cache, wer in ((False, exact), (True, kept)):
            finished(
                tmp_path, "fig6", "whisperrt", "300ms", "clean", wer, beam=beam, cache=cache,
                weights="/a/300ms", n_failed=int(cache),
            )  # fmt: skip
    finished(tmp_path, "fig6", "whisperrt", "300ms", "other", 1.0, weights="/a/300ms")
    text = tables.fig6(read(tmp_path / "fig6"), split="clean")
    assert "2 recordings failed; they count as empty." in text
    assert figures(text, "greedy") == [5.0, 6.0, 0.05, 0.05]
    assert figures(text, "beam 7") == [4.5, 9.0, 0.05, 0.05]
    assert figures(text, "beam 3") == ["not run"] * 4


def test_table_5_leaves_out_what_was_not_run(tmp_path: Path) -> None:
    path = tmp_path / "table5.json"
    rows = [
        {"system": "Ufal-Whisper", "beam": 5, "mean_ms": None, "rtf": None},
        {"system": "WhisperRT", "beam": 3, "mean_ms": 90.0, "rtf": 0.3},
    ]
    head = {"measured": "2026-01-31", "machine": "a processor", "device": "cpu", "threads": 1}
    head |= {"size": "base", "duration_s": 15.0, "chunk_ms": 300}
    path.write_text(json.dumps(head | {"rows": rows}))
    text = tables.table5(path)
    assert "Ufal-Whisper" not in text
    assert figures(text, "WhisperRT", "3") == [90.0, 0.3, 0.094]


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
    text = tables.blocks(tmp_path)["table1_other"]
    fast = row(text, "tiny.en", "WhisperRT, beam 3", "40 ms")
    assert [fast[name] for name in ("RWER", "ARWER", "WER", "ARWER grid")] == [10, 11, 9, 39]
    assert (fast["CPU RTF"], fast["paper, base"]) == (0.05, None)  # theirs is no tiny.en
    assert row(text, "tiny.en", "WhisperRT, beam 3", "1000 ms")["WER"] == 8.0
    assert row(text, "tiny.en", "WhisperRT, beam 3", "300 ms")["WER"] == "not run"
    base = row(text, "base", "WhisperRT, beam 3", "1000 ms")
    assert (base["WER"], base["paper, base"]) == (7.0, None)
    detector = "Simul-Whisper, no detector"
    assert row(text, "base", detector, "300 ms")["WER"] == 20.0
    assert row(text, "base", detector, "300 ms")["paper, base"] == (24.27, 27.85, 23.46)
    assert row(text, "base", detector, "1000 ms")["WER"] == "not run"
    assert row(text, "base", "UFAL", "300 ms")["paper, base"] == (16.78, 18.06, 15.45)
    assert row(text, "base", "offline, beam 5", "whole")["WER"] == 3.0
    assert "12.40" in text  # the paper's offline base


def test_the_pages_have_a_place_for_every_table(tmp_path: Path) -> None:
    own = empty_page(tables.HERE / "README.md", tmp_path)
    assert tables.main(["--output", str(tmp_path / "none"), "--here", str(own)]) == 0
    assert own.read_text().count("Not run yet.") == 3  # table 5 stays as it was measured
    mini = empty_page(mini_tables.PAGE, tmp_path)
    assert mini_tables.main(["--output", str(tmp_path / "none"), "--here", str(mini)]) == 0
    clean = mini.read_text()
    assert row(clean, "WhisperRT beam 3", "40 ms")["paper, base"] == (10.57, 11.44, 9.04)
    assert row(clean, "WhisperRT greedy", "40 ms")["WER"] == "not run"


def test_a_table_is_written_into_another_file_too_where_it_has_a_shorter_form(tmp_path) -> None:
    own, other = page(tmp_path, "real"), tmp_path / "other.md"
    other.write_text("top\n<!-- real:begin -->\nold\n<!-- real:end -->\nbottom\n")
    given = ["--output", str(tmp_path), "--here", str(own), "--readme", str(other)]

    def long(output: Path) -> dict[str, str]:
        return {"real": f"all of {output.name}"}

    called = partial(write, given, "About.", page=own, blocks=long)
    assert called(shared="real", short=lambda output: "some") == 0
    assert f"<!-- real:begin -->\nall of {tmp_path.name}\n<!-- real:end -->" in own.read_text()
    assert other.read_text() == "top\n<!-- real:begin -->\nsome\n<!-- real:end -->\nbottom\n"
    with pytest.raises(SystemExit):  # what has no shorter form has no such option
        called()


def test_a_page_without_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = page(tmp_path, "results")
    rewrite(path, {"results": "new"})
    assert "<!-- results:begin -->\nnew\n<!-- results:end -->" in path.read_text()
    with pytest.raises(UserError, match="the table fig6 has one place in a file"):
        rewrite(path, {"fig6": "new"})


def test_what_was_not_run_stays_as_it_stands_on_the_page(tmp_path: Path) -> None:
    path = page(tmp_path, "results")
    header = ["system", "chunk", "WER", "RTF"]

    def table(days: str, cpu: str, n: int, *rows: list[str]) -> str:
        told = f"Measured {days} on {cpu}, one thread, {n} recordings in a cell"
        return f"{told}; intervals over {n} utterances.\n\n{markdown(header, rows, 2)}"

    a, b, c = (["a", "1 s", "4.0", "0.1"], ["b", "1 s", "5.0", "0.2"], ["b", "2 s", "6.0", "0.3"])
    rewrite(path, {"results": table("2026-01-02", "old", 60, a, b)})
    ours = ["b", "1 s", "5.5", "not run"], ["a", "1 s", "not run", "not run"], c
    rewrite(path, {"results": table("2026-01-05 to 2026-01-06", "new", 272, *ours)})
    both = table("2026-01-02 to 2026-01-06", "new, old", 60, [*b[:2], "5.5", "0.2"], a, c)
    both = both.replace("60 rec", "60 or 272 rec").replace("60 utt", "272 utterances or 60 utt")
    assert path.read_text().split("-->")[1].split("<!--")[0].strip() == both
    rewrite(path, {"results": "Not run yet."})
    assert both in path.read_text()
    # The same row under another title is another row.

    def titled(*wers: str) -> str:
        tables = [markdown(header, [["a", "1 s", wer, "0.1"]], 2) for wer in wers]
        return f"clean:\n\n{tables[0]}\n\nother:\n\n{tables[1]}"

    rewrite(path, {"results": titled("4.0", "5.0")})
    rewrite(path, {"results": titled("not run", "not run")})
    assert titled("4.0", "5.0") in path.read_text()
    # Under another header a row says something else.
    header[2] = "ARWER"
    other = table("2026-01-07", "new", 60, ["a", "1 s", "not run", "1.0"])
    rewrite(path, {"results": other})
    assert other in path.read_text()


def test_figures_are_rounded_bracketed_and_written_as_a_table(tmp_path: Path) -> None:
    finished(tmp_path, "table1", "offline", "300ms", "clean", 4.0)
    (cell,) = read(tmp_path / "table1")
    cell.document["intervals"] = {"metrics": {"wer": [3.04, 5.06]}}
    assert (number(0.0625, 3), number(None), duration(40), duration(None)) == (
        *("0.062", "–", "40 ms", "whole"),
    )
    assert with_interval(cell, "wer", 2) == "4.00 [3.04, 5.06]"
    assert with_interval(cell, "rwer") == measure(cell, "rwer") == "5.0"
    assert with_interval(None, "wer") == measure(None, "wer") == "not run"
    assert measure(cell, "word_latency_stable_p90_ca_s") == "–"
    assert markdown(["a", "b"], [["x", "1.0"], ["y", "–"]]) == (
        "| a | b |\n| --- | ---: |\n| x | 1.0 |\n| y | – |"
    )


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

    whisper = load_whisper(tiny_folder(), trainable=True)
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
