"""The cached decoder against transformers' full forward pass; word alignment."""

from __future__ import annotations

import json
import lzma
import math
import random
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import noise, tiny_folder
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.whisper import decoder as decoder_module
from streaming_asr.whisper.alignment import alignment_times, median_filter, warp
from streaming_asr.whisper.decoder import Decoder, DecoderCache, times_vocabulary
from streaming_asr.whisper.guard import Copy, even, no_guard, unsupported
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.ngram import Ngram, fusion_of, load_ngram, vocabulary_hash
from streaming_asr.whisper.search import BeamSearch, Hypothesis
from streaming_asr.whisper.timestamps import Timestamps, segmented
from streaming_asr.whisper.together import alone


@pytest.fixture(scope="module")
def whisper():
    """In 64 bits: what differs by the order of sums alone differs by nothing that is seen."""
    whisper = load_whisper(tiny_folder(layers=3))
    whisper.model.double()
    return whisper


@pytest.fixture(scope="module")
def decoder(whisper):
    return Decoder(whisper)


def full_log_probs(whisper, hidden, tokens):
    """Log-probabilities of every position by transformers, (len(tokens), vocabulary)."""
    with torch.inference_mode():
        logits = oracle(whisper)(
            encoder_outputs=(hidden,), decoder_input_ids=torch.tensor([tokens])
        ).logits[0]
    return (logits + whisper.suppressed).log_softmax(-1).float()


def encoder_output(n_frames, seed=0):
    made = torch.randn(1, n_frames, 32, generator=torch.Generator().manual_seed(seed))
    return made.double()


def assert_close(actual, expected):
    finite = expected > -1e30
    assert torch.equal(actual > -1e30, finite)
    torch.testing.assert_close(actual[finite], expected[finite], atol=2e-6, rtol=0)


def test_prefill_steps_and_crops_equal_the_full_forward_pass(whisper, decoder):
    hidden = encoder_output(70)
    cache = DecoderCache(decoder)
    for start, stop in ((0, 30), (30, 45), (45, 70)):
        decoder.append_frames(cache, hidden[:, start:stop], start)
    tokens = [*whisper.prompt(), 40, 41, 42, 43, 44, 45]
    taken = decoder.run(cache, [tokens], [0], 70, take=[[2, 4, 7]])
    expected = full_log_probs(whisper, hidden, tokens)
    assert_close(decoder.log_probs(taken)[0], expected[[2, 4, 7]])
    assert expected[:, :300].std() > 0.1
    # Step on, crop two tokens, put others there, and step again.
    tokens += [50]
    step = decoder.run(cache, [[50]], [len(tokens) - 1], 70)
    assert_close(decoder.log_probs(step)[0, 0], full_log_probs(whisper, hidden, tokens)[-1])
    tokens = [*tokens[:-2], 60]
    step = decoder.run(cache, [[60]], [len(tokens) - 1], 70)
    assert_close(decoder.log_probs(step)[0, 0], full_log_probs(whisper, hidden, tokens)[-1])
    # Several tokens after a cached prefix.
    tokens += [61, 62, 63]
    more = decoder.run(cache, [[61, 62, 63]], [len(tokens) - 3], 70, take=[[0, 1, 2]])
    assert_close(decoder.log_probs(more)[0], full_log_probs(whisper, hidden, tokens)[-3:])


def test_fewer_frames_in_the_pass_than_in_the_cache_are_a_shorter_audio(whisper, decoder):
    hidden = encoder_output(70)
    cache = DecoderCache(decoder)
    decoder.append_frames(cache, hidden, 0)
    tokens = [*whisper.prompt(), 40, 41]
    short = decoder.log_probs(decoder.run(cache, [tokens], [0], 33))[0, 0]
    assert_close(short, full_log_probs(whisper, hidden[:, :33], tokens)[-1])


def test_a_row_at_the_last_position_is_not_overwritten_by_its_neighbours_padding(whisper, decoder):
    hidden = encoder_output(20)
    cache = DecoderCache(decoder, rows=2)
    decoder.append_frames(cache, hidden, 0)
    long = [*whisper.prompt(), *([40, 41] * 31)]
    assert len(long) == whisper.max_tokens
    decoder.run(cache, [long[:60], long[:60]], [0, 0], 20)
    short = whisper.prompt()
    both = decoder.run(cache, [long[60:], [*short, *[45] * 9]], [60, 0], 20)
    expected = full_log_probs(whisper, hidden, long)[-1]
    assert_close(decoder.log_probs(both)[0, 0], expected)
    with pytest.raises(ValueError, match="more than 64 tokens"):
        decoder.run(cache, [[40]], [64], 20)


