"""Segments with timestamps: the rules against transformers', what is complete, long recordings."""

from __future__ import annotations

import random

import pytest
import torch
from tiny import noise, tiny_folder
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from streaming_asr.config.build import new_method
from streaming_asr.method import NULL
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.search import Hypothesis
from streaming_asr.whisper.timestamps import Timestamps, segmented
from streaming_asr.whisper.together import alone


def tiny() -> str:
    """The folder of a tiny Whisper."""
    return str(tiny_folder(seed=0, max_tokens=256))


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny())


def histories(whisper, n):
    """Token sequences that the rules allow, and some that end in each kind of token."""
    draw, first = random.Random(5), whisper.first_timestamp
    for _ in range(n):
        tokens, at = [first + draw.randrange(20)], draw.randrange(20)
        for _ in range(draw.randrange(4)):
            tokens += [draw.randrange(whisper.eot) for _ in range(draw.randrange(1, 4))]
            if draw.random() < 0.7:
                at = min(tokens[-1] if tokens[-1] > first else first + 20 + at, first + 150)
                tokens.append(at)
                if draw.random() < 0.6:
                    tokens.append(at)
        yield tokens[: draw.randrange(len(tokens) + 1)]


def test_the_rules_are_those_of_transformers(whisper):
    assert whisper.first_timestamp is not None
    settings = GenerationConfig(
        eos_token_id=whisper.eot,
        bos_token_id=whisper.eot,
        no_timestamps_token_id=whisper.first_timestamp - 1,
        max_initial_timestamp_index=50,
        is_multilingual=False,
    )
    settings._detect_timestamp_from_logprob = True
    theirs, ours = WhisperTimeStampLogitsProcessor(settings, begin_index=1), Timestamps(whisper)
    generator = torch.Generator().manual_seed(1)
    n_stamped = 0
    for i, tokens in enumerate(histories(whisper, 300)):
        logits = 3 * torch.randn(1, whisper.config.vocab_size, generator=generator)
        logits[:, whisper.first_timestamp :] += i % 5 - 2
        logits = (logits + ours.bias).log_softmax(-1)
        expected = theirs(torch.tensor([[whisper.sot, *tokens]]), logits.clone()).log_softmax(-1)
        found = ours.revise([Hypothesis(tuple(tokens), (0.0,) * len(tokens))], logits)
        torch.testing.assert_close(found, expected)
        n_stamped += int(found.argmax()) >= whisper.first_timestamp
    assert 30 < n_stamped < 270, "both kinds of tokens come out"


def test_text_and_the_segments_that_have_ended():
    stamp = 100  # tokens from 100 on are times
    for tokens, at, n_complete, end in [
        ([], [], 0, None),
        ([100], [], 0, None),
        ([100, 1, 2], [1, 2], 0, None),
        ([100, 1, 2, 130], [1, 2], 2, 30),
        ([100, 1, 2, 130, 130, 3], [1, 2, 5], 2, 30),
        ([100, 1, 130, 140, 3, 4, 190, 195], [1, 4, 5], 3, 90),
        ([100, 1, 130, 140], [1], 1, 30),
    ]:
        assert segmented(tokens, stamp) == (at, n_complete, end), tokens


def test_a_full_window_gives_its_complete_segments_and_the_next_begins_where_they_end(monkeypatch):
    method = new_method("offline", tiny())
    first = method._decoder.whisper.first_timestamp
    said = method._decoder.whisper.text_tokens(" the quick fox")
    texts = [
        [first, *said, first + 150, first + 150, *said[:1]],  # its last segment has not ended
        [first, *said, first + 120],
        [first, *said, first + 30, first + 40, *said],  # the last window: all of it
    ]
    heard = []

    def decode(cache, prompt, n_frames, most, recorder, guide=None, n_heard=None):
        assert (guide is None) == (prompt[-1] == first - 1)
        tokens = texts[len(heard)]
        heard.append(guide)
        return Hypothesis(tuple(tokens), (-1.0,) * (len(tokens) + 1))
        yield

    monkeypatch.setattr(type(method._decoder.search), "passes", lambda self, *a: decode(*a))
    words = method.step(method.start(), noise(8.4, 1), last=True).committed
    assert len(heard) == 3 and None not in heard  # windows from 0, 3.0 and 5.4 s
    assert " ".join(word.text.strip() for word in words) == " ".join(4 * ["the quick fox"])
    assert all(word.end <= 3.0 + 1e-6 for word in words[:3])
    assert all(word.start >= 3.0 and word.end <= 5.4 + 1e-6 for word in words[3:6])
    assert all(word.start >= 5.4 for word in words[6:])


def test_a_recording_that_fits_is_decoded_without_timestamps(monkeypatch):
    method = new_method("offline", tiny(), max_tokens=8)
    monkeypatch.setattr(type(method._decoder), "decoding_segments", None)
    method.step(method.start(), noise(4.0, 1), last=True)


def test_a_recording_that_fits_has_timestamps_from_the_length_asked_for():
    audio = noise(3.0, 4)
    method = new_method("offline", tiny(), max_tokens=12, timestamps_from_s=3.0)
    expected = alone(method._decoder.decoding_segments(audio, None, NULL), NULL)
    plain = method._decoder.decode(audio[:-1], None, NULL)
    assert expected.tokens != plain.tokens
    for heard, window in ((audio, expected), (audio[:-1], plain)):
        words = method.step(method.start(), heard, last=True).committed
        assert [word.text for word in words] == [word.text for word in window.words]


def test_a_model_without_timestamps_takes_windows_as_ever(monkeypatch):
    method = new_method("offline", tiny(), max_tokens=12)
    method._decoder.whisper.first_timestamp = None
    audio = noise(4.0, 1)
    window = alone(method._decoder.decoding_segments(audio, None, NULL), NULL)
    assert window.end is None
    assert window.tokens == method._decoder.decode(audio, None, NULL).tokens


def test_streams_with_and_without_timestamps_share_passes(whisper):
    method = new_method("offline", tiny(), max_tokens=12)
    audio = [noise(9.0, 2), noise(2.0, 3)]
    apart = [method.step(method.start(), a, last=True).committed for a in audio]
    states = method.start_many(2)
    together = method.step_many(states, audio, last=[True, True])
    for one, many in zip(apart, together, strict=True):
        assert [w.text for w in one] == [w.text for w in many.committed]
    assert all(apart)
