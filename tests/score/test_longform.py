"""Long recordings: sentences, StreamLAAL, errors and lag over time, on cases counted by hand."""

import json
import shutil
import sys

import pytest
from places import FIXTURES
from traces import a_trace

from streaming_asr.errors import UserError
from streaming_asr.metrics import Trace
from streaming_asr.metrics.accuracy import Errors, total, word_errors
from streaming_asr.metrics.longform import (
    Sentence,
    errors_by_time,
    lag_over_time,
    resegment,
    sentence_laal_ms,
    sentences,
    stream_laal,
)
from streaming_asr.score import score_folder
from streaming_asr.score.command import main
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import TimedWord

LOG = FIXTURES / "formats" / "events.jsonl"
ENGLISH = normaliser("en")


def spoken(text, starts):
    """A trace with nothing recognised, each word half a second long."""
    words = [TimedWord(w, s, s + 0.5) for w, s in zip(text.split(), starts, strict=True)]
    return Trace("u", text, starts[-1] + 1.0, (), words=tuple(words))


def test_a_sentence_ends_at_a_closing_mark_but_not_at_a_title_or_within_a_time():
    trace = spoken("Mr. Hill came at 5 a.m. by car. Why?", [0.5 * i for i in range(9)])
    assert sentences(trace) == [
        Sentence("Mr. Hill came at 5 a.m. by car.", 0.0, 4.0),
        Sentence("Why?", 4.0, 4.5),
    ]


def test_a_long_pause_ends_a_sentence_without_marks():
    # Gaps: 0.0, 1.0 (a sentence ends), 0.5.
    trace = spoken("he came she went", [0.0, 0.5, 2.0, 3.0])
    assert [part.text for part in sentences(trace)] == ["he came", "she went"]
    assert sentences(Trace("u", "he came", 1.0, ())) == []


def test_each_sentence_is_timed_from_its_own_start():
    # Sentence 1: tokens at 1.0 and 2.0 s of 0 ... 2 s: lags 1.0 and 2.0 - 1.0; mean 1.0.
    # Sentence 2 starts at 10 s: its tokens at 11 and 12 s are at 1.0 and 2.0 of 4 s; reference of
    # 4 words, so the oracle's pace is 1 s: lags 1.0 and 1.0. The third got no token.
    delays_ms = [1000.0, 2000.0]  # after the start of each
    assert sentence_laal_ms(Sentence("the cat", 0.0, 2.0), delays_ms, 21.0) == 1000.0
    assert sentence_laal_ms(Sentence("it sat down here", 10.0, 14.0), delays_ms, 21.0) == 1000.0
    assert sentence_laal_ms(Sentence("why?", 20.0, 21.0), [], 21.0) is None


def test_text_is_cut_where_the_error_rate_is_least():
    references = ["The cat sat.", "It slept.", "Why?"]
    assert resegment(["the", "hat", "sat.", "It", "has", "slept."], references) == [3, 3, 0]
    assert resegment([], references) == [0, 0, 0]


def test_stream_laal_does_not_grow_with_the_recording_where_al_does(capfd):
    # "one. two. three. four." of 1 s each, a minute apart, each committed as it ends, after 2 s of
    # compute: 1000 ms by audio, 3000 ms by compute.
    names = ("one.", "two.", "three.", "four.")
    words = tuple(TimedWord(name, 60.0 * i, 60.0 * i + 1.0) for i, name in enumerate(names))
    steps = [(60.0 * i + 1.0, 2.0, " ".join(w.text for w in words[: i + 1]), "") for i in range(4)]
    plain = a_trace("one. two. three. four.", steps)
    trace = Trace("u", plain.reference, 181.0, plain.steps, words=words)
    assert stream_laal([trace]) == {"cu": 1000.0, "ca": 3000.0}
    silent = Trace("v", "Hi.", 1.0, (), words=(TimedWord("Hi.", 0.0, 0.5),))
    assert stream_laal([silent]) == {"cu": None, "ca": None}
    assert capfd.readouterr().err == ""  # the aligner's own messages stay out


def test_without_mweralign_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mweralign", None)
    with pytest.raises(UserError, match="pip install mweralign"):
        resegment(["a"], ["a"])


def test_errors_are_counted_where_their_sentence_starts():
    # Hour 1: "big" put in after "the"; hour 3: "it" missing.
    text = "The cat sat down. It slept."
    trace = a_trace(text, [(9.0, 0.0, "The big cat sat down. slept.", "")], duration_s=9000.0)
    starts = [0.0, 1.0, 2.0, 3.0, 7300.0, 7301.0]
    words = tuple(TimedWord(w, s, s + 0.5) for w, s in zip(text.split(), starts, strict=True))
    long = Trace("u", text, 9000.0, trace.steps, words=words)
    assert errors_by_time(long, ENGLISH) == [Errors(1, 4), Errors(0, 0), Errors(1, 2)]
    assert errors_by_time(long, ENGLISH, bucket_s=10_000.0) == [Errors(2, 6)]
    assert errors_by_time(trace, ENGLISH) == []  # no word times


