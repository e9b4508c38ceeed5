"""Words lost at pauses, speech without text and partial text: by hand, and as planted faults."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from traces import a_step, a_trace

from streaming_asr.metrics import METRICS, Trace, compute, queued
from streaming_asr.metrics.live import COLUMNS, RATES, dropped, pairs
from streaming_asr.utterance import TimedWord


@pytest.mark.parametrize(
    ("reference", "text", "lost"),
    [
        ("the cat sat", "the cat sat", ""),
        ("the cat sat", "cat sat", "the"),
        ("the cat sat", "the sat", "cat"),
        ("the cat sat", "the cat", "sat"),
        ("the cat sat", "", "the cat sat"),
        ("the cat sat", "a cat sat", ""),  # another word is in its place
        ("the cat sat", "bat sat", "the"),  # "bat" stands for "cat"
        ("a cat sat down", "a caste down", ""),  # both are there, in another form
        ("ice cream now", "icecream now", ""),
        ("icecream now", "ice cream now", ""),
        ("went in the house", "wend house", "in the"),  # "wend" stands for "went"
        ("the dog the cat", "the dog cat", "the"),
        ("", "the cat", ""),
    ],
)
def test_dropped_words(reference, text, lost):
    spoken = reference.split()
    assert [spoken[i] for i in sorted(dropped(spoken, text.split()))] == lost.split()


def test_of_many_dropped_words_all_that_are_too_many_are_found():
    spoken = [f"w{i}" for i in range(60)]
    lost = dropped(spoken, [*spoken[:20], "wrong", *spoken[50:]])
    assert len(lost) == 29 and lost < set(range(20, 50))


ENDS = (0.5, 0.9, 1.3, 3.0, 3.3, 7.5)  # each word lasts 0.2 s: two pauses of half a second or more


@pytest.mark.parametrize(
    ("text", "first", "after", "before"),
    [
        ("the cat sat on a mat", 0, 0, 0),
        ("cat sat on a mat", 100, 0, 50),  # the first stretch lasts a second, so each end has "the"
        ("the cat sat a mat", 0, 50, 50),
        ("the cat sat on a", 0, 50, 0),
        ("", 100, 100, 100),
    ],
)
def test_words_dropped_at_pauses(text, first, after, before):
    figures = compute([a_trace("the cat sat on a mat", [(8.0, 0.1, text, "")], ends=ENDS)])
    assert figures["first_words_dropped"] == first
    assert figures["words_dropped_after_pauses"] == after
    assert figures["words_dropped_before_pauses"] == before


@pytest.mark.parametrize(
    ("lost", "first", "after", "before"),
    [("b", 1, 0, 0), ("c", 0, 0, 0), ("d", 0, 0, 1), ("g", 0, 1, 0), ("h", 0, 0, 0)],
)
def test_only_a_second_of_speech_is_at_a_pause(lost, first, after, before):
    words = [f"ka{letter}" for letter in "abcdefghij"]
    ends = [0.5 * k for k in range(1, 6)] + [5.0 + 0.5 * k for k in range(1, 6)]
    text = " ".join(word for word in words if word != f"ka{lost}")
    figures = compute([a_trace(" ".join(words), [(9.0, 0.1, text, "")], ends=ends)])
    shares = [figures[name] for name in RATES[:3]]
    assert shares == [100.0 * share for share in (first, after, before)]


def test_speech_without_text_counts_new_words_only_and_no_pauses():
    # Speech from 0.3 to 1.3, 2.8 to 3.3 and 7.3 to 7.5 s. New words come at 1.1 and 7.6 s (7.5).
    steps = [(1.0, 0.1, "", "the"), (2.0, 0.1, "", "The,"), (3.0, 0.1, "", "")]
    trace = a_trace("the cat sat on a mat", [*steps, (7.5, 0.1, "the cat", "")], ends=ENDS)
    figures = compute([trace])
    # From 1.1 to 7.6 s 0.2 + 0.5 + 0.2 s are spoken; up to 1.1 s only 0.8 s.
    assert figures["textless_speech_ca_s"] == pytest.approx(0.9)
    assert figures["textless_speech_cu_s"] == pytest.approx(1.0)
    assert figures["textless_over_5s_ca"] == 0.0


def test_a_recording_without_any_text_is_without_text_for_all_its_speech():
    ends = [0.5 * k for k in range(1, 13)]
    silent = a_trace("a b c d e f g h i j k l", [(6.5, 0.1, "", "")], ends=ends)
    failed = a_trace("a b c d e f g h i j k l", [], ends=ends, error="broken")
    for trace in (silent, failed):
        assert compute([trace])["textless_speech_ca_s"] == pytest.approx(5.7)  # 0.3 to 6.0 s
        assert compute([trace])["textless_over_5s_ca"] == 100.0


def test_a_partial_text_that_is_the_final_one_is_a_gain():
    # The last word ends at 1.0 s. "a b" is shown at 1.15 s and final at 1.9 s.
    steps = [(1.1, 0.05, "", "A b."), (1.8, 0.1, "a b", "")]
    early = a_trace("a b", steps, ends=(0.5, 1.0))
    late = a_trace("a b", [(1.1, 0.05, "a", ""), (1.8, 0.1, "a b", "")], ends=(0.5, 1.0))
    figures = compute([early, late])
    assert [figures[f"final_shown_{ms}ms_ca"] for ms in (200, 500, 1000)] == [50, 50, 100]
    gains = [figures[f"final_gain_{ms}ms_ca_s"] for ms in (200, 500, 1000)]
    assert gains == pytest.approx([0.7, 0.4, 0.0])
    # "a" and "b" of the first had been there since 1.15 s when they were committed at 1.9 s.
    assert figures["stable_before_commit_mean_ca_s"] == pytest.approx((0.75 + 0.75) / 4)
    assert figures["stable_before_commit_p50_ca_s"] == pytest.approx(0.375)


def test_an_empty_text_is_nothing_to_act_on():
    figures = compute([a_trace("a b", [(1.5, 0.0, "", "")], ends=(0.5, 1.0))])
    assert figures["final_shown_1000ms_ca"] == 0.0
    assert figures["final_gain_1000ms_ca_s"] is None


def test_without_word_times_there_is_none_of_it():
    figures = compute([a_trace("a b", [(1.5, 0.0, "a b", "")])])
    assert {name for name in RATES if figures[name] is not None} == set()
    assert set(COLUMNS) <= set(METRICS)


# -- planted faults -------------------------------------------------------------------------------

TEXT = """we have made the new house for all of them who came over from that old town near a river
and it was not easy to find what they need so people work every day with their hands until night"""
WORDS = TEXT.split()
PAUSE_S = 0.5


class Drawn(NamedTuple):
    """A recording and what is written of each of its words, some of them wrong."""

    words: list[TimedWord]
    written: list[str]
    step_s: float


def a_drawn(rng):
    """A recording of some 20 to 40 s, transcribed with errors, none of them a loss at a pause."""
    words = []
    at_s = rng.uniform(0.1, 2.0)
    n_until_pause = rng.randint(6, 14)
    for _ in range(rng.randint(60, 110)):
        if n_until_pause == 0:
            at_s += rng.uniform(0.6, 2.0)
            n_until_pause = rng.randint(6, 14)
        length_s = rng.uniform(0.12, 0.45)
        words.append(TimedWord(rng.choice(WORDS), at_s, at_s + length_s))
        at_s += length_s + rng.uniform(0.0, 0.15)
        n_until_pause -= 1
    written = []
    for i, word in enumerate(words):
        draw = rng.random()
        text = word.text
        if draw < 0.02:
            text = rng.choice(WORDS)
        elif draw < 0.07:
            text += rng.choice(["s", "d", "n", "t", "er"])
        elif draw < 0.08:
            text = f"{text} {rng.choice(WORDS)}"
        elif draw < 0.10 and not is_at_pause(words, i):
            text = ""
        written.append(text)
    return Drawn(words, written, rng.choice([0.3, 0.5, 1.0]))


def is_at_pause(words, i):
    """Whether a word is within 1.2 s of a pause, the start or the end."""
    places = [0.0, *(t for k in pauses(words) for t in (words[k - 1].end, words[k].start))]
    places = [words[0].start, *places, words[-1].end]
    return any(abs(words[i].start - t) < 1.2 or abs(words[i].end - t) < 1.2 for t in places)


def pauses(words):
    return [k for k in range(1, len(words)) if words[k].start - words[k - 1].end >= PAUSE_S]


def streamed(drawn, muted=None):
    """Shows each word some time after it ended, behind it a guess; nothing new while `muted`."""
    rng = random.Random(len(drawn.words))
    end_s = drawn.words[-1].end + 0.6
    steps, shown = [], ""
    pairs_of_words = list(zip(drawn.words, drawn.written, strict=True))
    n_steps = int(end_s / drawn.step_s) + 1
    for k in range(1, n_steps + 1):
        at_s = min(k * drawn.step_s, end_s)
        is_last = k == n_steps
        heard = [t for w, t in pairs_of_words if w.end + 0.3 < at_s or is_last]
        if muted is None or not muted[0] <= at_s < muted[1] or is_last:
            shown = " ".join(heard)
        guess = rng.choice(["", "", "", shown and "uhu"])
        displayed = shown if is_last or muted else f"{shown} {guess}".strip()
        committed = shown if is_last else ""
        kind = "flush" if is_last else "audio"
        steps.append(a_step(at_s, rng.uniform(0.01, 0.2), committed, displayed, kind=kind))
    reference = " ".join(word.text for word in drawn.words)
    return Trace("u", reference, end_s, steps=queued(steps), words=tuple(drawn.words))


def without(drawn, indices):
    lost = set(indices)
    written = ["" if i in lost else text for i, text in enumerate(drawn.written)]
    return drawn._replace(written=written)


def _first(drawn, rng):
    until = drawn.words[0].start + rng.uniform(0.01, 1.0)
    return streamed(without(drawn, (i for i, w in enumerate(drawn.words) if w.start < until)))


def _after(drawn, rng):
    k = rng.choice(pauses(drawn.words))
    until = drawn.words[k].start + rng.uniform(0.01, 1.0)
    lost = (i for i, w in enumerate(drawn.words) if i >= k and w.start < until)
    return streamed(without(drawn, lost))


def _before(drawn, rng):
    k = rng.choice(pauses(drawn.words))
    since = drawn.words[k - 1].end - rng.uniform(0.01, 1.0)
    lost = (i for i, w in enumerate(drawn.words) if i < k and w.end > since)
    return streamed(without(drawn, lost))


def _mute(drawn, rng):
    begin = rng.uniform(0.0, 3.0)
    return streamed(drawn, (begin, begin + rng.uniform(9.0, 15.0)))


FAULTS = {
    "first_words_dropped": _first,
    "words_dropped_after_pauses": _after,
    "words_dropped_before_pauses": _before,
    "textless_over_5s_ca": _mute,
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name):
    rng = random.Random(name)
    missed = []
    for k in range(100):
        trace = FAULTS[name](a_drawn(rng), rng)
        if not pairs(trace)[name][0]:
            missed.append((k, trace.reference, trace.hypothesis))
    assert len(missed) <= 5, missed


def test_clean_logs_raise_no_alarm():
    rng = random.Random(5)
    alarms = []
    for k in range(300):
        trace = streamed(a_drawn(rng))
        found = [name for name in FAULTS if pairs(trace)[name][0]]
        if found:
            alarms.append((k, found, trace.reference, trace.hypothesis))
    assert len(alarms) <= 3, alarms
