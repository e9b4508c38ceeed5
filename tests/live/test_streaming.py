"""The Python API: the updates of the simulator's steps, at any rate, in any pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from fakes import Ticker
from traces import a_cell

from streaming_asr import stream
from streaming_asr.errors import UserError
from streaming_asr.method import Update, Word
from streaming_asr.score.retime import recordings_of
from streaming_asr.score.streams import RecordingSteps, capacity, lags, serve

RNG = np.random.default_rng(3)
AUDIO = RNG.uniform(-0.5, 0.5, 40_000).astype(np.float32)  # 2.5 s at 16 kHz


class Lengths:
    """Says how many samples each step brought."""

    lookahead_samples = 1600

    def start(self, **_: Any) -> list[int]:
        return []

    def step(self, state: list[int], audio: Any, *, last: bool) -> Update:
        state.append(len(audio))
        return Update(committed=(Word(f" {len(audio)}{'.' * last}"),))


def said(updates):
    return "".join(word.text for update in updates for word in update.committed)


def test_an_array_is_cut_as_the_simulator_cuts_it():
    assert said(stream(Lengths(), AUDIO, 16_000)) == " 11200 4800 4800 4800 4800 4800 4800."
    assert said(stream(Lengths(), AUDIO[:100], 16_000)) == " 100."


def test_the_text_does_not_depend_on_the_pieces_or_the_loop():
    whole = said(stream(Ticker(), AUDIO, 16_000))
    pieces = np.array_split(AUDIO, 77)
    assert said(stream(Ticker(), pieces, 16_000)) == whole and whole.count("w") == 10
    assert said(stream(Ticker(), iter(pieces), 16_000)) == whole

    async def microphone():
        for piece in pieces:
            yield piece

    async def heard(audio):
        return said([update async for update in stream(Ticker(), audio, 16_000)])

    assert asyncio.run(heard(microphone())) == whole
    assert asyncio.run(heard(AUDIO)) == whole


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_another_rate_is_resampled_whole_and_in_pieces(rate):
    t = np.arange(2 * rate) / rate
    tone = 0.5 * np.sin(2 * np.pi * 300 * t)

    class Ear(Lengths):
        def step(self, state: Any, audio: Any, *, last: bool) -> Update:
            state.extend(audio)
            heard.append(len(audio))
            if last:
                spectrum = np.abs(np.fft.rfft(state))
                heard.append(float(np.argmax(spectrum) * 16_000 / len(state)))
            return Update()

    for audio in (tone, [*np.array_split(tone, 31)], np.stack([tone, tone], axis=1)):
        heard = []
        assert list(stream(Ear(), audio, rate))
        *samples, pitch = heard
        assert sum(samples) == pytest.approx(32_000, abs=20)
        assert pitch == pytest.approx(300, abs=1)


def test_integers_are_scaled_by_their_type():
    as_int16 = np.round(AUDIO * 32767).astype(np.int16)
    heard = []

    class Ear(Lengths):
        def step(self, state: Any, audio: Any, *, last: bool) -> Update:
            heard.append(audio)
            return Update()

    list(stream(Ear(), as_int16, 16_000))
    assert np.abs(np.concatenate(heard) - AUDIO).max() < 1e-4


@pytest.mark.parametrize(
    ("audio", "rate", "message"),
    [
        (AUDIO, 0, "sample_rate=0: must be from 2000"),
        (AUDIO, 16.0, "a whole number of Hz"),
        (AUDIO, None, "a whole number of Hz"),
        (AUDIO, 16, "sample_rate=16: must be from 2000"),
        (AUDIO * 9000, 16_000, "samples reach 4"),
        (np.full(99, np.nan), 16_000, "NaN"),
        (np.zeros((2, 4000)), 16_000, r"has the shape \(2, 4000\)"),
        (np.zeros(100, np.uint8), 16_000, "is of type uint8"),
        (np.zeros(0), 16_000, "0 samples"),
        ([], 16_000, "0 samples"),
        (iter([]), 16_000, "no sample came"),
        ("talk.wav", 16_000, r"has the shape \(\)"),
    ],
)
def test_what_is_no_audio_or_no_rate_is_refused(audio, rate, message):
    with pytest.raises(UserError, match=message):
        list(stream(Ticker(), audio, rate))


# -- Many streams on one device from single-stream logs --


def recording(*compute_s):
    """A step a second, of these compute times."""
    n = len(compute_s)
    compute = np.rint(np.array(compute_s) * 1e9).astype(np.int64)
    return RecordingSteps(np.arange(1, n + 1) * 10**9, compute, n * 10**9)


def lags_s(streams, offsets_s):
    return (lags(streams, [round(offset * 1e9) for offset in offsets_s]) / 1e9).tolist()


def test_one_stream_lags_as_its_own_queue_does():
    # Ends at 1.5, 3.5, 4.0: the second takes 1.5 s, so the third waits half a second.
    assert lags_s([[recording(0.5, 1.5, 0.5)]], [0.0]) == [0.5, 1.5, 1.0]


def test_the_device_serves_steps_in_the_order_of_their_audio():
    # Arrivals 1, 2 and 1.25, 2.25; each takes 0.5 s: ends 1.5, 2.5 and 2.0, 3.0.
    two = [[recording(0.5, 0.5)], [recording(0.5, 0.5)]]
    assert lags_s(two, [0.0, 0.25]) == [0.5, 0.5, 0.75, 0.75]
    # At the same moment the stream named first goes first.
    assert lags_s(two, [0.0, 0.0]) == [0.5, 0.5, 1.0, 1.0]


def test_a_stream_plays_its_recordings_one_after_another():
    # The second begins at 2 s, with arrivals at 3 and 4; the last step of the first ends at 3.5.
    found = lags_s([[recording(0.5, 1.5), recording(0.5, 0.5)]], [10.0])
    assert found == [0.5, 1.5, 1.0, 0.5]


def test_load_and_lag_grow_with_the_streams_and_the_seed_decides():
    made = [recording(0.1, 0.1, 0.1), recording(0.1, 0.1, 0.1, 0.1, 0.1)]
    alone, eight = serve(made, 1), serve(made, 8)
    assert alone.load == pytest.approx(0.1) and eight.load == pytest.approx(0.8)
    assert alone.p95 == 0.1
    assert eight.p95 > 0.1
    assert serve(made, 8) == eight
    assert serve(made, 8, seed=1) != eight


def test_the_capacity_is_the_most_streams_that_keep_up():
    made = [recording(*[0.1] * 20)]
    found = capacity(made, 0.3)
    assert found is not None and 1 <= found.n < 10  # a load of 1 is at 10
    assert found.p95 < 0.3
    more = serve(made, found.n + 1)
    assert more.p95 >= 0.3 or more.load >= 1
    # A step longer than the chunk keeps up with nothing; at a chunk of 2 s the limit is 1 s.
    assert capacity([recording(0.4, 0.4)], 0.3) is None
    assert capacity([recording(*[0.9] * 9)], 2.0) is not None
    assert capacity([recording(*[1.1] * 9)], 2.0) is None


def test_a_log_of_failures_and_one_of_shared_steps_have_no_streams(tmp_path):
    with pytest.raises(UserError, match="run it again with batch=1"):
        recordings_of(a_cell(tmp_path / "a", 1, 1, 1, 1, batch=4))
    failed = a_cell(tmp_path / "b", 1, 1, 1, 1, status="failed", error="no sound")
    with pytest.raises(UserError, match="no utterance of the log succeeded"):
        recordings_of(failed)
