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

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from streaming_asr.errors import UserError

SAMPLE_RATE = 16_000  # Hz, of all audio a method is given
NS_PER_SAMPLE = 1_000_000_000 // SAMPLE_RATE  # 62,500 exactly
FRAME_SAMPLES = 320  # one Whisper encoder frame, 20 ms: chunks are multiples of it
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE

Samples: TypeAlias = npt.NDArray[np.float32]  #: (n,) mono 16 kHz in [-1, 1]

#: The parts of a step's compute time.
PARTS = ("feature", "encode", "decode", "policy", "finalise")


class Count(NamedTuple):
    """What one count of a step means; it is a sum over the step, 0 where the step reports none."""

    unit: str
    meaning: str


#: What a step may count, by name.
COUNTS = {
    "frames_real": Count("frames", "encoder frames that carry audio"),
    "frames_computed": Count("frames", "encoder frames computed, padding and repetition included"),
    "decode_steps": Count("steps", "decoder steps"),
    "beam_sum": Count("rows", "sum over those decoder steps of their beam widths"),
    "encoder_flops": Count("FLOP", "analytic work of the encoder, 1 multiply-accumulate = 2"),
    "anchors": Count("vectors", "handed to the decoder by a method that compresses frames"),
    "tokens": Count("tokens", "became final in a method that commits token by token"),
    "decoder_cache_bytes": Count("bytes", "the decoder's keys and values as the step ends"),
}


@dataclass(frozen=True, slots=True)
class Word:
    """One whole word; a method never commits a lone subword."""

    text: str  #: as appended to the text: its leading space included
    start: float | None = None  #: seconds from the start of the stream, where the method knows
    end: float | None = None  #: seconds
    probability: float | None = None  #: from 0 to 1


@dataclass(frozen=True, slots=True)
class Update:
    """What one step changed: words now final, and the guess shown after them."""

    committed: tuple[Word, ...] = ()  #: words that are final from now on
    partial: tuple[Word, ...] = ()  #: the guess after them
    endpoint: bool = False  #: the method closed a segment here
    #: Committed words taken off the end of the committed text before `committed` is added; 0 in
    #: every default configuration.
    retracted: int = 0
    language: str | None = None  #: found out in this step, for all of the stream that follows


T = TypeVar("T")


def revise(words: list[T], retracted: int, committed: Iterable[T]) -> None:
    """Remove the last `retracted` of the committed `words`, and append the newly committed ones.

    Raises ValueError where there are fewer than `retracted`.
    """
    if not 0 <= retracted <= len(words):
        raise ValueError(f"the method took back {retracted} of {len(words)} committed words")
    del words[len(words) - retracted :]
    words.extend(committed)


def display_text(words: Iterable[Word]) -> str:
    """Return the words as one text: joined as they are, without blanks at both ends."""
    return "".join(word.text for word in words).strip()


class Recorder(Protocol):
    """A step reports here what it did. The simulator passes one to `start`."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """Add the time of the `with` block to one of `PARTS`. Parts do not nest."""

    def count(self, **counts: float) -> None:
        """Add to the step's sums; the keys are those of `COUNTS`."""


class NullRecorder:
    """Records nothing; it serves a method that is used outside the simulator."""

    def part(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def count(self, **counts: float) -> None:
        return None


NULL: Recorder = NullRecorder()

State = TypeVar("State")


class Method(Protocol[State]):
    """A method of streaming recognition.

    `lookahead_samples` is the audio after the end of a chunk that the method needs to complete the
    chunk: the first delivery is longer by it.
    """

    lookahead_samples: int

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> State:
        """Return the state of a new stream. A method whose settings have `prompt` also takes it
        here: that of the stream, in place of the setting."""

    def step(self, state: State, audio: Samples, *, last: bool) -> Update:
        """Take in the next `audio`, (n,) with any n >= 0, and return what it changed.

        last: whether the stream ends with this audio.
        """


@runtime_checkable
class Batched(Protocol):
    """A method that also advances many streams at once; the simulator loops over all others.

    The streams may differ in length and end independently. A stream has the same updates with
    others as by itself. States are typed `Any` because each method has its own kind.
    """

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[Any]:
        """Return `n` new states, which may be views of one pool."""

    def step_many(
        self, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Make one step of each of `states` and return their updates in the same order."""


def step_of(method: Method[Any], state: Any, audio: Samples, *, last: bool) -> Update:
    """Make one step of a stream. Raises UserError for a method that returns no `Update`."""
    return _checked(method, "step", method.step(state, audio, last=last))


def steps_of(
    method: Batched, states: Sequence[Any], audio: Sequence[Samples], *, last: Sequence[bool]
) -> list[Update]:
    """Make one step of each stream. Raises UserError for a method that does not return one `Update`
    for each."""
    updates = method.step_many(states, audio, last=last)
    if not isinstance(updates, list | tuple) or len(updates) != len(states):
        rule = f"returns a list with one Update for each of its {len(states)} streams"
        raise _broken(method, "step_many", updates, rule)
    return [_checked(method, "step_many", update) for update in updates]


def _checked(method: Any, call: str, update: Any) -> Update:
    """Return what a method's `call` (step, step_many) returned. Raises UserError where it is no
    `Update` with tuples of `Word`."""
    if not isinstance(update, Update):
        rule = "returns a streaming_asr.method.Update, empty where nothing changed"
        raise _broken(method, call, update, rule)
    for words in (update.committed, update.partial):
        if not isinstance(words, list | tuple) or not all(isinstance(each, Word) for each in words):
            rule = "returns an Update whose committed and partial words are tuples of Word"
            raise _broken(method, call, words, rule)
    return update


def _broken(method: Any, call: str, value: Any, rule: str) -> UserError:
    """Return the error for a method whose `call` returned `value`, against the rule."""
    kind = type(method)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    where = f" ({file})" if file else ""
    return UserError(
        f"{kind.__module__}.{kind.__qualname__}.{call}{where}: returned {value!r:.80}; it {rule}"
    )


@runtime_checkable
class LongForm(Batched, Protocol):
    """A batched method that can also transcribe long recordings without promising a latency.

    Where `samples_together` is set, the streams of a step have at most that many samples together:
    the simulator then ignores the batch and the chunks, and cuts a longer recording into pieces of
    that size. The run writes the transcription with its times next to the metrics.
    """

    samples_together: int | None


@runtime_checkable
class Paced(Protocol):
    """A method whose text comes at any time, as from a server; see the feed `realtime`.

    Between steps with audio the simulator calls `wait`, and makes a step without audio as soon as
    there is new text. After the audio it calls `end`, and does the same until `is_done`.
    """

    def wait(self, state: Any, seconds: float) -> bool:
        """Return True as soon as a step would have new text, False after `seconds`."""

    def end(self, state: Any) -> float:
        """End the audio; return the seconds of each `wait` for the remaining text."""

    def is_done(self, state: Any) -> bool:
        """Return whether all text has come and steps have returned it."""
