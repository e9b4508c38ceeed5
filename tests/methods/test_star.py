"""STAR as a method: a stream in chunks equals one pass, options, windows, bad input."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from oracle import oracle
from recipes import settings_of, toy_corpus, train, weights
from star_tiny import model_folder, randomise, star_folder
from tiny import fed, noise, tiny_folder
from traces import a_step

import streaming_asr.train  # noqa: F401 (registers the schema of its configuration)
from streaming_asr.config.build import new_method
from streaming_asr.contract import committed
from streaming_asr.errors import UserError
from streaming_asr.methods.star.compressors import (
    Compressed,
    Compressor,
    Segmenter,
    accumulate,
    rescale,
)
from streaming_asr.methods.star.decoder import AnchorCache, AnchorDecoder, seen
from streaming_asr.methods.star.network import load_star
from streaming_asr.methods.star.semantic import SemanticEncoder, visible
from streaming_asr.methods.star.train import StarRecipe, boundary_loss
from streaming_asr.metrics import Trace, compute, queued
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.whisper.batched import encode_windows
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper

AUDIO = noise(3.1, seed=4)


def method(folder=None, **options):
    chunks = {"chunk_s": 0.1, "first_chunk_s": 0.2}
    weights = folder and str(folder)
    return new_method("star", str(model_folder()), weights=weights, **chunks, **options)


def stream(star, audio, samples=None, recorder=None):
    """(words, state) of the audio in deliveries of so many samples, or in one."""
    state = star.start() if recorder is None else star.start(recorder=recorder)
    updates = fed(star, audio, samples or len(audio) or 1, state=state)
    assert updates[-1].partial == ()
    return [w.text for w in committed(updates)], state


def test_words_on_silence_are_anchors_that_want_a_token_and_may_not_have_the_end():
    """Where the model finds that nothing was said, an anchor has its next best token."""
    folder = tiny_folder(seed=3, eot_logit=60.0)
    star = new_method("star", str(folder), chunk_s=0.1, first_chunk_s=0.2, wait_k=1)
    words, state = stream(star, np.zeros(48_000, np.float32), 1600)
    assert state.cache.n_anchors > 5 and words


NETWORKS = {
    "star": {},
    "residual": {"carry": True},
    "none": {"compressor": "none"},
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("wait_k", [1, 3])
def test_a_stream_equals_one_teacher_forced_pass_over_everything(network, wait_k):
    folder = star_folder(**network)
    star = method(folder, wait_k=wait_k)
    _, state = stream(star, AUDIO, 1600)
    whisper, built = load_star(str(model_folder()), folder)
    n_frames = -(-len(AUDIO) // 320)
    ends = [10, *range(15, n_frames + 5, 5)]
    padded = np.pad(AUDIO, (0, ends[-1] * 320 + 200 - len(AUDIO)))
    with torch.inference_mode():
        mel = log_mel(torch.from_numpy(padded), whisper.n_mels, block_ends=ends)
        x = encode_windows(whisper.model, [mel], [ends])[0][:n_frames]
        found = built.compressor.compress(x)
        ids = [*state.prompt, *state.tokens]
        n_prompt = len(state.prompt)
        limits = [seen(i, n_prompt, wait_k, found.ready) for i in range(len(ids))]
        decoder = AnchorDecoder(whisper.model)
        hidden = decoder.forward(ids, found.vectors, found.scores, limits)
        logits = decoder.logits(hidden[n_prompt - 1 :]) + whisper.suppressed
    logits = logits.clone()
    assert found.ends == state.ends and len(state.tokens) > 5
    n_streamed = max(0, len(found.ready) - wait_k)  # the last anchor came with the end
    for i, token in enumerate(state.tokens):
        if i < n_streamed:
            logits[i, whisper.eot] = -torch.inf  # not before the end of the audio
        assert int(logits[i].argmax()) == token, i


def test_a_window_is_cut_and_the_stream_goes_on_the_same_however_it_arrives():
    audio = noise(11.0, seed=8)  # the model hears 4 s
    for options in ({}, {"wait_k": 1}):
        star = method(star_folder(), **options)
        words, state = stream(star, audio)
        assert state.window_start > 200 and state.position <= 200 and len(words) > 10
        for samples in (1600, 5000):
            again, other = stream(star, audio, samples)
            assert (again, other.tokens, other.ends) == (words, state.tokens, state.ends)
            assert other.window_start == state.window_start
            assert other.log_probs == pytest.approx(state.log_probs, abs=1e-4)


def test_short_silent_and_empty_audio():
    star = method(star_folder())
    assert stream(star, np.zeros(0, np.float32))[0] == []
    for audio in (AUDIO[:1], AUDIO[:300], np.zeros(16_000, np.float32)):
        _, state = stream(star, audio)  # shorter than an anchor: its end is one
        assert state.ends[-1] == max(1, -(-len(audio) // 320)) and state.cache.n_anchors >= 1


def test_a_network_of_another_compressor_or_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="was trained as compressor=none"):
        method(star_folder(compressor="none"), compressor="star")
    with pytest.raises(UserError, match=r"no star\.json.*method\.weights=none"):
        method(tmp_path)
    with pytest.raises(UserError, match="does not fit this model"):
        new_method("star", str(model_folder(64)), weights=str(star_folder()))
    (tmp_path / "star.json").write_text(json.dumps({"compressor": "star", "layers": 2}))
    with pytest.raises(UserError, match="is missing; copy"):
        method(tmp_path)
    for setting, commit in ({"shift": 0.5}, "916c7372"), ({"features": "wav2vec2"}, "12931f89"):
        (tmp_path / "star.json").write_text(json.dumps(setting))
        (text,) = (f"{key}={value}, which commit {commit}" for key, value in setting.items())
        with pytest.raises(UserError, match=f"{text}.*train the network"):
            method(tmp_path)
    (tmp_path / "star.json").write_text("{")
    with pytest.raises(UserError, match="not readable"):
        method(tmp_path)


def test_the_steps_tell_their_anchors_tokens_and_cache():
    recorder = StepRecorder()
    _, state = stream(method(star_folder()), AUDIO, None, recorder)
    counts = recorder.drain()[1]
    assert counts["anchors"] == state.cache.n_anchors
    assert counts["tokens"] == len(state.tokens)
    assert counts["decoder_cache_bytes"] == state.cache.n_bytes
    assert counts["frames_real"] == -(-len(AUDIO) // 320)
    _, whole = stream(method(star_folder(compressor="none")), AUDIO, None, recorder)
    plain = recorder.drain()[1]
    assert plain["anchors"] == plain["frames_real"] > 2 * counts["anchors"]
    assert plain["decoder_cache_bytes"] == whole.cache.n_bytes
    # What is not of the tokens said is as large as the anchors are many.
    of_anchors = [
        state.cache.n_bytes - sum(part.nbytes for part in (*state.cache.keys, *state.cache.values))
        for state in (state, whole)
    ]
    assert of_anchors[0] * whole.cache.n_anchors == of_anchors[1] * state.cache.n_anchors > 0


def test_compression_cache_and_dal_over_tokens_are_among_a_cells_figures():
    steps = [
        a_step(1.0, 0.0, "a", "a", frames_real=50, anchors=5, tokens=1, decoder_cache_bytes=512),
        a_step(2.0, 0.0, "a b", "a b", frames_real=50, anchors=3, tokens=3,
                  decoder_cache_bytes=2048),
    ]  # fmt: skip
    figures = compute([Trace("u", "a b", 2.0, queued(steps))])
    assert figures["compression"] == 100 / 8 and figures["decoder_cache_kib"] == 2.0
    # four tokens at 500 ms each: 1000; then 2000, 2500, 3000, less 500, 1000, 1500
    assert figures["dal_tokens_cu_ms"] == (1000 + 1500 + 1500 + 1500) / 4
    assert compute([])["compression"] is None and compute([])["decoder_cache_kib"] is None


# -- STAR's parts: anchors, masks, compressors, and the decoder over anchors --


D = 16


def features(n):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(0))


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


def make(name, stride=12, pool="frame", **options):
    torch.manual_seed(0)
    encoder = SemanticEncoder(D, 2, 32, 2, pool=pool)
    encoder.mask = "history" if name == "none" else "compact"
    made = Compressor(encoder, None if name == "none" else Segmenter(D), **options)
    randomise(made)
    made.stride = stride
    return made.eval().requires_grad_(False)


def joined(parts):
    return Compressed(
        torch.cat([p.vectors for p in parts]),
        torch.cat([p.scores for p in parts]),
        [n for p in parts for n in p.ready],
        [n for p in parts for n in p.ends],
    )


KINDS = {
    "star": {"name": "star"},
    "star, residual": {"name": "star", "carry": True},
    "star, means": {"name": "star", "pool": "mean"},
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


def test_in_training_there_is_a_segment_per_token():
    made = make("star", carry=True)
    for n_tokens in (3, 10):
        found = made.compress(features(60), n_tokens)
        assert len(found.vectors) in (n_tokens, n_tokens + 1)  # the last frame, forced
        wanted = (made.segmenter(features(60)).sigmoid().sum() - n_tokens) ** 2
        assert float(found.length_error) == pytest.approx(float(wanted), rel=1e-5)


# ---- the decoder -----------------------------------------------------------------------------

TOKENS = [5, 90, 17, 200, 31, 8]


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


def anchors_of(n):
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


def test_a_query_sees_the_segments_of_wait_k():
    ready = [1, 2, 3, 4]
    assert [seen(i, 3, 2, ready) for i in range(8)] == [2, 2, 2, 3, 4, 4, 4, 4]
    assert [seen(i, 1, 1, [10, 20, 25]) for i in range(4)] == [10, 20, 25, 25]


# -- training --


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"), n=8, n_lengths=3, word_s=0.4, n_dev=1)


@pytest.fixture
def recipe(corpus):
    def make(**options):
        options = {"rank": 4, "batch": 2, "layers": 1, **options}
        return StarRecipe(**settings_of("star", corpus, tiny_folder(), **options))

    return make


def changed(recipe, before):
    return {n for n, p in recipe.model.named_parameters() if not torch.equal(p, before[n])}


def test_the_stages_one_after_the_other_and_what_each_trains(recipe, tmp_path):
    plain = recipe(stage="plain")
    before = weights(plain)
    train(plain, tmp_path / "1", 2)
    moved = changed(plain, before)
    assert any(".encoder." in n and "lora" in n for n in moved)
    assert any("compressor.encoder" in n for n in moved)

    first = recipe(stage="segmenter", start=str(tmp_path / "1" / "final"))
    before = weights(first)
    name = "network.compressor.encoder.blocks.0.fc2.weight"
    kept = dict(plain.model.named_parameters())[name]
    torch.testing.assert_close(before[name], kept, rtol=1e-2, atol=1e-3)  # fp16
    train(first, tmp_path / "2", 2)
    moved = changed(first, before)
    assert any(".segmenter." in n for n in moved) and any(".decoder." in n for n in moved)
    assert not any(".encoder." in n and "lora" in n for n in moved)

    second = recipe(start=str(tmp_path / "2" / "final"))
    before = weights(second)
    train(second, tmp_path / "3", 2)
    moved = changed(second, before)
    assert moved and not any(".segmenter." in n for n in moved)
    told = json.loads((tmp_path / "3" / "final" / "training.json").read_text())
    assert told["stage"] == "frozen"


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "mean"},
        {"stage": "plain"},
        {"stage": "frozen"},
        {"carry": True},
    ],
    ids=str,
)
def test_every_option_learns(recipe, options):
    made = recipe(**{"stage": "segmenter", **options})
    batch = made.draw(0, rank=0, world=1, progress=0.0)
    loss, logs = made.loss(made.model, batch)
    loss.backward()
    scored = made.config.compressor != "none"
    weight = 0.01 if made.stage == "segmenter" else 0.0
    assert float(loss.detach()) == pytest.approx(
        logs["nll"] + weight * logs["length_error"], rel=1e-5
    )
    assert (logs["length_error"] > 0) == scored
    for name, weight in made.model.named_parameters():  # all, or processes wait for each other
        assert (weight.grad is not None) == weight.requires_grad, name


def test_the_segmenter_can_be_told_where_tokens_end(recipe):
    made = recipe(stage="segmenter", boundary_weight=1.0)
    batch = made.draw(1, rank=0, world=1, progress=0.0)
    for bounds, text, n in zip(batch.bounds, batch.texts, batch.n_real, strict=True):
        assert len(bounds) == len(text) and bounds == sorted(bounds) and bounds[-1] < n
    loss, logs = made.loss(made.model, batch)
    assert float(loss.detach()) == pytest.approx(
        logs["nll"] + 0.01 * logs["length_error"] + logs["boundary_loss"], rel=1e-5
    )
    told = recipe(boundary_weight=1.0)  # the stage frozen
    assert "boundary_loss" not in told.loss(told.model, batch)[1]


def test_a_frozen_segmenter_s_scores_can_be_those_of_a_stream(recipe):
    told, streamed = recipe(), recipe(rescale=False)
    batch = told.draw(0, rank=0, world=1, progress=0.0)
    with torch.no_grad():  # twice as many anchors as tokens would have
        for each in (told, streamed):
            each.network.compressor.segmenter.score.bias += 4.0
    by = {each: each.loss(each.model, batch)[1]["frames_per_vector"] for each in (told, streamed)}
    assert by[streamed] < 3 < by[told]


def test_the_loss_at_the_boundaries_is_least_where_the_alphas_are_one():
    assert float(boundary_loss(torch.zeros(4), [1])) == pytest.approx(4 * np.log(2))
    assert float(boundary_loss(torch.tensor([-30.0, 30.0, -30.0, 30.0]), [1, 3])) < 1e-6
    assert float(boundary_loss(torch.tensor([30.0, -30.0]), [1])) == pytest.approx(60)


def test_a_start_with_another_compressor_is_refused(recipe, tmp_path):
    recipe(stage="segmenter").save(tmp_path / "anchors")
    with pytest.raises(UserError, match="trained as compressor=star, not none"):
        recipe(stage="plain", start=str(tmp_path / "anchors"))
