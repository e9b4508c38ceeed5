"""Fuzz: folders of results, drawn from the invariants and the schemas, one thing wrong with each.

Every command that reads them must answer, and none may show a number that comes of what is invalid.
"""

import copy
import json
import os
from contextlib import suppress

import pytest
from drawn_cells import (
    READERS,
    assert_log_is_refused,
    assert_no_number,
    compared,
    corpora,
    results,
    rows_of,
    shown,
    write,
)
from drawn_logs import BREAKS, ok_with_an_error
from fuzzing import (
    WEIRD,
    assert_finite,
    breaking,
    cases,
    edited,
    lines,
    spoiled,
    spoiled_lines,
    watched,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from streaming_asr.errors import UserError
from streaming_asr.events.check import SCHEMA as LOG_SCHEMA
from streaming_asr.events.log import resume
from streaming_asr.schemas import schema_of
from streaming_asr.score import score_folder
from streaming_asr.score.document import BOUNDS, METRICS, Document

pytestmark = pytest.mark.slow

LOG = Draft202012Validator(LOG_SCHEMA)

# The others show what was scored before.
LOG_READERS = st.sampled_from(sorted({*READERS, "compare"} - {"report", "figures"}))


@cases(20)
@given(corpora(), st.sampled_from(sorted({*READERS, "compare"})))
def test_a_valid_folder_is_read_by_every_command(utterances, reader):
    with results(utterances) as cell, watched():
        root = cell.parent
        status, text = compared(root, utterances) if reader == "compare" else READERS[reader](root)
        wordless = all(log.words is None for log in utterances)
        refused = reader == "longform" and wordless
        unserved = reader == "advise" and "nothing serves 1 stream" in text  # a step is too long
        # An interval needs six recordings, and a run that breaks the contract wins nothing.
        unjudged = ("cannot be judged", "no run can be judged by it")
        few = reader == "report" and any(each in text for each in unjudged)
        assert status == (2 if refused else int(unserved or few)), text
        row = shown(root)
        assert row["error"] is None and row["metrics"]["wer"] == 0.0


# -- logs -----------------------------------------------------------------------------------------


@cases(25)
@given(
    corpora(),
    st.sampled_from(sorted(BREAKS, key=lambda spoil: spoil.__name__)),
    LOG_READERS,
    st.data(),
)
def test_nothing_is_computed_of_a_log_that_breaks_an_invariant(utterances, spoil, reader, data):
    with results(utterances) as cell, watched():
        broken = copy.deepcopy(utterances)
        at = data.draw(st.sampled_from(broken))
        spoil(at, data.draw(st.integers(0, len(at.steps) - 1)))
        path = cell / "events.jsonl"
        path.unlink()
        rows = rows_of(write(cell, broken))
        if spoil is ok_with_an_error:  # the writer closes it as failed
            next(r for r in rows if r["kind"] == "end" and r["utt"] == at.utt)["status"] = "ok"
        path.write_bytes(lines(rows))
        assert_log_is_refused(cell, utterances, reader)


@cases(25)
@given(corpora(), LOG_READERS, st.data())
def test_nothing_is_computed_of_a_log_that_breaks_its_schema(utterances, reader, data):
    with results(utterances) as cell, watched():
        path = cell / "events.jsonl"
        rows = rows_of(path)
        at = data.draw(st.integers(0, len(rows) - 1))
        rows[at] = data.draw(breaking(rows[at], LOG_SCHEMA))
        path.write_bytes(lines(rows))
        assert_log_is_refused(cell, utterances, reader)


ORDER = ("twice", "swapped", "lost", "nested", "foreign", "reopened", "headless", "two headers")


@cases(15)
@given(corpora(), st.sampled_from(ORDER), LOG_READERS, st.data())
def test_nothing_is_computed_of_lines_that_do_not_follow_each_other(utterances, what, reader, data):
    with results(utterances) as cell, watched():
        path = cell / "events.jsonl"
        rows = rows_of(path)
        kinds = [row["kind"] for row in rows]
        opens = data.draw(st.sampled_from([i for i, k in enumerate(kinds) if k == "utterance"]))
        ends = kinds.index("end", opens)
        step = data.draw(st.integers(opens + 1, ends - 1))
        if what == "twice":
            rows += rows[opens : ends + 1]
        elif what == "swapped":  # the first step after what follows it, an end or a step
            rows[opens], rows[opens + 1] = rows[opens + 1], rows[opens]
        elif what == "lost":
            del rows[opens]
        elif what == "nested":
            rows.insert(step, rows[opens] | {"utt": "another"})
        elif what == "foreign":
            rows[step]["utt"] = "nobody"
        elif what == "reopened":
            rows.insert(step, rows[opens])
        elif what == "headless":
            del rows[0]
        else:
            rows.insert(step, rows[0])
        path.write_bytes(lines(rows))
        assert_log_is_refused(cell, utterances, reader)


@cases(20)
@given(corpora(), st.data())
def test_a_damaged_log_is_scored_only_where_each_line_obeys_the_schema(utterances, data):
    with results(utterances) as cell, watched():
        path = cell / "events.jsonl"
        content = data.draw(spoiled_lines(path.read_text()))
        path.write_bytes(content)
        with suppress(UserError):
            score_folder(cell)
            assert_finite(cell / "metrics.json")
            for line in content.split(b"\n")[:-1]:  # the reader has its own check of a step
                assert LOG.is_valid(json.loads(line)), line
        with suppress(UserError):
            resume(path)


# -- results --------------------------------------------------------------------------------------


def out_of_bounds(document):
    """The document with a metric, an interval or a count that no run has."""

    def changed(name, is_interval, above):
        made = copy.deepcopy(document)
        low, high = BOUNDS.get(name) or BOUNDS.get(METRICS[name].unit) or (0.0, 1e18)
        wrong = high * 1.01 + 1 if above else low - 0.01 - abs(low) * 0.01
        if is_interval:
            made["intervals"]["metrics"][name] = [low, wrong] if above else [wrong, low]
        else:
            made["metrics"][name] = wrong
        return made

    def miscounted(which, n):
        return {**document, which: document["n_utterances"] + n}

    return st.one_of(
        st.builds(changed, st.sampled_from(sorted(METRICS)), st.booleans(), st.booleans()),
        st.builds(miscounted, st.sampled_from(("n_failed", "n_silent")), st.integers(1, 10**6)),
    )


@cases(20)
@given(corpora(), st.data())
def test_a_result_that_no_run_can_have_is_a_row_without_numbers(utterances, data):
    with results(utterances) as cell, watched():
        path = cell / "metrics.json"
        document = json.loads(path.read_text())
        schema = schema_of("metrics.json", Document)
        made = data.draw(st.one_of(breaking(document, schema), out_of_bounds(document)))
        path.write_text(json.dumps(made))
        assert_no_number(cell.parent)


FILES = ("events.jsonl", "metrics.json", "utterances.jsonl", "failed.json", ".hydra/config.yaml")
DEEP = (b"[" * 100_000, b'{"a":' * 100_000, b"- " * 50_000, b"a: " * 50_000, b"&a [*a" * 999)
TEXTS = (b"", b"\n", b"\xff\xfe", b"\x00" * 99, b"null", b"7", b'"text"', b"[]", b"{}", b"1e999")


def contents(before):
    """What a file of JSON may hold instead."""
    some = [st.sampled_from((*DEEP, *TEXTS)), spoiled(before)]
    with suppress(ValueError):  # as of YAML
        is_one = before.startswith(b"{\n")
        rows = [json.loads(each) for each in ([before] if is_one else before.splitlines())]
        shallow = st.builds(
            lambda key, value: lines([{**rows[0], key: value}, *rows[1:]]),
            st.sampled_from(sorted(rows[0])),
            st.sampled_from(WEIRD),
        )
        some += [edited(rows).map(lines), shallow]
    return st.one_of(some)


def put(path, what):
    """Put something that is no file in the place of one."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to({"loop": path, "nowhere": "nothing", "device": "/dev/zero"}[what])


@cases(25)
@given(corpora(), st.sampled_from(FILES), st.data())
def test_a_file_that_holds_something_else_is_answered(utterances, name, data):
    with results(utterances) as cell, watched():
        path = cell / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text('{"error": "UserError: no such weights", "method": {"name": "ufal"}}\n')
            if data.draw(st.booleans()):
                (cell / "metrics.json").unlink()
        if data.draw(st.integers(0, 4)):
            path.write_bytes(data.draw(contents(path.read_bytes())))
        else:
            what = data.draw(st.sampled_from(("pipe", "folder", "loop", "nowhere", "device")))
            put(path, what)
        # `score` is the last, since it writes; then what it wrote is shown.
        for read in (*sorted(READERS.keys() - {"score"}), "score", "report"):
            READERS[read](cell.parent)
        for found in (p for p in cell.glob("metrics.json") if p.is_file()):
            with suppress(ValueError, UserError):
                assert_finite(found)


# -- names and pieces -----------------------------------------------------------------------------

WORDS = ("method=ufal", "chunk=", "=", ",", "+a=1", "data.split=[x]", "[red]", "\n", "<!--")
NAMES = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(lambda some: ",".join(some)),
    st.text(st.characters(blacklist_characters="/\x00", blacklist_categories=["Cs"]), min_size=1),
    st.binary(min_size=1, max_size=40).map(lambda b: os.fsdecode(b.translate(None, b"/\x00"))),
)


@cases(15)
@given(corpora(), NAMES, st.sampled_from(sorted(READERS)))
def test_a_folder_of_any_name_is_read_or_refused(utterances, name, reader):
    name = os.fsdecode(os.fsencode(name)[:100]) or "a"
    assume(name not in (".", ".."))
    with results(utterances) as cell, watched():
        place = cell.with_name(name)
        cell.rename(place)
        READERS[reader](place.parent)
        READERS["report"](place.parent)


@cases(10)
@given(corpora(), st.integers(1, 3), st.sampled_from(("none", "log", "header", "lost", "name")))
def test_pieces_are_joined_whole_or_not_at_all(utterances, n, what):
    with results(utterances) as cell, watched():
        wanted = json.loads((cell / "metrics.json").read_text())["metrics"]
        for path in cell.iterdir():
            path.unlink()
        places = [cell / "pieces" / f"{k}-of-{n}" for k in range(1, n + 1)]
        for k, place in enumerate(places):
            own = utterances[k::n]
            write(place, own, piece=[k + 1, n, len(own)])
            score_folder(place)
        first = places[0] / "events.jsonl"
        if what == "log":
            first.write_bytes(first.read_bytes().replace(b'"ok"', b'"fine"'))
        elif what == "header":
            rows = rows_of(first)
            first.write_bytes(lines([rows[0] | {"piece": [1, n + 1, 1]}, *rows[1:]]))
        elif what == "lost":
            first.unlink()
        elif what == "name":
            places[0].rename(places[0].with_name(f"{'9' * 11}-of-{'9' * 12}"))
        status, text = READERS["score"](cell.parent)
        assert status == (0 if what == "none" else 2), text
        if what == "none":
            assert json.loads((cell / "metrics.json").read_text())["metrics"]["wer"] == 0.0
            assert wanted.keys() == shown(cell.parent)["metrics"].keys()
        else:
            assert not (cell / "events.jsonl").exists()
            assert_no_number(cell.parent)
