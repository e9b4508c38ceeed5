"""Training windows: what is drawn from a seed, and what augmentation does to the speech."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace

import numpy as np
import pytest
from toy_corpus import toy_corpus

from streaming_asr.corpora.shards import by_voice, read_shards
from streaming_asr.errors import UserError
from streaming_asr.training.windows import (
    NO_AUGMENT,
    WindowOptions,
    augmented,
    check_augment,
    complete_window,
    draw_window,
)

PLAIN = WindowOptions(15.0, several=0.0, crop_end=0.0, crop_start=0.0, timestamps=0.0, prompt=0.0)
SILENCE = {"silence_after": 1.0, "silence_after_s": 10}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return read_shards(toy_corpus(tmp_path_factory.mktemp("corpus")))


def told(windows):
    """A hash of everything but the samples, and the samples' sum of squares."""
    rows = [
        [
            len(w.audio),
            [[text, round(a, 6), round(b, 6), i] for text, a, b, i in w.words],
            w.prompt,
            w.timestamps,
            w.cut_end,
        ]
        for w in windows
    ]
    squares = sum(float(np.square(w.audio, dtype=np.float64).sum()) for w in windows)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16], pytest.approx(squares)


def drawn(items, n, augment, rng=None):
    rng, voices = rng or random.Random(5), by_voice(items)
    options = augmented(PLAIN, augment)
    anchors = (items[rng.randrange(len(items))] for _ in range(n))
    return [draw_window(rng, anchor, voices[anchor.voice], options) for anchor in anchors]


def test_the_draws_of_a_seed_stay_as_packaged_weights_were_trained(items):
    voices, rng = by_voice(items), random.Random("draws")
    options = WindowOptions(15.0)
    anchors = (items[rng.randrange(len(items))] for _ in range(40))
    plain = [draw_window(rng, anchor, voices[anchor.voice], options) for anchor in anchors]
    assert told(plain) == ("567f988eb2634888", 24007.555885717622)

    rng = random.Random("draws")
    whole = WindowOptions(15, several=0.6, crop_end=0, crop_start=0, timestamps=0, prompt=0)
    options = augmented(whole, {"speed": 0.5, "room": 0.2, "telephone": 0.15, "silence_after": 0.3})
    late = {"late_start": 0.1, "lead_s": 0.3}
    real = [complete_window(rng, voices, items, options, **late) for _ in range(40)]
    assert told(real) == ("e369ee9cbc2a1911", 17102.07142206903)


def test_without_augmentation_the_speech_is_as_it_is(items):
    by_text = {item.text: item.samples() for item in items}
    for window in drawn(items, 30, None):
        assert np.array_equal(window.audio, by_text[" ".join(w for w, *_ in window.words)])


@pytest.mark.parametrize("kind", ["zeros", "room", "noise"])
def test_up_to_ten_seconds_of_silence_follow_and_the_text_stays(items, kind):
    quiet = {"noise": 0, "empty": 0, "gain_db": [0, 0], "silences": [kind]}
    lengths = []
    for window in drawn(items, 40, SILENCE | quiet):
        spoken = next(i for i in items if i.text == " ".join(w for w, *_ in window.words))
        assert window.words == [(*word, 0) for word in spoken.words]
        assert np.array_equal(window.audio[: spoken.n_samples], spoken.samples())
        silence = window.audio[spoken.n_samples :]
        lengths.append(len(silence) / 16_000)
        power = float(np.mean(np.square(silence)))
        if kind == "zeros":
            assert power == 0
        elif kind == "noise":
            assert 1e-8 < power < 1e-3
        else:  # the toy's clips are noise: as loud as their quietest part
            samples = spoken.samples()
            assert 0.2 * float(np.mean(samples**2)) < power < 1.5 * float(np.mean(samples**2))
    assert min(lengths) < 2
    assert 8 < max(lengths) <= 10


