"""Words on non-speech, ends lost and invented, repeats and the growth of memory, by hand."""

import random
from dataclasses import replace

import msgspec
import pytest
from rapidfuzz.distance import Levenshtein
from traces import a_step, a_trace

from streaming_asr.metrics import Trace, compute, queued, utterance_line
from streaming_asr.metrics.ordinary import (
    WordPlace,
    nonspeech,
    ordinary,
    place,
    repeated_words,
)
from streaming_asr.metrics.published import DEFINITIONS, value
from streaming_asr.utterance import TimedWord


def said(reference, hypothesis, **fields):
    """A recording of 2 s without word times."""
    return a_trace(reference, [(2.0, 0.1, hypothesis, "")], **fields)


def repeated_by_hand(written):
    """The definition, every phrase compared with every other."""
    n_repeated = begin = 0
    while begin < len(written):
        most, end = 0, begin + 1
        for size in range(1, (len(written) - begin) // 2 + 1):
            phrase = written[begin : begin + size]
            copies = 0
            while written[begin + (copies + 1) * size :][:size] == phrase:
                copies += 1
            if copies * size > most:
                most, end = copies * size, begin + (copies + 1) * size
        n_repeated += most
        begin = end
    return n_repeated


def test_repeats_are_those_of_the_definition():
    rng = random.Random(2)
    for _ in range(500):
        written = rng.choices("abcd"[: rng.randint(1, 4)], k=rng.randint(0, 24))
        written *= rng.choice([1, 1, 2, 3])
        places = [WordPlace(0, False, True)] * len(written)
        assert repeated_words(written, places) == repeated_by_hand(written), written


def place_by_hand(spoken, written):
    """Read a best alignment from the start: a pair before a deletion, that before an insertion."""
    places, i = [], 0
    for j, word in enumerate(written):
        left = Levenshtein.distance(spoken[i:], written[j:])
        while i < len(spoken):
            is_right = spoken[i] == word
            behind = Levenshtein.distance(spoken[i + 1 :], written[j + 1 :])
            if left == behind + (not is_right):
                places.append(WordPlace(i, is_right, False))
                i += 1
                break
            if left != Levenshtein.distance(spoken[i + 1 :], written[j:]) + 1:
                places.append(WordPlace(i, False, True))
                break
            i, left = i + 1, left - 1
        else:
            places.append(WordPlace(i, False, True))
    return places


def test_the_alignment_is_the_best_one_that_is_read_from_the_start():
    rng = random.Random(1)
    for _ in range(500):
        letters = rng.choice(["ab", "abc", "abcdefgh"])
        spoken, written = (rng.choices(letters, k=rng.randint(0, 12)) for _ in range(2))
        if rng.random() < 0.5:
            written = [rng.choice([*letters, word, word, word]) for word in spoken]
        assert place(spoken, written) == place_by_hand(spoken, written)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "dropped", "invented"),
    [
        ("the cat sat", "the cat sat", 0, 0),
        ("the cat sat", "the cat", 1, 0),
        ("the cat sat", "the cat sat sat down", 0, 2),
        ("the cat sat", "the cat sad", 0, 0),  # another word is neither lost nor invented
        ("the cat sat", "the dog sat", 0, 0),
        ("the cat sat", "a cat sad and slept", 0, 2),
        ("the cat sat", "", 3, 0),
        ("with us", "with us us us", 0, 2),
        ("with us", "for us us us", 0, 2),  # the first "us" is the spoken one
        ("go to to", "go to", 1, 0),
        ("well", "well...", 0, 0),  # the normaliser's lone point is no word
    ],
)
def test_last_words(reference, hypothesis, dropped, invented):
    counts = ordinary(said(reference, hypothesis))
    assert (counts.dropped, counts.invented) == (dropped, invented)


def test_last_words_are_shares_of_the_recordings_with_words():
    traces = [said("the cat", "the"), said("the cat", "the cat"), said("", "you"), said("a", "a b")]
    figures = compute(traces)
    assert figures["last_words_dropped"] == pytest.approx(100 / 3)
    assert figures["last_words_invented"] == pytest.approx(100 / 3)
    assert compute([said("", "")])["last_words_dropped"] is None


