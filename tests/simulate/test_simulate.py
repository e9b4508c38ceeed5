from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import fakes
import jsonschema
import msgspec
import numpy as np
import pytest

from streaming_asr import machine
from streaming_asr.chunking import Schedule
from streaming_asr.errors import UserError
from streaming_asr.events.check import SCHEMA
from streaming_asr.events.log import EventWriter, committed_words, read_log
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.metrics import trace
from streaming_asr.simulate import feeds, recorder, stepper
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.utterance import Utterance

CHUNK, FIRST_CHUNK = 4800, 9600


def run(path, method, *utterances, chunk_samples=CHUNK, **options):
    settings = {"feed": "fixed", "warm_up": False, **options}
    with EventWriter(path / "events.jsonl", {}) as writer:
        feeds.simulate(
            method,
            utterances,
            writer=writer,
            chunk_samples=chunk_samples,
            first_chunk_samples=FIRST_CHUNK,
            **settings,
        )
    return read_log(path / "events.jsonl")


class Clock:
    """Takes the place of perf_counter_ns: time passes only where a fake says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        for module in (feeds, stepper, recorder):
            monkeypatch.setattr(module, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(stepper, "process_time_ns", lambda: self.now_ns)


class Slow(fakes.Ticker):
    """Ticker whose k-th step takes the k-th of the given times, the last one from then on."""

    def __init__(self, clock: Clock, *compute_s: float) -> None:
        super().__init__()
        self.clock = clock
        self.compute_s = list(compute_s)

    def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
        spent_s = self.compute_s.pop(0) if len(self.compute_s) > 1 else self.compute_s[0]
        self.clock.now_ns += round(spent_s * 1e9)
        return super().step(state, audio, last=last)


@pytest.mark.parametrize(
    ("n", "lookahead", "ends"),
    [
        (0, 0, [0]),
        (100, 200, [100]),
        (9600, 0, [9600]),
        (9600, 200, [9600]),
        (9800, 200, [9800]),
        (9801, 200, [9800, 9801]),
        (20_000, 200, [9800, 14_600, 19_400, 20_000]),
        (19_200, 0, [9600, 14_400, 19_200]),
    ],
)
def test_the_schedule_is_first_chunk_and_lookahead_then_chunks_then_the_rest(n, lookahead, ends):
    assert list(Schedule(CHUNK, FIRST_CHUNK, lookahead).ends(n)) == ends


def test_the_log_tells_what_the_method_said_and_when(tmp_path):
    log = run(tmp_path, fakes.Ticker(lookahead_samples=200), fakes.utterance(seconds=1.1))
    (logged,) = log.utterances
    words = [word.text for word in fakes.Ticker().words(fakes.noise(1.1))]
    assert [step.audio_samples for step in logged.steps] == [9800, 14_600, 17_600]
    assert [step.kind for step in logged.steps] == ["audio", "audio", "flush"]
    assert [step.committed for step in logged.steps] == [words[:1], words[1:2], words[2:]]
    assert [step.partial for step in logged.steps] == [words[1:2], words[2:3], []]
    assert logged.steps[0].words == [[0.0, 0.25, 0.5]]
    assert (logged.text, logged.speaker, logged.language) == ("Hello.", "s1", "en")
    assert (logged.duration_samples, logged.status, logged.error) == (17_600, "ok", None)
    assert logged.words == [("Hello.", 0.1, 0.5)]
    assert logged.memory_peak_bytes is not None and logged.memory_peak_bytes >= 0


def test_counts_and_parts_are_those_of_their_step(tmp_path):
    (logged,) = run(tmp_path, fakes.Ticker(), fakes.utterance(seconds=1.0)).utterances
    assert [step.counts["frames_real"] for step in logged.steps] == [30, 15, 5]
    assert [step.counts["decode_steps"] for step in logged.steps] == [2, 3, 4]
    assert all(step.counts["encoder_flops"] == 1.5 for step in logged.steps)
    for step in logged.steps:
        assert set(step.compute_ns) == {"wall", "cpu", "feature", "decode"}
        assert step.compute_ns["feature"] + step.compute_ns["decode"] <= step.compute_ns["wall"]


def test_the_log_of_a_run_obeys_the_published_schema(tmp_path):
    run(tmp_path, fakes.Ticker(), fakes.utterance(), fakes.utterance("bad", seconds=0.0))
    check = jsonschema.Draft202012Validator(SCHEMA)
    for line in (tmp_path / "events.jsonl").read_text().splitlines():
        check.validate(json.loads(line))


def test_the_fixed_feed_does_not_look_at_the_time(tmp_path, monkeypatch):
    slow = run(tmp_path, Slow(Clock(monkeypatch), 1.5), fakes.utterance(seconds=1.5))
    (logged,) = slow.utterances
    assert [step.audio_samples for step in logged.steps] == [9600, 14_400, 19_200, 24_000]
    assert [step.compute_ns["wall"] for step in logged.steps] == [1_500_000_000] * 4
    np.testing.assert_allclose(trace(logged).times("ca"), [2.1, 3.6, 5.1, 6.6])


def test_best_effort_takes_what_came_in_meanwhile(tmp_path, monkeypatch):
    method = Slow(Clock(monkeypatch), 0.1, 1.0, 0.1, 5.0, 0.5)
    (logged,) = run(tmp_path, method, fakes.utterance(seconds=4.0), feed="best_effort").utterances
    # 0.6 s heard, done at 0.7; 0.9 heard, done at 1.9; 1.9 heard, done at 2.0; 2.2 heard, done at
    # 7.2, past the end: the rest at once.
    assert [step.audio_samples / 16_000 for step in logged.steps] == [0.6, 0.9, 1.9, 2.2, 4.0]
    assert logged.feed == "best_effort"
    np.testing.assert_allclose(trace(logged).times("ca"), [0.7, 1.9, 2.0, 7.2, 7.7])


def test_a_quick_machine_hears_the_same_chunks_from_both_feeds(tmp_path, monkeypatch):
    logs = [
        run(tmp_path / feed, Slow(Clock(monkeypatch), 0.01), fakes.utterance(), feed=feed)
        for feed in ("fixed", "best_effort")
    ]
    fixed, best_effort = (
        [msgspec.structs.replace(step, memory_bytes=None) for step in log.utterances[0].steps]
        for log in logs
    )
    assert fixed == best_effort


def broken_audio():
    raise UserError("talk.wav: holds NaN or infinite samples; export the audio again.")


@pytest.mark.parametrize("batch", [1, 3])
def test_one_bad_utterance_is_reported_and_the_others_go_on(tmp_path, batch):
    loud = fakes.utterance("loud", seconds=1.5)
    bad = Utterance("bad", "text", broken_audio, 1.0, language="en")
    long = fakes.utterance("long", seconds=2.5)

    class Picky(fakes.BatchedTicker):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            if len(state.heard) > 2.0 * 16_000:
                raise RuntimeError("too long for me")
            return super().step(state, audio, last=last)

    seen = []
    log = run(
        tmp_path,
        Picky(),
        loud,
        bad,
        long,
        fakes.utterance("last"),
        batch=batch,
        on_utterance=lambda utterance, error: seen.append((utterance.id, error)),
    )
    errors = {
        "loud": None,
        "bad": "talk.wav: holds NaN or infinite samples; export the audio again.",
        "long": "RuntimeError: too long for me",
        "last": None,
    }
    assert dict(seen) == errors and len(seen) == 4
    assert {u.utt: u.error for u in log.utterances} == errors
    assert {u.utt: u.status for u in log.utterances}["long"] == "failed"


def test_partial_words_left_at_the_end_fail_the_utterance(tmp_path):
    (logged,) = run(tmp_path, fakes.LeavesPartial(), fakes.utterance()).utterances
    assert logged.status == "failed"
    told = "left partial words after the last step: 'w377'; commit them where `last` is true"
    assert logged.error is not None and told in logged.error
    batched = type("Both", (fakes.LeavesPartial, fakes.BatchedTicker), {})()
    (logged,) = run(tmp_path / "batch", batched, fakes.utterance(), batch=2).utterances
    assert logged.error is not None and "left partial words" in logged.error


def test_words_taken_back_are_counted_and_shown_so(tmp_path):
    (logged,) = run(tmp_path, fakes.Retracting(), fakes.utterance()).utterances
    assert logged.commit_violations == 1
    assert sum(step.retracted for step in logged.steps) == 1
    said = fakes.Ticker().words(fakes.noise(2.0))
    assert [text for text, _ in committed_words(logged.steps)] == [word.text for word in said]


def test_taking_back_more_than_was_committed_fails_the_utterance(tmp_path):
    class Greedy(fakes.Ticker):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            return Update(retracted=1)

    (logged,) = run(tmp_path, Greedy(), fakes.utterance()).utterances
    assert logged.error is not None and "took back 1 of 0" in logged.error


def test_a_batch_says_what_each_stream_says_alone(tmp_path):
    utterances = [fakes.utterance(f"u{i}", 0.4 + 0.7 * i, i) for i in range(5)]
    alone = run(tmp_path / "1", fakes.BatchedTicker(), *utterances)
    batched = run(tmp_path / "3", fakes.BatchedTicker(), *utterances, batch=3)
    assert {u.batch for u in alone.utterances} == {1}
    assert {u.batch for u in batched.utterances} == {3}
    for a, b in zip(alone.utterances, batched.utterances, strict=True):
        assert a.utt == b.utt
        assert [s.audio_samples for s in a.steps] == [s.audio_samples for s in b.steps]
        assert [(s.committed, s.partial, s.kind) for s in a.steps] == [
            (s.committed, s.partial, s.kind) for s in b.steps
        ]
    total = [
        sum(s.counts["decode_steps"] for u in log.utterances for s in u.steps)
        for log in (alone, batched)
    ]
    assert total[0] == total[1]


def test_the_time_of_a_batched_step_is_shared_out_without_loss(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)

    class SlowBatch(fakes.BatchedTicker):
        def step_many(self, *args: Any, **kwargs: Any) -> list[Update]:
            clock.now_ns += 1_000_000_001
            return super().step_many(*args, **kwargs)

    utterances = [fakes.utterance(f"u{i}", 0.5, i) for i in range(3)]
    log = run(tmp_path, SlowBatch(), *utterances, batch=3)
    assert sum(s.compute_ns["wall"] for u in log.utterances for s in u.steps) == 1_000_000_001


def test_a_batch_holds_one_language(tmp_path):
    started = []

    class Listening(fakes.BatchedTicker):
        def start_many(
            self, n: int, *, language: str | None = None, recorder: Recorder = NULL
        ) -> list[fakes.TickerState]:
            started.append((n, language))
            return super().start_many(n, language=language, recorder=recorder)

    languages = ["en", "en", "de", "en", "en", "en"]
    utterances = [fakes.utterance(f"u{i}", language=la) for i, la in enumerate(languages)]
    run(tmp_path, Listening(), *utterances, batch=2)
    assert started == [(2, "en"), (1, "de"), (2, "en"), (1, "en")]


def test_a_method_may_say_how_much_audio_it_takes_together(tmp_path):
    steps = []

    class Together(fakes.BatchedTicker):
        samples_together = 32_000

        def step_many(self, states: Any, audio: Any, *, last: Any) -> list[Update]:
            steps.append([len(samples) for samples in audio])
            return super().step_many(states, audio, last=last)

    seconds = (0.5, 1.5, 0.1, 4.5, 1.0)
    utterances = [fakes.utterance(f"u{i}", s, i) for i, s in enumerate(seconds)]
    log = run(tmp_path / "together", Together(), *utterances, batch=7, warm_up=True)
    assert steps == [[8000, 24_000], [1600], [32_000], [32_000], [8000], [16_000]]
    assert {u.batch for u in log.utterances} == {2}
    alone = run(tmp_path / "alone", fakes.BatchedTicker(), *utterances)
    for a, b in zip(log.utterances, alone.utterances, strict=True):
        assert [w for s in a.steps for w in s.committed] == [
            w for s in b.steps for w in s.committed
        ]


def test_a_method_without_step_many_runs_one_by_one_and_the_log_says_so(tmp_path):
    log = run(tmp_path, fakes.Ticker(), fakes.utterance(), batch=8)
    assert log.utterances[0].batch == 1


def test_the_language_of_the_utterance_reaches_the_method_and_the_warm_up(tmp_path):
    heard = []

    class Listening(fakes.Ticker):
        def start(
            self, *, language: str | None = None, recorder: Recorder = NULL
        ) -> fakes.TickerState:
            heard.append(language)
            return super().start(language=language, recorder=recorder)

    run(tmp_path, Listening(), fakes.utterance(language="de"), warm_up=True)
    assert heard == ["de", "de"]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_warm_up_leaves_no_trace_in_the_log(tmp_path, batch):
    utterances = fakes.utterance("a"), fakes.utterance("b")
    warm, cold = (
        run(tmp_path / str(w), fakes.BatchedTicker(), *utterances, warm_up=w, batch=batch)
        for w in (True, False)
    )
    for a, b in zip(warm.utterances, cold.utterances, strict=True):
        assert [s.committed for s in a.steps] == [s.committed for s in b.steps]


class Interrupts(fakes.Ticker):
    """Ctrl-C in the middle of the second stream."""

    def __init__(self) -> None:
        super().__init__()
        self.n_steps = 0

    def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
        self.n_steps += 1
        if self.n_steps == 8:
            raise KeyboardInterrupt
        return super().step(state, audio, last=last)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    utterances = [fakes.utterance(f"u{i}", seed=i) for i in range(3)]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", Interrupts(), *utterances)
    assert [u.utt for u in read_log(tmp_path / "broken" / "events.jsonl").utterances] == ["u0"]
    again = run(tmp_path / "broken", fakes.Ticker(), *utterances)
    whole = run(tmp_path / "whole", fakes.Ticker(), *utterances)

    def said(log):
        return [
            (u.utt, [(s.audio_samples, s.committed, s.partial) for s in u.steps])
            for u in log.utterances
        ]

    assert said(again) == said(whole)
    assert said(run(tmp_path / "whole", Interrupts(), *utterances)) == said(whole)  # nothing to do


def test_a_log_that_cannot_be_written_ends_the_run(tmp_path):
    class Full(EventWriter):
        def step(self, utt: str, step: Any) -> None:
            raise UserError("the disk is full")

    with Full(tmp_path / "events.jsonl", {}) as writer, pytest.raises(UserError, match="full"):
        feeds.simulate(
            fakes.Ticker(),
            [fakes.utterance()],
            writer=writer,
            feed="fixed",
            chunk_samples=CHUNK,
            first_chunk_samples=FIRST_CHUNK,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feed": "slow"}, "one of fixed, best_effort"),
        ({"batch": 0}, "1 or more"),
        ({"batch": 2, "feed": "best_effort"}, "use batch=1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path, fakes.BatchedTicker(), fakes.utterance(), **options)


def test_a_method_may_write_into_the_audio_it_is_given(tmp_path):
    class Scribbles(fakes.Ticker):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            update = super().step(state, audio, last=last)
            audio[:] = 1.0
            return update

    samples = fakes.noise(2.0)
    before = samples.copy()
    run(tmp_path, Scribbles(), Utterance("u", "", lambda: samples, 2.0))
    np.testing.assert_array_equal(samples, before)


def test_endpoints_are_steps_of_their_own_kind(tmp_path):
    class Ends(fakes.Ticker):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            return Update(committed=(Word(" x"),), endpoint=True)

    (logged,) = run(tmp_path, Ends(), fakes.utterance(seconds=1.0)).utterances
    assert [step.kind for step in logged.steps] == ["endpoint", "endpoint", "flush"]
    assert logged.steps[0].words is None


def test_the_device_is_waited_for_around_steps_and_parts(tmp_path):
    waits = []
    run(tmp_path, fakes.Ticker(), fakes.utterance(seconds=0.5), synchronise=lambda: waits.append(1))
    assert len(waits) == 2 + 2 * 2  # one step, two parts


def test_the_memory_of_a_stream_is_what_the_process_holds_more_at_its_peak(tmp_path, monkeypatch):
    # Stated, not measured: a process also gives memory back while a stream runs, when garbage
    # from before is collected or the system reclaims pages.
    held = itertools.chain([64 << 20], itertools.repeat(0))
    now = 500 << 20

    class Hungry(fakes.Ticker):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            nonlocal now
            now = (500 << 20) + next(held)
            return super().step(state, audio, last=last)

    monkeypatch.setattr(machine, "_cuda", lambda: None)
    monkeypatch.setattr("psutil.Process.memory_info", lambda _: SimpleNamespace(rss=now))
    log = run(tmp_path, Hungry(), fakes.utterance("a"), fakes.utterance("b"))
    assert [logged.memory_peak_bytes for logged in log.utterances] == [64 << 20, 0]
    assert log.utterances[0].steps[0].memory_bytes == 64 << 20


def misuse(act, message):
    with pytest.raises(ValueError, match=message):
        act(StepRecorder())


def test_the_recorder_refuses_unknown_names_and_nesting():
    def nest(recorder):
        with recorder.part("encode"), recorder.part("decode"):
            pass

    misuse(nest, "do not nest")
    misuse(lambda r: r.part("rest").__enter__(), "'rest' is none of")
    misuse(lambda r: r.count(letters=1), "'letters' is none of")


def test_the_recorder_adds_up_and_is_empty_after_draining(monkeypatch):
    clock = Clock(monkeypatch)
    kept = StepRecorder()
    for spent_ns in (5, 7):
        with kept.part("encode"):
            clock.now_ns += spent_ns
        kept.count(frames_real=spent_ns, encoder_flops=0.5)
    assert kept.drain() == ({"encode": 12}, {"frames_real": 12, "encoder_flops": 1.0})
    assert kept.drain() == ({}, {})
