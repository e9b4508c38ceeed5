"""The Structs that describe lines and files, and the schema files that are written from them."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import fakes
import jsonschema
import pytest

from streaming_asr import report
from streaming_asr.corpora import manifest
from streaming_asr.errors import UserError
from streaming_asr.events import check
from streaming_asr.events.record import Ending, Header, Opening
from streaming_asr.files import replacing, write_text
from streaming_asr.method import NULL, Batched, Update, Word, display_text
from streaming_asr.schemas import violation
from streaming_asr.score.document import Document

PUBLISHED = {
    Path(check.__file__).with_name("events.schema.json"): check.SCHEMA,
    Path(manifest.__file__).with_name("manifest.schema.json"): manifest.SCHEMA,
}


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.name)
def test_the_published_schema_is_that_of_the_struct(file):
    text = json.dumps(PUBLISHED[file], indent=2) + "\n"
    assert file.read_text("utf-8") == text, f"write to {file}:\n{text}"


ROW = {"audio_filepath": "a.wav", "text": "a b"}
JOINED = {"parts": [{"audio_filepath": "a"}, {"audio_filepath": "b", "gap_s": 1}], "id": 1}
STRUCTS = {
    "manifest": manifest.Line,
    "document": Document,
    "header": Header,
    "utterance": Opening,
    "end": Ending,
}
HEADER = {"kind": "header", "schema": 1}
OPENING = {"kind": "utterance", "utt": "u", "text": "", "duration_samples": 0}
ENDING = {"kind": "end", "utt": "u", "status": "ok"}
CASES = [
    ("manifest", ROW, {}, ""),
    ("manifest", ROW, {"text": ""}, ""),
    ("manifest", ROW, {"text": None}, "text must be `str`: None"),
    ("manifest", ROW, {"text": "x" * 2_000_000}, ""),
    ("manifest", ROW, {"text": "x" * 2_000_001}, "text must be `str` of length <= 2000000: 'xxx"),
    ("manifest", ROW, {"audio_filepath": ""}, "audio_filepath must be `str` of length >= 1: ''"),
    ("manifest", ROW, {"id": 7}, ""),
    ("manifest", ROW, {"id": 7.0}, ""),
    ("manifest", ROW, {"id": ""}, "id must be `str` of length >= 1: ''"),
    ("manifest", ROW, {"id": None}, "id must be `int | str`: None"),
    ("manifest", ROW, {"speaker": 84}, ""),
    ("manifest", ROW, {"speaker": True}, "speaker must be `int | str | null`: True"),
    ("manifest", ROW, {"duration": 86400}, ""),
    ("manifest", ROW, {"duration": 86400.5}, "duration must be `float` <= 86400.0: 86400.5"),
    ("manifest", ROW, {"duration": -1}, "duration must be `float` >= 0.0: -1"),
    ("manifest", ROW, {"duration": "1"}, "duration must be `float | null`: '1'"),
    ("manifest", ROW, {"offset": 0.0}, ""),
    ("manifest", ROW, {"offset": 3}, "the line lacks `duration`"),
    ("manifest", ROW, {"offset": 3, "duration": 1}, ""),
    ("manifest", ROW, {"channel_selector": "first"}, "channel_selector must be one of 'average'"),
    ("manifest", ROW, {"words": [["a", 0, 1e9]]}, ""),
    ("manifest", ROW, {"words": [["a", 0, 1e10]]}, "words[0][2] must be `float` <= 1000000000.0"),
    ("manifest", ROW, {"words": [["a", 0]]}, "words[0] must be `array` of length 3: ['a', 0]"),
    ("manifest", ROW, {"noise": {"kind": "white", "snr_db": 0}}, "noise lacks `seed`"),
    ("manifest", ROW, {"comment": "of another program"}, ""),
    ("manifest", JOINED, {}, "the line lacks `text`"),
    ("manifest", JOINED, {"text": ""}, ""),
    ("manifest", JOINED, {"text": "", "parts": []}, "parts must be `array` of length >= 1: []"),
    ("manifest", JOINED, {"text": "", "parts": [{}]}, "parts[0] lacks `audio_filepath`"),
    ("manifest", {"parts": JOINED["parts"]}, {"text": ""}, "the line lacks `id`"),
    ("header", HEADER, {"metrics_version": 1.0, "of another program": []}, ""),
    ("header", HEADER, {"schema": True}, "schema must be `int`: True"),
    ("header", HEADER, {"unmeasured": ["rtf"]}, ""),
    ("header", HEADER, {"unmeasured": {"rtf": 1}}, "unmeasured.rtf must be `str`: 1"),
    ("header", HEADER, {"config": None}, "config must be `object`: None"),
    ("utterance", OPENING, {"duration_samples": 4800.0, "speaker": None}, ""),
    ("utterance", OPENING, {"duration_samples": 4800.5}, "duration_samples must be `int`: 4800.5"),
    ("utterance", OPENING, {"audio_path": None}, "audio_path must be `str`: None"),
    ("utterance", OPENING, {"batch": 0}, "batch must be `int` >= 1: 0"),
    ("utterance", OPENING, {"utt": ""}, "utt must be `str` of length >= 1: ''"),
    ("utterance", OPENING, {"steps": []}, "the line must not have `steps`"),
    ("end", ENDING, {"memory_peak_bytes": None, "pacing_slip_s": 1e6}, ""),
    ("end", ENDING, {"pacing_slip_s": None}, "pacing_slip_s must be `float`: None"),
    ("end", ENDING, {"status": "maybe"}, "status must be one of 'failed', 'ok': 'maybe'"),
    ("document", {}, {}, "the line lacks `metrics`"),
    ("document", {"metrics": {}}, {"n_utterances": 3.0}, ""),
    ("document", {"metrics": {"wer": 1, "rtf": "2", "b": "2"}}, {}, "metrics.rtf must be `float"),
    ("document", {"metrics": {}}, {"n_failed": 0.5}, "n_failed must be `int | null`: 0.5"),
    ("document", {"metrics": {}}, {"unit": ["mora"]}, "unit[0] must be one of 'character', 'word'"),
    ("document", {"metrics": {}}, {"config": None}, "config must be `object`: None"),
    (
        "document",
        {"metrics": {}},
        {"config": {"data": {"snr_db": "x"}}},
        "config.data.snr_db must be `float | null`: 'x'",
    ),
    (
        "document",
        {"metrics": {}},
        {"intervals": {"metrics": {"a": None, "wer": [0, 1, 2]}}},
        "intervals.metrics.wer must be `array` of length <= 2: [0, 1, 2]",
    ),
    (
        "document",
        {"metrics": {}},
        {"intervals": {"n_drawn": 9}},
        "intervals must have `drawn` next to `n_drawn`: {'n_drawn': 9}",
    ),
]


@pytest.mark.parametrize(("kind", "row", "change", "text"), CASES)
def test_a_change_is_accepted_or_refused_with_place_rule_and_value(kind, row, change, text):
    fault = violation(row | change, STRUCTS[kind])
    assert (fault is None) == (not text)
    assert fault is None or fault.text("the line").startswith(text)


@pytest.mark.parametrize(("kind", "row", "change", "text"), CASES)
def test_the_published_schema_agrees(kind, row, change, text):
    schema = manifest.SCHEMA if kind == "manifest" else check.SCHEMA
    if kind != "document":
        assert jsonschema.Draft202012Validator(schema).is_valid(row | change) == (not text)


def test_a_checked_value_stays_as_it_is():
    document = {"metrics": {"wer": 1.0, "rtf": "2"}, "config": {"batch": 4.0}}
    fault = violation(document, Document)
    assert fault is not None and fault.place == ("metrics", "rtf")
    assert repr(document) == "{'metrics': {'wer': 1.0, 'rtf': '2'}, 'config': {'batch': 4.0}}"


# -- Files --


def test_a_writer_that_breaks_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_text(tmp_path / "new" / "page.html", "whole")
    with pytest.raises(RuntimeError, match="killed"), replacing(path) as scratch:
        scratch.write_text("ha")
        raise RuntimeError("killed")
    assert path.read_text() == "whole"
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


def test_a_folder_replaces_a_folder_with_all_its_files(tmp_path):
    place = tmp_path / "best"
    for names in (("a", "b"), ("c",)):
        with replacing(place) as folder:
            folder.mkdir()
            for name in names:
                (folder / name).touch()
    assert [file.name for file in place.iterdir()] == ["c"]
    assert list(tmp_path.iterdir()) == [place]


def test_a_folder_whose_successor_breaks_stays(tmp_path):
    place = tmp_path / "best"
    place.mkdir()
    (place / "weights").write_text("good")
    with pytest.raises(UserError, match="best: cannot be written"), replacing(place) as folder:
        folder.mkdir()
        raise OSError(28, "No space left on device")
    assert (place / "weights").read_text() == "good"
    assert list(tmp_path.iterdir()) == [place]


def test_a_place_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "file" / "metrics.json", "{}")


def test_a_page_that_could_not_be_finished_is_not_there(tmp_path, monkeypatch):
    from report_cells import write_cell

    cell = write_cell(tmp_path / "cell", texts={"a": ("call a taxi", "call a taxi")})
    before = Path.write_text

    def torn(path, text, **settings):
        before(path, text[: len(text) // 2], **settings)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", torn)
    with pytest.raises(UserError, match=r"report\.html: cannot be written"):
        report.build(cell)
    assert not (cell / "report.html").exists()
    monkeypatch.undo()
    assert report.build(cell).read_text().rstrip().endswith("</html>")


# -- The protocol --


def test_words_join_as_they_are_and_outer_blanks_go():
    assert display_text([Word(" It's"), Word(" ten"), Word(" o'clock.")]) == "It's ten o'clock."
    assert display_text([Word("你"), Word("好")]) == "你好"
    assert display_text([]) == ""


def test_an_update_says_nothing_by_default_and_cannot_be_changed():
    update = Update()
    assert (update.committed, update.partial, update.endpoint, update.retracted) == (
        (),
        (),
        False,
        0,
    )
    with pytest.raises(FrozenInstanceError):
        update.retracted = 1


def test_only_a_method_with_step_many_is_batched():
    assert isinstance(fakes.BatchedTicker(), Batched)
    assert not isinstance(fakes.Ticker(), Batched)


def test_the_null_recorder_takes_everything_and_lets_errors_through():
    NULL.count(frames_real=1)
    with pytest.raises(ZeroDivisionError), NULL.part("encode"):
        raise ZeroDivisionError


def test_the_light_modules_import_no_heavy_package():
    modules = "corpora, errors, events.log, machine, method, metrics.clocks, simulate.feeds"
    imports = "; ".join(f"import streaming_asr.{name}" for name in modules.split(", "))
    # The settings of a run are checked, and its weights are hashed, before torch loads.
    imports += "; from streaming_asr.config.settle import compose; compose(['model=mini'])"
    heavy = "'torch', 'transformers', 'matplotlib', 'wandb', 'scipy', 'soundfile'"
    code = f"import sys; {imports}; print(*{{{heavy}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