@pytest.mark.parametrize(
    ("reference", "hypothesis", "repeated"),
    [
        ("I know that that is so", "I know that that is so", 0),
        ("no no no", "no no no", 0),
        ("no no no", "no no no no no", 2),
        ("the Far Eastern", "the Far Eastern-in-in-in", 2),  # of three, two repeat the first
        ("come with us", "come with us s s s s", 3),
        ("to be or not", "to be to be to be", 4),  # in the place of other words
        ("press one or two", "press one or two press one or two", 4),
        ("press one or two press one or two", "press one or two press one or two", 0),
        ("press one or two press one or two", "press one or six press one or six", 1),
        ("the cat sat", "the cat sat on the cat", 0),  # not at once
        ("", "you you you", 2),
        ("a rose", "a rose is a rose is a", 3),  # whole copies: "a rose is"
    ],
)
def test_words_in_repeats(reference, hypothesis, repeated):
    assert ordinary(said(reference, hypothesis)).repeated == repeated


def test_words_in_repeats_are_counted_per_100_reference_words():
    figures = compute([said("the cat sat down", "the cat sat down down"), said("", "you you")])
    assert figures["repeated_words_per_100"] == pytest.approx(25 + 25)
    assert compute([said("", "you you")])["repeated_words_per_100"] is None


# "the cat" until 1.0 s, "sat" from 9.0 to 9.2 s, so nothing is said from 1.5 to 8.5 and from 9.7 s.
ENDS = (0.6, 1.0, 9.2)
STRETCHES = [(2, 1.5, 8.5), (3, 9.7, 12.0)]


def with_a_pause(*steps):
    return a_trace(
        "the cat sat", [(a, 0.0, committed, partial) for a, committed, partial in steps],
        ends=ENDS, duration_s=12.0,
    )  # fmt: skip


def test_non_speech_lasts_a_second_half_a_second_from_every_word():
    trace = with_a_pause((12.0, "", ""))
    assert [tuple(map(pytest.approx, s)) for s in STRETCHES] == nonspeech(trace)
    short = a_trace("a b", [(4.0, 0.0, "", "")], ends=(1.6, 3.7))  # 0.9, 0.9 and no seconds
    assert nonspeech(short) == []
    assert nonspeech(said("", "")) == [(0, 0.0, 2.0)]
    assert nonspeech(said("the cat", "")) is None  # no times


@pytest.mark.parametrize(
    ("steps", "n_words"),
    [
        ([(12.0, "the cat sat", "")], 0),
        ([(4.0, "the cat", "you"), (12.0, "the cat you sat", "")], 1),
        ([(12.0, "the cat sat sat sat", "")], 2),
        ([(12.0, "the big cat sat", "")], 0),  # inserted, but within speech
        ([(12.0, "the cat had", "")], 0),  # in the place of a word
        # shown by 1.5 s, so of what was said
        ([(1.4, "the", "cat you"), (12.0, "the cat you sat", "")], 0),
        ([(1.4, "the", "cat you"), (4.0, "the cat", ""), (12.0, "the cat sat", "")], 0),  # gone
        ([(1.4, "the", "hat"), (12.0, "the cat you sat", "")], 1),
    ],
)
def test_words_on_non_speech(steps, n_words):
    trace = with_a_pause(*steps)
    assert ordinary(trace).nonspeech_words == n_words
    assert compute([trace])["words_on_nonspeech_per_min"] == pytest.approx(n_words / (9.3 / 60))


def test_on_a_recording_without_words_every_word_is_on_non_speech():
    quiet = said("", "Thank you.", duration_s=30.0)
    assert compute([quiet])["words_on_nonspeech_per_min"] == pytest.approx(4.0)
    assert utterance_line(quiet)["ordinary"]["nonspeech_s"] == 30.0
    # What failed was not silent, and without times nobody knows.
    failed = replace(quiet, steps=(), error="no memory")
    for left_out in (failed, said("the cat", "the cat you")):
        assert compute([left_out])["words_on_nonspeech_per_min"] is None


