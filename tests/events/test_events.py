"""None"""

import json
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from drawn_logs import BREAKS, FEEDS, header_of, logs, ok_with_an_error
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import ROOT

from streaming_asr.errors import UserError
from streaming_asr.events.check import SCHEMA, InvalidLog, step_of
from streaming_asr.events.invariants import INVARIANTS, broken
from streaming_asr.events.log import (
    EventWriter,
    Step,
    UtteranceLog,
    committed_words,
    read_log,
    resume,
)
from streaming_asr.events.record import StepLine
from streaming_asr.method import COUNTS
from streaming_asr.utterance import TimedWord

HEADER = {
    "config": {"chunk": "300ms"},
    "versions": {"numpy": "2"},
    "machine": {"cpu": "?"},
    "metrics_version": 1,
}


def example(utt="u1", n_steps=2):
    steps = [
        StepLine(
            "audio" if k < n_steps - 1 else "flush",
            4800 * (k + 1),
            {"wall": 3000 + k, "encode": 1000},
            utt=utt,
            frames_real=15,
            frames_computed=18,
            encoder_flops=1e9,
            committed=[" Käse,", " 3"],
            partial=[" \u2028odd"] if k < n_steps - 1 else [],
            words=[[0.1, 0.2, 0.5], [None, None, None]],
            memory_bytes=7 if k else None,  # logs written before have none
        )
        for k in range(n_steps)
    ]
    return UtteranceLog(
        utt,
        "Käse, 3",
        4800 * n_steps,
        words=[TimedWord("Käse,", 0.1, 0.25), TimedWord("3", 0.25, 0.5)],
        speaker="s1",
        language="de",
        audio_hash="ab",
        audio_path="a.wav",
        steps=steps,
        memory_peak_bytes=12,
    )


def write(path, *utterances):
    with EventWriter(path, HEADER) as writer:
        for utterance in utterances:
            writer.write_utterance(utterance)


def test_what_is_written_is_read_back(tmp_path):
    failed = UtteranceLog("u2", "", 0, status="failed", error="no audio", batch=8)
    write(tmp_path / "new" / "events.jsonl", example(), failed)
    log = read_log(tmp_path / "new" / "events.jsonl")
    assert log.header == {"schema": 1, **HEADER}
    assert log.utterances == [example(), failed]
    assert log.utterances[0].steps[1].audio_s == 0.6
    assert log.utterances[0].steps[1].compute_s == 3001e-9
    assert log.utterances[0].duration_s == 0.6


def test_every_line_obeys_the_published_schema(tmp_path):
    write(tmp_path / "events.jsonl", example(), UtteranceLog("u2", "", 0, error="x"))
    check = jsonschema.Draft202012Validator(SCHEMA)
    lines = (tmp_path / "events.jsonl").read_bytes().split(b"\n")[:-1]
    assert len(lines) == 1 + 4 + 2
    for line in lines:
        check.validate(json.loads(line))
    with pytest.raises(jsonschema.ValidationError):
        check.validate({**json.loads(lines[2]), "audio_samples": 0.5})


def test_every_count_that_is_declared_comes_back_and_no_other(tmp_path):
    path = tmp_path / "events.jsonl"
    counts = {name: n + 0.5 for n, name in enumerate(COUNTS)}
    write(path, UtteranceLog("u", "", 1, steps=[Step("flush", 1, {"wall": 0}, **counts)]))
    assert read_log(path).utterances[0].steps[0].counts == counts
    path.write_text(path.read_text().replace("anchors", "rudders"))
    with pytest.raises(UserError, match=r"line 3.*rudders"):
        read_log(path)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("kind", ["audio", "flush", "end", 1]),
        ("audio_samples", [0, 9_676_800_000, 9_676_800_001, -1, "1", None]),
        ("compute_ns", [{"wall": 0, "cpu": 10**15}, {"cpu": 1}, {"wall": 10**15 + 1}, []]),
        ("committed", [[], [" a"], [1], None]),
        ("words", [None, [], [[0.1, None, 1]], [[0.1, 0.2]], [[0.1, 0.2, 1e7]]]),
        ("retracted", [0, 1_000_000, 1_000_001, -1]),
        ("memory_bytes", [None, 0, 10**18, 10**18 + 1, 0.5, -1]),
        ("tokens", [0, 0.5, 10**18, 10**19, -0.5, None]),
    ],
)
def test_a_step_is_read_where_the_published_schema_takes_it(field, values):
    check = jsonschema.Draft202012Validator(SCHEMA)
    rows = [{**lines_of(example())[2], field: value} for value in values]
    taken = [step_of(json.dumps(row).encode()) is not None for row in rows]
    assert taken == [check.is_valid(row) for row in rows]
    assert set(taken) == {True, False}


