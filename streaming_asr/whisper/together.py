"""Steps of many streams that share passes of the model.

A step is a generator: it yields a `Wanted` wherever it needs a pass of the encoder or the decoder
and is sent the result. Steps that wait at the same time are answered by one pass, which may hold
windows of unlike lengths and blocks and tokens at unlike places: the linear layers run over all
positions as one, and each stream attends by itself (`encode_parts`, `Decoder.run_parts`). Nothing
is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch

from streaming_asr.method import NULL, Recorder, Samples, Update

MOST_TOGETHER = 16
"""Parts of a pass, so that many long windows fit into memory."""

Result = TypeVar("Result")


class Wanted(NamedTuple):
    """A step's request: the element for `part` of what `run` returns for a list of parts."""

    what: str
    """`encode` or `decode`, under which the time is reported; `run` is the same for each."""
    run: Callable[[Sequence[Any]], Sequence[Any]]
    part: Any


Passes: TypeAlias = Generator[Wanted, Any, Result]


def run_together(steps: Sequence[Passes[Result]], recorder: Recorder) -> list[Result]:
    """Run all steps, of one method, to their ends; return what each returns, in their order.

    The time of the passes is reported to `recorder`. Parts that wait at the same time share a pass.
    """
    results: dict[int, Result] = {}
    waiting: dict[int, Wanted] = {}

    def resume(i: int, answer: Any) -> None:
        """Run step i up to its next request or its end."""
        try:
            waiting[i] = steps[i].send(answer)
        except StopIteration as end:
            results[i] = end.value

    for i in range(len(steps)):
        resume(i, None)  # a generator starts with None
    while waiting:
        # The step that waits longest decides which pass is next, so that none waits for ever.
        what, run, _ = next(iter(waiting.values()))
        sharers = [i for i, request in waiting.items() if request.what == what][:MOST_TOGETHER]
        with recorder.part(what), torch.inference_mode():
            answers = run([waiting.pop(i).part for i in sharers])
        for i, answer in zip(sharers, answers, strict=True):
            resume(i, answer)
    return [results[i] for i in range(len(steps))]


def alone(step: Passes[Result], recorder: Recorder) -> Result:
    """Run one step by itself and return what it returns."""
    return run_together([step], recorder)[0]


class SharedPasses:
    """The steps of a method that has `start` and the generator `_step`."""

    start: Callable[..., Any]
    _step: Callable[..., Passes[Update]]

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL, **options: Any
    ) -> list[Any]:
        """Return `n` new states, which share nothing; options: of `start`."""
        return [self.start(language=language, recorder=recorder, **options) for _ in range(n)]

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        """Advance a stream by one step with (n,) new samples; return what it changed."""
        return self.step_many([state], [audio], last=[last])[0]

    def step_many(
        self, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Advance each stream by one step, from wherever it is; they share passes of the model.

        Frames and tokens are packed, not padded: a stream costs those it has, and one attention
        call in each layer.
        """
        steps = [
            self._step(state, samples, is_last)
            for state, samples, is_last in zip(states, audio, last, strict=True)
        ]
        return run_together(steps, states[0].recorder) if steps else []
