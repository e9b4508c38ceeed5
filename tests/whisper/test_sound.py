"""Word times without the pauses around a word."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pauses import voices, with_pauses

from streaming_asr.config.settle import compose
from streaming_asr.corpora import Mini
from streaming_asr.method import SAMPLE_RATE, Word
from streaming_asr.run.cell import method_of
from streaming_asr.streaming import stream
from streaming_asr.whisper.sound import Sound
from streaming_asr.whisper.words import Emitter

SILENCES_S = (0.4, 0.7, 1.5, 3.0, 9.0)


def tone(*seconds_and_level: tuple[float, float]) -> np.ndarray:
    """Return noise of each level in turn."""
    rng = np.random.default_rng(0)
    pieces = [
        level * rng.standard_normal(round(seconds * SAMPLE_RATE))
        for seconds, level in seconds_and_level
    ]
    return np.concatenate(pieces).astype(np.float32)


@pytest.mark.parametrize(
    ("interval", "times"),
    [
        ((0.0, 1.4), (1.0, 1.4)),  # the pause before it is no part of a word
        ((1.6, 4.0), (1.6, 2.0)),  # nor the pause after it
        ((1.9, 4.4), (4.0, 4.4)),  # of two parts the longer one
        ((1.2, 1.6), (1.2, 1.6)),  # a word in mid-speech stays
        ((2.4, 2.9), (2.0, 2.0)),  # in a pause: to the nearest sound
        ((3.0, 3.5), (4.0, 4.0)),
        ((0.1, 0.5), (1.0, 1.0)),  # where none is before it
        ((2.5, 4.02), (2.0, 2.0)),  # the next word's edge is not the word's own
        ((7.0, 8.0), (7.0, 8.0)),  # nothing is known of audio to come
    ],
)
def test_a_pause_is_no_part_of_a_word(
    interval: tuple[float, float], times: tuple[float, float]
) -> None:
    sound = Sound()
    sound.hear(tone((1.0, 0.0), (1.0, 0.1), (2.0, 0.0), (1.0, 0.1)))
    assert sound.without_pauses(*interval) == pytest.approx(times)


def test_where_no_pause_can_be_seen_times_stay() -> None:
    sound = Sound()
    sound.hear(tone((1.0, 0.01), (1.0, 0.02), (1.0, 0.01)))
    assert sound.without_pauses(0.0, 2.5) == (0.0, 2.5)
    assert Sound().without_pauses(0.0, 2.5) == (0.0, 2.5)


def test_a_click_before_a_word_is_not_its_beginning() -> None:
    sound = Sound()
    sound.hear(tone((0.5, 0.0), (0.04, 0.1), (0.8, 0.0), (1.0, 0.1)))
    assert sound.without_pauses(0.0, 2.0) == pytest.approx((1.34, 2.0))


def test_the_levels_do_not_depend_on_the_pieces_and_the_memory_is_bounded() -> None:
    samples = tone((1.0, 0.0), (1.0, 0.1), (100.0, 0.001), (1.0, 0.1))
    whole, pieces = Sound(), Sound()
    whole.hear(samples)
    for begin in range(0, len(samples), 4567):
        pieces.hear(samples[begin : begin + 4567])
    assert whole.first == pieces.first == len(samples) // 320 - 4500
    np.testing.assert_array_equal(whole.levels_db, pieces.levels_db)
    assert pieces.without_pauses(90.0, 103.0) == pytest.approx((102.0, 103.0))
    assert pieces.without_pauses(1.0, 2.5) == (1.0, 2.5)  # its audio is gone


@pytest.mark.parametrize("noise_db", [None, -50.0])
@pytest.mark.parametrize("silence_s", SILENCES_S)
def test_speech_after_silence_begins_where_the_voice_does(
    silence_s: float, noise_db: float | None
) -> None:
    """The path of an alignment without a gap: each word begins where the one before ends."""
    clips = voices()[:4]
    samples, words = with_pauses(clips, [silence_s] * 4, noise_db=noise_db)
    sound = Sound()
    sound.hear(samples)
    ends_s = [0.0, *(word.end for word in words)]
    for word, before_s in zip(words, ends_s, strict=False):
        start_s, end_s = sound.without_pauses(before_s, word.end)
        assert start_s == pytest.approx(word.start, abs=0.3), word
        assert end_s == pytest.approx(word.end, abs=0.3), word
    for word, after in pairwise(words):
        assert sound.without_pauses(word.start, after.start)[1] == pytest.approx(word.end, abs=0.3)


def test_words_that_are_aligned_last_a_frame_and_stay_in_order() -> None:
    emitter = Emitter("en", Sound())
    emitter.emit(" a", 0.0, 1.0, 2.0, None)
    words = [emitter.emit(f" {i}", 1.0, 1.0, 2.0, None) for i in range(3)]
    assert [(w.start, w.end) for w in words] == [
        pytest.approx(times) for times in [(1.0, 1.02), (1.02, 1.04), (1.04, 1.06)]
    ]
    last = emitter.emit(" z", 2.5, 2.5, 2.0, None)
    assert (last.start, last.end) == pytest.approx((1.98, 2.0))


@pytest.mark.parametrize("name", ["offline", "hush_word", "u2", "simul_whisper", "star"])
def test_the_first_word_after_a_pause_is_timed_where_it_begins(name: str) -> None:
    clips = sorted(Mini().utterances(), key=lambda each: each.duration_s)[:2]
    samples, reference = with_pauses(clips, [1.0, 3.0])
    config = compose([f"method={name}", "model=mini", "chunk=1s", "gate=speech"])
    words: list[Word] = []
    for update in stream(method_of(config)[0], samples, SAMPLE_RATE, chunk="1s"):
        words += update.committed
    first = reference[len(clips[0].words or ())]
    begin_s, pause_s, again_s = reference[0].start - 0.3, first.start - 3.0, first.start - 0.3
    starts_s = [word.start or 0.0 for word in words]
    # The model's text may be wrong; where there is no voice no word begins.
    assert not [s for s in starts_s if s < begin_s or pause_s < s < again_s]
    assert min(starts_s) < begin_s + 0.6
    assert min(s for s in starts_s if s > pause_s) < again_s + 0.6
