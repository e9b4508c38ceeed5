"""gate=speech: any method, given only speech; the pauses between are skipped.

Silero decides block by block (`whisper/vad.py`). Where speech begins, a stream of the method's own
begins with it, the half second before it and up to a chunk more, so that its chunks end where those
of the outer stream do and no delay is added to them. Where no speech came for `gate_silence` that
stream ends with its last step, and the update has `endpoint`; its text is forgotten, but a language
that was found out before its end stays. Silero's time counts as the part `feature`.
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
from streaming_asr.whisper.vad import SILENCE_SAMPLES, Gate, Silero, Stretch
from streaming_asr.whisper.words import spaced


@dataclass(slots=True)
class Gated:
    """A stream behind the gate."""

    recorder: Recorder
    language: str | None
    options: dict[str, Any]
    """What the method's streams are started with."""
    gate: Gate
    inner: Any
    """The method's state of the current stretch of speech, or of the next one; None after one."""
    start_s: float = 0.0
    """Where the stretch begins, in seconds of the stream."""
    partial: tuple[Word, ...] = ()
    has_text: bool = False
    """Whether the stream has committed a word."""
    opens_text: bool = True
    """Whether the stretch has committed nothing yet."""


class SpeechOnly:
    """Any method behind the gate; see the module."""

    def __init__(
        self, method: Method[Any], chunk: int, silero: Any, silence: int = SILENCE_SAMPLES
    ) -> None:
        """chunk: samples of a step of the stream. silero: has `stream`, as `vad.Silero`. silence:
        samples without speech that end a stretch."""
        self.method, self._chunk, self._silero = method, chunk, silero
        self._silence = silence
        self.lookahead_samples = method.lookahead_samples

    def start(
        self, *, language: str | None = None, recorder: Recorder = NULL, **options: Any
    ) -> Gated:
        """Return the state of a new stream; options: others of the method, as `prompt`."""
        return self._start(1, language=language, recorder=recorder, **options)[0]

    def step(self, state: Gated, audio: Samples, *, last: bool) -> Update:
        """Take in `audio`; the method makes a step with the speech in it, if there is any."""
        return self._step([state], [audio], last=[last])[0]

    def _start(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL, **options: Any
    ) -> list[Gated]:
        """Return `n` new states."""
        gates = [Gate(self._silero.stream(), self._chunk, silence=self._silence) for _ in range(n)]
        options = {"language": language, "recorder": recorder, **options}
        return [
            Gated(recorder, language, options, gate, state)
            for gate, state in zip(gates, self._inner(n, options), strict=True)
        ]

    def _inner(self, n: int, options: dict[str, Any]) -> list[Any]:
        """Return `n` new states of the method itself."""
        if isinstance(self.method, Batched):
            return self.method.start_many(n, **options)
        return [self.method.start(**options) for _ in range(n)]

    def _step(
        self, states: Sequence[Gated], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Make one step of each stream: one of the method for each stretch of speech in it."""
        updates = [Update() for _ in states]
        queues: list[list[Stretch]] = []
        for state, samples, is_last in zip(states, audio, last, strict=True):
            with state.recorder.part("feature"):
                queues.append(state.gate.push(samples, last=is_last))
        # A step may hold the end of one stretch and the start of the next: the first stretches of
        # all streams are processed together, then the second ones.
        while active := [i for i, queue in enumerate(queues) if queue]:
            stretches = [queues[i].pop(0) for i in active]
            for i, stretch in zip(active, stretches, strict=True):
                state = states[i]
                if stretch.begins:
                    state.start_s, state.opens_text = stretch.start / SAMPLE_RATE, True
                if state.inner is None:
                    (state.inner,) = self._inner(1, state.options | {"language": state.language})
            results = self._advance([states[i].inner for i in active], stretches)
            for i, stretch, update in zip(active, stretches, results, strict=True):
                updates[i] = _combined(states[i], updates[i], update, stretch.ends)
        return [
            replace(update, partial=state.partial)
            for update, state in zip(updates, states, strict=True)
        ]

    def _advance(self, inner: Sequence[Any], stretches: Sequence[Stretch]) -> list[Update]:
        """Make a step of each of the method's states with the stretch of the same index."""
        audio = [stretch.audio for stretch in stretches]
        last = [stretch.ends for stretch in stretches]
        if isinstance(self.method, Batched):
            return steps_of(self.method, inner, audio, last=last)
        return [
            step_of(self.method, state, samples, last=is_last)
            for state, samples, is_last in zip(inner, audio, last, strict=True)
        ]


class SpeechOnlyBatched(SpeechOnly):
    """A `Batched` method behind the gate: streams that have speech share its steps."""

    start_many = SpeechOnly._start
    step_many = SpeechOnly._step


def _combined(state: Gated, before: Update, now: Update, stretch_ends: bool) -> Update:
    """Return two updates of one step of a stream as one, and bring `state` up to date.

    before: of the earlier stretches in this step. now: of the method, in seconds of its stretch.
    stretch_ends: whether the stretch is over with it.
    """
    committed = list(before.committed)
    n_of_step = min(now.retracted, len(committed))  # retracted words that no update has given yet
    revise(committed, n_of_step, _placed(state, now.committed))
    if now.committed:
        state.has_text, state.opens_text = True, False
    state.partial = _placed(state, now.partial)
    if stretch_ends:
        state.inner = None
    elif now.language is not None:  # detected in mid-stretch: later stretches need not detect it
        state.language = now.language
    return Update(
        tuple(committed),
        (),
        before.endpoint or now.endpoint or stretch_ends,
        before.retracted + now.retracted - n_of_step,
        now.language or before.language,
    )


def _placed(state: Gated, words: Sequence[Word]) -> tuple[Word, ...]:
    """Return words of a stretch with times in seconds of the stream; the first word of the second
    stretch and later ones gets the space before it."""

    def in_stream(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + state.start_s

    placed = [replace(w, start=in_stream(w.start), end=in_stream(w.end)) for w in words]
    if placed and state.has_text and state.opens_text:
        placed[0] = replace(placed[0], text=spaced(placed[0].text, state.language))
    return tuple(placed)


def behind_gate(
    method: Method[Any], chunk: int, first_chunk: int, silence: int = SILENCE_SAMPLES
) -> SpeechOnly:
    """Return `method` behind the gate, for steps of `chunk` samples; `silence` samples end a
    stretch.

    Three steps of silence warm the method up here: later a stream's silence does not reach it.
    first_chunk: samples of the first of them, without look-ahead. Raises UserError for a method
    that runs on a server.
    """
    if isinstance(method, Paced):
        raise UserError("gate=speech: a server takes everything it is sent; give gate=none")
    kind = SpeechOnlyBatched if isinstance(method, Batched) else SpeechOnly
    gated = kind(method, chunk, Silero(), silence)
    inner = gated._inner(1, {})
    for n_samples in (first_chunk + method.lookahead_samples, chunk, 0):
        quiet = np.zeros(n_samples, np.float32)
        gated._advance(inner, [Stretch(quiet, 0, ends=n_samples == 0)])
    return gated
