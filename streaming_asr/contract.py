"""The contract of streaming_asr/method.py as functions: each takes any method and a setting, and
raises `Broken` with a sentence where the method breaks it. `streaming-asr check` runs them all."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from streaming_asr.chunking import Schedule
from streaming_asr.method import (
    SAMPLE_RATE,
    Batched,
    Method,
    Samples,
    Update,
    Word,
    display_text,
    revise,
)
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.text.tokens import UNSPACED


class Broken(AssertionError):
    """A method breaks the contract; the message is one sentence."""


def require(condition: bool, sentence: str) -> None:
    """Raise `Broken` unless the condition holds (an assert would not, under `python -O`)."""
    if not condition:
        raise Broken(sentence)


TIME_TOLERANCE_S = 0.02  # one encoder frame
PROBABILITY_TOLERANCE = 1e-2  # batched sums run in another order
MOST_OTHER = 0.4  # share of words that may differ in pieces of other sizes


@dataclass(frozen=True)
class Setting:
    """What a method is tried on: two recordings of different lengths, in chunks."""

    chunk_samples: int
    first_chunk_samples: int
    audio: Samples
    other: Samples
    language: str | None = None
    updates: dict[tuple[int, bytes], list[Update]] = field(default_factory=dict, repr=False)


def chunks(method: Method[Any], audio: Samples, setting: Setting) -> list[Samples]:
    """The deliveries of the feed `fixed`, as views of `audio`."""
    schedule = Schedule(
        setting.chunk_samples, setting.first_chunk_samples, method.lookahead_samples
    )
    ends = list(schedule.ends(len(audio)))
    return [audio[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def feed(method: Method[Any], pieces: Sequence[Samples], setting: Setting) -> list[Update]:
    # As in a run, which refuses parts and counts of other names.
    state = method.start(language=setting.language, recorder=StepRecorder())
    return [method.step(state, piece, last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]


def run(method: Method[Any], audio: Samples, setting: Setting) -> list[Update]:
    """What a method outputs for a recording; the checks of one setting share it."""
    key = id(method), audio.tobytes()
    if key not in setting.updates:
        setting.updates[key] = feed(method, chunks(method, audio, setting), setting)
    return setting.updates[key]


def committed(updates: Sequence[Update]) -> list[Word]:
    return [word for update in updates for word in update.committed]


def text_of(method: Method[Any], pieces: Sequence[Samples], setting: Setting) -> str:
    """What a method has committed at the end of a stream that comes in these pieces."""
    words: list[Word] = []
    for update in feed(method, pieces, setting):
        revise(words, update.retracted, update.committed)
    return display_text(words)


def same_words(a: Sequence[Word], b: Sequence[Word]) -> bool:
    def near(x: float | None, y: float | None, tolerance: float) -> bool:
        return x is y or (x is not None and y is not None and abs(x - y) <= tolerance)

    return len(a) == len(b) and all(
        v.text == w.text
        and near(v.start, w.start, TIME_TOLERANCE_S)
        and near(v.end, w.end, TIME_TOLERANCE_S)
        and near(v.probability, w.probability, PROBABILITY_TOLERANCE)
        for v, w in zip(a, b, strict=True)
    )


def require_same(got: Sequence[Update], expected: Sequence[Update], what: str) -> None:
    require(len(got) == len(expected), f"{what}: {len(got)} updates, not {len(expected)}")
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        equal = same_words(a.committed, b.committed) and same_words(a.partial, b.partial)
        same = equal and a.endpoint == b.endpoint
        require(same, f"{what}: step {k} gives {_shown(a)}, not {_shown(b)}")


def _shown(update: Update) -> str:
    """An update in a sentence."""
    words = " + ".join(
        f"{kind} {display_text(each)!r:.60}"
        for kind, each in (("final", update.committed), ("partial", update.partial))
        if each
    )
    return (words or "nothing") + " and the end of a turn" * update.endpoint


def declares_its_lookahead(method: Method[Any], setting: Setting) -> None:
    n = getattr(method, "lookahead_samples", None)
    require(isinstance(n, int) and n >= 0, f"lookahead_samples is {n!r}; give samples, 0 or more")


def committed_only_grows(method: Method[Any], setting: Setting) -> None:
    for k, update in enumerate(run(method, setting.audio, setting)):
        require(update.retracted == 0, f"step {k} takes {update.retracted} final words back")


def partial_is_empty_at_the_end(method: Method[Any], setting: Setting) -> None:
    last = run(method, setting.audio, setting)[-1]
    rest = display_text(last.partial)
    require(not last.partial, f"partial words are left after the last step: {rest!r:.80}")


def same_chunks_twice_give_the_same_updates(method: Method[Any], setting: Setting) -> None:
    """The second time with other seeds, as a stream has them in another process."""
    first = run(method, setting.audio, setting)
    seeds = random.getstate(), np.random.get_state()
    random.seed(20)
    np.random.seed(20)
    try:
        again = feed(method, chunks(method, setting.audio, setting), setting)
    finally:
        random.setstate(seeds[0])
        np.random.set_state(seeds[1])
    require_same(again, first, "the same audio a second time, with another seed")


def interleaved_streams_equal_each_alone(method: Method[Any], setting: Setting) -> None:
    recordings = (setting.audio, setting.other)
    alone = [run(method, audio, setting) for audio in recordings]
    pieces = [chunks(method, audio, setting) for audio in recordings]
    states = [method.start(language=setting.language) for _ in recordings]
    together: list[list[Update]] = [[], []]
    for k in range(max(map(len, pieces))):
        for updates, mine, state in zip(together, pieces, states, strict=True):
            if k < len(mine):
                updates.append(method.step(state, mine[k], last=k == len(mine) - 1))
    for got, expected in zip(together, alone, strict=True):
        require_same(got, expected, "two streams in turns: one changes the other")


def step_many_equals_step(method: Method[Any], setting: Setting) -> None:
    _require_together_as_alone(method, setting, (0, 0, 0))


def streams_out_of_phase_equal_each_alone(method: Method[Any], setting: Setting) -> None:
    """Streams that begin one and two steps after the first, as they come to a server."""
    _require_together_as_alone(method, setting, (0, 1, 2))


def _require_together_as_alone(method: Any, setting: Setting, begins: Sequence[int]) -> None:
    """Stream i makes its first step in round begins[i]; all are started together if in the same."""
    takes_many = isinstance(method, Batched)  # by a name, as mypy would drop the other methods
    if not takes_many:
        return
    recordings = setting.audio, setting.audio[: setting.first_chunk_samples // 2], setting.other
    sizes = [1] * len(recordings) if any(begins) else [len(recordings)]
    states = [s for n in sizes for s in method.start_many(n, language=setting.language)]
    pieces = [chunks(method, audio, setting) for audio in recordings]
    together: list[list[Update]] = [[] for _ in recordings]
    for k in range(max(begin + len(mine) for begin, mine in zip(begins, pieces, strict=True))):
        active = [i for i, mine in enumerate(pieces) if 0 <= k - begins[i] < len(mine)]
        updates = method.step_many(
            [states[i] for i in active],
            [pieces[i][k - begins[i]] for i in active],
            last=[k - begins[i] == len(pieces[i]) - 1 for i in active],
        )
        n = len(updates)
        require(n == len(active), f"step_many returns {n} updates for {len(active)} streams")
        for i, update in zip(active, updates, strict=True):
            together[i].append(update)
    for got, audio in zip(together, recordings, strict=True):
        require_same(got, run(method, audio, setting), "a stream in a batch differs")


def no_peeking(method: Method[Any], setting: Setting) -> None:
    """Streams that differ after t give the same updates for every step with audio up to t."""
    t = setting.first_chunk_samples + method.lookahead_samples + setting.chunk_samples
    if len(setting.audio) <= t + setting.chunk_samples:
        raise ValueError(f"the recording has to be longer than {t + setting.chunk_samples} samples")
    changed = setting.audio.copy()
    tail = np.resize(setting.other[::-1], len(changed) - t)
    changed[t:] = tail
    steps = run(method, setting.audio, setting), run(method, changed, setting)
    require_same(
        steps[1][:2], steps[0][:2], "it uses future audio: the same past with another future"
    )


def empty_silent_and_short_audio(method: Method[Any], setting: Setting) -> None:
    empty = np.zeros(0, dtype=np.float32)
    with _on("empty audio"):
        (only,) = run(method, empty, setting)
    require(not (only.committed or only.partial), f"an empty stream gives {_shown(only)}")
    silence = np.zeros(setting.first_chunk_samples + 2 * setting.chunk_samples, dtype=np.float32)
    one_sample, short = setting.audio[:1], setting.audio[: setting.chunk_samples // 3]
    for name, audio in (("silence", silence), ("one sample", one_sample), ("a short end", short)):
        with _on(name):
            last = run(method, audio, setting)[-1]
        require(not last.partial, f"partial words are left after {name}: {_shown(last)}")


def any_delivery(method: Method[Any], setting: Setting) -> None:
    """Deliveries of any size, empty ones in the middle and at the end."""
    cuts = (0, 1, 1, setting.chunk_samples // 7, setting.first_chunk_samples + 333)
    ends = [*cuts, len(setting.audio), len(setting.audio)]
    pieces = [setting.audio[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    with _on("pieces of any size, empty ones among them and at the end"):
        last = feed(method, pieces, setting)[-1]
    require(not last.partial, f"partial words are left after an empty last piece: {_shown(last)}")


def text_hardly_depends_on_the_pieces(method: Method[Any], setting: Setting) -> None:
    """All audio in one step and in steps of a second: at most `MOST_OTHER` of the words differ.

    A method may decide at each step, so the texts need not be equal."""
    in_chunks = display_text(committed(run(method, setting.audio, setting))).split()
    second = [
        setting.audio[at : at + SAMPLE_RATE] for at in range(0, len(setting.audio), SAMPLE_RATE)
    ]
    for name, pieces in (("one step", [setting.audio]), ("steps of 1 s", second)):
        other = text_of(method, pieces, setting).split()
        n = Levenshtein.distance(in_chunks, other)
        most = max(1, MOST_OTHER * max(len(in_chunks), len(other)))
        texts = f"{' '.join(in_chunks)!r:.60} and {' '.join(other)!r:.60}"
        require(n <= most, f"other text in other pieces: in chunks and in {name} {texts}")


def words_begin_with_their_blank(method: Method[Any], setting: Setting) -> None:
    """A word holds the blank before it, so that words can be joined as they are."""
    words = committed(run(method, setting.audio, setting))
    for before, word in pairwise(words):
        is_joined = word.text[:1].isalnum() and before.text[-1:].isalnum()
        require(
            not is_joined or setting.language in UNSPACED,
            f"{before.text!r} and {word.text!r} have no blank between them; a word begins with it",
        )


def word_times_are_monotone_and_inside_the_audio(method: Method[Any], setting: Setting) -> None:
    pieces = chunks(method, setting.audio, setting)
    end_s = latest_start_s = latest_end_s = 0.0
    for piece, update in zip(pieces, run(method, setting.audio, setting), strict=True):
        end_s += len(piece) / SAMPLE_RATE
        for word in update.committed:
            for name, at, latest in (
                ("starts", word.start, latest_start_s),
                ("ends", word.end, latest_end_s),
            ):
                if at is None:
                    continue
                where = f"{word.text!r} {name} at {at:g} s"
                require(at >= latest, f"times go back: {where}, after a word at {latest:g} s")
                ahead = f"times ahead of the audio: {where}, and the step has {end_s:g} s"
                require(at <= end_s + TIME_TOLERANCE_S, ahead)
            is_forward = word.start is None or word.end is None or word.start <= word.end
            require(
                is_forward, f"{word.text!r} ends at {word.end} s, before its start {word.start}"
            )
            latest_start_s = latest_start_s if word.start is None else word.start
            latest_end_s = latest_end_s if word.end is None else word.end


@contextmanager
def _on(what: str) -> Iterator[None]:
    """Turn an exception of the method into `Broken` with what it was given."""
    try:
        yield
    except Exception as error:
        raise Broken(f"it fails on {what}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the type, the message and the innermost line of an exception."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    first_line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first_line} ({Path(last.filename).name}:{last.lineno})"


def broken(method: Method[Any], setting: Setting) -> Iterator[tuple[str, str | None]]:
    """Yield each check's name and what is wrong with the method, None where nothing is."""
    for check in CHECKS:
        try:
            check(method, setting)
        except Broken as problem:
            yield check.__name__, str(problem)
        except Exception as error:
            yield check.__name__, f"it fails: {reason_of(error)}"
        else:
            yield check.__name__, None


NEEDS_SPEECH = (text_hardly_depends_on_the_pieces,)
"""Checks that mean nothing for noise or untrained weights."""
CHECKS: tuple[Callable[[Method[Any], Setting], None], ...] = (
    declares_its_lookahead,
    committed_only_grows,
    partial_is_empty_at_the_end,
    same_chunks_twice_give_the_same_updates,
    interleaved_streams_equal_each_alone,
    step_many_equals_step,
    streams_out_of_phase_equal_each_alone,
    no_peeking,
    empty_silent_and_short_audio,
    any_delivery,
    text_hardly_depends_on_the_pieces,
    words_begin_with_their_blank,
    word_times_are_monotone_and_inside_the_audio,
)
OF_ANY_AUDIO = tuple(check for check in CHECKS if check not in NEEDS_SPEECH)
