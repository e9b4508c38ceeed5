"""Steps of many streams that share passes of the encoder.

A step is a generator: it yields a `Part` wherever it wants frames encoded and is sent them encoded.
Steps that wait at the same time are answered by one pass, which may hold windows of unlike lengths
and blocks at unlike places (see `encode_parts`). All else, the decoder's search above all, each
stream does by itself: the searches branch and end apart, each on frames of its own, so that sharing
their passes would take padded caches of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

import torch

from streaming_asr.method import NULL, Recorder, Samples, Update
from streaming_asr.whisper.encoder import Part

Result = TypeVar("Result")
Passes: TypeAlias = Generator[Part, torch.Tensor, Result]
Encode: TypeAlias = Callable[[Sequence[Part]], list[torch.Tensor]]

MOST_TOGETHER = 16
"""Parts of a pass, so that many long windows fit into memory."""


def run_together(
    steps: Sequence[Passes[Result]], encode: Encode, recorder: Recorder
) -> list[Result]:
    """Run all steps to their ends and return what they return; `encode` runs one pass."""
    results: dict[int, Result] = {}
    wanted: dict[int, Part] = {}

    def resume(i: int, encoded: Any) -> None:
        try:
            wanted[i] = steps[i].send(encoded)
        except StopIteration as end:
            results[i] = end.value

    for i in range(len(steps)):
        resume(i, None)
    while wanted:
        now = [(i, wanted.pop(i)) for i in list(wanted)[:MOST_TOGETHER]]
        with recorder.part("encode"), torch.inference_mode():
            encoded = encode([part for _, part in now])
        for (i, _), frames in zip(now, encoded, strict=True):
            resume(i, frames)
    return [results[i] for i in range(len(steps))]


class SharedEncoder:
    """The steps of a method that has `start`, `_encode_parts` and the generator `_step`."""

    start: Callable[..., Any]
    _step: Callable[..., Passes[Update]]
    _encode_parts: Encode

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[Any]:
        """Return `n` new states, which share nothing."""
        return [self.start(language=language, recorder=recorder) for _ in range(n)]

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        """Take in `audio`, (n,); return what it changed."""
        return self.step_many([state], [audio], last=[last])[0]

    def step_many(
        self, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Advance each stream by one step, wherever each is; they share passes of the encoder.

        Frames are packed, not padded: a stream costs the frames it has, and one attention call of
        its own in each layer. The decoder runs for one stream after another.
        """
        steps = [self._step(*each) for each in zip(states, audio, last, strict=True)]
        return run_together(steps, self._encode_parts, states[0].recorder) if steps else []
