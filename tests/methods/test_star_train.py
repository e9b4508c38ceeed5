"""STAR's training: its stages, what each freezes, what it saves, that a killed run goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from branches import random_adapter
from recipes import settings_of, train, weights
from tiny import tiny_folder
from toy_corpus import toy_corpus

import streaming_asr.train  # noqa: F401 (registers the schema of its configuration)
from streaming_asr.config.build import new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.methods.star.features import WhisperFeatures
from streaming_asr.methods.star.network import load_star
from streaming_asr.methods.star.train import StarRecipe, boundary_loss, shift_to_sum
from streaming_asr.models.hash import weights_hash
from streaming_asr.training.windows import Window
from streaming_asr.whisper.batched import decode_windows
from streaming_asr.whisper.load import load_whisper


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
    assert told["stage"] == "frozen" and told["base"] == weights_hash(tiny_folder())
    star = new_method("star", str(tiny_folder()), weights=str(tmp_path / "3" / "final"))
    star.step(star.start(), recipe().dev[0].load(), last=True)


@pytest.mark.parametrize(
    "options",
    [
        {"compressor": "star", "rate": 12.0},
        {"compressor": "cif", "rate": 12.0},
        {"compressor": "cnn", "rate": 12.0},
        {"compressor": "cif"},
        {"pool": "mean"},
        {"stage": "plain"},
        {"stage": "frozen"},
        {"compressor": "star", "rate": 12.0, "select": "top_k"},
        {"carry": True},
        {"copies": True},
    ],
    ids=str,
)
def test_every_compressor_and_option_learns(recipe, options):
    made = recipe(**{"stage": "segmenter", **options})
    batch = made.draw(0, rank=0, world=1, progress=0.0)
    assert (batch.wait_k is None) == ("rate" in options)
    loss, logs = made.loss(made.model, batch)
    loss.backward()
    if "rate" in options:
        assert 8 < logs["frames_per_vector"] <= 13
    scored = made.config.compressor not in ("cnn", "none")
    has_penalty = made.stage == "segmenter" and "select" not in options  # the k best have none
    weight = 0.01 if has_penalty else 0.0
    assert float(loss.detach()) == pytest.approx(
        logs["nll"] + weight * logs["length_error"], rel=1e-5
    )
    assert (logs["length_error"] > 0) == scored
    for name, weight in made.model.named_parameters():  # all, or processes wait for each other
        assert (weight.grad is not None) == weight.requires_grad, name


def test_every_token_sees_all_anchors_up_to_a_share_of_the_training(recipe):
    made = recipe(stage="segmenter", all_until=0.4, waits=[3, 5])

    def waits(progress):
        return {made.draw(s, rank=0, world=1, progress=progress).wait_k for s in range(12)}

    assert waits(0.0) == waits(0.39) == {None}
    assert waits(0.4) == waits(1.0) == {3, 5}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    return random_adapter(tiny_folder(), tmp_path_factory.mktemp("adapter"))


def test_a_teacher_s_probabilities_are_those_of_its_decoder_over_all_frames(recipe, adapter):
    start = {"start": str(adapter), "teacher": str(adapter)}
    plain, copied = recipe(**start), recipe(copies=True, **start)
    batch = plain.draw(0, rank=0, world=1, progress=0.0)
    taught = plain._probabilities(batch)
    assert taught.shape[0] == sum(len(text) + 1 for text in batch.texts)
    torch.testing.assert_close(taught.sum(-1), torch.ones(len(taught)))
    # Behind the copied layer there are the same frames.
    torch.testing.assert_close(copied._probabilities(batch), taught, atol=1e-5, rtol=1e-3)
    whisper = load_whisper(tiny_folder(), adapter=adapter)
    features = WhisperFeatures(whisper).windows(batch.audio, batch.ends)
    text, n_real = batch.texts[0], batch.n_real[0]
    ids = [*plain.prompt, *text]
    with torch.no_grad():
        (rows,) = decode_windows(whisper.model, [ids], [features[0][:n_real]])
    torch.testing.assert_close(
        taught[: len(text) + 1], rows[len(plain.prompt) - 1 :].softmax(-1), atol=1e-5, rtol=1e-3
    )


def test_the_loss_is_shared_by_the_text_and_the_teacher(recipe, adapter):
    start = {"start": str(adapter), "teacher": str(adapter)}
    made = recipe(teacher_weight=0.25, **start)
    loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.0))
    expected = 0.75 * logs["nll"] + 0.25 * logs["teacher_loss"]
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert all("taught_by" not in name for name, _ in made.model.named_parameters())


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"stage": "plain"}, "stage=plain"),
        ({"teacher_weight": 1.5}, "teacher_weight=1.5: 0 or more, 1 at most"),
        ({"all_until": -1}, "all_until=-1: 0 or more, 1 at most"),
    ],
)
def test_a_teacher_or_schedule_that_cannot_be_is_refused(recipe, adapter, options, answer):
    with pytest.raises(UserError, match=answer):
        recipe(teacher=str(adapter), **options)


def test_a_stage_goes_on_with_the_copies_of_the_one_before(recipe, tmp_path):
    made = recipe(stage="segmenter", copies=True)
    train(made, tmp_path, 1)
    folder = str(tmp_path / "final")
    assert recipe(start=folder, copies=True).network.config.copies
    with pytest.raises(UserError, match=r"give recipe\.target\.copies=true"):
        recipe(start=folder)


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


def test_a_token_s_anchor_is_its_last_frame_and_none_is_past_the_audio(recipe):
    made = recipe()
    made.whisper.text_tokens = lambda text: [0] * len(text.strip())
    words = [("abc", 0.10, 0.42, 0), ("d", 0.9, 5.0, 0)]
    window = Window(np.zeros(16000, np.float32), words, "", False, False)
    assert made._bounds(window, 50) == [9, 15, 20, 49]


def test_the_loss_at_the_boundaries_is_least_where_the_alphas_are_one():
    assert float(boundary_loss(torch.zeros(4), [1])) == pytest.approx(4 * np.log(2))
    assert float(boundary_loss(torch.tensor([-30.0, 30.0, -30.0, 30.0]), [1, 3])) < 1e-6
    assert float(boundary_loss(torch.tensor([30.0, -30.0]), [1])) == pytest.approx(60)


def test_features_that_are_kept_give_the_same_loss(recipe):
    made = recipe(stage="segmenter")
    batch = made.draw(0, rank=0, world=1, progress=0.0)
    kept = made.precompute(batch)
    assert not kept.audio and kept.features[0].dtype == torch.float16
    assert made.loss(made.model, kept)[1]["nll"] == pytest.approx(
        made.loss(made.model, batch)[1]["nll"], rel=1e-2
    )
    trained = recipe(stage="plain")
    assert trained.precompute(batch) is batch


def test_the_shift_makes_scores_sum_up_to_the_number_of_tokens():
    scores = torch.linspace(-6, 2, 200)
    for total in (3.0, 17.0, 120.0):
        shift = shift_to_sum(scores, total)
        assert float((scores.double() + shift).sigmoid().sum()) == pytest.approx(total, rel=1e-6)
    assert abs(shift_to_sum(scores, float(scores.double().sigmoid().sum()))) < 1e-6


def test_scores_are_shifted_where_that_does_better_on_dev(recipe, tmp_path):
    made = recipe(stage="segmenter")
    wers = {0.0: 30.0}
    made._figures_at = lambda shift: {"score": wers.get(shift, 20.0), "wer": wers.get(shift, 20.0)}
    assert made.evaluate()["wer"] == 20.0 and made.shift != 0
    made.save(tmp_path)
    network = load_star(str(tiny_folder()), tmp_path)[1]
    assert network.compressor.shift == pytest.approx(made.shift)
    text = made.whisper.tokenizer(" the quick fox", add_special_tokens=False)
    n_tokens = len(text.input_ids) + 1
    audio = made._filled_up(made.dev[0].load(), [75])
    scores = network.compressor.segmenter(network.extractor.windows([audio], [[30, 45, 60, 75]])[0])
    assert float(network.compressor.alphas(scores).sum()) == pytest.approx(n_tokens, rel=0.02)
    wers[0.0] = 10.0
    assert made.evaluate()["wer"] == 10.0 and made.shift == 0
    assert recipe(rate=12.0)._calibrated_shift() == 0  # scaled to T / rate in any case


def test_audio_heard_as_a_whole_is_encoded_without_the_streams_mask(recipe):
    masks = [recipe(rate=rate).network.compressor.encoder.mask for rate in (12.0, None)]
    assert masks == ["history", "compact"]


def test_a_start_with_another_compressor_is_refused(recipe, tmp_path):
    cif = recipe(stage="segmenter", compressor="cif")
    cif.save(tmp_path / "cif")
    with pytest.raises(UserError, match="trained as compressor=cif, not star"):
        recipe(start=str(tmp_path / "cif"))


def test_the_recipe_is_configured_in_full():
    config = compose_raw(["method=star", "model=mini", "entry=any_chunk"], config_name="train")
    assert config.recipe.target._target_ == "streaming_asr.methods.star.train.StarRecipe"
    assert config.recipe.target.compressor == "star" and config.recipe.target.carry is True
