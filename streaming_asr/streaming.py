"""Streams audio through a method from a program.

    from streaming_asr import load_method, stream

    method = load_method("whisperrt", model="tiny.en", chunk="300ms")
    for update in stream(method, samples, sample_rate, chunk="300ms"):
        print(update.committed, update.partial)

`samples` is an array, or an iterable of arrays as they come from a microphone. An `async for` takes
an async iterable too, and computes in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from streaming_asr.chunking import Schedule, first_chunk_ms, parse_duration
from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.corpora.audio import RATES_HZ, Resampler, to_mono_16k
from streaming_asr.errors import UserError
from streaming_asr.machine import let_waiting_threads_sleep
from streaming_asr.method import SAMPLE_RATE, Method, Samples, Update
from streaming_asr.simulate.stepper import Stepper

MAX_CHANNELS = 64


def load_method(name: str, *, model: str = "tiny.en", chunk: str = "300ms", **settings: Any) -> Any:
    """Return the method of conf/method/<name>.yaml with its trained weights, as `run` builds it.

    settings: of the method, as `beam=3`. Raises UserError as `run` does.
    """
    let_waiting_threads_sleep()
    overrides = [f"method={name}", f"model={model}", f"chunk={chunk}"]
    for key, value in settings.items():
        overrides.append(f"method.{key}={'null' if value is None else value}")
    return build(compose(overrides).method)


def stream(
    method: Method[Any],
    audio: npt.ArrayLike | Iterable[Any] | AsyncIterable[Any],
    sample_rate: int,
    *,
    chunk: str = "300ms",
    first_chunk: str | None = None,
    language: str | None = None,
) -> Stream:
    """Return the updates of one stream, to be iterated by `for` or `async for`, once.

    audio: samples, (n,) or (n, channels), floats in [-1, 1] or signed integers; or pieces of them
    in turn. sample_rate: Hz; other rates than 16 kHz are resampled. chunk, first_chunk: the audio
    of a step, by default as `run` cuts it. Raises UserError for a rate, a shape or values that no
    audio has: at once for an array, at the piece for an iterable.
    """
    if isinstance(sample_rate, bool) or not isinstance(sample_rate, int | np.integer):
        raise UserError(
            f"sample_rate={sample_rate!r}: must be a whole number of Hz, as the file states it"
        )
    if not RATES_HZ[0] <= sample_rate <= RATES_HZ[1]:
        raise UserError(
            f"sample_rate={sample_rate}: must be from {RATES_HZ[0]} to {RATES_HZ[1]} Hz; give the "
            "rate that the file states"
        )
    schedule = Schedule(
        chunk=parse_duration(chunk) * SAMPLE_RATE // 1000,
        first_chunk=first_chunk_ms(chunk, first_chunk) * SAMPLE_RATE // 1000,
        lookahead=method.lookahead_samples,
    )
    # A list of numbers is a whole recording; a list of arrays has pieces of one.
    is_whole = hasattr(audio, "__array__") or (
        isinstance(audio, list | tuple) and not any(np.ndim(part) for part in audio[:1])
    )
    source = to_mono_16k(_as_floats(audio), int(sample_rate), "audio") if is_whole else audio
    return Stream(method, source, int(sample_rate), schedule, language)


class Stream:
    """The updates of one stream; `heard_s` is the audio that the method has got, in seconds.

    audio: an array, (n,) mono 16 kHz, or an iterable or async iterable of pieces at `rate` Hz, each
    (n,) or (n, channels).
    """

    def __init__(
        self, method: Any, audio: Any, rate: int, schedule: Schedule, language: str | None
    ) -> None:
        self._stepper, self._audio, self._rate = Stepper(method), audio, rate
        self._schedule = schedule
        self._states = self._stepper.start(language=language)
        self._resampler: Resampler | None = None if rate == SAMPLE_RATE else Resampler()
        self._pending: Samples = np.zeros(0, np.float32)  # came, but is less than a chunk
        self._n_received = 0  # samples at 16 kHz that the method has got

    @property
    def heard_s(self) -> float:
        return self._n_received / SAMPLE_RATE

    def __iter__(self) -> Iterator[Update]:
        """Yield the update of every step. Raises UserError for an async iterable."""
        if isinstance(self._audio, np.ndarray):
            n_samples = len(self._audio)
            for end in self._schedule.ends(n_samples):
                yield self._step(self._audio[self._n_received : end], last=end == n_samples)
            return
        if not isinstance(self._audio, Iterable):
            raise UserError(f"audio: is {type(self._audio).__name__}; `async for` takes it")
        for piece in self._audio:
            yield from self._take(piece)
        yield self._finish()

    async def __aiter__(self) -> AsyncIterator[Update]:
        """Yield the update of every step; steps are computed in a thread."""
        if not isinstance(self._audio, AsyncIterable):
            updates = iter(self)
            while (update := await asyncio.to_thread(next, updates, None)) is not None:
                yield update
            return
        async for piece in self._audio:
            for update in await asyncio.to_thread(self._take, piece):
                yield update
        yield await asyncio.to_thread(self._finish)

    def _take(self, piece: Any) -> list[Update]:
        """Add a piece of audio, and return the updates of the steps that are complete with it."""
        data = _as_floats(piece)
        if len(data):
            # The piece is checked and made mono as if it were at 16 kHz. Its real rate is converted
            # by the resampler, whose filter goes on from piece to piece.
            mono = to_mono_16k(data, SAMPLE_RATE, "audio")
            if self._resampler is not None:
                mono = self._resampler.of_samples(mono, self._rate)
            self._add_pending(mono)
        updates: list[Update] = []
        while True:
            n_due = self._schedule.after(self._n_received) - self._n_received
            if len(self._pending) < n_due:
                return updates
            audio, self._pending = self._pending[:n_due], self._pending[n_due:]
            updates.append(self._step(audio, last=False))

    def _finish(self) -> Update:
        """Make the last step with the remaining audio. Raises UserError for a stream without any
        audio."""
        if self._resampler is not None:
            self._add_pending(self._resampler.of_frame(None))
        if not self._n_received + len(self._pending):
            raise UserError("audio: no sample came; a stream needs audio")
        return self._step(self._pending, last=True)

    def _add_pending(self, samples: Samples) -> None:
        self._pending = np.concatenate([self._pending, samples])

    def _step(self, audio: Samples, *, last: bool) -> Update:
        self._n_received += len(audio)
        update: Update = self._stepper.step(self._states, [audio], [last]).updates[0]
        return update


def _as_floats(audio: Any) -> npt.NDArray[np.float32]:
    """Return samples as (n, channels) float32. Raises UserError for what cannot be samples."""
    data = np.asarray(audio)
    if data.ndim not in (1, 2) or (data.ndim == 2 and data.shape[1] > MAX_CHANNELS):
        raise UserError(f"audio: has the shape {data.shape}; samples are (n,) or (n, channels)")
    if data.dtype.kind == "i":
        data = data / -float(np.iinfo(data.dtype).min)
    elif data.dtype.kind != "f":
        raise UserError(f"audio: is of type {data.dtype}; samples are floats or signed integers")
    return data.astype(np.float32).reshape(len(data), data.shape[1] if data.ndim == 2 else 1)
