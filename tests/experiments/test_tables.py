"""Experiment files compose, tables are filled from results."""

import functools
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from places import ROOT
from report_cells import SENTENCE, TAXI, write_cell
from tiny import tiny_folder

from experiments.figures.tables import write_table
from experiments.real import tables as real_tables
from experiments.real.tables import (
    COMPARED_MS,
    DIFFER,
    FINAL,
    HOLM,
    OVER,
    ROWS,
    UNCORRECTED,
    WER,
    cells_of,
    choosing,
    short,
    with_holm,
)
from experiments.tables import (
    DATA,
    PLACE,
    Page,
    Row,
    Table,
    everything,
    merged,
    page_of,
    read,
    read_rows,
    render,
    row_of,
    with_tables,
    write_rows,
)
from experiments.tables import main as write
from streaming_asr.config.build import new_method
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.files import CONF_DIR
from streaming_asr.metrics.table import next_to_wer, with_wer
from streaming_asr.run.plan import plan
from streaming_asr.score.command import main
from streaming_asr.score.results import BATCH, read_results

EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))


@functools.cache
def composed(override):
    return compose_raw([override])


# -- experiment files -----------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_composes_and_says_its_question_cost_and_command(name):
    text = (CONF_DIR / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert header[0] == "# @package _global_"
    assert [word for word in ("# Question:", "# Cost:", "# Command:") if word not in text] == []
    composed(f"experiment={name}")


def test_the_sweeps_of_mini_share_a_folder_and_leave_no_method_out():
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


def write_document(folder, chunk, method, data, metrics, **more):
    """A finished cell's metrics.json as `run` writes it, as far as the tables read it."""
    config = {"method": method, "chunk": chunk, "data": data, "batch": 1}
    config |= {"model": more.pop("model")} if "model" in more else {}
    document = {"schema": 1, "metrics_version": 1, "config": config, "n_failed": 0}
    document |= {"machine": {"cpu": "a processor"}, "n_utterances": 60, "metrics": metrics}
    cell = folder / f"method={method['name']},chunk={chunk},{len(list(folder.glob('*')))}"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text(json.dumps(document | more))


def rows_of(name, output):
    """The rows of a folder of experiments."""
    return page_of(Path(name)).rows(output)


def finished(
    output,
    experiment,
    method,
    chunk,
    split,
    wer,
    *,
    weights=None,
    beam=0,
    cache=False,
    n_failed=0,
    model="mini",
    **settings,
):
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
    stored = {"n_failed": n_failed, "model": {"name": model}}
    write_document(output / experiment, chunk, own, {"split": split}, metrics, **stored)


def test_table_5_leaves_out_what_was_not_run(tmp_path):
    rows = [
        {"system": "Ufal-Whisper", "beam": 5, "mean_ms": None, "rtf": None},
        {"system": "WhisperRT", "beam": 3, "mean_ms": 90.0, "rtf": 0.3},
    ]
    head = {"measured": "2026-01-31", "machine": "a processor", "device": "cpu", "threads": 1}
    head |= {"size": "base", "duration_s": 15.0, "chunk_ms": 300}
    (tmp_path / "table5").mkdir()
    (tmp_path / "table5" / "table5.json").write_text(json.dumps(head | {"rows": rows}))
    (found,) = rows_of("whisperrt", tmp_path)
    assert found.key == ("table5", "WhisperRT", "3")
    assert list(found.figures.values()) == [90.0, 0.3, "0.094"]
    assert (found.dates, found.machines) == (["2026-01-31"], ["a processor"])


def test_table_1_of_real_whisper_takes_each_model_from_the_sweeps_that_have_it(tmp_path):
    add = partial(finished, tmp_path, method="whisperrt", split="test-clean", beam=3)
    add("table1_other", chunk="40ms", wer=9.0, weights="/a/any_chunk", model="tiny.en")
    add("real_other", chunk="1s", wer=8.0, weights="/a/any_chunk", model="tiny.en")
    add("real_other", chunk="300ms", wer=99.0, weights="none", model="tiny.en")  # the mask alone
    add("real_other_base", chunk="1s", wer=7.0, weights="/a/any_chunk", model="base")
    add("table1_other", method="offline", chunk="300ms", wer=3.0, beam=5, model="base")
    add = partial(add, method="simul_whisper", beam=0, model="base")
    add("table1_other", chunk="300ms", wer=20.0, truncation="never")
    add("table1_other", chunk="1s", wer=1.0, truncation="always")
    found = by_labels(rows_of("whisperrt", tmp_path), "table1_other")
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


def test_a_row_has_its_figures_and_where_they_come_from(tmp_path):
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
    cell.metrics["rtf_cpu"] = 0.03  # half of rtf_total: other programs ran
    columns = {"WER": "wer", "RTF": "rtf_cpu", "final": "word_latency_committed_p50_ca_s"}
    assert row_of("a table", {}, cell, columns).figures == {"WER": [4.0, 3.04, 5.06]}


def a_row(table, wer, *labels):
    return Row(table, {f"label {i}": label for i, label in enumerate(labels)}, {"WER": wer})


def test_what_was_measured_again_takes_its_place_and_what_is_new_follows_its_table():
    before = [a_row("t", 1, "a"), a_row("t", 2, "c"), a_row("u", 3, "a")]
    measured = [a_row("t", 9, "a"), a_row("t", 5, "b"), a_row("u", 6, "z"), a_row("v", 7, "a")]
    assert merged(before, measured) == [
        measured[0], measured[1], before[1], before[2], measured[2], measured[3]
    ]  # fmt: skip
    assert merged(before, []) == before and merged([], measured) == measured


def test_a_table_shows_the_rows_figures_in_its_formats():
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

PAPERS = ("chunkformer", "hush_word", "real", "star", "whisperrt")


@pytest.mark.parametrize("name", PAPERS)
def test_a_page_has_a_place_for_each_table_of_its_rows(name):
    folder = ROOT / "experiments" / name
    paths = [path for name in ("README.md", "results.md") if (path := folder / name).is_file()]
    text = "".join(path.read_text("utf-8") for path in paths)
    blocks = page_of(folder).blocks(read_rows(folder / DATA))
    assert blocks and set(blocks) <= set(PLACE.findall(text))
    shown = "".join(with_tables(path.read_text("utf-8"), folder) for path in paths)
    for name, block in blocks.items():
        assert block in shown and "Not run yet." not in block, name
    assert not PLACE.search(shown)


def test_the_program_puts_what_was_measured_into_the_rows_and_the_pages(
    tmp_path, capsys, monkeypatch
):
    other, data = tmp_path / "other.md", tmp_path / DATA
    write_rows(data, [a_row("t", 1, "a"), a_row("t", 2, "b")])
    page = Page(
        [],
        [Table("t", {"WER": ".0f"}, with_caption=False)],
        others=lambda output: [a_row("t", 5, "b")],
        rewritten={other: lambda rows: {"t": "some"}},
    )
    monkeypatch.setattr("experiments.star.tables.PAGE", page)

    def call(*more):
        return write(["star", "--output", str(tmp_path), "--data", str(data), *more])

    assert call("--show", "t") == 0
    assert capsys.readouterr().out == "label 0\tWER\na\t1\nb\t2\n"
    assert call("--show", "x") == 2 and "no such table; give t" in capsys.readouterr().err
    other.write_text("top\n")
    assert call() == 2 and "the table t has one place in a file" in capsys.readouterr().err
    other.write_text("top\n<!-- t:begin -->\nold\n<!-- t:end -->\nbottom\n")
    assert call() == 0
    assert "| a | 1 |\n| b | 5 |\n" in capsys.readouterr().out
    assert [row.figures["WER"] for row in read_rows(data)] == [1, 5]
    assert other.read_text() == "top\n<!-- t:begin -->\nsome\n<!-- t:end -->\nbottom\n"


INTERVAL = re.compile(r"([+-]?\d+(?:\.\d+)?)( [a-z%]+)? \[([+-]?\d[\d.]*), ([+-]?\d[\d.]*)\]")


def triples(text):
    """The numbers with intervals of a text, without sign: a difference may be told either way."""
    return {
        tuple(sorted(abs(float(number)) for number in (found[1], found[3], found[4])))
        for found in INTERVAL.finditer(text)
    }


def measured_triples():
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


def test_every_number_with_an_interval_in_a_page_has_its_row():
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


# -- the two measurements of their own ------------------------------------------------------


def test_a_scheduled_decoder_writes_so_many_tokens_and_takes_none_back():
    from tiny import noise

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


# -- The sweeps of UFAL and Simul-Whisper on mini --


@pytest.mark.parametrize(
    ("command", "n_cells"),
    [
        ("experiment=ufal data.split=clean chunk=500ms,200ms", 2),
        ("experiment=simul_whisper_cif data.split=other method.weights=none", 5),
        ("experiment=simul_whisper chunk=300ms", 4),
        ("experiment=hush_word method.beam=1 method.prune=true", 3),
    ],
)
def test_the_pages_commands_run_a_part_of_a_sweep(command, n_cells):
    assert len(plan(CommandLine(command.split())).cells) == n_cells


# -- The rows of the hush word's experiment, from finished cells --


def hush_word(folder, chunk, method, wer, **figures):
    """A finished cell with an interval."""
    drawn = {"drawn": "speaker", "n_drawn": 12, "metrics": {"wer": [wer - 3, wer + 4]}}
    method, metrics = {"name": "hush_word", **method}, {"wer": wer, **figures}
    write_document(folder, chunk, method, {"split": "clean"}, metrics, intervals=drawn)


def test_a_padding_has_its_work_and_the_papers_figures(tmp_path):
    folder = tmp_path / "hush_word_paddings"
    work = {"encoder_gflops_per_s": 4.0, "padding_share": 0.25}
    hush_word(folder, "25s", {"padding": "none", "padding_s": None}, 20.0, **work)
    hush_word(folder, "25s", {"padding": "zeros", "padding_s": 5.0}, 30.0, **work)
    hush_word(folder, "25s", {"padding": "noise", "padding_s": 5.0}, 40.0, **work)
    found = by_labels(rows_of("hush_word", tmp_path), "paddings")
    assert {labels: list(figures.values()) for labels, figures in found.items()} == {
        ("none",): [[20.0, 17.0, 24.0], 2.0, 25.0, "0.097 / 152.5"],
        ("zeros, 5 s",): [[30.0, 27.0, 34.0], 2.0, 25.0, "0.083 / 243.8"],
        ("noise, 5 s",): [[40.0, 37.0, 44.0], 2.0, 25.0],
    }


# -- experiments/star --


def test_every_network_has_its_rate_and_seed(tmp_path):
    for name, wer in (("star18_0", 20.0), ("star18_1", 19.0)):
        weights = f"outputs/train/tiny.en/star/{name}"
        method = {"name": "star", "weights": weights, "rate": 18.0}
        write_document(tmp_path / "star_rates", "1s", method, {"split": "clean"}, {"wer": wer})
    found = rows_of("star", tmp_path)
    assert {labels: each["WER %"] for labels, each in by_labels(found, "figure4").items()} == {
        ("18", "0"): 20.0,
        ("18", "1"): 19.0,
    }
    assert {labels: each["WER %"] for labels, each in by_labels(found, "figure8").items()} == {
        ("trained at 18", "0", "r = 18"): 20.0,
        ("trained at 18", "1", "r = 18"): 19.0,
    }


# -- The rows of real Whisper --


SAID = "cats eat fresh fish now"


def add(folder, method, chunk, said, **settings):
    """A cell of six utterances, in which `method` says `said` for the first of them."""
    texts = {f"u{n}": (SAID, said if n == 0 else SAID) for n in range(6)}
    name = "".join(f",method.{key}={value}" for key, value in settings.items())
    made = write_cell(folder / f"method={method},chunk={chunk}{name}", chunk=chunk, texts=texts)
    document = json.loads((made / "metrics.json").read_text())
    document["config"]["method"] |= {"name": method, **settings}
    (made / "metrics.json").write_text(json.dumps(document))


def results(root):
    add(root / "real", "offline", "1000ms", SAID, beam=5)
    add(root / "real", "offline", "1000ms", "no", beam=0)
    add(
        root / "real",
        "whisperrt",
        "300ms",
        "cats eat flesh fish now",
        beam=0,
        weights="x/any_chunk",
    )
    add(root / "real", "whisperrt", "1000ms", "cats eat flesh fish", beam=3, weights="x/any_chunk")
    add(root / "real", "simul_whisper", "1000ms", SAID, truncation=None, weights=None)
    add(root / "real_variants", "simul_whisper", "1000ms", "no", truncation="always", weights=None)
    add(root / "real_detector", "simul_whisper", "300ms", SAID, truncation="never", weights=None)
    add(root / "real_detector", "simul_whisper", "300ms", "no", weights="models/base.pt")
    add(root / "real_voices", "offline", "1000ms", SAID, beam=5)
    shutil.copytree(root / "real", root / "real_other")
    return root


def test_a_row_has_its_cell_and_its_paired_difference_from_offline(tmp_path):
    found = rows_of("real", results(tmp_path))
    main = by_labels(found, "real")
    assert main["offline, beam 5", "whole"][WER] == 0.0
    greedy = main["offline, greedy", "whole"]
    assert greedy[WER][0] == pytest.approx(100 * 5 / 30)
    assert greedy["words right %"][0] == pytest.approx(100 * 25 / 30)
    assert OVER not in greedy  # `greedy` does not select it
    assert {labels: figures[OVER] for labels, figures in main.items() if OVER in figures} == {
        ("WhisperRT, greedy", "300 ms"): pytest.approx(100 / 30),
        ("WhisperRT, beam 3", "1000 ms"): pytest.approx(200 / 30),
        ("Simul-Whisper, no detector", "1000 ms"): 0.0,
    }
    assert main["WhisperRT, greedy", "300 ms"][DIFFER] == 1
    variants = by_labels(found, "real_variants")
    always = variants["Simul-Whisper, last word always dropped", "1000 ms"]
    assert always[WER][0] == pytest.approx(always[OVER])
    detectors = by_labels(found, "real_detector")
    assert detectors["Simul-Whisper, detector", "300 ms"][WER][0] == pytest.approx(100 * 5 / 30)
    assert detectors["Simul-Whisper, no detector", "300 ms"][WER] == 0.0
    assert list(by_labels(found, "real_voices")) == [("offline, beam 5", "whole")]
    assert by_labels(found, "real_speechocean762") == {}
    assert len(set(ROWS)) == len(ROWS) == 26


def test_base_has_a_row_for_each_language_and_the_whole_sets_one_for_each_corpus(tmp_path):
    for folder, key, value in (("real_base", "language", "fr"), ("real_all", "name", "prompts")):
        add(tmp_path / folder, "offline", "300ms", "cats eat flesh fish now", beam=0)
        path = tmp_path / folder / "method=offline,chunk=300ms,method.beam=0" / "metrics.json"
        document = json.loads(path.read_text())
        document["config"]["data"][key] = value
        path.write_text(json.dumps(document))
    base, whole = rows_of("real", tmp_path)
    assert base.key == ("real_base", "fr", "offline, greedy")
    assert whole.key == ("real_all", "prompts", "offline, greedy")
    assert base.figures[WER][0] == whole.figures[WER][0] == pytest.approx(100 / 30)


def test_p_is_corrected_over_all_rows_of_a_table_measured_together_or_not():
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": None}
    made = [
        Row("t", {"system": name}, {OVER: 1.0} | ({UNCORRECTED: p} if p else {}))
        for name, p in p_values.items()
    ]
    made += [Row("t", {"system": "offline"}, {}), Row("u", {"system": "a"}, {OVER: 1.0})]
    shown = [row.value(HOLM) for row in with_holm(made)]
    # four were tested, one of them without a p: 4 x 0.01, 3 x 0.03, and never falling
    assert shown == [
        pytest.approx(0.04),
        pytest.approx(0.09),
        pytest.approx(0.09),
        None,
        None,
        None,
    ]
    assert 1000 in COMPARED_MS


def test_the_picture_is_made_of_the_rows():
    lines = [
        ("offline, beam 5", "whole", {WER: [12.5, 8.4, 18.4], FINAL: [4.93, 4.54, 5.56]}),
        ("WhisperRT, beam 3", "300 ms", {WER: [22.9, 17.0, 32.7], FINAL: -1.24}),
        ("UFAL", "300 ms", {WER: 1.0}),
    ]
    made = [
        Row("real_other", {"system": system, "chunk": chunk}, figures)
        for system, chunk, figures in lines
    ]
    offline, beam = cells_of(made)
    assert (offline.label, offline.chunk) == ("offline beam 5", "whole")
    assert offline.intervals["wer"] == (8.4, 18.4)
    assert (beam.label, beam.chunk) == ("whisperrt beam 3", "300 ms")
    assert beam.metrics == {"wer": 22.9, "word_latency_committed_p50_ca_s": -1.24}
    assert "word_latency_committed_p50_ca_s" not in beam.intervals


@pytest.mark.parametrize(
    ("page", "blocks", "n_rows"), [("README.md", short, 6), ("docs/choosing.md", choosing, 11)]
)
def test_a_page_has_the_figures_of_the_rows(page, blocks, n_rows):
    text = (ROOT / page).read_text("utf-8")
    made = blocks(read_rows(ROOT / "experiments" / "real" / DATA))
    assert len(next(iter(made.values())).splitlines()) == 2 + n_rows
    for name, block in made.items():
        assert f"<!-- {name}:begin -->\n{block}\n<!-- {name}:end -->" in text


def test_the_settings_of_a_row_are_those_of_its_cell():
    for system, words in real_tables.TYPED.items():
        method = compose_raw([*words.split(), "model=tiny.en"])["method"]
        found = [
            all(
                method.get(key) == value
                for key, value in settings.items()
                if key not in ("weights", "method")
            )
            for settings in real_tables.SYSTEMS[system]
        ]
        assert any(found), (system, dict(method))


# -- What holds of every table: batch is named batch, and stability is shown with WER --


SPOKEN = {"u1": (SENTENCE, SENTENCE), "u2": (TAXI, "call a tax for $25 please now")}
NEVER = 99  # words held back: all of them until the flush


def marked(root):
    return {cell.method for cell in read_results(root) if BATCH in cell.notes}


MUTE = {utt: (text, "") for utt, (text, _) in SPOKEN.items()}


@pytest.mark.parametrize(
    ("texts", "offline_split", "batch"),
    [(SPOKEN, "clean", {"ufal"}), (SPOKEN, "other", set()), (MUTE, "clean", set())],
    ids=["of the same data", "of other data", "silence"],
)
def test_a_row_with_offlines_text_that_commits_only_at_the_end_is_marked_as_batch(
    tmp_path, texts, offline_split, batch
):
    offline = tmp_path / "method=offline,chunk=300ms"
    write_cell(offline, texts=texts, ahead=NEVER, split=offline_split)
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=texts, ahead=NEVER)
    write_cell(tmp_path / "method=whisperrt,chunk=300ms", texts=texts, ahead=1)
    other = texts | {"u1": (SENTENCE, SENTENCE.replace("nine", "mine"))}
    write_cell(tmp_path / "method=star,chunk=300ms", texts=other, ahead=NEVER)
    # Neither the one that commits early, nor the one whose text differs in a word, nor offline.
    assert marked(tmp_path) == batch


