"""Fuzz: other tools' logs and their references, drawn from their formats, one thing wrong each.

What is valid is scored as it must be, what breaks a rule leaves nothing behind.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import foreign_logs
import pytest
from drawn_logs import BREAKS, header_of, logs, ok_with_an_error
from foreign_logs import MANIFEST, SCHEMA, SIMULSTREAM, STM, Talk, talks
from fuzzing import assert_finite, breaking, cases, edited, lines, run, spoiled, watched
from hypothesis import given
from hypothesis import strategies as st

from streaming_asr.corpora import manifest
from streaming_asr.events.log import EventWriter, UtteranceLog
from streaming_asr.metrics import METRICS
from streaming_asr.score import command
from streaming_asr.score.document import document_of

pytestmark = pytest.mark.slow

REFERENCES = ("manifest", "stm", "cell")


@contextmanager
def a_place():
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a.wav").touch()  # whose length the manifest states
        yield Path(place)


def text(rows):
    return "".join(f"{row}\n" for row in rows).encode()


def references(place, given_, kind):
    """Write what was said as a manifest, an STM file or the folder of a cell."""
    if kind == "manifest":
        path = place / "m.jsonl"
        path.write_bytes(lines(foreign_logs.manifest(given_)))
    elif kind == "stm":
        path = place / "r.stm"
        path.write_bytes(text(foreign_logs.stm(given_)))
    else:
        path = place / "cell"
        with EventWriter(path / "events.jsonl", {}) as writer:
            for talk in given_:
                said = UtteranceLog(talk.name, talk.text, round(talk.duration_s * 16_000))
                said.status, said.error = "failed", "not heard"
                writer.write_utterance(said)
    return path


def imported(place, content, *options):
    path = place / "theirs.log"
    path.write_bytes(content)
    cell = place / "imported"
    status, said = run(command.main, "import", "simulstream", path, "--into", cell, *options)
    if status:
        assert status == 2 and not cell.exists() and said.startswith("error: "), said
    else:
        document_of(cell / "metrics.json")  # as the report reads it
        assert_finite(cell / "metrics.json")
    return status, said, cell


@cases(20)
@given(talks(), st.sampled_from(REFERENCES))
def test_a_valid_log_of_another_tool_is_scored(given_, kind):
    with a_place() as place, watched():
        options = ["--manifest", references(place, given_, kind)]
        status, said, cell = imported(place, lines(foreign_logs.simulstream(given_)), *options)
        assert status == 0, said
        result = json.loads((cell / "metrics.json").read_text())
        assert result["metrics"]["wer"] == 0.0 and result["n_failed"] == 0
        header = json.loads((cell / "events.jsonl").read_text().partition("\n")[0])
        lost = header["unmeasured"].keys() & METRICS.keys()
        assert {result["metrics"][name] for name in lost} == {None}


# -- logs -----------------------------------------------------------------------------------------


@cases(20)
@given(talks(), st.sampled_from(sorted(SIMULSTREAM)), st.data())
def test_a_log_that_breaks_a_rule_of_its_format_is_refused(given_, rule, data):
    with a_place() as place, watched():
        rows = foreign_logs.simulstream(given_)
        SIMULSTREAM[rule](rows, data.draw(st.integers(0, len(given_) - 1)))
        options = ["--manifest", references(place, given_, "manifest")]
        status, said, _ = imported(place, lines(rows), *options)
        assert status == 2, (rule, said)


@cases(15)
@given(talks(), st.data())
def test_a_log_whose_fields_are_of_other_types_is_refused(given_, data):
    with a_place() as place, watched():
        rows = foreign_logs.simulstream(given_)
        at = data.draw(st.integers(0, len(rows) - 1))
        rows[at] = data.draw(breaking(rows[at], SCHEMA))
        options = ["--manifest", references(place, given_, "manifest")]
        status, said, _ = imported(place, lines(rows), *options)
        assert status == 2, said


@cases(15)
@given(talks(), st.data())
def test_a_spoiled_log_of_another_tool_is_scored_or_refused(given_, data):
    with a_place() as place, watched():
        options = ["--manifest", references(place, given_, "manifest")]
        rows = foreign_logs.simulstream(given_)
        how = st.one_of(edited(rows).map(lines), spoiled(lines(rows)))
        imported(place, data.draw(how), *options)


# -- references -----------------------------------------------------------------------------------


@cases(35)
@given(talks(), st.sampled_from(("manifest", "schema", "stm")), st.data())
def test_references_that_break_a_rule_are_refused(given_, what, data):
    with a_place() as place, watched():
        rows = (foreign_logs.stm if what == "stm" else foreign_logs.manifest)(given_)
        at = data.draw(st.integers(0, len(rows) - 1))
        if what == "schema":
            rows[at] = data.draw(breaking(rows[at], manifest.SCHEMA))
        else:
            rules = STM if what == "stm" else MANIFEST
            rules[data.draw(st.sampled_from(sorted(rules)))](rows, at)
        path = place / ("r.stm" if what == "stm" else "m.jsonl")
        path.write_bytes(text(rows) if what == "stm" else lines(rows))
        content = lines(foreign_logs.simulstream(given_))
        status, said, _ = imported(place, content, "--manifest", path)
        assert status == 2, said


@cases(5)
@given(logs(), st.sampled_from(sorted(BREAKS, key=lambda spoil: spoil.__name__)), st.data())
def test_references_of_a_log_that_breaks_an_invariant_are_refused(log, spoil, data):
    if spoil is ok_with_an_error:  # the writer closes it as failed
        return
    talk = Talk("u", log.text.split(), log.duration_s, [1.0] * len(log.steps))
    with a_place() as place, watched():
        content = lines(foreign_logs.simulstream([talk]))
        spoil(log, data.draw(st.integers(0, len(log.steps) - 1)))
        with EventWriter(place / "cell" / "events.jsonl", header_of(log)) as writer:
            writer.write_utterance(log)
        status, said, _ = imported(place, content, "--manifest", place / "cell")
        assert status == 2, said
