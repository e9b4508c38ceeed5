"""What recipes share: the score on dev by streaming, chunks, the card."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from recipes import toy_corpus

from streaming_asr.corpora.shards import by_voice, read_shards
from streaming_asr.errors import UserError
from streaming_asr.method import Update, Word
from streaming_asr.training import vocabulary
from streaming_asr.training.recipe import (
    CorpusRecipe,
    first_chunk_frames,
    random_chunk,
    stream_dev_wer,
)
from streaming_asr.training.vocabulary import vocabulary_loss
from streaming_asr.training.windows import (
    NO_AUGMENT,
    WindowOptions,
    as_int16,
    augmented,
    check_augment,
    complete_window,
    draw_window,
    from_int16,
)
from streaming_asr.training.word_tokens import tokens_in_frames, write_labels
from streaming_asr.utterance import Utterance


@dataclass
class Letters:
    """Says `a` for the first delivery, `b` for the second ...; takes one back where it is asked."""

    lookahead_samples: int = 40
    takes_back: bool = False
    heard: list[tuple[int, int, bool]] = field(default_factory=list)

    def start(self, *, language=None, recorder=None):
        self.recorder = recorder
        return [len(self.heard)]

    def step(self, state, audio, *, last):
        self.heard.append((state[0], len(audio), last))
        self.recorder.count(tokens=1)
        state.append(0)
        word = Word(f" {chr(95 + len(state))}")
        return Update((word,), (), retracted=int(self.takes_back and len(state) > 2))


class InPhase(Letters):
    languages: ClassVar[list[tuple[int, str | None]]] = []

    def start_many(self, n, *, language=None, recorder=None):
        self.recorder = recorder
        self.languages.append((n, language))
        return [[row] for row in range(n)]

    def step_many(self, states, audio, *, last):
        return [self.step(s, a, last=e) for s, a, e in zip(states, audio, last, strict=True)]


def dev(*texts_and_lengths):
    return [
        Utterance(str(i), text, lambda n=n: np.zeros(n, np.float32), n / 16_000)
        for i, (text, n) in enumerate(texts_and_lengths)
    ]


def test_dev_is_fed_as_the_simulator_feeds_it_one_stream_after_the_other():
    method = Letters()
    wer, counts = stream_dev_wer(method, dev(("a b c", 640), ("a x", 200)), 320, 240)
    assert method.heard == [(0, 280, False), (0, 320, False), (0, 40, True), (3, 200, True)]
    assert wer == pytest.approx(100 * 1 / 5)  # x is missing
    assert counts["tokens"] == 4  # one in each step


def test_a_method_that_can_advances_all_streams_in_phase():
    method = InPhase()
    stream_dev_wer(method, dev(("a b", 400), ("a b c", 640)), 320, 240)
    assert [(row, n) for row, n, _ in method.heard] == [
        (0, 280), (1, 280), (0, 120), (1, 320), (1, 40)
    ]  # fmt: skip


def test_dev_in_two_languages_is_streamed_and_normalised_in_each():
    spoken = dev(("a b", 400), ("um a b", 400), ("a b", 400))
    mixed = [replace(u, language=each) for u, each in zip(spoken, ("en", "de", "en"), strict=True)]
    method = InPhase()
    method.languages.clear()
    wer, _ = stream_dev_wer(method, mixed, 320, 240)
    assert method.languages == [(1, "de"), (2, "en")]
    assert wer == pytest.approx(100 * 1 / 7)  # um is no word in English alone
    stream_dev_wer(method, mixed, 320, 240, language="fr")
    assert method.languages[2:] == [(3, "fr")]


def test_what_is_taken_back_does_not_count():
    method = Letters(takes_back=True)
    assert stream_dev_wer(method, dev(("c", 640)), 320, 240)[0] == 0


def test_a_random_chunk_lasts_0_1_to_1_s_and_the_first_is_one_chunk_or_a_streams_default():
    drawn = {random_chunk(random.Random(i)) for i in range(2000)}
    assert {chunk for chunk, _ in drawn} == set(range(5, 51))
    assert {first for chunk, first in drawn if chunk == 7} == {7, 35}
    assert [first_chunk_frames(chunk) for chunk in (5, 15, 20, 30, 50)] == [30, 30, 40, 30, 50]


def test_dev_has_no_utterance_that_is_trained_on_and_a_warning_for_its_speakers(tmp_path, capsys):
    toy_corpus(tmp_path)
    shard, manifest = tmp_path / "shard-000.jsonl", tmp_path / "dev.jsonl"
    rows = [
        json.loads(line) | {"id": f"u{i}"} for i, line in enumerate(shard.read_text().splitlines())
    ]
    shard.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = json.loads(manifest.read_text().splitlines()[0])
    made = {"train_data": str(tmp_path), "dev_manifest": str(manifest), "seed": 7}
    for change, warned in (({}, False), ({"speaker": "voice1"}, True), ({"id": "u1"}, False)):
        manifest.write_text(json.dumps(first | change))
        CorpusRecipe(augment=None, n_dev=None, **made)
        text = "warning: dev_manifest=" in capsys.readouterr().err
        assert text == warned
    manifest.write_text(json.dumps(first | {"id": "u1", "text": rows[1]["text"].upper() + "."}))
    with pytest.raises(UserError, match="1 of its 1 utterances are in train_data, as u1"):
        CorpusRecipe(augment=None, n_dev=None, **made)


def test_the_card_tells_corpora_seed_and_what_the_recipe_adds(tmp_path):
    toy_corpus(tmp_path)
    made = CorpusRecipe(
        augment=None,
        train_data=str(tmp_path),
        dev_manifest=str(tmp_path / "dev.jsonl"),
        n_dev=1,
        seed=7,
    )
    made.write_card(tmp_path, "of tests", "")
    told = json.loads((tmp_path / "training.json").read_text())
    hours = sum(item.n_samples for item in made.items) / 16_000 / 3600
    assert told == {
        "method": "of tests", "seed": 7, "augment": None, "n_dev": 1, "dev": "dev.jsonl",
        "train_data": tmp_path.name, "train_hours": round(hours, 2), "languages": ["en"],
    }  # fmt: skip


# -- Samples of 16 bits: what the shards hold comes back, other samples are rounded --


def test_samples_of_16_bits_come_back_as_they_were_and_others_are_rounded():
    exact = np.array([-32768, -1, 0, 1, 32767], np.int16)
    samples = exact.astype(np.float32) / np.float32(32768)  # as a shard gives them
    assert as_int16([samples]).tolist() == [exact.tolist()]
    assert np.array_equal(from_int16(as_int16([samples]))[0].numpy(), samples)
    other = np.array([1.0, -1.0, 0.4 / 32768, 0.6 / 32768])
    assert as_int16([other]).tolist() == [[32767, -32768, 0, 1]]


def test_zeros_stand_behind_shorter_windows():
    windows = [np.ones(3, np.float32), -np.ones(1, np.float32)]
    assert as_int16(windows).tolist() == [[32767] * 3, [-32768, 0, 0]]


# -- The loss over a vocabulary in slices: the numbers and gradients of one product --


def example(n):
    torch.manual_seed(n)
    hidden = torch.randn(n, 16, requires_grad=True)
    return hidden, torch.randn(50, 16), torch.randint(0, 50, (n,))


@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_loss_gradient_and_likeliest_are_those_of_one_product(n, monkeypatch):
    monkeypatch.setattr(vocabulary, "ROWS", 8)
    hidden, weight, labels = example(n)
    loss, likeliest = vocabulary_loss(hidden, weight, labels)
    (3 * loss).backward()
    found = hidden.grad.clone()
    hidden.grad = None
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, labels)
    (3 * expected).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(found, hidden.grad, atol=1e-6)
    assert likeliest.tolist() == logits.argmax(-1).tolist()


def test_autocast_multiplies_in_its_type_and_the_gradient_keeps_the_hidden_states(monkeypatch):
    hidden, weight, labels = example(20)
    exact, _ = vocabulary_loss(hidden, weight, labels)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = vocabulary_loss(hidden, weight, labels)
    loss.backward()
    assert hidden.grad.dtype == torch.float32
    assert loss.item() != exact.item() and loss.item() == pytest.approx(exact.item(), rel=0.02)


def test_nothing_is_learned_of_no_row():
    hidden = torch.zeros(0, 16, requires_grad=True)
    loss, likeliest = vocabulary_loss(hidden, torch.randn(50, 16), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0 and len(likeliest) == 0 and hidden.grad.shape == (0, 16)


# -- Tests of the one rule that places a word's tokens in frames --


WORD = [("word", 0.10, 0.42, 0)]
TOKENS = (7, 8, 9)


@pytest.mark.parametrize(
    "options, frames",
    [
        # Edges at 0.1, 0.2067, 0.3133 and 0.42 s; frames of 20 ms, their middles at 10, 30, ... ms.
        ({}, [(5, 10), (10, 16), (16, 21)]),
        # WhisperRT: where each of 20 ms begins.
        ({"point_s": 0.0}, [(5, 11), (11, 16), (16, 21)]),
        # U2's rows of 40 ms.
        ({"frame_s": 0.04}, [(2, 5), (5, 8), (8, 10)]),
        # ChunkFormer's frames, centred at 82.5, 162.5, 242.5, 322.5 and 402.5 ms.
        ({"frame_s": 0.08, "point_s": 0.0825}, [(1, 2), (2, 3), (3, 5)]),
        # Middles at 0.1, 0.3 and 0.5 s: the third token is spoken at none of them.
        ({"frame_s": 0.2}, [(0, 1), (1, 2), (2, 2)]),
    ],
)
def test_the_tokens_of_a_word_share_its_time(options, frames):
    placed = list(tokens_in_frames(WORD, lambda word: TOKENS, **options))
    assert placed == [(token, *each) for token, each in zip(TOKENS, frames, strict=True)]


@pytest.mark.parametrize("middle", range(0, 100))
def test_an_edge_in_the_middle_of_a_frame_gives_it_to_what_begins_there(middle):
    edge_s = 0.01 + 0.02 * middle  # a float on either side of the middle
    words = [("a", edge_s - 0.01, edge_s, 0), ("b", edge_s, edge_s + 0.1, 0)]
    (_, _, end), (_, first, stop) = tokens_in_frames(words, lambda word: [1])
    assert (end, first, stop) == (middle, middle, middle + 5)


def test_a_word_without_tokens_has_no_frames_and_none_lies_before_the_window():
    words = [("...", 0.0, 0.2, 0), ("b", -0.3, 0.1, 0)]
    tokens_of = {"...": [], "b": [1, 2]}.__getitem__
    assert list(tokens_in_frames(words, tokens_of)) == [(1, 0, 0), (2, 0, 5)]


def test_a_token_without_a_frame_gets_one_if_no_other_begins_there():
    labels = np.zeros(6, np.int64)
    tokens = [(1, 0, 2), (2, 2, 2), (3, 2, 3), (4, 4, 4)]
    assert write_labels(labels, iter(tokens)).tolist() == [1, 1, 3, 0, 4, 0]


# -- training windows --

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


def drawn(items, n, augment):
    rng, voices = random.Random(5), by_voice(items)
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