def test_each_line_is_on_disk_at_once(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventWriter(path, HEADER) as writer:
        writer.open_utterance(example())
        writer.step("u1", example().steps[0])
        assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("torn_bytes", [1, 40, 10_000])
def test_resume_cuts_after_the_last_closed_utterance(tmp_path, torn_bytes):
    path, whole = tmp_path / "events.jsonl", tmp_path / "whole.jsonl"
    write(path, example("u1"))
    write(whole, example("u1"), example("u2", 30))
    kept = path.read_bytes()
    path.write_bytes(whole.read_bytes()[:-torn_bytes] if torn_bytes < 5000 else kept + b'{"kind"')
    assert [u.utt for u in read_log(path).utterances] == ["u1"]
    assert resume(path) == {"u1"}
    assert path.read_bytes() == kept
    with EventWriter(path, HEADER) as writer:
        assert writer.closed == {"u1"}
        writer.write_utterance(example("u2", 30))
    assert path.read_bytes() == whole.read_bytes()


def test_resume_starts_afresh_where_the_header_is_torn(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind":"header","sch')
    assert resume(path) == set()
    assert resume(tmp_path / "missing.jsonl") == set()
    write(path, example())
    assert read_log(path).header["schema"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b'{"kind":"header","schema":2}\n', "schema 2, this version reads schema 1"),
        (b'{"kind":"audio"}\n', "no header"),
        (b"[1]\n", "no header"),
        (b'{"kind":"header","schema":1}\n{"kind"\n', "line 2: not JSON"),
        (b'{"kind":"header","schema":1}\n\xff\n', "line 2: not JSON"),
        (
            b'{"kind":"header","schema":1}\n{"kind":"end","utt":"u"}\n',
            "line 2: the line lacks `status`",
        ),
        (
            b'{"kind":"header","schema":1}\n{"kind":"audio","utt":"u"}\n',
            "line 2: the line lacks `audio_samples`",
        ),
        (b'{"kind":"header","schema":1}\n{"kind":"dance"}\n', "line 2: no line of a log"),
        (
            b'{"kind":"header","schema":1}\n{"kind":"utterance","utt":"u"}\n',
            "line 2: the line lacks `text`",
        ),
    ],
)
def test_a_damaged_log_is_refused_with_the_place(tmp_path, content, message):
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_log(path)