def test_hypotheses_of_one_stream_share_its_frames(whisper, decoder):
    hidden = encoder_output(50)
    cache = DecoderCache(decoder, rows=3)
    decoder.append_frames(cache, hidden, 0)
    prompt = whisper.prompt()
    texts = [[*prompt, 40, 41], [*prompt, 42], [*prompt, 43, 44, 45]]
    first = decoder.log_probs(decoder.run(cache, texts, [0, 0, 0], 50))
    for i, text in enumerate(texts):
        assert_close(first[i, 0], full_log_probs(whisper, hidden, text)[-1])
    cache.reorder([2, 0, 0], 5)
    texts = [[*texts[2], 50], [*texts[0], 51], [*texts[0], 52]]
    step = decoder.run(cache, [[50], [51], [52]], [5, 4, 4], 50)
    for i, text in enumerate(texts):
        assert_close(decoder.log_probs(step)[i, 0], full_log_probs(whisper, hidden, text)[-1])


def test_control_and_timestamp_tokens_are_never_predicted(whisper, decoder):
    log_probs = decoder.log_probs(torch.randn(5, 32).double())
    assert torch.isinf(log_probs[:, whisper.eot + 1 :]).all()
    assert torch.isfinite(log_probs[:, : whisper.eot + 1]).all()


def test_warping_finds_the_cheapest_of_all_monotone_paths():
    random = np.random.default_rng(0)

    def cheapest(cost, i, j):
        """Cost of the best path from (0, 0) to (i, j), by its definition."""
        if i == j == 0:
            return cost[0, 0]
        before = [(i, j - 1), (i - 1, j), (i - 1, j - 1)]
        return cost[i, j] + min(cheapest(cost, a, b) for a, b in before if a >= 0 and b >= 0)

    for _ in range(20):
        cost = random.standard_normal((4, 6))
        first = warp(cost)
        assert first[0] == 0 and (np.diff(first) >= 0).all()
        ends = [*first[1:], 6]
        # Between entering a token and entering the next, every frame belongs to it; the frame of
        # the next token's entry does so only if the path goes straight down there.
        fixed = [sum(cost[i, first[i] : ends[i]]) for i in range(4)]
        down = [cost[i, ends[i]] for i in range(3)]
        options = {
            sum(fixed) + sum(d for d, used in zip(down, choice, strict=True) if used)
            for choice in np.ndindex(2, 2, 2)
        }
        assert min(abs(total - cheapest(cost, 3, 5)) for total in options) < 1e-9


def test_the_median_filter_removes_a_lone_peak():
    x = torch.zeros(1, 12)
    x[0, 5] = 9.0
    assert median_filter(x).abs().max() == 0
    assert median_filter(torch.arange(12.0)[None])[0, 3:9].tolist() == [3, 4, 5, 6, 7, 8]


def test_token_times_are_monotone_and_inside_the_frames(whisper, decoder):
    cache = DecoderCache(decoder)
    decoder.append_frames(cache, encoder_output(100), 0)
    tokens = [40, 41, 42, 43]
    times = alignment_times(decoder, cache, whisper.alignment_heads, whisper.prompt(), tokens, 100)
    edges = [t for pair in times for t in pair]
    assert edges == sorted(edges)
    assert edges[0] >= 0.0 and 0.0 < edges[-1] <= 2.0
    assert alignment_times(decoder, cache, [(1, 0)], whisper.prompt(), [], 100) == []