def growing(duration_s, mib, **fields):
    """Steps of 20 s, and what memory each left."""
    steps = []
    for k, each in enumerate(mib, start=1):
        made = a_step(20.0 * k, 0.0, "", "")
        n_bytes = None if each is None else round(each * 2**20)
        steps.append(replace(made, step=msgspec.structs.replace(made.step, memory_bytes=n_bytes)))
    return Trace("u", "", duration_s, queued(steps), words=(TimedWord("a", 0, 1),), **fields)


def test_memory_growth_is_the_slope_over_the_second_half():
    # the first half warms up; then 3 MiB every 20 s
    grows = growing(120.0, [50.0, 90.0, 100.0, 103.0, 106.0, 109.0])
    stays = growing(120.0, [50.0, 90.0, 100.0, 100.0, 100.0, 100.0])
    assert ordinary(grows).memory_growth == pytest.approx(9.0)
    assert compute([grows, stays])["memory_growth_mib_per_min"] == pytest.approx(4.5)


def test_memory_growth_needs_a_minute_and_a_stream_of_its_own():
    for trace in (
        growing(40.0, [1.0, 2.0]),
        growing(120.0, [None] * 6),
        growing(120.0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], batch=2),
        growing(120.0, []),
    ):
        assert ordinary(trace).memory_growth is None


# -- Ends of turns: the worked example of docs/metrics.md, and what is passed over --


# Two turns with four seconds between them.
WORDS = (TimedWord("the", 0.2, 0.5), TimedWord("cat", 0.6, 1.0), TimedWord("sat", 5.0, 5.4))
NAMES = (
    *("turns_cut_off", "turns_missed", "turn_end_delay_p50_ca_s", "turn_end_delay_p90_ca_s"),
    *("turn_final_natural_ca_s", "turn_final_forced_ca_s"),
)
EARLY = a_step(0.6, 0.1, "the", "the", kind="endpoint")
RIGHT = a_step(1.8, 0.1, "the cat", "the cat", kind="endpoint")
LAST = a_step(6.0, 0.1, "the cat sat", "the cat sat", kind="endpoint")
FLUSH = a_step(6.0, 0.1, "the cat sat", "the cat sat", kind="flush")


def found(*steps, duration_s=6.0):
    trace = Trace("u", "the cat sat", duration_s, tuple(queued(steps)), words=WORDS, language="en")
    figures = compute([trace])
    return [figures[name] for name in NAMES]


def test_an_end_told_in_a_turn_cuts_it_off_and_one_behind_it_has_a_delay():
    # Told at 0.7 and 1.9 s; the first turn ends at 1.0. The second ends 0.6 s before the recording
    # and no end of it was told, so it is not judged; its text is final at 6.1 s.
    assert found(EARLY, RIGHT, FLUSH) == pytest.approx([100, 0, 0.9, 0.9, None, 0.7])


def test_a_last_turn_whose_end_is_told_counts_and_ends_naturally():
    # Told at 6.1 s, 0.7 s after the word.
    assert found(EARLY, RIGHT, LAST, FLUSH) == pytest.approx([50, 0, 0.8, 0.88, 0.7, None])


def test_an_end_that_is_told_when_the_next_turn_has_begun_is_missed_and_cuts_that_one_off():
    late = a_step(5.1, 0.1, "the cat", "the cat", kind="endpoint")
    assert found(late, FLUSH) == pytest.approx([0, 100, None, None, None, 0.7])
    # With two seconds behind the last word that turn is judged too.
    flush = a_step(7.5, 0.1, "the cat sat", "the cat sat", kind="flush")
    cut_off, missed, *_ = found(late, flush, duration_s=7.5)
    assert (cut_off, missed) == (50, 100)


def test_a_pause_below_two_seconds_is_the_speakers_own():
    words = (TimedWord("the", 0.2, 0.5), TimedWord("cat", 2.4, 2.8))
    told = a_step(1.2, 0.1, "the", "the", kind="endpoint")
    flush = a_step(5.0, 0.1, "the cat", "the cat", kind="flush")
    trace = Trace("u", "the cat", 5.0, tuple(queued([told, flush])), words=words, language="en")
    assert compute([trace])["turns_cut_off"] == 100