def lines_of(*utterances):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        write(path, *utterances)
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def violations(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(InvalidLog) as caught:
        read_log(path)
    assert all(each in str(caught.value) for each in caught.value.violations)
    return caught.value.violations


# The lines of a log: 0 header, 1 utterance, 2 to 4 steps, 5 end; each case changes one of them.
@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (
            1,
            {"duration_samples": 10**12},
            "line 2: duration_samples must be `int` <= 9676800000: 1000000000000",
        ),
        (1, {"duration_samples": "9"}, "line 2: duration_samples must be `int`: '9'"),
        (1, {"words": [["a", 0.5, 0.1]]}, "line 2: the word 'a' runs from 0.5 to 0.1 s"),
        (
            1,
            {"words": [["a", 0.5, 1e308]]},
            "line 2: words[0][2] must be `float` <= 1000000.0: 1e+308",
        ),
        (
            2,
            {"audio_samples": 10**12},
            "line 3: audio_samples must be `int` <= 9676800000: 1000000000000",
        ),
        (2, {"audio_samples": 4800.0}, "line 3: `audio_samples` and `retracted` are whole numbers"),
        (2, {"compute_ns": {"wall": -1}}, "line 3: compute_ns.wall must be `int` >= 0: -1"),
        (
            2,
            {"compute_ns": {"wall": 1, "sleep": 1}},
            "line 3: compute_ns must not have the key 'sleep'",
        ),
        (2, {"committed": "a"}, "line 3: committed must be `array`: 'a'"),
        (
            2,
            {"frames_real": 1e308},
            "line 3: frames_real must be `int` <= 1000000000000000000: 1e+308",
        ),
        (2, {"compute_ns": {"cpu": 1}}, "line 3: compute_ns lacks `wall`"),
        (2, {"mood": 1}, "line 3: the line must not have `mood`"),
        (2, {"words": [[0.1, 0.2, 0.5]]}, "line 3: 1 `words` for 2 committed ones"),
        (3, {"audio_samples": 4799}, "line 4: `audio_samples` goes back from 4800 to 4799"),
        (3, {"kind": "flush"}, "line 5: a step after the flush, which is the last"),
        (3, {"utt": "u2"}, "line 4: a step of an utterance that is not open"),
        (3, {"retracted": 1000}, "line 4: 1000 words are retracted where 2 were committed"),
        (5, {"status": "maybe"}, "line 6: status must be one of 'failed', 'ok': 'maybe'"),
        (5, {"text": "better"}, "line 6: the line must not have `text`"),
        (5, {"error": "x"}, "line 6: `status` is ok and there is an `error`"),
    ],
)
def test_a_line_that_breaks_the_schema_or_an_invariant_is_listed(number, change, said, tmp_path):
    rows = lines_of(example(n_steps=3))
    rows[number] |= change
    assert any(each.startswith(said) for each in violations(tmp_path / "e.jsonl", rows))


def test_reversed_steps_and_an_utterance_twice_are_listed_line_by_line(tmp_path):
    header, opening, first, second, end = lines_of(example())
    log = [header, opening, second, first, end, opening, first, second, end]
    assert violations(tmp_path / "e.jsonl", log) == [
        "line 4: `audio_samples` goes back from 9600 to 4800",
        "line 5: `status` is ok without a flush, which is the last step",
        "line 6: utterance 'u1' is in the log already",
    ]


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"\\ud800"', "[" * 100_000])
def test_what_is_no_json_is_an_invalid_log(value, tmp_path):
    write(tmp_path / "e.jsonl", example())
    text = (tmp_path / "e.jsonl").read_text(encoding="utf-8")
    (tmp_path / "e.jsonl").write_text(text.replace("1000000000.0", value, 1), encoding="utf-8")
    with pytest.raises(InvalidLog, match="line 3: not JSON"):
        read_log(tmp_path / "e.jsonl")


def test_a_missing_log_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_log(tmp_path / "events.jsonl")


def test_a_folder_that_cannot_be_made_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="choose another output folder"):
        EventWriter(tmp_path / "file" / "events.jsonl", HEADER)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here: Linux has it")
def test_a_full_disk_is_a_user_error_that_says_so():
    with pytest.raises(UserError, match="No space left"):
        EventWriter("/dev/full", HEADER)


