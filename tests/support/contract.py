"""The contract of streaming_asr/method.py as functions: each takes any method and a setting, and
raises AssertionError where the method breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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

TIME_TOLERANCE_S = 0.02  # one encoder frame
PROBABILITY_TOLERANCE = 1e-2  # batched sums run in another order


@dataclass(frozen=True)
class Setting:
    """What a method is tried on: two recordings of different lengths, in chunks."""

    chunk_samples: int
    first_chunk_samples: int
    audio: Samples
    other: Samples
    language: str | None = None
    said: dict[tuple[int, bytes], list[Update]] = field(default_factory=dict, repr=False)


def chunks(method: Method[Any], audio: Samples, setting: Setting) -> list[Samples]:
    """The deliveries of the feed `fixed`, as views of `audio`."""
    schedule = Schedule(
        setting.chunk_samples, setting.first_chunk_samples, method.lookahead_samples
    )
    ends = list(schedule.ends(len(audio)))
    return [audio[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def feed(method: Method[Any], pieces: Sequence[Samples], setting: Setting) -> list[Update]:
    state = method.start(language=setting.language)
    return [method.step(state, piece, last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]


def run(method: Method[Any], audio: Samples, setting: Setting) -> list[Update]:
    """What a method says of a recording; the checks of one setting share it."""
    key = id(method), audio.tobytes()
    if key not in setting.said:
        setting.said[key] = feed(method, chunks(method, audio, setting), setting)
    return setting.said[key]


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


def assert_same(got: Sequence[Update], wanted: Sequence[Update], what: str) -> None:
    assert len(got) == len(wanted), what
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        equal = same_words(a.committed, b.committed) and same_words(a.partial, b.partial)
        assert equal and a.endpoint == b.endpoint, f"{what}, step {k}:\n  {a}\n  {b}"


def declares_its_lookahead(method: Method[Any], setting: Setting) -> None:
    assert isinstance(method.lookahead_samples, int) and method.lookahead_samples >= 0


def committed_only_grows(method: Method[Any], setting: Setting) -> None:
    for k, update in enumerate(run(method, setting.audio, setting)):
        assert update.retracted == 0, f"step {k} took {update.retracted} committed words back"


def partial_is_empty_at_the_end(method: Method[Any], setting: Setting) -> None:
    last = run(method, setting.audio, setting)[-1]
    assert last.partial == (), f"left after the last step: {last.partial}"


def same_chunks_twice_give_the_same_updates(method: Method[Any], setting: Setting) -> None:
    first = run(method, setting.audio, setting)
    again = feed(method, chunks(method, setting.audio, setting), setting)
    assert_same(again, first, "the same chunks a second time")


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
    for got, wanted in zip(together, alone, strict=True):
        assert_same(got, wanted, "a stream beside another")


def step_many_equals_step(method: Method[Any], setting: Setting) -> None:
    if not isinstance(method, Batched):
        return
    recordings = _unequal(setting)
    states = method.start_many(len(recordings), language=setting.language)
    _assert_together_as_alone(method, setting, recordings, states, [0] * len(recordings))


def streams_out_of_phase_equal_each_alone(method: Method[Any], setting: Setting) -> None:
    """Streams that begin one and two steps after the first, as they come to a server."""
    if not isinstance(method, Batched):
        return
    recordings = _unequal(setting)
    states = [method.start_many(1, language=setting.language)[0] for _ in recordings]
    _assert_together_as_alone(method, setting, recordings, states, range(len(recordings)))


def _unequal(setting: Setting) -> tuple[Samples, ...]:
    return setting.audio, setting.audio[: setting.first_chunk_samples // 2], setting.other


def _assert_together_as_alone(
    method: Any,
    setting: Setting,
    recordings: Sequence[Samples],
    states: Sequence[Any],
    begins: Sequence[int],
) -> None:
    """Stream i makes its first step in round begins[i]."""
    pieces = [chunks(method, audio, setting) for audio in recordings]
    together: list[list[Update]] = [[] for _ in recordings]
    for k in range(max(begin + len(mine) for begin, mine in zip(begins, pieces, strict=True))):
        active = [i for i, mine in enumerate(pieces) if 0 <= k - begins[i] < len(mine)]
        updates = method.step_many(
            [states[i] for i in active],
            [pieces[i][k - begins[i]] for i in active],
            last=[k - begins[i] == len(pieces[i]) - 1 for i in active],
        )
        assert len(updates) == len(active)
        for i, update in zip(active, updates, strict=True):
            together[i].append(update)
    for got, audio in zip(together, recordings, strict=True):
        assert_same(got, run(method, audio, setting), "a stream in a batch")


def no_peeking(method: Method[Any], setting: Setting) -> None:
    """Streams that differ after t give the same updates for every step that heard up to t."""
    t = setting.first_chunk_samples + method.lookahead_samples + setting.chunk_samples
    assert len(setting.audio) > t + setting.chunk_samples, "the recording is too short to tell"
    changed = setting.audio.copy()
    tail = np.resize(setting.other[::-1], len(changed) - t)
    changed[t:] = tail
    steps = run(method, setting.audio, setting), run(method, changed, setting)
    assert_same(steps[1][:2], steps[0][:2], "the past of a stream with another future")


def empty_silent_and_short_audio(method: Method[Any], setting: Setting) -> None:
    empty = np.zeros(0, dtype=np.float32)
    (only,) = run(method, empty, setting)
    assert only.committed == () and only.partial == (), f"words in an empty stream: {only}"
    silence = np.zeros(setting.first_chunk_samples + 2 * setting.chunk_samples, dtype=np.float32)
    one_sample, short = setting.audio[:1], setting.audio[: setting.chunk_samples // 3]
    for audio in (silence, one_sample, short):
        assert run(method, audio, setting)[-1].partial == (), f"{len(audio)} samples"


def any_delivery(method: Method[Any], setting: Setting) -> None:
    """Deliveries of any size, empty ones in the middle and at the end."""
    cuts = (0, 1, 1, setting.chunk_samples // 7, setting.first_chunk_samples + 333)
    ends = [*cuts, len(setting.audio), len(setting.audio)]
    pieces = [setting.audio[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert feed(method, pieces, setting)[-1].partial == ()


def word_times_are_monotone_and_inside_the_audio_heard(
    method: Method[Any], setting: Setting
) -> None:
    pieces = chunks(method, setting.audio, setting)
    heard_s = latest_start_s = latest_end_s = 0.0
    for piece, update in zip(pieces, run(method, setting.audio, setting), strict=True):
        heard_s += len(piece) / SAMPLE_RATE
        for word in update.committed:
            if word.start is not None:
                assert latest_start_s <= word.start <= heard_s + TIME_TOLERANCE_S, (
                    f"{word} starts before {latest_start_s} s or after {heard_s} s"
                )
                latest_start_s = word.start
            if word.end is not None:
                assert latest_end_s <= word.end <= heard_s + TIME_TOLERANCE_S, (
                    f"{word} ends before {latest_end_s} s or after {heard_s} s"
                )
                assert word.start is None or word.start <= word.end, f"{word} ends before its start"
                latest_end_s = word.end


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
    word_times_are_monotone_and_inside_the_audio_heard,
)
