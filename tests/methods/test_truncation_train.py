"""Training the truncation detector: its clips and labels, its loss, and what it leaves behind."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from recipes import settings_of
from tiny import noise, tiny_folder
from toy_corpus import toy_corpus

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.methods.simul_whisper.train import (
    TruncationRecipe,
    best_threshold,
    count_words,
    cuts_a_word,
    dev_clips,
)
from streaming_asr.methods.simul_whisper.truncation import (
    TruncationDetector,
    load_detector,
    threshold_of,
)
from streaming_asr.training.loop import FitConfig, fit
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper

FRAME = 320


def tiny() -> str:
    """The folder of a tiny Whisper."""
    return str(tiny_folder())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """6 utterances by 2 voices and 2 of dev, all with word times."""
    folder = toy_corpus(tmp_path_factory.mktemp("corpus"), n=6, n_lengths=6)
    words = [["the", 0.2, 0.6], ["quick", 0.6, 1.0], ["fox", 1.1, 1.4]]
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(row | {"words": words}) + "\n" for row in rows)
    (folder / "dev.jsonl").write_text(text)
    return folder


def recipe(corpus, **options):
    options = {"batch": 4, "encoder_bf16": False, **options}
    return TruncationRecipe(**settings_of("simul_whisper", corpus, tiny(), **options))


def test_a_word_counts_when_all_of_it_is_in_the_clip():
    spans = [(0.1, 0.4), (0.4, 0.95), (1.0, 1.302)]
    assert count_words(spans, 0, 66) == 3  # 1.302 s ends in the 66th frame
    assert count_words(spans, 0, 65) == 2
    assert count_words(spans, 0, 47) == 1
    assert count_words(spans, 5, 66) == 3
    assert count_words(spans, 6, 66) == 2


def test_a_clip_that_ends_in_a_word_cuts_it_and_one_that_ends_in_a_pause_does_not():
    spans = [(0.1, 0.4), (0.5, 0.95)]
    cut = [stop for stop in range(60) if cuts_a_word(spans, stop)]
    assert cut == [*range(7, 20), *range(27, 48)]  # of one frame of it nobody hears a word


def test_a_clip_that_ends_with_a_word_does_not_cut_the_next_one_that_begins_in_its_last_frame():
    spans = [(0.1, 0.405), (0.405, 0.95)]  # the first ends in the 21st frame, so does the clip
    assert not cuts_a_word(spans, 21)
    assert cuts_a_word(spans, 22)
    contiguous = [(0.3 * i + 0.007, 0.3 * i + 0.307) for i in range(9)]
    labels = [dev_clips(random.Random(seed), contiguous, 140) for seed in range(20)]
    assert all(len(clips) == 2 and clips[0][1] and not clips[1][1] for clips in labels)


def test_the_threshold_is_the_one_that_tells_whole_from_cut_words_best():
    assert best_threshold([0.17, 0.2, 0.08], [0.05, 0.07]) == (0.08, 1.0)
    assert best_threshold([0.17, 0.2, 0.08], [0.05, 0.1, 0.12, 0.3]) == (
        0.17,
        pytest.approx(17 / 24),
    )
    assert best_threshold([0.3, 0.4], [0.1, 0.2]) == (0.3, 1.0)
    assert best_threshold([0.1], [0.1]) == (1.0, 0.5)  # nothing is told apart


def test_a_threshold_on_the_last_two_frames_decides_in_place_of_the_published_rule(tmp_path):
    detector = TruncationDetector(1)
    torch.nn.init.ones_(detector.linear.weight)
    torch.nn.init.zeros_(detector.linear.bias)
    hidden = torch.tensor([0.0] * 8 + [0.08, 0.09]).logit(1e-6)[:, None]
    assert not detector.ends_with_a_word(hidden)  # the sum does not reach a word
    assert detector.ends_with_a_word(hidden, 0.16) and not detector.ends_with_a_word(hidden, 0.18)
    assert not detector.ends_with_a_word(hidden[-1:], 0.01)
    assert threshold_of(0.2, tmp_path) == 0.2
    for wanted in ("dev", "high"):
        with pytest.raises(UserError, match=f"truncation_threshold={wanted}: a number, or dev"):
            threshold_of(wanted, tmp_path)


def test_the_loss_is_that_of_the_sum_and_of_the_last_two_frames(corpus):
    trained, papers = recipe(corpus), recipe(corpus, boundary_weight=0.0)
    batch = trained.draw(0, rank=0, world=1, progress=0.0)
    with torch.no_grad():
        weights = trained._weights(trained.model, batch)
        loss, logs = trained.loss(trained.model, batch)
        sum_alone, _ = papers.loss(papers.model, batch)
    error = weights.sum(-1) - batch["n_words"]
    assert float(sum_alone) == pytest.approx(float(error.square().mean().sqrt()))
    rate = float(weights.max())  # untrained, every frame has the same weight
    expected = -np.mean([np.log(rate if whole else 1 - rate) for whole in batch["whole"]])
    assert logs["boundary"] == pytest.approx(expected, rel=1e-4)
    assert float(loss) == pytest.approx(float(sum_alone) + 3 * expected, rel=1e-4)


def test_clips_are_padded_and_weighed_as_a_stream_does(corpus):
    trained = recipe(corpus)
    torch.nn.init.normal_(trained.model.linear.weight)
    clip = noise(1.3, seed=9)[: 65 * FRAME]
    batch = trained._pack([clip, noise(2.0, seed=8)])
    whisper = load_whisper(tiny())
    padded = np.zeros((1, whisper.context_frames * FRAME), np.float32)
    padded[0, : len(clip)] = clip
    with torch.inference_mode():
        hidden = encode_padded(whisper.model, log_mel(torch.from_numpy(padded), whisper.n_mels))[0]
    weights = trained._weights(trained.model, batch)
    with torch.no_grad():
        torch.testing.assert_close(weights[0, :65], trained.model(hidden[:65]), atol=1e-5, rtol=0)
    assert not weights[0, 65:].any()


def test_in_bf16_the_encoder_gives_nearly_the_same_weights_and_dev_is_never_so(corpus):
    plain, half = recipe(corpus), recipe(corpus, encoder_bf16=True)
    torch.nn.init.normal_(plain.model.linear.weight, std=0.1)
    half.model.load_state_dict(plain.model.state_dict())
    batch = plain.draw(0, rank=0, world=1, progress=0.0)
    one, two = plain.loss(plain.model, batch)[0], half.loss(half.model, batch)[0]
    assert one != two and float(one.detach()) == pytest.approx(float(two.detach()), rel=0.05)
    assert plain.evaluate() == half.evaluate()


def test_half_of_the_clips_end_with_a_word(corpus):
    trained = recipe(corpus)
    spans = [(0.1 + 0.3 * j, 0.4 + 0.3 * j) for j in range(5)]
    ends = [trained._cut(random.Random(i), 90, spans)[1] for i in range(400)]
    share = np.mean([end in {20, 35, 50, 65, 80} for end in ends])
    assert 0.45 < share < 0.65
    assert min(ends) >= 15 and max(ends) <= 90


def test_a_few_steps_lower_the_loss_and_leave_a_detector_that_run_can_load(corpus, tmp_path):
    trained = recipe(corpus)
    torch.nn.init.zeros_(trained.model.linear.bias)  # half a word per frame: much to learn
    settings = FitConfig(
        out=str(tmp_path), max_steps=30, max_minutes=1e6, lr=3e-2, warmup_steps=1, log_every=5,
        evaluate_every=30,
    )  # fmt: skip
    figures = fit(trained, settings)
    names = {"score", "whole_words_kept", "cut_words_dropped", "rmse_words"}
    assert set(figures) == names | {"threshold", "right_at_threshold"}
    assert 0 <= figures["score"] <= 100 and figures["rmse_words"] > 0
    curve = (tmp_path / "curve.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, curve) if "loss" in row]
    assert losses[-1] < 0.85 * losses[0]
    folder = tmp_path / "best"
    assert {p.name for p in folder.iterdir()} == {"detector.safetensors", "training.json"}
    told = json.loads((folder / "training.json").read_text())
    assert not told["model"].startswith("/") and told["base"]
    loaded = load_detector(folder, 32, "cpu")
    assert torch.equal(loaded.linear.weight, trained.model.linear.weight)
    assert threshold_of("dev", folder) == figures["threshold"]
    weights = {"weights": str(folder), "truncation_threshold": "dev"}
    simul = new_method("simul_whisper", tiny(), truncation="cif", **weights)
    assert simul.step(simul.start(), noise(1.5, seed=1), last=True).partial == ()


def test_dev_clips_end_with_a_word_or_inside_one():
    spans = [(0.1, 0.5), (0.5, 1.0), (1.0, 1.05)]
    for seed in range(20):
        whole, inside = dev_clips(random.Random(seed), spans, 60)
        assert whole[1] and whole[0] in (25, 50, 53)
        assert not inside[1] and inside[0] in (15, 38)


def test_training_without_word_times_is_refused(corpus, tmp_path):
    row = {"audio_filepath": str(corpus / "dev0.wav"), "text": "the quick fox"}
    (tmp_path / "dev.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="no utterance with word times; clips are cut by them"):
        recipe(corpus, dev_manifest=str(tmp_path / "dev.jsonl"))
