"""Logs in, metrics.json and utterances.jsonl out."""

import json
import os
import re
import subprocess
import sys

import pytest
from places import ROOT
from report_cells import SENTENCE, write_cell

from streaming_asr.cells.folder import EVENTS
from streaming_asr.errors import UserError
from streaming_asr.events.check import InvalidLog
from streaming_asr.events.invariants import contract_faults
from streaming_asr.events.log import EventWriter, Step, UtteranceLog, read_log
from streaming_asr.metrics import METRICS, METRICS_VERSION
from streaming_asr.report import table
from streaming_asr.score import find_cells, score_folder
from streaming_asr.score.columns import SHORT, column_of, metric_named
from streaming_asr.score.command import main
from streaming_asr.score.results import read_results
from streaming_asr.utterance import TimedWord

HEADER = {
    "config": {"chunk": "300ms"},
    "versions": {"python": "3"},
    "machine": {"cpu": "fake"},
    "metrics_version": METRICS_VERSION,
}


def an_utterance(utt="u1", *, heard=" sat.", **fields):
    """ "The cat sat." in 2 s: "The" is committed at 1 s, the rest by the flush."""
    steps = [
        Step("audio", 16_000, {"wall": 100_000_000}, committed=["The"], partial=[" hat"]),
        Step("flush", 32_000, {"wall": 300_000_000}, committed=[" cat", heard]),
    ]
    words = [TimedWord("The", 0.2, 0.5), TimedWord("cat", 0.6, 1.0), TimedWord("sat.", 1.2, 1.5)]
    fields = {"speaker": "s1", "language": "en", "words": words, "steps": steps} | fields
    return UtteranceLog(utt=utt, text="The cat sat.", duration_samples=32_000, **fields)


def a_cell(folder, *utterances):
    folder.mkdir(parents=True, exist_ok=True)
    with EventWriter(folder / "events.jsonl", HEADER) as writer:
        for utterance in utterances:
            writer.write_utterance(utterance)
    return folder


