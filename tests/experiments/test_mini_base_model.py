"""The training of mini's base model: its recipe composes, its targets are placed by word times."""

from __future__ import annotations

import numpy as np
import torch
from tiny import tiny_folder
from toy_corpus import toy_corpus

import streaming_asr.train  # noqa: F401 (registers the schema of its configuration)
from experiments.mini.base_model import Targets, transcribe_batch
from experiments.mini.rebuild import RECIPES
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.training.windows import Window
from streaming_asr.whisper.load import load_whisper


def window(*words: tuple[str, float, float, int], timestamps: bool = False) -> Window:
    return Window(np.zeros(16_000, np.float32), list(words), "", timestamps, False)


def test_letters_share_a_words_time_and_what_is_not_spelled_as_said_is_not_counted() -> None:
    targets = Targets(load_whisper(tiny_folder(), trainable=True).tokenizer)
    labels = targets.letters(window(("ab", 0.04, 0.12, 0), ("12", 0.16, 0.2, 0)), 12)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 0, 0, -100, -100, 0, 0]


def test_an_utterance_stands_between_its_timestamps() -> None:
    targets = Targets(load_whisper(tiny_folder(), trainable=True).tokenizer)
    made, n_fixed = targets.sequence(window(("the", 0.1, 0.5, 0), timestamps=True), 4.0)
    stamps = [targets.no_timestamps + 1 + round(s / 0.02) for s in (0.1, 0.5)]
    assert n_fixed == 0
    assert made == [targets.sot, stamps[0], *targets.word("the"), stamps[1], targets.eot]


def test_the_recipe_composes_and_its_loss_reaches_encoder_and_decoder(tmp_path) -> None:
    corpus = toy_corpus(tmp_path)
    overrides = [
        RECIPES,
        "method=offline",
        "model=mini",
        f"model.path={tiny_folder()}",
        f"train_data={corpus}",
    ]
    overrides += [f"dev_manifest={corpus / 'dev.jsonl'}", "recipe.target.batch=2"]
    recipe = build(compose_raw(overrides, config_name="train").recipe.target)
    for progress in (0.0, 0.9):
        recipe.model.zero_grad()
        batch = recipe.draw(0, rank=0, world=1, progress=progress)
        loss, _ = recipe.loss(recipe.model, batch)
        loss.backward()
        model = recipe.whisper.model.model
        for part in (model.encoder.layers[0].fc1.weight, model.decoder.layers[0].fc1.weight):
            assert bool(torch.isfinite(part.grad).all()) and float(part.grad.abs().max()) > 0
    audio = [utterance.load() for utterance in recipe.dev]
    assert len(transcribe_batch(recipe.whisper, audio, max_tokens=3)) == len(audio)
