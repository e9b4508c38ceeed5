"""The protocol every method obeys; read this first.

A method is fed audio as it arrives and answers each step with an `Update`: the words that are now
final and the guess shown after them. It sees no clock, no reference text and no future audio. It
may change its mind about the partial words, never about the committed ones, and after the last
step no partial words are left.

What a listener sees after step k is the displayed text

    D_k = everything committed so far + the partial words of step k.

Weights and settings live in the method; everything about one stream lives in its state, an
explicit object that `start` makes and `step` changes in place. There is no `reset()` to forget,
and two streams never touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000  # Hz, of all audio a method is given

Samples: TypeAlias = npt.NDArray[np.float32]  # (n,) mono 16 kHz in [-1, 1]

PARTS = ("feature", "encode", "decode", "policy", "finalise")  # of a step's compute time
COUNTS = (  # what a step may report having done; each is a sum over the step
    "frames_real",  # encoder frames that carry audio
    "frames_computed",  # encoder frames computed, padding and repetition included
    "decode_steps",  # decoder steps
    "beam_sum",  # sum over those decoder steps of their beam widths
    "encoder_flops",  # analytic, 1 MAC = 2 FLOPs
    "anchors",  # vectors handed to the decoder, of a method that compresses frames
    "tokens",  # tokens that became final, of a method that commits token by token
    "decoder_cache_bytes",  # counted once, as the step ends: the decoder's keys and values
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word, whole: a method never lets a lone subword out as committed."""

    text: str  # as appended to the text: its leading space included
    start: float | None = None  # seconds from the start of the stream, where the method knows
    end: float | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What one step changed: words now final, and the guess shown after them."""

    committed: tuple[Word, ...] = ()
    partial: tuple[Word, ...] = ()
    endpoint: bool = False  # the method closed a segment here
    retracted: int = 0  # committed words taken back, off the end of the
    # committed text, before `committed` is added; 0 in every default config


def display_text(words: Iterable[Word]) -> str:
    """The words as a reader sees them: joined as they are, outer blanks removed."""
    return "".join(word.text for word in words).strip()


class Recorder(Protocol):
    """Where a step reports what it did. The simulator hands one to `start`."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """Add the time of the `with` block to one of `PARTS`. Parts do not nest."""

    def count(self, **counts: float) -> None:
        """Add to the step's sums; the keys are those of `COUNTS`."""


class NullRecorder:
    """Records nothing: for a method used outside the simulator."""

    def part(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def count(self, **counts: float) -> None:
        return None


NULL: Recorder = NullRecorder()

State = TypeVar("State")


class Method(Protocol[State]):
    """A method of streaming recognition.

    `lookahead_samples` is the audio past the end of a chunk that the method must hear before it
    can complete the chunk: the first delivery is longer by it.
    """

    lookahead_samples: int

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> State:
        """The state of a new stream."""

    def step(self, state: State, audio: Samples, *, last: bool) -> Update:
        """Take in the next `audio`, (n,) with any n >= 0; `last` says the stream ends with it."""


@runtime_checkable
class Batched(Protocol):
    """A method that also advances many streams at once; without it the simulator loops.

    Rows need not be of equal length and end independently. A stream advanced with others gives
    the updates it gives alone. Typed with `Any` because a state is the method's own business.
    """

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[Any]:
        """`n` new states that may be views of one pool."""

    def step_many(
        self, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """One step of each of `states`, in order."""