def lines_of(folder):
    text = (folder / "utterances.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A scored log of two utterances: the result, and the line of each utterance."""
    place = tmp_path_factory.mktemp("scored") / "exp" / "a"
    cell = a_cell(place, an_utterance("u1"), an_utterance("u2", heard=" mat."))
    result = score_folder(cell)
    assert json.loads((cell / "metrics.json").read_text(encoding="utf-8")) == result
    first, second = lines_of(cell)
    return {
        **{"result": result, "from the log": result, "metrics": result["metrics"]},
        **{"u1": first, "u2": second, "texts of u2": second},
    }


FIGURES = {
    "result": {"experiment": "exp", "cell": "a", "n_utterances": 2, "n_failed": 0, "n_silent": 0},
    "from the log": {"config": {"chunk": "300ms"}, "machine": {"cpu": "fake"}},
    # Committed at 1 s and 2 s, computed 0.1 s and 0.3 s; "sat" is right in one of the two.
    "metrics": {
        "wer": pytest.approx(100 / 6),
        "word_latency_committed_mean_ca_s": pytest.approx((0.6 + 1.3 + 0.8 + 0.6 + 1.3) / 5),
    },
    "u1": {"speaker": "s1", "wer": 0.0, "audio_s": 2.0, "compute_s": pytest.approx(0.4)},
    "u2": {"wer": pytest.approx(100 / 3), "errors": 1, "n_words": 3},
    "texts of u2": {
        "reference": "The cat sat.",
        "hypothesis": "The cat mat.",
        "reference_normalised": "the cat sat",
    },
}


@pytest.mark.parametrize("part", FIGURES)
def test_a_log_becomes_metrics_and_one_line_per_utterance(scored, part):
    assert {key: scored[part][key] for key in FIGURES[part]} == FIGURES[part]


def test_a_result_has_every_metric_and_its_normaliser(scored):
    assert set(scored["metrics"]) == set(METRICS)
    name = scored["result"]["normaliser"][0]
    assert name.startswith("whisper_normalizer.EnglishTextNormalizer ")
    assert scored["u1"]["latency"]["committed_p50_ca_s"] == pytest.approx(0.8)


def test_per_utterance_counts_add_up_to_the_pooled_wer(tmp_path):
    cell = a_cell(tmp_path, *(an_utterance(f"u{k}", heard=h) for k, h in enumerate((" a", " sat"))))
    wer = score_folder(cell)["metrics"]["wer"]
    lines = lines_of(cell)
    errors, words = (sum(line[key] for line in lines) for key in ("errors", "n_words"))
    assert wer == pytest.approx(100 * errors / words)


def test_a_failed_utterance_is_listed_and_counts_as_empty(tmp_path):
    failed = an_utterance("u2", status="failed", error="unreadable audio")
    result = score_folder(a_cell(tmp_path, an_utterance("u1"), failed))
    assert result["n_failed"] == 1
    assert result["failed"] == [{"utt": "u2", "error": "unreadable audio"}]
    assert result["metrics"]["wer"] == 50.0
    line = lines_of(tmp_path)[1]
    assert line["hypothesis"] == "" and line["wer"] == 100.0
    assert line["failed"] == "unreadable audio" and line["compute_s"] is None


def test_a_killed_run_is_scored_on_what_it_finished(tmp_path):
    cell = a_cell(tmp_path, an_utterance("u1"))
    with open(cell / "events.jsonl", "a", encoding="utf-8") as log:
        log.write('{"kind":"audio","utt":"u2","audio_sam')
    assert score_folder(cell)["n_utterances"] == 1


def test_a_log_without_utterances_gives_nulls_and_no_nan(tmp_path):
    result = score_folder(a_cell(tmp_path))
    assert result["n_utterances"] == 0 and result["metrics"]["wer"] is None
    assert "NaN" not in (tmp_path / "metrics.json").read_text(encoding="utf-8")


def test_a_batched_run_writes_no_latency(tmp_path):
    result = score_folder(a_cell(tmp_path, an_utterance(batch=8)))
    assert result["metrics"]["word_latency_committed_p50_cu_s"] is None
    assert result["metrics"]["wer"] == 0.0
    assert lines_of(tmp_path)[0]["latency"] == {}


def test_scoring_again_keeps_what_the_run_had_written(tmp_path):
    cell = a_cell(tmp_path, an_utterance())
    first = score_folder(cell, experiment="study", cell="row 1")
    assert score_folder(cell) == first


def test_an_existing_result_survives_when_the_new_one_cannot_be_written(tmp_path, monkeypatch):
    cell = a_cell(tmp_path, an_utterance())
    score_folder(cell)
    before = (cell / "metrics.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        score_folder(cell, experiment="other")
    assert (cell / "metrics.json").read_bytes() == before
    assert sorted(path.name for path in cell.iterdir()) == [
        "events.jsonl",
        "metrics.json",
        "utterances.jsonl",
    ]


def test_the_command_scores_every_cell_below_a_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("a", "b"):
        a_cell(tmp_path / "exp" / name, an_utterance(heard=" mat."))
    assert main([str(tmp_path), "--metrics", "wer,rtf_total"]) == 0
    printed = capsys.readouterr().out
    assert "exp/a" in printed and "exp/b" in printed
    assert "33.3" in printed and "0.200" in printed and "RTF" in printed
    assert (tmp_path / "exp" / "b" / "metrics.json").is_file()


def test_the_table_shows_intervals_and_over_what(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    utterances = [
        an_utterance(f"u{k}", heard=" mat." if k % 3 else " sat.", speaker=f"s{k % 12}")
        for k in range(24)
    ]
    cell = a_cell(tmp_path / "a", *utterances)
    assert main([str(cell), "--metrics", "wer"]) == 0
    printed = capsys.readouterr().out
    low, high = score_folder(cell)["intervals"]["metrics"]["wer"]
    assert low < 100 * 16 / 72 < high
    found = score_folder(cell)
    assert found["intervals"]["metrics"].keys() >= {"wer", "word_latency_coverage"}
    assert "arwer_grid_ca" not in found["intervals"]["metrics"]  # in every utterance the same
    for name, (least, most) in found["intervals"]["metrics"].items():
        value = found["metrics"][name]
        assert least <= value + 1e-9 and value <= most + 1e-9, name
    least, most = found["intervals"]["metrics"]["word_latency_coverage"]
    assert 0 < least < found["metrics"]["word_latency_coverage"] < most < 100
    assert f"{low:.1f}–{high:.1f}" in printed
    assert "intervals: 95 %, over 12 speakers" in printed


def test_a_metric_that_a_run_lacks_has_no_interval(tmp_path):
    batched = [
        an_utterance(f"u{k}", batch=8, heard=" mat." if k % 2 else " sat.") for k in range(6)
    ]
    result = score_folder(a_cell(tmp_path, *batched))
    assert result["metrics"]["arwer_grid_ca"] is None
    assert result["intervals"]["metrics"].keys() == {"wer", "word_latency_coverage"}


def test_a_damaged_log_is_an_error_and_the_others_are_scored(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    a_cell(tmp_path / "a", an_utterance())
    later = a_cell(tmp_path / "b", an_utterance()) / "events.jsonl"
    later.write_text(later.read_text().replace('"schema":1', '"schema":2'))
    assert main([str(tmp_path), "--metrics", "wer"]) == 2
    captured = capsys.readouterr()
    assert re.findall("^[ab] ", captured.out, re.MULTILINE) == ["a "]
    assert "written in schema 2" in captured.err


def test_an_invalid_log_loses_its_numbers_and_its_row_says_why(tmp_path):
    cell = a_cell(tmp_path / "exp" / "a", an_utterance())
    score_folder(cell)
    log = cell / "events.jsonl"
    log.write_text(log.read_text().replace('"retracted":0', '"retracted":9', 1))
    with pytest.raises(InvalidLog, match="9 words are retracted where 0 were committed"):
        score_folder(cell)
    assert not (cell / "utterances.jsonl").exists()
    (row,) = read_results(tmp_path)
    assert row.metrics == {} and row.error is not None
    assert row.error.startswith("invalid log: line 3: 9 words are retracted")


def test_the_normaliser_of_error_rates_is_chosen_and_stands_in_the_result(tmp_path):
    # "one two" alone is "12" to Whisper's normaliser: one word where two were said by then.
    words = [TimedWord("one", 0.1, 0.4), TimedWord("two", 0.5, 0.8), TimedWord("three", 1.2, 1.5)]
    steps = [
        Step("audio", 16_000, {"wall": 0}, committed=["one"]),
        Step("flush", 32_000, {"wall": 0}, committed=[" two", " three"]),
    ]
    log = UtteranceLog("u", "one two three", 32_000, words=words, language="en", steps=steps)
    cell = a_cell(tmp_path, log)
    by_whisper, as_written = (
        score_folder(cell, normaliser=kind) for kind in ("whisper", "identity")
    )
    assert by_whisper["normaliser"][0].startswith("whisper_normalizer.EnglishTextNormalizer")
    assert as_written["normaliser"] == ["identity 1"]
    # By a_k: "one" against "one two", then all of it: 1 error of 2 + 3 words, or of 1 + 1.
    assert as_written["metrics"]["arwer_cu"] == pytest.approx(100 / 5)
    assert by_whisper["metrics"]["arwer_cu"] == pytest.approx(100 / 2)
    with pytest.raises(UserError, match="one of whisper, whisper_marks, identity"):
        score_folder(cell, normaliser="mine")


def test_two_cells_of_one_name_are_told_apart_by_their_folders(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    for name in ("one", "two"):
        a_cell(tmp_path / name / "exp" / "a", an_utterance())
    assert main([str(tmp_path), "--metrics", "wer"]) == 0
    printed = capsys.readouterr().out
    assert "one/exp/a" in printed and "two/exp/a" in printed


def test_the_scored_folder_is_shown_as_the_report_shows_it(tmp_path, capsys):
    for chunk in ("300ms", "1000ms"):
        a_cell(tmp_path / f"method=whisperrt,chunk={chunk},model=tiny.en", an_utterance())
    assert main([str(tmp_path)]) == 0
    assert console_text(table(tmp_path)).strip() in capsys.readouterr().out


def console_text(shown):
    from streaming_asr.terminal import console

    made = console()
    with made.capture() as captured:
        made.print(shown)
    return captured.get()


def test_all_metrics_can_be_shown_and_explained(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main([str(a_cell(tmp_path, an_utterance())), "--all"]) == 0
    shown = capsys.readouterr().out
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name in METRICS:
        assert column_of(name).title in shown and name in listed, name


@pytest.mark.parametrize(
    ("pieces", "language", "n_joined"),
    [
        (["The", "cat", "sat", "on", "it"], "en", 4),
        (["The", "cat", " sat", "on", "it"], "en", 3),
        ([" The", " cat", " sat", " on", " it"], "en", None),
        (["The ", "cat ", "sat ", "on ", "it"], "en", None),  # the blank is behind
        ([" The", " c", "at", " s", "at", " o", "n", " i", "t"], "en", None),  # parts of words
        (["Th", "e c", "at s", "at o", "n i", "t"], "en", None),
        ([" The cat sat on it"], "en", None),
        (["The"], "en", None),
        ([], "en", None),
        (["猫", "坐", "在", "上", "面"], "zh", None),  # a language without blanks
    ],
)
def test_words_without_their_blanks_are_a_warning(pieces, language, n_joined, tmp_path):
    steps = [Step("audio", 8_000 * (k + 1), {"wall": 1}, [p]) for k, p in enumerate(pieces)]
    steps.append(Step("flush", 16_000 * 9, {"wall": 1}))
    text = "".join(pieces) if language == "zh" else "The cat sat on it"
    log = UtteranceLog("u1", text, 16_000 * 9, None, language=language, steps=steps)
    warnings = score_folder(a_cell(tmp_path / "a", log))["warnings"]
    start = f"{n_joined} of {len(pieces) - 1} words have no blank in front"
    assert [text.startswith(start) for text in warnings] == [True] * (n_joined is not None)


@pytest.mark.parametrize("columns", [[], ["--metrics", "wer,shown_p50"], ["--all"], ["--wide"]])
@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("commit_p50", "star ufal whisperrt"),
        ("word_latency_committed_p50_ca_s", "star ufal whisperrt"),
        ("rtf", "ufal whisperrt star"),
        ("headroom", "ufal whisperrt star"),  # 30, 20 and 2
        ("wer", "whisperrt star ufal"),
        (None, "whisperrt star ufal"),
    ],
)
def test_every_table_sorts(columns, sort, order, tmp_path, capsys, monkeypatch):
    """Words of whisperrt are final last and right; a step of star takes most."""
    monkeypatch.setenv("COLUMNS", "2000")
    for method, chunk, ahead, compute_s, n_wrong in (
        ("whisperrt", "1000ms", 3, 0.05, 0),
        ("star", "100ms", 0, 0.05, 1),
        ("ufal", "300ms", 1, 0.01, 2),
    ):
        text = SENTENCE.replace("harbour", "arbour") if n_wrong else SENTENCE
        text = text.replace("nine", "dine") if n_wrong > 1 else text
        folder = tmp_path / f"method={method},chunk={chunk}"
        texts = {f"u{k}": (SENTENCE, text) for k in range(5)}
        write_cell(folder, chunk=chunk, texts=texts, ahead=ahead, compute_s=compute_s)
    assert main([str(tmp_path), *columns, *(["--sort", sort] if sort else [])]) == 0
    # Of a few cells --all has a column each.
    names = re.findall("whisperrt|star|ufal", capsys.readouterr().out)
    assert " ".join(dict.fromkeys(names)) == order


@pytest.mark.parametrize("name", sorted(SHORT))
def test_a_short_name_is_a_metric_in_every_option(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    metric = metric_named(name)
    assert metric in METRICS and metric_named(metric) == metric
    cells = [str(write_cell(tmp_path / f"method={method},chunk=300ms")) for method in ("u", "v")]
    assert main([str(tmp_path), "--metrics", name]) == 0
    heading = column_of(metric).heading.splitlines()
    assert all(line in capsys.readouterr().out for line in heading[:1])
    for option, command in {
        "--sort": [str(tmp_path), "--sort", f"x{name}"],
        "--metrics": [str(tmp_path), "--metrics", f"x{name}"],
        "--worse": ["compare", *cells, "--worse", f"x{name}=1"],
    }.items():
        assert main(command) == 2
        assert f"error: {option} x{name}: no such metric" in capsys.readouterr().err
    assert main([str(tmp_path), "--metrics", "{clock}"]) == 2
    assert "--metrics {clock}: no such metric" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such folder"),
        (["."], "holds no events.jsonl"),
        ([".", "--metrics", "were"], "did you mean wer"),
        ([], "no folder given"),
    ],
)
def test_bad_input_is_answered_with_its_remedy_and_status_2(
    arguments, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_scoring_imports_nothing_heavy(tmp_path):
    cell = a_cell(tmp_path, an_utterance())
    heavy = "torch", "transformers", "matplotlib", "wandb", "hydra"
    program = (
        "import sys; from streaming_asr.score.command import main; "
        f"assert main([{str(cell)!r}]) == 0; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_metrics_page_names_no_metric_that_is_not_there():
    """It shows metrics.tsv, and tells more of some."""
    lines = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    named = {
        name for cell in cells for text in re.findall(r"`(.+?)`", cell) for name in spell(text)
    }
    assert named and named <= set(METRICS)


def spell(text):
    """'a_{x,y}' -> ['a_x', 'a_y']"""
    found = re.search(r"\{(.+?)\}", text)
    if found is None:
        return [text]
    return [
        name
        for choice in found[1].split(",")
        for name in spell(text[: found.start()] + choice + text[found.end() :])
    ]


def test_a_cell_that_was_set_aside_is_not_scored_again(tmp_path):
    for name in ("method=a", "method=a.old-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").touch()
    assert [cell.name for cell in find_cells(tmp_path)] == ["method=a"]


# -- Faults of a method that its log shows --


CELL = "method=mine,chunk=300ms"


def changed(folder, **of_last):
    """Change the last step of the first utterance, and score again."""
    path = folder / EVENTS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    at = next(i for i, line in enumerate(lines) if line["kind"] == "flush")
    lines[at] |= of_last
    lines[at + 1]["commit_violations"] = int(bool(of_last.get("retracted")))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    score_folder(folder)


@pytest.mark.parametrize(
    ("of_last", "note"),
    [
        ({"retracted": 2, "committed": [" now"]}, "it took 2 final words back"),
        (
            {"committed": [" a", " b"], "words": [[0.1, 0.2, None], [0.3, 20.0, None]]},
            "it timed 1 words after the audio that it had",
        ),
        (
            {"committed": [" a", " b"], "words": [[0.4, 0.5, None], [0.3, 0.4, None]]},
            "it timed 1 words before the word in front of them",
        ),
    ],
)
def test_a_broken_contract_is_a_note_and_wins_nothing(of_last, note, tmp_path):
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    changed(write_cell(tmp_path / CELL), **of_last)
    mine, ufal = read_results(tmp_path)
    assert f"breaks the contract: {note}" in mine.notes
    assert (mine.is_odd, ufal.is_odd) == (True, False)
    assert mine.metrics["wer"] is not None


def test_a_log_without_a_fault_has_no_note(tmp_path):
    cell = write_cell(tmp_path / CELL)
    assert contract_faults(read_log(cell / EVENTS).utterances) == []


def test_words_final_before_they_begin_are_a_warning_with_numbers(tmp_path):
    text = "a b c d e f g h i j k l"
    cell = write_cell(tmp_path / CELL, texts={"u1": (text, text)})
    path = cell / EVENTS
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line in lines:
        if line["kind"] == "utterance":  # its words come in the last second
            end_s, n = line["duration_samples"] / 16_000, len(line["words"])
            line["words"] = [
                [word, end_s - 0.12 * (n - i), end_s - 0.12 * (n - i) + 0.1]
                for i, (word, _, _) in enumerate(line["words"])
            ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    document = score_folder(cell)
    assert document["metrics"]["wer"] is not None
    assert any("before they begin in the reference" in text for text in document["warnings"])
