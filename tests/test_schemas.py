"""The Structs that describe lines and files, and the schema files that are written from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streaming_asr.corpora import manifest
from streaming_asr.events import check
from streaming_asr.events.record import Ending, Header, Opening
from streaming_asr.schemas import violation
from streaming_asr.score.document import Document

PUBLISHED = {
    Path(check.__file__).with_name("events.schema.json"): check.SCHEMA,
    Path(manifest.__file__).with_name("manifest.schema.json"): manifest.SCHEMA,
}


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.name)
def test_the_published_schema_is_that_of_the_struct(file: Path) -> None:
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
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
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
    ("manifest", ROW, {"offset": 3}, "offset must be one of 0: 3"),
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
def test_a_change_is_accepted_or_refused_with_place_rule_and_value(
    kind: str, row: dict[str, Any], change: dict[str, Any], text: str
) -> None:
    fault = violation(row | change, STRUCTS[kind])
    assert (fault is None) == (not text)
    assert fault is None or fault.text("the line").startswith(text)


@pytest.mark.parametrize(("kind", "row", "change", "text"), CASES)
def test_the_published_schema_agrees(
    kind: str, row: dict[str, Any], change: dict[str, Any], text: str
) -> None:
    schema = manifest.SCHEMA if kind == "manifest" else check.SCHEMA
    if kind != "document":
        assert jsonschema.Draft202012Validator(schema).is_valid(row | change) == (not text)


def test_a_checked_value_stays_as_it_is() -> None:
    document = {"metrics": {"wer": 1.0, "rtf": "2"}, "config": {"batch": 4.0}}
    fault = violation(document, Document)
    assert fault is not None and fault.place == ("metrics", "rtf")
    assert repr(document) == "{'metrics': {'wer': 1.0, 'rtf': '2'}, 'config': {'batch': 4.0}}"
