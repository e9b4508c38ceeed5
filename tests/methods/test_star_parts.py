"""STAR's parts: anchors, masks, compressors, and the decoder over anchors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from oracle import oracle
from star_tiny import randomise
from tiny import noise, tiny_folder

from streaming_asr.errors import UserError
from streaming_asr.methods.star.anchors import accumulate, fixed, rescale, top_k
from streaming_asr.methods.star.compressors import Compressed
from streaming_asr.methods.star.decoder import AnchorCache, AnchorDecoder, seen
from streaming_asr.methods.star.features import EXTRACTORS
from streaming_asr.methods.star.network import StarConfig, StarNetwork, compressor
from streaming_asr.methods.star.semantic import SemanticEncoder, visible
from streaming_asr.whisper.encoder import encode, encoder_of
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.flops import layer_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.masks import mask_from_ends

D = 16


def features(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


# ---- anchors ---------------------------------------------------------------------------------


def test_an_anchor_stands_where_the_sum_of_scores_reaches_the_threshold():
    assert accumulate([0.5, 0.5, 0.4, 0.7, 0.2]) == ([1, 3], 0.2)
    assert accumulate([0.1] * 10) == ([9], 0.0)
    assert accumulate([0.3], total=0.8) == ([0], 0.0)
    assert accumulate([0.3, 0.3]) == ([], 0.6)


def test_the_paper_resets_the_sum_and_the_code_keeps_the_residual():
    assert accumulate([0.9] * 4)[0] == [1, 3]
    found, left = accumulate([0.9] * 4, carry=True)
    assert found == [1, 2, 3] and left == pytest.approx(0.6)


def test_scores_are_rescaled_to_the_number_of_tokens():
    assert rescale(torch.tensor([0.2, 0.2]), 1).tolist() == pytest.approx([0.5, 0.5])
    smoothed = rescale(torch.tensor([0.9, 0.3]), 2)  # [1.5, 0.5], then half-way to 1 ten times
    assert smoothed.tolist() == pytest.approx([1 + 0.5 / 2**10, 1 - 0.5 / 2**10])


def test_top_k_takes_the_best_frames_in_order_and_the_last_one_always():
    scores = torch.tensor([3.0, 1.0, 2.0, 0.0, -1.0])
    assert top_k(scores, 2) == [0, 2, 4]  # k = ceil(5 / 2)
    assert top_k(scores, 1) == [0, 1, 2, 3, 4]
    assert top_k(scores, 100) == [4]
    assert top_k(scores[:0], 2) == []


def test_fixed_segments_count_from_the_beginning_of_the_window():
    assert fixed(7, 3) == [2, 5]
    assert fixed(4, 3, before=7) == [1]


# ---- masks and the semantic encoder ----------------------------------------------------------


def test_a_frame_sees_its_own_block_and_earlier_anchors():
    anchors = torch.tensor([False, True, False, False, True, False])
    expected = [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 0, 0, 1, 1],
    ]
    assert visible(anchors, "compact").int().tolist() == expected
    assert visible(anchors, "history").int().tolist() == torch.ones(6, 6).tril().int().tolist()


@pytest.mark.parametrize("pool", ["frame", "mean"])
@pytest.mark.parametrize("mask", ["compact", "history"])
def test_frames_encoded_in_pieces_equal_one_pass(mask, pool):
    encoder = SemanticEncoder(D, 2, 32, 3, mask, pool)
    randomise(encoder)
    x, anchors = features(40), torch.rand(40, generator=torch.Generator().manual_seed(1)) < 0.2
    whole = encoder(x, anchors)
    cache = encoder.start()
    cuts = [0, 1, 8, 9, 23, 40]
    parts = [encoder.append(cache, x[a:b], anchors[a:b]) for a, b in itertools.pairwise(cuts)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)
    n_open = 39 - int(anchors.nonzero()[-1])
    kept = int(anchors.sum()) + n_open if mask == "compact" else 40
    assert len(cache.anchors) == kept < 41 and cache.keys[0].shape[2] == kept


def test_an_untrained_encoder_hands_its_features_on():
    encoder = SemanticEncoder(D, 2, 32, 2)
    x = features(5)
    assert torch.equal(encoder(x, torch.tensor([False, True, False, False, True])), x)


def test_an_anchor_may_come_in_as_the_mean_of_its_block():
    encoder = SemanticEncoder(D, 2, 32, 2, pool="mean")
    x = features(6)
    got = encoder(x, torch.tensor([False, True, False, False, True, False]))
    torch.testing.assert_close(got[1], x[:2].mean(0))
    torch.testing.assert_close(got[4], x[2:5].mean(0))
    assert torch.equal(got[[0, 2, 3, 5]], x[[0, 2, 3, 5]])
    assert torch.equal(encoder(x, torch.zeros(6, dtype=torch.bool)), x)


# ---- compressors -----------------------------------------------------------------------------


def make(name: str, stride: int | None = None, keep_all=False, pool="frame", **options):
    torch.manual_seed(0)
    encoder = SemanticEncoder(D, 2, 32, 2, pool=pool)
    made = compressor(name, D, encoder, **{"carry": False, **options})
    randomise(made)
    made.stride = stride if stride is not None or name == "none" else None
    made.keep_all = keep_all
    return made.eval().requires_grad_(False)


def joined(parts: list[Compressed]) -> Compressed:
    return Compressed(
        torch.cat([p.vectors for p in parts]),
        torch.cat([p.scores for p in parts]),
        [n for p in parts for n in p.ready],
        [n for p in parts for n in p.ends],
    )


def test_neighbours_with_like_scores_do_not_all_become_anchors_unless_ranked():
    made = make("star")
    bumps = torch.full((60,), -6.0)
    for centre in (7, 22, 37, 52):
        bumps[centre - 2 : centre + 3] = torch.tensor([2.9, 3.1, 3.0, 3.2, 2.8])
    bumps[5:10] += 0.5  # one of them a little higher
    made.segmenter.forward = lambda x: bumps
    at = {}
    for made.select in ("accumulate", "top_k"):
        at[made.select] = made.compress(features(60), rate=15.0).ends
    gaps = {kind: [b - a for a, b in itertools.pairwise(ends)] for kind, ends in at.items()}
    assert gaps["top_k"][:-1] == [1, 1]  # three frames of that one, none of the others
    assert min(gaps["accumulate"][:-1]) > 5 and len(at["accumulate"]) in (4, 5)
    assert at["accumulate"][-1] == at["top_k"][-1] == 60


def test_a_shift_changes_a_streams_segments_and_no_training():
    made = make("star")
    x = features(40)
    trained, streamed = made.compress(x, 5.0).ends, made.compress(x).ends
    made.shift = 2.0
    assert made.compress(x, 5.0).ends == trained
    shifted = made.compress(x).ends
    assert len(shifted) > len(streamed)
    assert made.push(made.start(), x, last=True).ends == shifted


KINDS = {
    "star": {"name": "star"},
    "star, residual": {"name": "star", "carry": True},
    "star, fixed": {"name": "star", "stride": 7},
    "star, all": {"name": "star", "keep_all": True},
    "star, means": {"name": "star", "pool": "mean"},
    "star, fixed, means": {"name": "star", "stride": 7, "pool": "mean"},
    "star, all, means": {"name": "star", "keep_all": True, "pool": "mean"},
    "cif": {"name": "cif"},
    "cnn": {"name": "cnn", "rate": 12},
    "none": {"name": "none", "stride": 9},
}


@pytest.mark.parametrize("n", [1, 5, 36, 61])
@pytest.mark.parametrize("kind", KINDS)
def test_frames_compressed_in_pieces_equal_one_pass(kind, n):
    made, x = make(**KINDS[kind]), features(n)
    whole = made.compress(x)
    assert whole.ready[-1] == len(whole.vectors) and whole.ends[-1] == n
    assert whole.ends == sorted(whole.ends)
    for cuts in ([0, n], [0, n, n], [0, *range(4, n, 4), n], list(range(n + 1))):
        state = made.start()
        pieces = list(itertools.pairwise(cuts))
        parts = [
            made.push(state, x[a:b], last=i == len(pieces) - 1) for i, (a, b) in enumerate(pieces)
        ]
        got = joined(parts)
        assert (got.ready, got.ends) == (whole.ready, whole.ends)
        torch.testing.assert_close(got.vectors, whole.vectors, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got.scores, whole.scores, rtol=1e-4, atol=1e-5)


def test_star_takes_the_encoders_output_at_anchors_with_their_raw_scores():
    made, x = make("star"), features(40)
    found = made.compress(x)
    scores = made.segmenter(x)
    at = [end - 1 for end in found.ends]
    natural, _ = accumulate(scores.sigmoid().tolist())
    assert at == sorted({*natural, 39}) and 2 < len(at) < 20
    flags = torch.zeros(40, dtype=torch.bool)
    flags[at] = True
    assert torch.equal(found.vectors, made.encoder(x, flags)[at])
    assert torch.equal(found.scores, scores[at])


def test_top_k_selection_gives_the_rate_asked_for():
    found = make("star").compress(features(50), rate=12)
    assert len(found.vectors) == math.ceil(50 / 12) and found.ends[-1] == 50
    assert len(make("star").compress(features(50), rate=1000).vectors) == 1


def test_in_training_there_is_a_segment_per_token():
    for kind in ("star", "cif"):
        made = make(kind, carry=True)
        for n_tokens in (3, 10):
            found = made.compress(features(60), n_tokens)
            assert len(found.vectors) in (n_tokens, n_tokens + 1)  # the last frame, forced
            wanted = (made.segmenter(features(60)).sigmoid().sum() - n_tokens) ** 2
            assert float(found.length_error) == pytest.approx(float(wanted), rel=1e-5)


def test_cif_shares_the_frame_that_overshoots_between_two_segments():
    made = make("cif")
    weights, fires = made._weights(torch.tensor([0.6, 0.6, 0.8]), 0.0)
    assert fires == [1, 2]
    expected = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.2, 0.8], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)


def test_gradients_reach_the_segmenter_through_scores_or_weights():
    for kind in ("star", "cif"):
        made = make(kind).requires_grad_(True)
        found = made.compress(features(40), 5)
        (found.vectors.sum() + found.scores.square().sum()).backward()
        assert float(made.segmenter.score.weight.grad.abs().sum()) > 0


def test_the_convolutions_are_causal_and_fill_up_the_last_vector():
    made, x = make("cnn", rate=18), features(37)
    found = made.compress(x)
    assert len(found.vectors) == 3 and found.ends == [18, 36, 37]
    changed = x.clone()
    changed[18:] += 1.0
    other = made.compress(changed)
    assert torch.equal(found.vectors[0], other.vectors[0])
    assert not torch.allclose(found.vectors[1], other.vectors[1])
    with pytest.raises(UserError, match="rate=12: this cnn has the rate 18"):
        made.compress(x, rate=12)


# ---- the decoder -----------------------------------------------------------------------------

TOKENS = [5, 90, 17, 200, 31, 8]


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


def anchors_of(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    return torch.randn(n, 32, generator=random), torch.randn(n, generator=random)


def test_without_scores_and_limits_it_is_whispers_decoder(whisper):
    vectors, _ = anchors_of(7)
    ours = AnchorDecoder(whisper.model).forward(TOKENS, vectors, torch.zeros(7), [7] * 6)
    theirs = (
        oracle(whisper)
        .model.decoder(
            input_ids=torch.tensor([TOKENS]), encoder_hidden_states=vectors[None], use_cache=False
        )
        .last_hidden_state[0]
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_score_of_log_2_counts_as_hearing_the_anchor_twice(whisper):
    decoder = AnchorDecoder(whisper.model)
    vectors, _ = anchors_of(4)
    scores = torch.tensor([0.0, math.log(2), 0.0, 0.0])
    once = decoder.forward(TOKENS, vectors, scores, [4] * 6)
    twice = decoder.forward(TOKENS, vectors[[0, 1, 1, 2, 3]], torch.zeros(5), [5] * 6)
    torch.testing.assert_close(once, twice, rtol=1e-4, atol=1e-5)


def test_token_by_token_with_growing_anchors_equals_one_pass(whisper):
    decoder = AnchorDecoder(whisper.model)
    vectors, scores = anchors_of(40)
    limits = [2, 2, 3, 20, 21, 40]
    whole = decoder.forward(TOKENS, vectors, scores, limits)
    cache, n = AnchorCache(decoder), 0
    got = []
    for i, (token, limit) in enumerate(zip(TOKENS, limits, strict=True)):
        decoder.append(cache, vectors[n:limit], scores[n:limit])
        n = limit
        got.append(decoder.step(cache, [token], [limit]))
        assert cache.keys[0].shape[1] == i + 1
    torch.testing.assert_close(torch.stack(got), whole, rtol=1e-4, atol=1e-5)
    heads_size_layers = 32 * 2
    assert cache.n_bytes == 4 * (2 * heads_size_layers * (40 + 6) + 40)


def test_anchors_that_a_token_may_not_see_do_not_change_it(whisper):
    decoder = AnchorDecoder(whisper.model)
    vectors, scores = anchors_of(6)
    limits = [2, 3, 4, 5, 6, 6]
    before = decoder.forward(TOKENS, vectors, scores, limits)
    changed = vectors.clone()
    changed[4] += 1.0
    after = decoder.forward(TOKENS, changed, scores, limits)
    assert torch.equal(before[:3], after[:3]) and not torch.allclose(before[3:], after[3:])


def test_a_query_sees_the_segments_of_wait_k():
    ready = [1, 2, 3, 4]
    assert [seen(i, 3, 2, ready) for i in range(8)] == [2, 2, 2, 3, 4, 4, 4, 4]
    assert seen(0, 3, None, ready) == 4
    assert [seen(i, 1, 1, [10, 20, 25]) for i in range(4)] == [10, 20, 25, 25]


def test_copies_over_all_frames_before_are_the_encoder_they_are_copied_from():
    whisper = load_whisper(tiny_folder())
    full = encoder_of(whisper.model)
    n, sizes = 40, whisper.config
    ends = list(range(1, n + 1))  # every frame is a block, so that it sees those before it only
    audio = torch.from_numpy(noise(n * 0.02 + 0.1, seed=2))
    mask = mask_from_ends(ends)
    config = StarConfig(layers=1, copies=True)
    network = StarNetwork(whisper, config)
    semantic = network.compressor.encoder
    semantic.begin_as(full)
    semantic.mask = "history"
    with torch.no_grad():
        below = network.extractor.windows([audio], [ends])[0]
        mel = log_mel(audio, whisper.n_mels, block_ends=ends)
        expected = encode(whisper.model, mel[None], mask)[0]
        found = semantic(below, torch.zeros(n, dtype=torch.bool))
    assert not torch.allclose(below, expected, atol=1e-2)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    # The copied layer is not computed by the extractor.
    plain = StarNetwork(whisper, StarConfig(layers=1)).extractor
    whole = plain.flops(10, [25, 40])
    layer = layer_flops(sizes, 15, 25) + layer_flops(sizes, 15, 40)
    assert network.extractor.flops(10, [25, 40]) == pytest.approx(whole - layer)


@pytest.mark.parametrize("options", [{"layers": 0}, {"layers": 3}, {"features": "other"}])
def test_copies_that_the_encoder_does_not_have_are_refused(options, monkeypatch):
    monkeypatch.setitem(EXTRACTORS, "other", None)
    whisper = load_whisper(tiny_folder())
    with pytest.raises(UserError, match=r"layers=|copies=true, features=other"):
        StarNetwork(whisper, StarConfig(**{"copies": True, "layers": 1, **options}))
