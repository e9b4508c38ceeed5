"""The Python API: the updates of the simulator's steps, at any rate, in any pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from fakes import Ticker

from streaming_asr import stream
from streaming_asr.errors import UserError
from streaming_asr.method import Update, Word

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


def said(updates: Any) -> str:
    return "".join(word.text for update in updates for word in update.committed)


def test_an_array_is_cut_as_the_simulator_cuts_it() -> None:
    assert said(stream(Lengths(), AUDIO, 16_000)) == " 11200 4800 4800 4800 4800 4800 4800."
    assert said(stream(Lengths(), AUDIO[:100], 16_000)) == " 100."


def test_the_text_does_not_depend_on_the_pieces_or_the_loop() -> None:
    whole = said(stream(Ticker(), AUDIO, 16_000))
    pieces = np.array_split(AUDIO, 77)
    assert said(stream(Ticker(), pieces, 16_000)) == whole and whole.count("w") == 10
    assert said(stream(Ticker(), iter(pieces), 16_000)) == whole

    async def microphone() -> AsyncIterator[Any]:
        for piece in pieces:
            yield piece

    async def heard(audio: Any) -> str:
        return said([update async for update in stream(Ticker(), audio, 16_000)])

    assert asyncio.run(heard(microphone())) == whole
    assert asyncio.run(heard(AUDIO)) == whole


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_another_rate_is_resampled_whole_and_in_pieces(rate: int) -> None:
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
        heard: list[float] = []
        assert list(stream(Ear(), audio, rate))
        *samples, pitch = heard
        assert sum(samples) == pytest.approx(32_000, abs=20)
        assert pitch == pytest.approx(300, abs=1)


def test_integers_are_scaled_by_their_type() -> None:
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
def test_what_is_no_audio_or_no_rate_is_refused(audio: Any, rate: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(stream(Ticker(), audio, rate))
