"""The report: cells read and marked, the page self-contained, sorted, filtered and played."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from report_cells import (
    amend,
    embedded,
    tone,
    write_cell,
    write_failed,
    write_grid,
    write_three,
    write_unjudged,
    write_without_times,
)

from streaming_asr.errors import UserError
from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.metrics import METRICS_VERSION, live
from streaming_asr.models.native import KINDS
from streaming_asr.report import build, main, table
from streaming_asr.report.page import _said, group_of, page_data
from streaming_asr.score.command import main as score
from streaming_asr.score.ranking import FRONT, extremes, front
from streaming_asr.score.results import Result, read_results

# -- the cells and the terminal's table ------------------------------------------------------


def rendered(folder, *, wide=False, sort=None, width=80):
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(folder, wide=wide, sort=sort), crop=False)
    return captured.get()


def test_the_table_fits_in_80_columns_and_shows_the_numbers_as_scored(tmp_path):
    write_cell(
        tmp_path / "method=whisperrt,chunk=300ms,method.beam=3,method.decoder_cache=true",
        texts={"u1": ("cats eat fresh fish", "cats eat flesh fish")},
    )
    text = rendered(tmp_path)
    assert max(map(len, text.splitlines())) <= 80
    assert "whisperrt beam=3" in text
    row = next(line for line in text.splitlines() if "25.0" in line)
    assert "300 ms" in row
    assert text.splitlines()[0].strip() == "mini clean"  # what all rows share
    assert "no room for words rewritten per word" in text and text.count("rewritten") == 1
    wide = rendered(tmp_path, wide=True)
    assert "rewritten" in wide and "no room" not in wide


def test_a_row_is_called_by_what_differs_and_no_word_or_path_of_it_is_cut(tmp_path):
    for method, own in (("ufal", ""), ("simul_whisper", ",method.last_frame_threshold=4")):
        name = f"method={method},chunk=300ms{own},method.truncation=never,model=base"
        write_cell(tmp_path / name)
    path = f"{tmp_path}/{'a_long_folder_of_recordings/' * 4}talk.wav"
    failed = "method=star,chunk=1s,method.truncation=never,model=base"
    write_failed(tmp_path / failed, f"{path}: cannot be read")
    text = rendered(tmp_path)
    lines = text.splitlines()
    assert lines[0].strip() == "truncation=never"
    first_words = [line.split()[0] for line in lines]
    assert {"simul_whisper", "last_frame_threshold=4", "star", "ufal"} <= set(first_words)
    assert first_words.index("star") > first_words.index("ufal")  # what failed is last
    assert f" {path}:" in text.replace("\n", " ")
    assert max(len(line) for line in lines if path not in line) <= 80


def test_the_best_run_is_first_and_marked_and_another_metric_can_be_chosen(tmp_path):
    root = write_three(tmp_path / "three", n=24)
    by_wer, by_latency = (rendered(root), rendered(root, sort="commit_p50"))
    assert first_column(by_wer) == ["star *", "ufal", "whisperrt"]
    assert first_column(by_latency) == ["whisperrt *", "ufal", "star"]
    assert "* the streaming run that is best by WER. Lower is better, except words right." in by_wer
    assert "best by final after p50 s" in " ".join(by_latency.split())
    assert "computing per second of audio" in " ".join(by_wer.split())
    with pytest.raises(UserError, match="--sort comit: no such metric; did you mean commit_"):
        rendered(root, sort="comit")
    assert main([str(root), "--sort", "were"]) == 2
    assert not (root / "report.html").exists()


@pytest.mark.parametrize(("n", "is_enough"), [(12, False), (24, True)])
def test_a_winner_is_named_from_twenty_recordings_on(n, is_enough, tmp_path):
    root = write_three(tmp_path / "three", n)
    text = rendered(root)
    assert ("star *" in text) == ("star at 1000 ms: WER 0.0 %, the least of 3" in text) == is_enough
    command = f"\n  streaming-asr score compare {root}/method=star,chunk=1000ms {root}/method=ufal,"
    assert (command in text) == is_enough
    from rich.console import Console

    console = Console(width=100, force_terminal=True)
    with console.capture() as captured:
        console.print(table(root), crop=False)
    (row,) = (line for line in captured.get().splitlines() if re.match(r"\W*whisperrt", line))
    # Its words come soonest, and its WER is the highest.
    assert bool(re.search(r"\x1b\[1m *0\.02", row)) == is_enough
    assert not re.search(r"\x1b\[1m *[42]\.", row)


def first_column(text):
    """The names in the rows of a table, whose chunk follows them."""
    rows = (re.match(r"(\S.*?) +\d+ ms ", line) for line in text.splitlines())
    return [row[1] for row in rows if row]


def test_a_wider_screen_has_more_columns_and_none_is_passed(tmp_path):
    grid = write_grid(tmp_path / "grid")
    n_columns = []
    for width in (40, 60, 80, 100, 120):
        lines = rendered(grid, width=width).splitlines()
        assert max(map(len, lines)) <= max(width, 80)
        table_ends = next(at for at, line in enumerate(lines) if line.startswith("Lower is"))
        assert max(map(len, lines[:table_ends])) <= width
        n_columns.append(lines[2].split().index("data") + len(lines[2].split()))
    assert n_columns == sorted(n_columns) and n_columns[2] < n_columns[4]
    assert all("rewritten" in rendered(grid, **size) for size in ({"width": 120}, {"wide": True}))


@pytest.mark.parametrize("names_model", [True, False])
def test_a_row_says_that_its_model_cannot_stream(tmp_path, names_model):
    """The model is known by its name, or by its folder where the name is another."""
    for kind in KINDS.values():
        folder = tmp_path / "models" / kind.name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": next(iter(kind.classes))}))
        cell = write_cell(tmp_path / "out" / f"method=native,chunk=300ms,model={kind.name}")
        weights = None if names_model else str(folder)
        name = kind.name if names_model else "whisper"
        amend(cell, config={"method": {"weights": weights}, "model": {"name": name}})
    notes = {r.name.rpartition("=")[2]: r.notes for r in read_results(tmp_path)}
    note = "qwen3_asr cannot stream: it decodes all audio again at every chunk"
    assert notes == {name: (note,) if name == "qwen3_asr" else () for name in KINDS}
    assert f"[1] {note}" in " ".join(rendered(tmp_path / "out").split())
    assert rendered(tmp_path / "out").count("[1]") == 2


def test_json_has_every_number_and_nothing_else_is_printed(tmp_path, capsys):
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    scored = json.loads((tmp_path / "method=ufal,chunk=300ms" / "metrics.json").read_text())
    for program in (main, score):
        assert program([str(tmp_path), "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert run["metrics"] == scored["metrics"] and run["label"] == "ufal"
    assert main([str(tmp_path), "--json", str(tmp_path / "runs.json")]) == 0
    assert "report: " in capsys.readouterr().out
    assert json.loads((tmp_path / "runs.json").read_text())["runs"] == [run]
    assert score(["--json", str(tmp_path)]) == 2
    assert main([str(tmp_path), "--json", str(tmp_path)]) == 2
    assert "is a folder; write --json last" in capsys.readouterr().err


def test_a_failed_cell_is_a_row_with_its_reason(tmp_path):
    write_cell(tmp_path / "method=whisperrt,chunk=300ms")
    data = {"name": "mini", "split": "other"}
    failed = tmp_path / "method=ufal,chunk=[bold]"
    write_failed(failed, "UserError: no adapter [here]", data=data, chunk="1s")
    cell = next(cell for cell in read_results(tmp_path) if cell.method == "ufal")
    assert (cell.chunk_s, cell.split, cell.metrics) == (1.0, "mini other", {})
    text = rendered(tmp_path)
    assert "failed: UserError: no adapter [here]" in text
    data = page_data(tmp_path)
    assert [cell["error"] for cell in data["cells"]] == [None, "UserError: no adapter [here]"]


def test_another_schema_and_a_damaged_file_are_marked_rows_without_numbers(tmp_path):
    write_cell(tmp_path / "a")
    later = write_cell(tmp_path / "b") / "metrics.json"
    later.write_text(later.read_text().replace('"schema": 1', '"schema": 2'))
    (write_cell(tmp_path / "c") / "metrics.json").write_text('{"schema": 1, "met')
    cells = {cell.name: cell for cell in read_results(tmp_path)}
    a, b, c = (cells[name] for name in "abc")
    assert a.error is None
    assert b.error == "metrics.json has schema 2, this report reads 1; score again"
    assert c.error is not None
    assert c.error.startswith("metrics.json is unreadable (DecodeError")
    assert (b.metrics, c.metrics) == ({}, {})


def test_the_live_set_is_a_group_of_the_page():
    assert {group_of(name) for name in live.COLUMNS if name != "wer"} == {"Live systems"}


def test_what_speaks_against_comparing_rows_is_noted(tmp_path):
    for name, old, new in (
        ("a", "", ""),
        ("b", "", ""),
        ("c", f'"metrics_version": {METRICS_VERSION}', '"metrics_version": 0'),
        ("d", '"abacus"', '"slide rule"'),
        ("f", '"cores": 2', '"cores": 2, "threads": 1'),  # the others have no torch
        ("e", '"n_failed": 0', '"n_failed": 2'),
    ):
        path = write_cell(tmp_path / name) / "metrics.json"
        text = path.read_text().replace(old, new)
        if name == "e":
            text = text.replace('"fixed"', '"best_effort"')
        path.write_text(text)
    notes = {cell.name: cell.notes for cell in read_results(tmp_path)}
    assert (notes["a"], notes["b"]) == (("folder a",), ("folder b",))  # of one name, else
    assert notes["c"] == (f"scored by metrics version 0, most others {METRICS_VERSION}", "folder c")
    machine = "measured on another machine: slide rule 2, most others abacus 2"
    assert notes["d"] == (machine, "folder d") and notes["f"] == ("folder f",)
    assert notes["e"] == (
        "2 of 2 utterances failed",
        "feed best_effort: the text depends on the machine",
        "folder e",
    )
    odd = [cell.name for cell in read_results(tmp_path) if cell.is_odd]
    assert odd == ["c", "d"]


def test_a_run_of_other_data_is_marked_and_neither_best_nor_on_the_front(tmp_path):
    for name in ("whisperrt", "ufal", "star"):
        write_cell(tmp_path / f"method={name},chunk=300ms", compute_s=0.1)
    fewer = {"u1": ("good morning", "good morning")}
    write_cell(tmp_path / "method=u2,chunk=300ms", texts=fewer)
    other = {"u1": ("good morning", "good morning")}
    write_cell(tmp_path / "method=u2,chunk=300ms,data.split=other", split="other", texts=other)
    cells = read_results(tmp_path)
    (odd,) = [cell for cell in cells if cell.notes]
    (note,) = odd.notes
    versions = r"1 utterances of version \w{6}, most others 2 utterances of version \w{6}"
    assert re.fullmatch(f"of other data: {versions}", note)
    assert (odd.method, odd.split, odd.is_odd) == ("u2", "mini clean", True)
    assert odd.folder not in front(cells)
    assert sum(front(cells).values()) == 4


def test_the_page_has_the_remarks_of_the_terminal_and_why_there_are_no_intervals(tmp_path):
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    data = page_data(tmp_path)
    assert data["remarks"][0].startswith("few recordings (2): chance decides much")
    assert data["remarks"][1].startswith("no intervals: they need 6 or more speakers")
    page = build(tmp_path).read_text()
    assert "Few recordings (2)" in page and "No intervals" in page
    grid = page_data(write_grid(tmp_path / "grid"))
    assert not any(cell["best"] or cell["wins"] for cell in grid["cells"])  # of 6 recordings
    three = page_data(write_three(tmp_path / "three", n=24))["cells"]
    assert [cell["label"] for cell in three if cell["best"]] == ["star"]
    assert ["wer" in cell["wins"] for cell in three] == [True, False, False]
    wers = [cell["metrics"]["wer"] for cell in grid["cells"] if cell["split"] == "mini clean"]
    assert wers == sorted(wers)


def test_the_front_are_the_runs_that_none_of_their_data_betters():
    def cell(name, latency_s, wer, split="clean"):
        metrics = {"word_latency_committed_p50_ca_s": latency_s, "wer": wer}
        return Result(Path(name), name, "m", "", 0.3, split, metrics)

    cells = [
        cell("fast", 0.5, 9.0),
        cell("good", 2.0, 3.0),
        cell("as good", 2.0, 3.0),
        cell("slower", 2.1, 3.0),
        cell("worse", 0.6, 9.5),
        cell("between", 1.0, 8.9),
        cell("offline", None, 1.0),
        cell("alone", 9.0, 50.0, "other"),
    ]
    assert {path.name: on for path, on in front(cells).items()} == {
        "fast": True, "good": True, "as good": True, "slower": False, "worse": False,
        "between": True, "alone": True,
    }  # fmt: skip


def test_where_no_log_knows_its_computing_time_the_page_shows_the_audio_clock(tmp_path):
    page = build(write_without_times(tmp_path))
    data = embedded(page)
    late = "word_latency_committed_p50_cu_s"
    assert {c["method"]: (c["metrics"][late], c["front"]) for c in data["cells"]} == {
        "ufal": (pytest.approx(0.2), True),
        "star": (pytest.approx(0.6), False),
    }
    assert late in [column["name"] for column in data["columns"] if column["headline"]]
    assert not any(column["headline"] and "_ca" in column["name"] for column in data["columns"])
    assert data["clock"] == "cu"
    assert "final within 0.2 s, computing time not counted" in data["verdicts"][0]
    text = page.read_text(encoding="utf-8")
    assert "in audio time" in text and "counts compute" not in text
    write_cell(tmp_path / "method=whisperrt,chunk=300ms")  # a run that has times
    timed = embedded(build(tmp_path))
    assert timed["clock"] == "ca" and "not counted" not in timed["verdicts"][0]


def test_the_page_opens_on_no_run_that_is_early_with_wrong_words():
    late = FRONT[0]
    points = {"good": (2.0, 3.0), "quick": (1.0, 6.0), "wrong": (0.4, 90.0), "slow": (3.0, 8.0)}
    runs = {
        name: Result(Path(name), name, name, "", 0.3, "", {late: late_s, "wer": wer})
        for name, (late_s, wer) in points.items()
    }
    assert [run.name for run in extremes(list(runs.values()))] == ["good", "quick"]
    # Of two methods both are shown, whatever their errors.
    assert [run.name for run in extremes([runs["wrong"], runs["good"]])] == ["good", "wrong"]


def test_noise_makes_other_data_of_a_corpus(tmp_path):
    for ratio in (20, 0):
        cell = write_cell(tmp_path / f"method=ufal,chunk=300ms,data.snr_db={ratio}")
        amend(cell, config={"data": {"snr_db": ratio, "noise": "/sounds/rain"}})
    cells = read_results(tmp_path)
    assert {cell.split for cell in cells} == {"mini clean rain 20 dB", "mini clean rain 0 dB"}
    assert {cell.label for cell in cells} == {"ufal"}
    assert set(front(cells).values()) == {True}


def test_results_that_were_set_aside_are_no_rows(tmp_path):
    write_cell(tmp_path / "method=whisperrt,chunk=300ms")
    write_cell(tmp_path / "method=whisperrt,chunk=300ms.old-1")
    assert [cell.name for cell in read_results(tmp_path)] == ["method=whisperrt,chunk=300ms"]


def test_a_busy_machine_and_few_recordings_are_remarked(tmp_path):
    for method, cpu in (("ufal", 0.5), ("whisperrt", 0.9)):
        cell = write_cell(tmp_path / f"method={method},chunk=300ms")
        amend(cell, metrics={"rtf_total": 1.0, "rtf_cpu": cpu})
    text = rendered(tmp_path)
    assert "ufal [1]" in text and "whisperrt [" not in text
    assert "[1] this machine was busy: steps took over 1.5 times their CPU time" in text
    # Latencies are then those of the audio's clock, which a busy machine leaves as they are.
    assert "until it is final, computing left out" in " ".join(text.split())
    figures = json.loads((cell / "metrics.json").read_text())["metrics"]
    with_computing, without = (
        f"{figures[f'word_latency_committed_p90_{clock}_s']:.2f}" for clock in ("ca", "cu")
    )
    assert with_computing != without and without in text and with_computing not in text
    assert "\nfew recordings (2): chance decides much of such a WER" in text


def test_a_table_of_aligned_recordings_names_the_error_of_their_times(tmp_path):
    cells = {"ufal": "whisper-tiny.en 0123", "star": "ctc-tiny.en 45", "u2": "whisper-x 6, of the"}
    alignments = {
        "hush_word": "a b/mfa-english_mfa/librispeech-test-other",
        "simul_whisper": "/corpora/LibriSpeech-Alignments",
        "reencode": "alignments/ctc-tiny.en/librispeech-test-other/",
    }
    rest = {"offline": None, "whisperrt": ["odd"]} | dict.fromkeys(alignments, "ctc-tiny.en 45")
    for method, source in {**cells, **rest}.items():
        data = {"word_times": source}
        if method in alignments:
            data["alignments"] = alignments[method]
        cell = write_cell(tmp_path / f"method={method},chunk=300ms")
        amend(cell, config={"data": [1] if method == "whisperrt" else data})
    text = " ".join(rendered(tmp_path).split())
    for line in (
        "word times: whisper-tiny.en, median error 95 ms, at word ends 115 ms, on synthetic speech",
        "word times: ctc-tiny.en, median error 20 ms, at word ends 30 ms, on synthetic speech",
        "word times: whisper-x, whose error was not measured; latencies count from these ends",
        "word times: mfa-english_mfa, whose error was not measured; latencies count",
        "word times: LibriSpeech-Alignments, whose error was not measured; latencies count",
    ):
        assert line in text
    assert text.count("word times:") == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "no metrics.json of this program in it or below; report shows finished runs"),
        ("missing", "no such folder; give a folder of results, as outputs/default"),
        ("talk.wav", "is a file; give a folder of results, as outputs/default"),
        ("unfinished", "no run in it is finished; give its command again"),
        ("another", "no metrics.json of this program in it or below"),
        ("runs", "is a folder; name a file in it"),  # in place of the page
    ],
)
def test_what_has_no_results_is_refused_and_stays_as_it_is(tmp_path, name, said, capsys):
    for folder in ("empty", "another"):
        (tmp_path / folder).mkdir()
    (tmp_path / "talk.wav").touch()
    (tmp_path / "another" / "metrics.json").write_text('{"eval_wer": 3.1}')
    write_cell(tmp_path / "runs" / "method=ufal,chunk=300ms")
    (write_cell(tmp_path / "unfinished" / "method=ufal") / "metrics.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert main([str(tmp_path / name), "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / name}: {said}")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_needs_no_torch_and_says_where_the_page_is(tmp_path):
    write_cell(tmp_path / "method=whisperrt,chunk=300ms")
    code = (
        "import sys; from streaming_asr.report import main\n"
        "status = main(sys.argv[1:])\n"
        "assert not {'torch', 'transformers', 'matplotlib', 'wandb'} & set(sys.modules)\n"
        "sys.exit(status)"
    )
    page = tmp_path / "pages" / "out.html"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "--out", str(page)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"report: {page}" in done.stdout
    assert page.is_file()


# -- the page's first sentence and data --------------------------------------------------------


def test_the_page_holds_the_numbers_of_metrics_json(tmp_path):
    folder = write_cell(tmp_path / "method=whisperrt,chunk=300ms")
    scored = json.loads((folder / "metrics.json").read_text())["metrics"]
    (cell,) = embedded(build(tmp_path))["cells"]
    assert cell["metrics"] == {
        name: value if value is None else pytest.approx(value, rel=1e-4)
        for name, value in scored.items()
    }
    assert (cell["chunk_s"], cell["method"], cell["split"]) == (0.3, "whisperrt", "mini clean")


@pytest.mark.parametrize(
    ("method", "settings", "said", "reached", "told"),
    [
        ("hush_word", {"padding": "zeros"}, "a b", {}, "padding=zeros: the model was not trained"),
        ("whisperrt", {"weights": None}, "a b", {}, "weights=none: unless they are merged"),
        ("star", {}, "x y z", {}, "WER 150 %, more errors than words"),
        ("u2", {"weights": "W"}, "a b", {"minutes": 75}, "trained for 75 minutes"),
        ("u2", {"weights": "W"}, "a b", {"minutes": 4, "encoder_minutes": 7}, "for 11 minutes"),
        ("u2", {"weights": "W"}, "a b", {"minutes": 6000}, None),
        ("u2", {"weights": "W"}, "a b", {"steps": 3}, None),
        ("hush_word", {"padding": "hush"}, "a b", {}, None),
        ("whisperrt", {"weights": "any_chunk"}, "a b", {}, None),
        ("whisperrt", {}, "a b", {}, None),  # an imported log does not tell
        ("star", {"weights": None}, "x y", {}, None),  # 100 %, as an empty text has
    ],
)
def test_a_row_that_is_no_result_of_its_method_says_why_in_the_table_and_in_the_page(
    method, settings, said, reached, told, tmp_path
):
    (tmp_path / "W").mkdir()
    (tmp_path / "W" / "training.json").write_text(json.dumps({"reached": reached}))
    settings = {k: str(tmp_path / "W") if v == "W" else v for k, v in settings.items()}
    cell = write_cell(tmp_path / f"method={method},chunk=300ms", texts={"u": ("a b", said)})
    amend(cell, config={"method": settings})
    (row,) = page_data(tmp_path)["cells"]
    assert [told in note for note in row["notes"]] == [True] * (told is not None)
    text = " ".join(rendered(tmp_path).split())
    assert all(f"[1] {note}" in text for note in row["notes"]) and "[2]" not in text


def test_the_page_fetches_nothing(tmp_path):
    text = build(write_grid(tmp_path / "grid", tone(tmp_path / "a.ogg"))).read_text()
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.[a-z]{2,}[^\s'\"]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"(?:src|href)=[\"'](?!data:)|@import|\bfetch\(|XMLHttpRequest", text)


def test_audio_is_embedded_once_and_unplayable_files_say_so(tmp_path):
    (tmp_path / "grid").mkdir()
    sound = tone(tmp_path / "grid" / "a.ogg")
    for name, path in (("a", sound), ("b", sound), ("c", tmp_path / "gone.ogg")):
        write_cell(tmp_path / "grid" / name, audio_path=path)
    page = build(tmp_path / "grid")
    data = embedded(page)
    # A block of its own: what is read when the page opens has no sound in it.
    blocks = re.findall(r"<script([^>]*)>(.*?)</script>", page.read_text("utf-8"), re.DOTALL)
    ((named, url),) = [block for block in blocks if "data:audio" in block[1]]
    assert f'data-audio="{sound}"' in named
    media, _, coded = url.partition(";base64,")
    assert media == "data:audio/ogg"
    assert base64.b64decode(coded) == sound.read_bytes()
    silent = {line["cell"]: line["silent"] for line in data["timelines"]}
    assert silent == {0: None, 1: None, 2: "the audio file is not on this machine"}


def test_a_server_is_called_by_its_label(tmp_path):
    for label in ("one", "two"):
        keys = f"chunk=20ms,method=remote,method.label={label},method.url=ws___127.0.0.1_8101"
        write_cell(tmp_path / keys)
    assert [result.label for result in read_results(tmp_path)] == ["one", "two"]


OUTSIDE = "it lies outside of the results; give --audio FOLDER to have it in the page"


@pytest.mark.parametrize(
    ("name", "audio_from", "silent"),
    [
        ("grid/a.ogg", [], None),
        ("grid/a/a.ogg", [], None),
        ("talks/a.ogg", [], OUTSIDE),
        ("grid-of-another/a.ogg", [], OUTSIDE),
        ("grid/a/../../talks/a.ogg", [], OUTSIDE),
        ("grid/a/linked.ogg", [], OUTSIDE),
        ("grid/a/linked/a.ogg", [], OUTSIDE),
        ("talks/a.ogg", ["grid"], OUTSIDE),
        ("talks/a.ogg", ["grid", "talks"], None),
        ("talks/a.ogg", ["talks/talks.jsonl"], None),
        ("grid/a/linked.ogg", ["talks"], None),
        ("cache/streaming_asr/a.ogg", [], None),
        ("cache/other/a.ogg", [], OUTSIDE),
    ],
)
@pytest.mark.parametrize("absolute", [True, False])
def test_only_sound_of_the_results_and_of_what_the_user_names_is_embedded(
    tmp_path, monkeypatch, name, audio_from, silent, absolute
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_cell(Path("grid/a"), audio_path=tmp_path / name if absolute else Path(name))
    places = ("grid", "grid/a", "talks", "grid-of-another", "cache/streaming_asr", "cache/other")
    for place in places:
        Path(place).mkdir(parents=True, exist_ok=True)
        tone(tmp_path / place / "a.ogg")
    Path("talks/talks.jsonl").touch()
    Path("grid/a/linked.ogg").symlink_to(tmp_path / "talks/a.ogg")
    Path("grid/a/linked").symlink_to(tmp_path / "talks")
    page = build("grid", audio_from=map(Path, audio_from))
    assert {line["silent"] for line in embedded(page)["timelines"]} == {silent}
    assert ("data:audio" in page.read_text("utf-8")) == (silent is None)


def test_the_median_comes_first_and_the_worst_and_the_slowest_are_named(tmp_path):
    right = "cats eat fresh fish on friday"
    texts = {f"u{n}": (right, right) for n in range(9)}
    texts["u3"] = (right, "cats eat")
    texts["u5"] = (right, "cats eat fresh fish")
    write_cell(tmp_path / "a", texts=texts)
    texts["u7"] = (right, "friday")
    write_cell(tmp_path / "b", texts={**texts, "u3": texts["u0"]})
    lines = embedded(build(tmp_path))["timelines"]
    why = {(line["cell"], line["utt"]): line["why"] for line in lines}
    assert why[0, "u3"] == "worst WER over all methods"
    assert why[1, "u7"] == "worst WER over all methods"
    assert why[0, "u7"] == "worst WER over all methods"
    assert any("slowest" in text for text in why.values())
    for at in (0, 1):
        first = next(line["why"] for line in lines if line["cell"] == at)
        assert first == "median WER over all methods"
    for at in (0, 1):  # all are there to be looked through, four at most are remarkable
        assert sum(cell == at for cell, _ in why) == 9
        assert sum(cell == at and text != "" for (cell, _), text in why.items()) <= 4


def test_a_timeline_tells_when_each_word_was_spoken_shown_changed_and_committed():
    from traces import a_step

    from streaming_asr.metrics import Trace, queued
    from streaming_asr.report.timelines import timeline
    from streaming_asr.utterance import TimedWord

    def step(audio_s, committed, displayed):
        return a_step(audio_s, 0.1, committed, displayed)

    trace = Trace(
        utt="u",
        reference="Hello, big world today",
        duration_s=2.0,
        words=(
            TimedWord("Hello,", 0.0, 0.5),
            TimedWord("big", 0.5, 1.0),
            TimedWord("world", 1.0, 1.5),
            TimedWord("today", 1.5, 2.0),
        ),
        steps=queued(
            [
                step(0.5, "", "yellow"),
                step(1.0, "", "yellow"),
                step(1.5, "Hello,", "Hello, word"),
                step(2.0, "Hello, world today now", "Hello, world today now"),
            ]
        ),
    )
    shown = timeline(trace)
    assert shown["steps"] == [
        [0.5, 0.6, 0, "yellow", 0],
        [1.5, 1.6, 0, "Hello, word", 6],
        [2.0, 2.1, 10, "ld today now", 22],
    ]
    nothing = {"final": None, "changes": [], "shown": None, "stable": None, "committed": None}
    assert shown["rows"] == [
        {"kind": "hit", "word": "Hello,", "start": 0.0, "end": 0.5, "final": "Hello,",
         "changes": [(0, "yellow"), (1, "Hello,")], "shown": 1, "stable": 1, "committed": 1},
        {"kind": "deletion", "word": "big", "start": 0.5, "end": 1.0, **nothing},
        {"kind": "hit", "word": "world", "start": 1.0, "end": 1.5, "final": "world",
         "changes": [(1, "word"), (2, "world")], "shown": 2, "stable": 2, "committed": 2},
        {"kind": "hit", "word": "today", "start": 1.5, "end": 2.0, "final": "today",
         "changes": [(2, "today")], "shown": 2, "stable": 2, "committed": 2},
        {"kind": "insertion", "word": None, "start": None, "end": None, "final": "now",
         "changes": [(2, "now")], "shown": 2, "stable": 2, "committed": 2},
    ]  # fmt: skip
    assert shown["end_s"] == 2.1


def test_what_wer_forgives_is_no_error_on_the_page():
    from traces import a_step

    from streaming_asr.metrics import Trace, queued
    from streaming_asr.report.timelines import timeline

    text = "I'm here at sven"
    trace = Trace(
        utt="u",
        reference="I am here at seven",
        duration_s=2.0,
        words=None,
        steps=queued([a_step(2.0, 0.1, text, text)]),
        language="en",
    )
    kinds = [row["kind"] for row in timeline(trace)["rows"]]
    assert kinds == ["forgiven", "forgiven", "hit", "hit", "substitution"]


def test_a_gap_between_blocks_does_not_break_a_sentence():
    """WhisperRT's words lie where their blocks end, here with a second between the second and
    third word of the first sentence."""
    texts = ["The", "harbour", "opens", "at", "nine.", "Bring", "a", "coat", "with", "you."]
    begins = [0.3, 0.6, 1.9, 2.2, 2.5, 4.1, 4.4, 4.7, 5.0, 5.3]
    step = Step("audio", 96_000, {"wall": 1}, committed=[f" {text}" for text in texts],
                words=[[start, start, None] for start in begins])  # fmt: skip
    log = UtteranceLog(utt="u", text="", duration_samples=96_000, steps=[step])
    assert _said(log) == [(0.3, "The harbour opens at nine."), (4.1, "Bring a coat with you.")]
    # Words that last have times of their own, and a pause is one.
    step.words = [[start, start + 0.3, None] for start in begins]
    assert _said(log)[1] == (1.9, "opens at nine.")


def test_recordings_without_a_reference_are_not_wrong(tmp_path):
    write_unjudged(tmp_path)
    data = page_data(tmp_path)
    assert data["verdicts"] == ["No reference: the texts and when they came, no errors."]
    assert {line["why"] for line in data["timelines"]} == {""}
    assert {row["kind"] for line in data["timelines"] for row in line["rows"]} == {"unjudged"}
    assert [cell["label"] for cell in data["cells"]] == ["ufal", "whisperrt"]
    text = rendered(tmp_path)
    assert "no reference" in text and "WER" not in text


# -- numbers ---------------------------------------------------------------------------------


def test_the_page_and_the_terminal_show_one_number(tmp_path):
    folder = write_cell(tmp_path / "method=whisperrt,chunk=300ms")
    # Five digits of it would be 15.950, and that 16.0.
    amend(folder, metrics={"wer": 15.949999, "word_latency_coverage": 92.5})
    (cell,) = page_data(tmp_path)["cells"]
    assert (cell["texts"]["wer"], cell["texts"]["word_latency_coverage"]) == ("15.9", "92")
    (row,) = (line for line in rendered(tmp_path).splitlines() if "whisperrt" in line)
    assert "15.9" in row and " 92 " in row


def test_the_first_sentence_states_the_least_wer_and_offlines(tmp_path):
    right = "cats eat fresh fish on friday"
    texts = {f"u{n}": (right, right) for n in range(20)}
    write_cell(tmp_path / "method=offline,chunk=300ms", texts=texts, chunk="3000ms")
    assert page_data(tmp_path)["verdicts"] == [
        "offline: WER 0.0 %, half of the right words final within 1.3 s."
    ]
    wrong = {utt: (right, "cats meet flesh dish on friday") for utt in texts}
    write_cell(tmp_path / "method=whisperrt,chunk=300ms", texts=wrong)
    latency = "word_latency_committed_p50_ca_s"
    intervals = {"metrics": {latency: [0.5, 0.81]}}
    cell = tmp_path / "method=whisperrt,chunk=300ms"
    amend(cell, metrics={latency: 0.64}, intervals=intervals)
    assert page_data(tmp_path)["verdicts"] == [
        "whisperrt at 300 ms: WER 50.0 %, half of the right words final within 0.6 s "
        "(95 % interval 0.5 to 0.8); offline: WER 0.0 %."
    ]
    worse = {utt: (right, "cats meet flesh dish in may") for utt in texts}
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=worse)
    (told,) = page_data(tmp_path)["verdicts"]
    assert told.startswith("whisperrt at 300 ms: WER 50.0 %, half of the right words final ")
    assert "; ufal at 300 ms: WER 83.3 %, half of the right words final " in told
    write_cell(tmp_path / "method=star,chunk=300ms", texts=worse)
    (told,) = page_data(tmp_path)["verdicts"]
    assert told.startswith("whisperrt at 300 ms: WER 50.0 %, the least of 3 streaming runs, half ")
    write_cell(tmp_path / "method=u2,chunk=300ms", texts=wrong)
    (told,) = page_data(tmp_path)["verdicts"]
    assert "WER 50.0 %, the least of 4 streaming runs (shared by 1 other), half " in told
