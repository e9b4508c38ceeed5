"""The cached decoder against transformers' full forward pass; word alignment."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import tiny_folder

from streaming_asr.whisper import decoder as decoder_module
from streaming_asr.whisper.alignment import alignment_times, median_filter, warp
from streaming_asr.whisper.decoder import Decoder, DecoderCache, times_vocabulary
from streaming_asr.whisper.load import load_whisper


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


def test_rows_of_different_lengths_equal_rows_alone(whisper, decoder):
    hidden = encoder_output(50)
    cache = DecoderCache(decoder, rows=3)
    decoder.append_frames(cache, hidden, 0)
    tokens = [[*whisper.prompt(), *t] for t in ([40, 41, 42], [43], [44, 45, 46, 47, 48])]
    take = [[1, len(t) - 1] for t in tokens]
    first = decoder.log_probs(decoder.run(cache, tokens, [0] * 3, 50, take=take))
    for i, row in enumerate(tokens):
        assert_close(first[i], full_log_probs(whisper, hidden, row)[take[i]])
    starts = [len(t) for t in tokens]
    for t in tokens:
        t.append(70)
    step = decoder.log_probs(decoder.run(cache, [[70]] * 3, starts, 50))
    for i, row in enumerate(tokens):
        assert_close(step[i, 0], full_log_probs(whisper, hidden, row)[-1])


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


def test_warping_follows_the_cheap_diagonal():
    cost = np.ones((3, 8))
    cost[0, :2] = cost[1, 2:6] = cost[2, 6:] = -1.0
    assert warp(cost).tolist() == [0, 2, 6]


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