def test_stability_is_shown_next_to_wer_and_not_without_one(tmp_path, capsys):
    assert next_to_wer(["light_erasure", "rtf_total"]) == ("wer", "light_erasure", "rtf_total")
    assert next_to_wer(["rtf_total"]) == ("rtf_total",)
    assert next_to_wer(["normalised_erasure", "wer"]) == ("normalised_erasure", "wer")
    assert with_wer({"wer": None, "light_erasure": 0.0, "rtf_total": 1.0}) == {
        "wer": None, "light_erasure": None, "rtf_total": 1.0,
    }  # fmt: skip
    assert with_wer({"wer": 3.0, "light_erasure": 0.0})["light_erasure"] == 0.0

    cell = write_cell(tmp_path / "method=ufal,chunk=300ms", texts=SPOKEN)
    assert main([str(cell), "--metrics", "light_erasure"]) == 0
    assert "wer" in capsys.readouterr().out
    heads = write_table(cell, tmp_path / "t.md", ["light_erasure"]).read_text().splitlines()[0]
    assert "WER" in heads
    plain = write_table(cell, tmp_path / "t.tsv", ["light_erasure"]).read_text().splitlines()
    assert [len(line.split("\t")) for line in plain] == [5, 5] and "**" not in plain[1]


def test_a_corpus_without_references_has_no_stability_in_the_table(tmp_path):
    unknown = {utt: ("", said) for utt, (_, said) in SPOKEN.items()}
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=unknown)
    (cell,) = read_results(tmp_path)
    assert cell.document["metrics"]["normalised_erasure"] is not None
    assert cell.metrics["normalised_erasure"] is None


# -- Rows by their labels --


def by_labels(rows, table=None):
    """The figures of each row by its labels; table: of that table only."""
    found = {}
    for row in rows:
        if table in (None, row.table):
            labels = tuple(row.labels.values())
            assert labels not in found, labels
            found[labels] = row.figures
    return found