def test_what_was_written_before_the_disk_filled_stays_readable(tmp_path):
    path = tmp_path / "events.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EventWriter(path, HEADER) as writer:
        writer.write_utterance(example("u1"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        try:
            with pytest.raises(UserError, match="are kept"):
                writer.write_utterance(example("u2"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not path.read_bytes().endswith(b"\n")  # a torn line, as on a disk that is full
    assert read_log(path).utterances == [example("u1")]
    write(path, example("u2"))
    assert read_log(path).utterances == [example("u1"), example("u2")]


def test_a_value_that_is_no_number_is_never_written(tmp_path):
    with (
        EventWriter(tmp_path / "e.jsonl", HEADER) as writer,
        pytest.raises(ValueError, match="JSON"),
    ):
        writer.step("u1", Step("audio", 0, {"wall": 1}, encoder_flops=float("nan")))


def test_the_final_words_are_those_committed_and_not_taken_back():
    steps = [
        Step("audio", 1, {"wall": 0}, committed=[" a", " b"], words=[[0.1, 0.2, 0.5]] * 2),
        Step("flush", 2, {"wall": 0}, committed=[" x"], retracted=1),
    ]
    assert committed_words(steps) == [(" a", [0.1, 0.2, 0.5]), (" x", [None, None, None])]
    assert committed_words([]) == []


def test_a_log_of_twenty_thousand_steps_is_read_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    write(path, example("u1"))
    header, *lines = path.read_bytes().splitlines(keepends=True)
    opening, step, flush, end = lines
    path.write_bytes(header + opening + step * 19_999 + flush + end)
    assert len(read_log(path).utterances[0].steps) == 20_000


def test_chosen_utterances_are_read_as_from_the_whole_log(tmp_path):
    path = tmp_path / "events.jsonl"
    names = ["a", "b", 'a "quoted" é\\', "utt"]
    with EventWriter(path, {"config": {}}) as writer:
        for name in names:
            text = f'says "utt":"a" of {name}'  # what looks like an id inside of a text is none
            steps = [Step("flush", 16_000, {"wall": 1}, committed=[text])]
            writer.write_utterance(UtteranceLog(name, text, 16_000, steps=steps))
    whole = {each.utt: each for each in read_log(path).utterances}
    for only in ([names[2]], ["a", "utt"], ["c"], []):
        found = read_log(path, only=only).utterances
        assert found == [whole[name] for name in names if name in only]
    escaped = path.read_text().replace("é", "\\u00e9")
    path.write_text(escaped)
    assert [each.utt for each in read_log(path, only=[names[2]]).utterances] == [names[2]]


# -- The invariants of a log --


drawn = settings(
    max_examples=20,
    derandomize=True,
    database=None,
    # A machine may be slow, and busy.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def read_back(log, folder):
    path = folder / "events.jsonl"
    path.unlink(missing_ok=True)
    with EventWriter(path, header_of(log)) as writer:
        writer.write_utterance(log)
    (found,) = read_log(path).utterances
    return found


@drawn
@given(log=logs((*FEEDS, "realtime")))
def test_a_valid_log_breaks_nothing_and_is_read_back(log, tmp_path_factory):
    assert not list(broken(log))
    assert read_back(log, tmp_path_factory.mktemp("log")) == log


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
@drawn
@given(log=logs(FEEDS), data=st.data())
def test_each_rule_that_is_broken_is_found(spoil, log, data, tmp_path_factory):
    spoil(log, data.draw(st.integers(0, len(log.steps) - 1)))
    found = [rule for rule, breaks in INVARIANTS.items() if list(breaks(log))]
    assert any(BREAKS[spoil] in rule for rule in found), found
    if spoil is ok_with_an_error:  # the writer closes it as failed
        return
    with pytest.raises(InvalidLog):
        read_back(log, tmp_path_factory.mktemp("log"))


def test_every_rule_is_broken_here_and_stands_in_the_documentation():
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    for rule in INVARIANTS:
        assert any(said in rule for said in BREAKS.values()), rule
        assert f"- {rule}\n" in page


def test_a_recording_that_failed_needs_no_end_and_one_that_is_unread_no_length():
    words = [TimedWord("Hello.", 0.1, 0.5)]
    failed = UtteranceLog("u", "Hello.", 0, words, status="failed", error="no such file")
    assert not list(broken(failed))
    heard = replace(failed, duration_samples=32_000, steps=[Step("audio", 16_000, {"wall": 1})])
    assert not list(broken(heard))