def test_ends_are_counted_by_pauses_of_a_turn_and_by_its_minutes():
    starts = (0.0, 1.0, 1.7, 3.0, 4.5)  # pauses of 0.5, 0.2, 0.8 and 1 s
    words = tuple(TimedWord(f"w{k}", a, a + 0.5) for k, a in enumerate(starts))
    # 0.9 s lies in the first pause, 2.9 in the third; 3.2 comes after it, and counts to it too.
    ends = [a_step(at_s - 0.1, 0.1, "", "", kind="endpoint") for at_s in (0.9, 2.9, 3.2)]
    flush = a_step(8.0, 0.1, "", "", kind="flush")
    trace = Trace("u", "w", 8.0, tuple(queued([*ends, flush])), words=words, language="en")
    figures = compute([trace])
    assert figures["pauses_cut_off"] == 50
    assert figures["turns_cut_off_per_min"] == pytest.approx(3 * 60 / 5)


def test_a_method_that_tells_no_ends_has_no_figures_of_turns():
    assert found(FLUSH)[:5] == [None] * 5
    silent = a_step(6.0, 0.1, "", "", kind="flush")
    assert found(silent) == [None] * 6


# -- Published definitions --


# Words end at 0.5, 1.1 and 1.6 s. Texts come at 1.2 s ("the"), 2.3 s ("the cat", "the" final) and
# 3.1 s (all final); chunks are sent at 1, 2 and 2.5 s, and the audio lasts 2.5 s.
STEPS = [(1.0, 0.2, "", "the"), (2.0, 0.3, "the", "cat"), (2.5, 0.6, "the cat sat", "")]
TRACE = a_trace("the cat sat", STEPS, ends=(0.5, 1.1, 1.6))
SECONDS = {
    # From 1, 2 and 2 s, when the chunks with the words' ends were sent.
    "picovoice_word_emission": (0.2 + 0.3 + 1.1) / 3,
    "assemblyai_emission": 0.3,
    "assemblyai_ttct": 3.1 - 2.0,
    # Least and most: 1.2 - 0.5 and 1.2; 2.3 - 1.1 and 2.3 - 0.5; 2.5 - 1.6 and 2.5 - 1.1 s;
    # the new words last 0.2 s each.
    "openbench_streaming": ((0.7 + 1.2) / 2 + (1.2 + 1.8) / 2 + (0.9 + 1.4) / 2) / 3,
    # "the" at 2.3 s: 1.8 and 2.3 s, 0.2 s long. "cat sat" from 0.9 to 1.6 s: 0.9 and 2.0 s.
    "openbench_confirmed": (0.2 * (1.8 + 2.3) / 2 + 0.7 * (0.9 + 2.0) / 2) / 0.9,
    "coval_ttft": 1.2,
    "coval_audio_to_final": 3.1,
    "coval_ttfs": 1.5,
    "pipecat_ttfs": 1.5,
    "livekit_transcription_delay": 1.5,
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_definition_gives_what_its_formula_gives(name):
    assert value(name, [TRACE]) == pytest.approx(SECONDS[name], abs=1e-6)


def test_words_before_their_audio_are_left_out_or_count_0_or_less():
    """The text is final at 0.5 s, its last word ends at 0.9 s."""
    early = a_trace("a b", [(0.5, 0.0, "a b", ""), (1.0, 0.0, "a b", "")], ends=(0.4, 0.9))
    assert value("assemblyai_emission", [early]) == 0.0  # of "a"
    assert value("picovoice_word_emission", [early]) == pytest.approx((0.0 - 0.5) / 2)
    assert value("assemblyai_ttct", [early]) is None
    assert value("coval_ttfs", [early]) is None
    assert value("pipecat_ttfs", [early]) == pytest.approx(-0.4)
    assert value("livekit_transcription_delay", [early]) == 0.0


def test_a_failed_recording_has_no_latency():
    failed = a_trace("a b", [], ends=(0.4, 0.9), error="broken")
    assert {value(name, [failed]) for name in DEFINITIONS} == {None}
