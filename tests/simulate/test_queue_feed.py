"""Many streams on one device: computed and timed on a virtual clock, and replayed from logs."""

from __future__ import annotations

from collections.abc import Sequence

import fakes
import pytest

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.method import Samples, Update
from streaming_asr.metrics import compute, traces
from streaming_asr.score.streams import lags, recordings
from streaming_asr.simulate import queue, recorder, stepper
from streaming_asr.simulate.feeds import simulate
from streaming_asr.simulate.queue import assign

CHUNK, FIRST_CHUNK = 4800, 9600
SECONDS = (2.0, 3.3, 1.1, 4.0, 2.7, 0.9, 3.1)


class Timed(fakes.BatchedTicker):
    """A step takes 70 ms and 40 ns for each sample heard so far; a shared one the longest of its
    rows and 10 ms a row."""

    now_ns = 0

    def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
        update = super().step(state, audio, last=last)
        Timed.now_ns += 70_000_000 + 40 * len(state.heard)
        return update

    def step_many(
        self,
        states: Sequence[fakes.TickerState],
        audio: Sequence[Samples],
        *,
        last: Sequence[bool],
    ) -> list[Update]:
        begin = Timed.now_ns
        updates = super().step_many(states, audio, last=last)
        longest = max(70_000_000 + 40 * len(state.heard) for state in states)
        Timed.now_ns = begin + longest + 10_000_000 * len(states)
        return updates


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    for module in (stepper, recorder, queue):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: Timed.now_ns)


def run(path, **options):
    utterances = [fakes.utterance(f"u{k}", s, seed=k) for k, s in enumerate(SECONDS)]
    settings = {"feed": "fixed", "method": Timed(), **options}
    path.mkdir()
    with EventWriter(path / "events.jsonl", {}) as writer:
        simulate(
            settings.pop("method"),
            utterances,
            writer=writer,
            chunk_samples=CHUNK,
            first_chunk_samples=FIRST_CHUNK,
            **settings,
        )
    return read_log(path / "events.jsonl")


def by_utterance(log):
    return {each.utt: each for each in log.utterances}


def said(log):
    return {u.utt: [(s.committed, s.partial) for s in u.steps] for u in log.utterances}


@pytest.mark.parametrize("n", [1, 3, 7])
def test_the_replay_of_single_streams_equals_the_unbatched_run_exactly(n, tmp_path):
    alone = run(tmp_path / "alone")
    together = run(tmp_path / "queue", feed="realtime_queue", streams=n, seed=5)
    assert said(together) == said(alone)

    orders, offsets = assign(SECONDS, n, 5)
    made = dict(zip((u.utt for u in alone.utterances), recordings(alone), strict=True))
    replayed = lags([[made[f"u{at}"] for at in order] for order in orders], offsets)
    logs = by_utterance(together)
    measured = [
        step.compute_ns["lag"] for order in orders for at in order for step in logs[f"u{at}"].steps
    ]
    assert measured == replayed.tolist()
    if n == 7:
        assert max(measured) > 150_000_000  # no step alone takes 75 ms


def test_streams_whose_audio_is_there_share_a_step_and_say_the_same(tmp_path):
    alone = run(tmp_path / "alone")
    apart = run(tmp_path / "apart", feed="realtime_queue", streams=7)
    shared = run(tmp_path / "shared", feed="realtime_queue", batch=7)
    assert said(shared) == said(apart) == said(alone)

    def p90(log):
        return compute(traces(log))["word_latency_committed_p90_ca_s"] or 0.0

    worst = [max(s.compute_ns["lag"] for u in log.utterances for s in u.steps) for log in
             (shared, apart)]  # fmt: skip
    assert worst[0] < worst[1]


def test_latency_is_that_of_the_lag_and_the_devices_queue_is_nobodys_own(tmp_path):
    log = run(tmp_path / "q", feed="realtime_queue", batch=4)
    (trace, *_) = [each for each in traces(log) if each.utt == "u3"]
    for step in trace.steps:
        assert step.finished_s == pytest.approx(step.audio_s + step.step.compute_ns["lag"] / 1e9)
        assert step.wait_s + step.compute_s == pytest.approx(step.step.compute_ns["lag"] / 1e9)
    found = compute(traces(log))
    assert found["first_token_start_ca_s"] is not None and found["rtf_total"] is not None
    assert found["headroom"] is None and found["queue_growth"] is None


def test_a_recording_that_fails_leaves_the_others_their_turn(tmp_path):
    class Faulty(Timed):
        def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
            update = super().step(state, audio, last=last)
            if len(state.heard) > 3.0 * 16_000:
                raise ArithmeticError("the fake was told to fail here")
            return update

    log = run(tmp_path / "q", feed="realtime_queue", streams=3, method=Faulty())
    failed = {each.utt for each in log.utterances if each.status == "failed"}
    assert failed == {"u1", "u3", "u6"}
    assert len(log.utterances) == len(SECONDS)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"feed": "fixed", "streams": 2}, "need feed=realtime_queue"),
        ({"feed": "realtime_queue", "streams": 2, "batch": 4}, "at least batch=4"),
        ({"feed": "realtime_queue", "streams": 8}, "only 7 utterances"),
    ],
)
def test_streams_that_make_no_sense_are_refused(options, told, tmp_path):
    with pytest.raises(UserError, match=told):
        run(tmp_path / "q", **options)