def test_parts_of_a_shared_pass_are_what_each_is_alone(whisper, decoder):
    """A prompt, one row's next token, two hypotheses, and a pass that every output is wanted of."""
    prompt = [*whisper.prompt(), 40, 41]
    fed = [
        ([prompt], [0], 70, None),
        ([[42]], [len(prompt)], 33, None),
        ([[42], [43]], [len(prompt)] * 2, 50, None),
        ([prompt], [0], 20, [range(len(prompt))]),
    ]

    def caches():
        made = [DecoderCache(decoder, rows=2) for _ in fed]
        for i, cache in enumerate(made):
            decoder.append_frames(cache, encoder_output(70, seed=i), 0)
            decoder.run(cache, [prompt, prompt], [0, 0], 70)
        return made

    alone = [
        decoder.run(cache, tokens, starts, n, take=take)
        for cache, (tokens, starts, n, take) in zip(caches(), fed, strict=True)
    ]
    heard = []

    def parts():
        return [
            decoder.part(cache, tokens, starts, n, take=take, on_cross=lambda i, q: heard.append(q))
            for cache, (tokens, starts, n, take) in zip(caches(), fed, strict=True)
        ]

    together = decoder.run_parts(parts())
    assert [tuple(hidden.shape[:2]) for hidden in together] == [(1, 1), (1, 1), (2, 1), (1, 4)]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    assert [q.shape[0] for q in heard[:4]] == [1, 1, 2, 1]
    for hidden, log_probs in zip(alone, decoder.next_log_probs(parts()), strict=True):
        assert_close(log_probs, decoder.log_probs(hidden[:, -1]))


def test_one_pass_gives_what_follows_each_of_several_tokens(whisper, decoder):
    prompt, tokens = whisper.prompt(), [42, 43, 44]
    caches = [DecoderCache(decoder), DecoderCache(decoder, rows=2)]
    for cache in caches:
        decoder.append_frames(cache, encoder_output(70, seed=0), 0)
    by_steps = []
    for n in range(len(tokens) + 1):
        feed = [*prompt, *tokens][: len(prompt) + n][-1 if n else 0 :]
        start = len(prompt) + n - len(feed)
        by_steps += decoder.next_log_probs([decoder.part(caches[0], [feed], [start], 70)])
    fed = [[*prompt, *tokens], [*prompt, 45, *tokens[1:]]]
    n_next = len(tokens) + 1
    part = decoder.part(caches[1], fed, [0, 0], 70, n_next=n_next)
    (log_probs,) = decoder.next_log_probs([part])
    assert log_probs.shape == (2 * n_next, whisper.config.vocab_size)
    assert_close(log_probs[:n_next], torch.cat(by_steps))
    assert_close(log_probs[n_next], by_steps[0][0])


