"""Valid logs as hypothesis draws them, and every way to break one rule of events.invariants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.events.record import StepLine
from streaming_asr.method import NS_PER_SAMPLE, SAMPLE_RATE
from streaming_asr.utterance import TimedWord

WORDS = ("harbour", "opens", "at", "nine", "on", "friday")
CHUNK = 16_000
FEEDS = ("fixed", "best_effort", "realtime_queue")  # `realtime` also has steps without a schedule


@st.composite
def logs(draw: st.DrawFn, feeds: tuple[str, ...] = ("fixed",)) -> UtteranceLog:
    """A valid log of two words or more, in chunks of a second, of one of `feeds`."""
    said = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=6))
    n_steps = draw(st.integers(len(said), 8))
    feed = draw(st.sampled_from(feeds))
    longest = 10**10 if feed != "best_effort" else 2 * 10**9
    walls = draw(st.lists(st.integers(0, longest), min_size=n_steps, max_size=n_steps))
    ends = _ends(draw, feed, walls)
    before = ends[-2]
    ends[-1] -= draw(st.integers(0, max(0, ends[-1] - before - 1)))
    steps = []
    seen_ns = 0  # by the clock of the queue
    for k, (wall, received) in enumerate(zip(walls, ends, strict=True)):
        last = k == n_steps - 1
        frames = draw(st.integers(0, 1500))
        new = [f" {said[k]}"] if k < len(said) else []
        # One word is taken back and said again.
        back = int(1 < k < len(said) and draw(st.booleans()))
        committed = ([f" {said[k - 1]}"] if back else []) + new
        times = [[k + 0.1, k + 0.2, draw(st.floats(0, 1))]] * len(committed)
        spent = {"wall": wall, "cpu": wall // 2, "encode": wall // 3, "decode": wall // 3}
        if feed == "realtime_queue":
            heard_ns = received * NS_PER_SAMPLE
            seen_ns = max(heard_ns, seen_ns) + wall + draw(st.integers(0, 10**9))
            spent["lag"] = seen_ns - heard_ns
        steps.append(
            StepLine(
                "flush" if last else "audio",
                received,
                spent,
                draw(st.sampled_from((None, times))),
                back,
                utt="u",
                committed=committed,
                partial=[] if last else [" perhaps"],
                frames_real=frames,
                frames_computed=frames + draw(st.integers(0, 1500)),
            )
        )
    words = [TimedWord(w, i + 0.1, i + 0.4) for i, w in enumerate(said)]
    # Where a server sends between two chunks, the audio may be shorter than the words.
    has_room = words[-1].end <= ends[-1] / SAMPLE_RATE
    return UtteranceLog(
        "u",
        " ".join(said).capitalize(),
        ends[-1],
        draw(st.sampled_from((None, words) if has_room else (None,))),
        feed=feed,
        steps=steps,
        commit_violations=sum(step.retracted for step in steps),
        chunk_samples=CHUNK,
        first_chunk_samples=CHUNK,
        planned_feed=feed,
    )


def _ends(draw: st.DrawFn, feed: str, walls: list[int]) -> list[int]:
    """Where each step of whole chunks ends, as docs/events.md says."""
    ends: list[int] = []
    end = seen_ns = 0
    for wall in walls:
        if feed == "realtime" and ends and draw(st.booleans()):
            ends.append(end)  # what a server sent between two chunks
            continue
        end += CHUNK
        if feed == "best_effort":
            end = max(end, seen_ns // NS_PER_SAMPLE)
            seen_ns = max(seen_ns, end * NS_PER_SAMPLE) + wall
        ends.append(end)
    return ends


def header_of(log: UtteranceLog) -> dict[str, Any]:
    """The header with the schedule of a drawn log."""
    chunks = (log.first_chunk_samples, log.chunk_samples)
    if None in chunks:
        return {}
    first, chunk = (f"{1000 * (n or 0) // SAMPLE_RATE}ms" for n in chunks)
    return {"config": {"first_chunk": first, "chunk": chunk, "feed": log.planned_feed}}


def timed(log: UtteranceLog) -> list[TimedWord]:
    said = log.text.split()
    log.words = [TimedWord(w, i + 0.1, i + 0.4) for i, w in enumerate(said)]
    return log.words


def audio_goes_back(log: UtteranceLog, at: int) -> None:
    log.steps[max(at, 1)].audio_samples = log.steps[max(at, 1) - 1].audio_samples - 1


def no_flush(log: UtteranceLog, at: int) -> None:
    log.steps[-1].kind = "audio"


def flushed_twice(log: UtteranceLog, at: int) -> None:
    log.steps.append(log.steps[-1])


def beyond_the_end(log: UtteranceLog, at: int) -> None:
    log.steps[-1].audio_samples = log.duration_samples + 8001


def ends_early(log: UtteranceLog, at: int) -> None:
    log.duration_samples += 8001 + CHUNK


def negative_compute(log: UtteranceLog, at: int) -> None:
    log.steps[at].compute_ns = {"wall": -1}


def too_much_cpu(log: UtteranceLog, at: int) -> None:
    log.steps[at].compute_ns |= {"wall": 10**6, "cpu": 10**13}


def parts_beyond_the_step(log: UtteranceLog, at: int) -> None:
    log.steps[at].compute_ns["feature"] = log.steps[at].compute_ns["wall"] + 10**9


def lag_below_compute(log: UtteranceLog, at: int) -> None:
    log.feed = "realtime_queue"
    for step in log.steps:
        step.compute_ns["lag"] = step.compute_ns["wall"]
    log.steps[at].compute_ns |= {"wall": 10**10, "lag": 10**9}


def more_real_than_computed(log: UtteranceLog, at: int) -> None:
    log.steps[at].frames_real = log.steps[at].frames_computed + 2


def fewer_rows_than_steps(log: UtteranceLog, at: int) -> None:
    log.steps[at].decode_steps, log.steps[at].beam_sum = 9, 7


def takes_back_too_many(log: UtteranceLog, at: int) -> None:
    log.steps[at].retracted = 100


def violations_miscounted(log: UtteranceLog, at: int) -> None:
    log.commit_violations += 1


def partial_is_left(log: UtteranceLog, at: int) -> None:
    log.steps[-1].partial = [" more"]


def ok_with_an_error(log: UtteranceLog, at: int) -> None:
    log.error = "no audio"


def times_of_other_words(log: UtteranceLog, at: int) -> None:
    log.steps[at].words = [[0.1, 0.2, 0.5]] * (len(log.steps[at].committed) + 1)


def a_word_ends_first(log: UtteranceLog, at: int) -> None:
    log.steps[0].words = [[0.5, 0.2, 0.5]]


def a_word_in_milliseconds(log: UtteranceLog, at: int) -> None:
    log.steps[0].words = [[100.0, 200.0, 0.5]]


def probability_above_one(log: UtteranceLog, at: int) -> None:
    log.steps[0].words = [[0.1, 0.2, 1.5]]


def reference_reversed(log: UtteranceLog, at: int) -> None:
    words = timed(log)
    words[0] = words[0]._replace(start=words[1].start + 0.01, end=words[1].start + 0.02)


def reference_outside(log: UtteranceLog, at: int) -> None:
    words = timed(log)
    words[-1] = words[-1]._replace(end=log.duration_s + 0.6)


def reference_ends_first(log: UtteranceLog, at: int) -> None:
    words = timed(log)
    words[-1] = words[-1]._replace(end=words[-1].start - 0.01)


def another_text(log: UtteranceLog, at: int) -> None:
    timed(log)
    log.text = "They cancelled our flight because of fog"


def text_before_sound(log: UtteranceLog, at: int) -> None:
    log.steps[0].audio_samples = 319


def seconds_as_milliseconds(log: UtteranceLog, at: int) -> None:
    log.words = None
    log.text = " ".join(WORDS)
    log.duration_samples //= 1000
    for step in log.steps:
        step.audio_samples //= 1000


def a_lag_of_a_day(log: UtteranceLog, at: int) -> None:
    lag_below_compute(log, at)
    log.steps[at].compute_ns["lag"] = 86_400 * 10**9


def a_step_twice(log: UtteranceLog, at: int) -> None:
    k = min(at, len(log.steps) - 2)
    log.steps.insert(k + 1, Step("audio", log.steps[k].audio_samples, {"wall": 0}))


def a_step_is_lost(log: UtteranceLog, at: int) -> None:
    del log.steps[min(at, len(log.steps) - 2)]


def _times(log: UtteranceLog, factor: int) -> None:
    log.duration_samples *= factor
    for step in log.steps:
        step.audio_samples *= factor


def three_chunks_apart(log: UtteranceLog, at: int) -> None:
    _times(log, 3)


def sixteen_chunks_apart(log: UtteranceLog, at: int) -> None:
    _times(log, 16)


def a_line_twice(log: UtteranceLog, at: int) -> None:
    log.steps[at].compute_ns |= {"wall": 10**9, "cpu": 10**8}
    log.steps.insert(at + 1, log.steps[at])


def another_feed(log: UtteranceLog, at: int) -> None:
    others = [feed for feed in FEEDS if feed != log.feed]
    log.feed = others[at % len(others)]


def a_lag_in_another_feed(log: UtteranceLog, at: int) -> None:
    if log.feed == "realtime_queue":
        del log.steps[at].compute_ns["lag"]
    else:
        log.steps[at].compute_ns["lag"] = log.steps[at].compute_ns["wall"]


def steps_at_the_same_time(log: UtteranceLog, at: int) -> None:
    """The second step is seen before the first one, on a clock of their own."""
    log.feed = "realtime_queue"
    for k, step in enumerate(log.steps):
        step.compute_ns |= {"wall": 10**9, "lag": (60 if k == 0 else 2) * 10**9}


def a_count_is_lost(log: UtteranceLog, at: int) -> None:
    log.steps[at].frames_real = UNSET


def all_words_all_the_time(log: UtteranceLog, at: int) -> None:
    log.words = [TimedWord(word, 0.0, log.duration_s) for word in log.text.split()]


def all_words_from_the_beginning(log: UtteranceLog, at: int) -> None:
    in_order(log)
    log.words = [word._replace(start=0.0) for word in timed(log)]


def in_order(log: UtteranceLog) -> None:
    """Six words in eight seconds, each final as it is spoken."""
    log.text, log.duration_samples, log.commit_violations = " ".join(WORDS), 8 * CHUNK, 0
    said = [[f" {word}"] for word in WORDS] + [[], []]
    log.steps = [
        Step("audio" if k < 7 else "flush", (k + 1) * CHUNK, {"wall": 0}, committed=said[k])
        for k in range(8)
    ]
    timed(log)


def reference_at_zero(log: UtteranceLog, at: int) -> None:
    log.words = [TimedWord(word, 0.0, 0.0) for word in log.text.split()]


def reference_in_kiloseconds(log: UtteranceLog, at: int) -> None:
    log.words = [TimedWord(w, start / 1e3, end / 1e3) for w, start, end in timed(log)]


def reference_without_length(log: UtteranceLog, at: int) -> None:
    log.words = [TimedWord(word, start, start) for word, start, _ in timed(log)]


def reference_lacks_a_word(log: UtteranceLog, at: int) -> None:
    in_order(log)
    del timed(log)[at % 6]


def reference_reordered(log: UtteranceLog, at: int) -> None:
    in_order(log)
    words = timed(log)
    i = at % 5
    words[i], words[i + 1] = (
        words[i]._replace(text=words[i + 1].text),
        words[i + 1]._replace(text=words[i].text),
    )


BREAKS: dict[Callable[[UtteranceLog, int], None], str] = {
    audio_goes_back: "never goes back",
    no_flush: "ends with it",
    flushed_twice: "No step follows",
    beyond_the_end: "beyond it",
    ends_early: "ends with its audio",
    negative_compute: "A step holds",
    too_much_cpu: "CPU time",
    parts_beyond_the_step: "its parts",
    lag_below_compute: "holds the step",
    more_real_than_computed: "`frames_real`",
    fewer_rows_than_steps: "`decode_steps`",
    takes_back_too_many: "only by `retracted`",
    violations_miscounted: "`commit_violations`",
    partial_is_left: "Nothing is partial",
    ok_with_an_error: "has an `error`",
    times_of_other_words: "one entry for each",
    a_word_ends_first: "in the audio",
    a_word_in_milliseconds: "in the audio",
    probability_above_one: "in the audio",
    reference_reversed: "are in order",
    reference_outside: "in the recording",
    reference_ends_first: "are in order",
    another_text: "those of its text",
    reference_lacks_a_word: "those of its text",
    reference_reordered: "those of its text",
    reference_at_zero: "to say them",
    reference_in_kiloseconds: "to say them",
    reference_without_length: "to say them",
    a_lag_of_a_day: "is at most 12 hours",
    a_lag_in_another_feed: "has a lag, others none",
    steps_at_the_same_time: "one after the other",
    another_feed: "the feed of its run",
    a_line_twice: "in the log twice",
    a_count_is_lost: "all or none",
    all_words_all_the_time: "to say them",
    all_words_from_the_beginning: "to say them",
    sixteen_chunks_apart: "one chunk apart",
    a_step_twice: "one chunk apart",
    a_step_is_lost: "one chunk apart",
    three_chunks_apart: "one chunk apart",
    text_before_sound: "20 ms",
    seconds_as_milliseconds: "20 words",
}