def test_lag_is_taken_by_the_minute_the_word_ended_in():
    # Words end at 1 s and 119 s and are committed at 2 s and 124 s; "b" is never recognised.
    steps = [(2.0, 0.0, "a", ""), (124.0, 1.0, "a c", "")]
    trace = a_trace("a b c", steps, ends=(1.0, 50.0, 119.0))
    assert lag_over_time([trace, trace], "cu") == [[1.0, 1.0], [5.0, 5.0]]
    assert lag_over_time([trace], "ca", bucket_s=40.0) == [[1.0], [], [6.0]]


def test_score_longform_writes_the_figures_of_a_cell(tmp_path, capsys):
    shutil.copy(LOG, tmp_path)
    assert main(["longform", str(tmp_path), "--lag-every", "5"]) == 0
    result = json.loads((tmp_path / "longform.json").read_text(encoding="utf-8"))
    assert result["n_sentences"] == 7
    assert result["stream_laal_cu_ms"] == pytest.approx(1916.1904761904764)
    assert result["stream_laal_ca_ms"] == pytest.approx(2876.1904761904766)
    # 28 words, "a.m." being two; "a" and "not" put in, and the four of the silent and the failed
    # one missing.
    assert result["wer"] == [{"start_s": 0.0, "n_words": 28, "wer": pytest.approx(600 / 28)}]
    assert [row["n_words"] for row in result["lag_cu"]] == [16, 7]
    shown = " ".join(capsys.readouterr().out.split())
    assert "7 sentences; StreamLAAL cu 1916 ms, ca 2876 ms WER every 3600 s: 21.43 %" in shown
    assert main(["longform", str(tmp_path), "--wer-every", "0"]) == 2
    assert "wer_every=0.0: more than 0" in capsys.readouterr().err


@pytest.mark.parametrize("every_s", ["3600", "4", "1"])
@pytest.mark.parametrize("untimed", [(), (1,), (0, 2), (0, 1, 2), (0, 1, 2, 3)])
def test_recordings_without_word_times_are_named_and_count(untimed, every_s, tmp_path, capsys):
    rows = [json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]
    openings = [row for row in rows if row["kind"] == "utterance"]
    without = [row for k, row in enumerate(openings) if k in untimed]
    for row in without:
        row["words"] = None
    log = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "events.jsonl").write_text(log, encoding="utf-8")
    wer = score_folder(tmp_path)["metrics"]["wer"]
    status = main(["longform", str(tmp_path), "--wer-every", every_s])
    if len(untimed) == 4:  # all of them
        assert status == 2 and "has no word times" in capsys.readouterr().err
        return
    assert status == 0
    result = json.loads((tmp_path / "longform.json").read_text(encoding="utf-8"))
    n_words = sum(row["n_words"] for row in result["wer"])
    n_errors = sum(row["n_words"] * row["wer"] for row in result["wer"] if row["wer"] is not None)
    assert n_errors / n_words == pytest.approx(wer)
    assert result["without_word_times"] == [row["utt"] for row in without]
    shown = " ".join(capsys.readouterr().out.split())
    if every_s == "3600":
        assert f"WER every 3600 s: {wer:.2f} %" in shown
    if without:
        names = ", ".join(row["utt"] for row in without)
        assert f"no word times, so only in WER: {len(without)} recordings ({names})" in shown


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        # The normaliser joins "twenty" and "five" of two sentences, five minutes apart.
        ("It costs twenty. Five came.", "it costs 25 came", [Errors(0, 2), Errors(0, 2)]),
        ("It costs twenty. Five came.", "it costs came", [Errors(0, 2), Errors(1, 2)]),
        ("", "hm", [Errors(1, 0)]),
    ],
)
def test_errors_by_time_add_up_to_those_of_wer(reference, hypothesis, expected):
    starts = [0.0, 1.0, 2.0, 300.0, 301.0][: len(reference.split())]
    words = tuple(TimedWord(w, s, s + 0.5) for w, s in zip(reference.split(), starts, strict=True))
    steps = a_trace(reference, [(310.0, 0.0, hypothesis, "")], duration_s=310.0).steps
    trace = Trace("u", reference, 310.0, steps, words=words)
    assert errors_by_time(trace, ENGLISH, 300.0) == expected
    assert total(expected) == word_errors(trace, ENGLISH)