@pytest.mark.parametrize("intel", [True, False])
@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 1, 3), (2, 5, 3)])
def test_the_vocabulary_is_multiplied_alike_on_every_processor(monkeypatch, shape, intel):
    monkeypatch.setattr(decoder_module, "is_intel", lambda: intel)
    weight = torch.tensor([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.0, 0.0]])
    x = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    a, b, c = x.unbind(-1)
    expected = torch.stack([a + 2 * c, -3 * b, a + b + c, a / 2], dim=-1)
    assert torch.equal(times_vocabulary(x, weight), expected)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_mkl_gets_the_vocabulary_first_where_the_processor_is_not_intels(monkeypatch, n):
    monkeypatch.setattr(decoder_module, "is_intel", lambda: False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    said = times_vocabulary(torch.randn(n, 4), torch.randn(6, 4))
    assert said.shape == (n, 6) and said.stride(-1) == max(n, 2)
    assert times_vocabulary(torch.randn(12, 4), torch.randn(6, 4)).is_contiguous()
    assert times_vocabulary(torch.randn(n, 4).half(), torch.randn(6, 4).half()).is_contiguous()


# -- Segments with timestamps --


def tiny():
    """The folder of a tiny Whisper."""
    return str(tiny_folder(seed=0, max_tokens=256))


@pytest.fixture(scope="module")
def stamped():
    return load_whisper(tiny())


def histories(stamped, n):
    """Token sequences that the rules allow, and some that end in each kind of token."""
    draw, first = random.Random(5), stamped.first_timestamp
    for _ in range(n):
        tokens, at = [first + draw.randrange(20)], draw.randrange(20)
        for _ in range(draw.randrange(4)):
            tokens += [draw.randrange(stamped.eot) for _ in range(draw.randrange(1, 4))]
            if draw.random() < 0.7:
                at = min(tokens[-1] if tokens[-1] > first else first + 20 + at, first + 150)
                tokens.append(at)
                if draw.random() < 0.6:
                    tokens.append(at)
        yield tokens[: draw.randrange(len(tokens) + 1)]


def test_the_rules_are_those_of_transformers(stamped):
    assert stamped.first_timestamp is not None
    settings = GenerationConfig(
        eos_token_id=stamped.eot,
        bos_token_id=stamped.eot,
        no_timestamps_token_id=stamped.first_timestamp - 1,
        max_initial_timestamp_index=50,
        is_multilingual=False,
    )
    settings._detect_timestamp_from_logprob = True
    theirs, ours = (
        WhisperTimeStampLogitsProcessor(settings, begin_index=1),
        Timestamps(stamped),
    )
    generator = torch.Generator().manual_seed(1)
    n_stamped = 0
    for i, tokens in enumerate(histories(stamped, 300)):
        logits = 3 * torch.randn(1, stamped.config.vocab_size, generator=generator)
        logits[:, stamped.first_timestamp :] += i % 5 - 2
        logits = (logits + ours.bias).log_softmax(-1)
        expected = theirs(torch.tensor([[stamped.sot, *tokens]]), logits.clone()).log_softmax(-1)
        found = ours.revise([Hypothesis(tuple(tokens), (0.0,) * len(tokens))], logits)
        torch.testing.assert_close(found, expected)
        n_stamped += int(found.argmax()) >= stamped.first_timestamp
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

    def decode(cache, prompt, n_frames, most, recorder, guide, n_heard):
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
    monkeypatch.setattr(Timestamps, "__init__", None)
    method.step(method.start(), noise(4.0, 1), last=True)


def test_a_model_without_timestamps_takes_windows_as_ever(monkeypatch):
    method = new_method("offline", tiny(), max_tokens=12)
    method._decoder.whisper.first_timestamp = None
    audio = noise(4.0, 1)
    window = alone(method._decoder.decoding(audio, None, NULL, in_segments=True), NULL)
    assert window.end is None
    assert window.tokens == method._decoder.decode(audio, None, NULL).tokens


# -- Token ids to whole words --


@pytest.fixture(scope="module")
def plain():
    return load_whisper(tiny_folder())


def encode(plain, text):
    return plain.text_tokens(text)


@pytest.mark.parametrize(
    "text", [" the quick brown fox", "Bitte noch ein Stück Käse", " $12.50, a “pen”", " 你好 и €"]
)
def test_words_spell_the_text_and_cover_its_tokens(plain, text):
    ids = encode(plain, text)
    words = plain.detokenizer.words(ids)
    assert "".join(word.text for word in words) == text
    assert [word.text.strip() for word in words] == text.split()
    assert words[0].start == 0 and words[-1].stop == len(ids)
    assert all(a.stop == b.start for a, b in pairwise(words))


def test_a_word_is_complete_when_its_successor_has_begun(plain):
    ids = encode(plain, " umbrella over")
    over = plain.detokenizer.words(ids)[1].start
    assert over > 1
    assert plain.detokenizer.words(ids[: over + 1])[0].text == " umbrella"
    assert [w.stop for w in plain.detokenizer.words(ids[:over])] == [over]


def test_bytes_of_half_a_character_are_held_back(plain):
    ids = encode(plain, " a 你")
    texts = [[w.text for w in plain.detokenizer.words(ids[:k])] for k in range(1, len(ids) + 1)]
    assert texts[-1] == [" a", " 你"]
    assert not any("\ufffd" in text for step in texts for text in step)


def test_languages_without_spaces_break_at_characters(plain):
    ids = encode(plain, "你好")
    assert [w.text for w in plain.detokenizer.words(ids, language="zh")] == [
        "你",
        "好",
    ]
    assert [w.text for w in plain.detokenizer.words(ids, language="en")] == ["你好"]


def test_control_tokens_spell_nothing(plain):
    ids = [
        *plain.prompt(),
        *encode(plain, " dog"),
        plain.eot,
    ]
    assert [w.text for w in plain.detokenizer.words(ids)] == [" dog"]
    assert plain.detokenizer.words([]) == []


# -- The guard against loops: which copies are dropped, by literal cases --


LONG_AGO = 10_000.0
"""Frames that hold any speech."""


def since(*frames):
    """Audio since each token, as if those at the end were heard last."""
    return lambda i: frames[i]


@pytest.mark.parametrize(
    ("tokens", "n_copied"),
    [
        ([], 0),
        ([1], 0),
        ([7, 7, 7], 0),  # no, no, no
        ([7, 7, 7, 7], 1),
        ([5, 1, 2, 1, 2, 1, 2, 1, 2], 2),
        ([1, 2, 3, 4, 5] * 2, 0),  # said again, in time enough
        ([1, 2, 3, 4, 5] * 3, 5),
    ],
)
def test_a_phrase_stands_so_often_in_a_row_whatever_is_heard(tokens, n_copied):
    copy = unsupported(tokens, lambda i: LONG_AGO)
    assert copy == (Copy(n_copied, too_often=True) if n_copied else None)
    assert copy is None or copy.is_short == (n_copied < 5)
    assert no_guard(tokens, lambda i: 0.0) is None


def test_two_tokens_need_sixteen_frames_and_a_phrase_of_five_eighty():
    assert unsupported([3, 3], since(16, 16)) is None
    assert unsupported([3, 3], since(15, 15)) == Copy(1, too_often=False)
    phrase = [1, 2, 3, 4, 5]
    assert unsupported(phrase * 2, lambda i: 80.0) is None
    assert unsupported(phrase * 2, lambda i: 79.0) == Copy(5, too_often=False)
    assert unsupported([9, 9, 1], lambda i: 0.0) is None  # it has gone on


def test_the_last_of_two_long_phrases_needs_its_own_time():
    phrase = [1, 2, 3, 4, 5]

    def last_within(n_frames, k=5):
        """The first phrase came slowly, the last one within `n_frames` after it."""
        return lambda i: n_frames if i >= k - 1 else 400.0

    assert unsupported(phrase * 2, last_within(39)) == Copy(5, too_often=False)
    assert unsupported(phrase * 2, last_within(40)) is None
    assert unsupported([1, 2, 3, 4] * 2, last_within(0, k=4)) is None  # short: may be spoken fast


@pytest.mark.parametrize("n_tokens, n_frames", [(10, 80.0), (14, 112.0), (40, 400.0)])
def test_tokens_of_unknown_place_fail_by_the_first_phrase_only(n_tokens, n_frames):
    phrase = list(range(n_tokens // 2))
    assert unsupported(phrase * 2, even(n_tokens, n_frames)) is None
    assert unsupported(phrase * 2, even(n_tokens, 8.0 * n_tokens - 1)) is not None


def test_tokens_of_unknown_place_share_the_audio():
    frames_since = even(10, 50.0)
    assert [frames_since(i) for i in (0, 5, 9)] == [50.0, 25.0, 5.0]


class Says:
    """A decoder of 8 tokens that goes by the last token fed: `best` first, then `second`."""

    max_tokens = 100
    device = "cpu"

    def __init__(self, best: dict[int, int], second: dict[int, int]) -> None:
        self.best, self.second = best, second

    def part(self, cache: Any, feed: list[list[int]], *args: Any, **settings: Any) -> Any:
        return feed

    def next_log_probs(self, parts: list[list[list[int]]]) -> list[torch.Tensor]:
        rows = []
        for row in parts[0]:
            logits = torch.full((8,), -9.0)
            logits[self.second.get(row[-1], 0)] = -1.0
            logits[self.best.get(row[-1], 2)] = 0.0
            rows.append(logits.log_softmax(-1))
        return [torch.stack(rows)]


def searched(decoder, beam, guard, n_heard=None):
    cache = SimpleNamespace(reorder=lambda parents, n: None)
    search = BeamSearch(decoder, 0, beam, guard)
    return alone(search.passes(cache, [1], 1500, 60, NULL, None, n_heard), NULL).tokens


LOOP = Says({1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 2}, {})
"""Says `2 3 4 5 6` without end."""


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(("n_heard", "n_said"), [(2000, 2), (40, 1)])
def test_a_search_ends_before_a_long_copy_that_no_speech_supports(beam, n_heard, n_said):
    said = searched(LOOP, beam, "repeats", n_heard)
    if beam == 1:
        assert said == (2, 3, 4, 5, 6) * n_said
    else:  # others go on where one loops, under the same rule
        assert not any(unsupported(said[:n], even(n, n_heard)) for n in range(len(said) + 1))
    assert len(searched(LOOP, 1, "none")) == 60


def test_after_a_short_copy_too_many_the_next_best_is_said_and_the_text_goes_on():
    """No, no, no, no, ... I said: 2 comes without end, then 3 and 4; in silence nothing does."""
    spoken = Says({1: 2, 2: 2, 3: 4, 4: 0}, {2: 3})
    assert searched(spoken, 1, "repeats") == (2, 2, 2, 3, 4)
    assert searched(spoken, 1, "none") == (2,) * 60
    assert searched(Says({1: 2, 2: 2}, {2: 0}), 1, "repeats") == (2, 2, 2)


# -- The language model of the first pass --


SPELLINGS = [b"a", b"b", b" a"]
# p(0) = 1/2, p(1) = 1/4, p(2) is that of what is not there, 1/10; p(0 | <s>) = 4/5 and
# p(1 | 0) = 2/5 are learned, what else follows <s> or 0 backs off with 1/2.
ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.30103
-0.60206\t</s>
-0.30103\t0\t-0.30103
-0.60206\t1

\\2-grams:
-0.09691\t<s> 0
-0.39794\t0 1

\\end\\
"""


def write(folder, arpa=ARPA, card=None):
    folder.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"vocabulary": vocabulary_hash(SPELLINGS)})
    (folder / "lm.json").write_text(told if card is None else card)
    (folder / "lm.arpa.xz").write_bytes(lzma.compress(arpa.encode()))
    return folder


def test_probabilities_are_those_of_the_table_and_of_what_it_backs_off_to(tmp_path):
    model = load_ngram(str(write(tmp_path)), None)
    assert model is not None
    start = model.start()
    behind_0 = model.after(start, 0)
    found = [
        [math.exp(model.score(state, token)) for token in range(3)]
        for state in (start, behind_0, model.after(behind_0, 1))
    ]
    assert found[0] == pytest.approx([0.8, 0.5 * 0.25, 0.5 * 0.1], rel=1e-4)
    assert found[1] == pytest.approx([0.5 * 0.5, 0.4, 0.5 * 0.1], rel=1e-4)
    assert found[2] == pytest.approx([0.5, 0.25, 0.1], rel=1e-4)


def test_auto_is_the_model_beside_the_weights_and_none_is_none(tmp_path):
    write(tmp_path / "weights" / "lm")
    model = load_ngram("auto", tmp_path / "weights")
    assert isinstance(model, Ngram) and model.folder == tmp_path / "weights" / "lm"
    assert load_ngram("none", tmp_path) is load_ngram(None, None) is None
    assert fusion_of(None, SPELLINGS, 0.7, 3.0) is None
    with pytest.raises(UserError, match="there are none; name a folder"):
        load_ngram("auto", None)


def test_the_vocabulary_is_bytes_and_order():
    one = vocabulary_hash(SPELLINGS)
    assert one == vocabulary_hash(list(SPELLINGS))
    others = [SPELLINGS[:2], [*SPELLINGS, b"c"], [b"b", b"a", b" a"], [b"a", b"b ", b"a"]]
    assert len({one, *map(vocabulary_hash, others)}) == 5


def test_a_model_of_another_vocabulary_is_refused(tmp_path):
    model = load_ngram(str(write(tmp_path)), None)
    assert fusion_of(model, SPELLINGS, 0.7, 3.0) is not None
    with pytest.raises(UserError, match=r"another vocabulary than the 2 classes.*language_model"):
        fusion_of(model, SPELLINGS[:2], 0.7, 3.0)
    with pytest.raises(UserError, match="lm_weight=-1: 0 or more"):
        fusion_of(model, SPELLINGS, -1, 3.0)


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("lm.json", None, "there is no .*lm.json; build one with"),
        ("lm.arpa.xz", None, "there is no .*lm.arpa.xz; build one with"),
        ("lm.json", b"{", "names no vocabulary"),
        ("lm.json", b"{}", "names no vocabulary"),
        ("lm.arpa.xz", b"", "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(ARPA.encode())[:-30], "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(ARPA[:150].encode()), "lm.arpa.xz: damaged"),
        ("lm.arpa.xz", lzma.compress(b"hello"), "lm.arpa.xz: damaged"),
    ],
)
def test_a_folder_without_a_whole_model_is_refused(tmp_path, name, content, answer):
    file = write(tmp_path) / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=answer) as refusal:
        load_ngram(str(tmp_path), None)
    assert "method.lm=none" in str(refusal.value)


def test_without_kenlm_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[lm\]'"):
        load_ngram(str(write(tmp_path)), None)