def test_room_tone_is_coloured_as_the_clip_is(items):
    white = np.random.default_rng(3).standard_normal(32_000)
    low = (0.01 * np.convolve(white, np.ones(16) / 16, mode="same")).astype(np.float32)

    class Low:
        text, words, language = "a", (("a", 0.1, 0.5),), None

        def samples(self):
            return low

    quiet = {"noise": 0, "empty": 1, "gain_db": [0, 0], "silences": ["room"], "empty_s": [1, 10]}
    window = draw_window(random.Random(1), Low(), [Low()], augmented(PLAIN, quiet))
    heard, tone = (np.abs(np.fft.rfft(x, 16_000)) ** 2 for x in (low, window.audio))
    assert tone[:500].sum() / tone.sum() == pytest.approx(heard[:500].sum() / heard.sum(), abs=0.1)


def test_empty_windows_say_nothing_for_one_to_ten_seconds(items):
    kinds = {"empty": 1, "noise": 0, "silences": ["zeros", "noise"], "empty_s": [1, 10]}
    windows = drawn(items, 60, kinds)
    lengths = [len(window.audio) / 16_000 for window in windows]
    assert not any(window.words for window in windows)
    assert 1 <= min(lengths) < 2 < 9 < max(lengths) <= 10
    assert 15 < sum(not window.audio.any() for window in windows) < 45


def test_windows_of_many_clips_fill_the_context(items):
    options = augmented(
        WindowOptions(15.0, several=1.0, crop_end=0, crop_start=0), {"clips": [8, 8], "empty": 0}
    )
    rng, voices = random.Random(2), by_voice(items)
    windows = [draw_window(rng, items[0], voices[items[0].voice], options) for _ in range(20)]
    assert max(max(w[3] for w in window.words) for window in windows) > 4
    assert all(len(window.audio) <= 15 * 16_000 for window in windows)


@pytest.mark.parametrize("kind", ["zeros", "noise"])
def test_the_pauses_between_clips_are_as_long_and_as_loud_as_is_set(items, kind):
    two = {"clips": [2, 2], "pause_s": [0.3, 0.5], "silences": [kind]}
    options = augmented(replace(PLAIN, several=1.0), NO_AUGMENT | two)
    rng = random.Random(4)
    pauses = []
    for _ in range(20):
        first, second = items[rng.randrange(len(items))], items[rng.randrange(len(items))]
        audio = draw_window(rng, first, [second], options).audio
        if len(audio) < 15 * 16_000:
            pause = audio[first.n_samples : len(audio) - second.n_samples]
            assert 0.299 <= len(pause) / 16_000 <= 0.5
            assert (float(np.mean(np.square(pause))) > 0) == (kind == "noise")
            pauses.append(len(pause))
    assert len(set(pauses)) > 8


def test_levels_are_clipped_at_full_scale(items):
    windows = drawn(items, 40, {"gain_db": [-30, 40], "empty": 0})
    peaks = [float(np.abs(window.audio).max()) for window in windows]
    assert max(peaks) == 1 and min(peaks) < 0.3


@pytest.mark.parametrize(
    ("augment", "wrong"),
    [
        ({"rooms": 0.2}, "augment='rooms': one of .* did you mean room"),
        ({"noise": 1.5}, r"augment.noise=1.5: a share of the windows, from 0 to 1"),
        ({"gain_db": [4, -12]}, r"augment.gain_db=\[4, -12\]: the least and the most"),
        ({"clips": [0, 4]}, r"augment.clips=\[0, 4\]: .*above 0"),
        ({"pause_s": [2, 0.3]}, r"augment.pause_s=\[2, 0.3\]: the least and the most, above 0"),
        ({"silence_after_s": 0}, "augment.silence_after_s=0: seconds, more than 0.1"),
        ({"silences": ["zero"]}, "augment.silences='zero': one of zeros, room, noise"),
        ({"silences": []}, "augment.silences=None: one of zeros, room, noise"),
    ],
)
def test_settings_out_of_range_are_refused(augment, wrong):
    with pytest.raises(UserError, match=wrong):
        check_augment(augment)
