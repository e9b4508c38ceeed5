"""gate=speech: any method, given only speech; the pauses between are skipped.

Silero decides block by block (`whisper/vad.py`). Where speech begins, a stream of the method's own
begins with it, the half second before it and up to a chunk more, so that its chunks end where those
of the outer stream do and no delay is added to them. Where no speech came for 500 ms that stream
ends with its last step, and the update has `endpoint`; its text is forgotten, but a language that
was found out before its end stays. Silero's time counts as the part `feature`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import (
    NULL,
    SAMPLE_RATE,
    Batched,
    Method,
    Paced,
    Recorder,
    Samples,
    Update,
    Word,
    revise,
    step_of,
    steps_of,
)
from streaming_asr.whisper.vad import Gate, Silero, Stretch
from streaming_asr.whisper.words import spaced


@dataclass(slots=True)
class Gated:
    """A stream; `inner` is the method's own, of the stretch that is open or of the next one."""

    recorder: Recorder
    language: str | None
    gate: Gate
    inner: Any
    start_s: float = 0.0  # of the stretch
    partial: tuple[Word, ...] = ()
    has_text: bool = False
    opens_text: bool = True  # whether the stretch has committed nothing yet


class SpeechAlone:
    """Any method behind the gate; see the module."""

    def __init__(self, method: Method[Any], chunk: int, silero: Any) -> None:
        """chunk: samples of a step of the stream. silero: has `stream`, as `vad.Silero`."""
        self.method, self._chunk, self._silero = method, chunk, silero
        self.lookahead_samples = method.lookahead_samples

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Gated:
        """Return the state of a new stream."""
        return self._start(1, language=language, recorder=recorder)[0]

    def step(self, state: Gated, audio: Samples, *, last: bool) -> Update:
        """Take in `audio`; the method makes a step with the speech in it, if there is any."""
        return self._step([state], [audio], last=[last])[0]

    def _start(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[Gated]:
        """Return `n` new states."""
        gates = [Gate(self._silero.stream(), self._chunk) for _ in range(n)]
        inner = self._inner(n, language, recorder)
        return [Gated(recorder, language, *each) for each in zip(gates, inner, strict=True)]

    def _inner(self, n: int, language: str | None, recorder: Recorder) -> list[Any]:
        if isinstance(self.method, Batched):
            return self.method.start_many(n, language=language, recorder=recorder)
        return [self.method.start(language=language, recorder=recorder) for _ in range(n)]

    def _step(
        self, states: Sequence[Gated], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Make one step of each stream."""
        updates = [Update() for _ in states]
        speech: list[list[Stretch]] = []
        for state, samples, ends in zip(states, audio, last, strict=True):
            with state.recorder.part("feature"):
                speech.append(state.gate.push(samples, last=ends))
        while active := [i for i, stretches in enumerate(speech) if stretches]:
            now = [speech[i].pop(0) for i in active]
            for state, stretch in zip((states[i] for i in active), now, strict=True):
                if stretch.begins:
                    state.start_s, state.opens_text = stretch.start / SAMPLE_RATE, True
                if state.inner is None:
                    (state.inner,) = self._inner(1, state.language, state.recorder)
            results = self._advance([states[i].inner for i in active], now)
            for i, stretch, update in zip(active, now, results, strict=True):
                updates[i] = _together(states[i], updates[i], update, stretch.ends)
        return [replace(u, partial=s.partial) for u, s in zip(updates, states, strict=True)]

    def _advance(self, inner: Sequence[Any], now: Sequence[Stretch]) -> list[Update]:
        audio, ends = [stretch.audio for stretch in now], [stretch.ends for stretch in now]
        if isinstance(self.method, Batched):
            return steps_of(self.method, inner, audio, last=ends)
        rows = zip(inner, audio, ends, strict=True)
        return [step_of(self.method, state, samples, last=end) for state, samples, end in rows]


class SpeechAloneTogether(SpeechAlone):
    """The same of a method that is `Batched`: streams with speech share its steps."""

    start_many = SpeechAlone._start
    step_many = SpeechAlone._step


def _together(state: Gated, before: Update, now: Update, ends: bool) -> Update:
    """Return a step's updates before and now as one; `ends`: with it the stretch is over."""
    committed = list(before.committed)
    n_here = min(now.retracted, len(committed))
    revise(committed, n_here, _placed(state, now.committed))
    if now.committed:
        state.has_text, state.opens_text = True, False
    state.partial = _placed(state, now.partial)
    if ends:
        state.inner = None
    elif now.language is not None:
        state.language = now.language
    retracted, language = before.retracted + now.retracted - n_here, now.language or before.language
    return Update(
        tuple(committed), (), before.endpoint or now.endpoint or ends, retracted, language
    )


def _placed(state: Gated, words: Sequence[Word]) -> tuple[Word, ...]:
    """Return words of the stretch with times of the stream, the first of a later one spaced."""
    times = [[None if t is None else t + state.start_s for t in (w.start, w.end)] for w in words]
    placed = [replace(w, start=s, end=e) for w, (s, e) in zip(words, times, strict=True)]
    if placed and state.has_text and state.opens_text:
        placed[0] = replace(placed[0], text=spaced(placed[0].text, state.language))
    return tuple(placed)


def behind_gate(method: Method[Any], chunk: int, first_chunk: int) -> SpeechAlone:
    """Return `method` behind the gate, for steps of `chunk` samples, warmed by three steps of
    silence: none comes to it later. Raises UserError for one that runs on a server."""
    if isinstance(method, Paced):
        raise UserError("gate=speech: a server takes everything it is sent; give gate=none")
    kind = SpeechAloneTogether if isinstance(method, Batched) else SpeechAlone
    gate = kind(method, chunk, Silero())
    inner = gate._inner(1, None, NULL)
    for n, last in ((first_chunk + method.lookahead_samples, False), (chunk, False), (0, True)):
        gate._advance(inner, [Stretch(np.zeros(n, np.float32), 0, ends=last)])
    return gate
