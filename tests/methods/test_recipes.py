"""What every recipe keeps: batches, a killed run that goes on; settings of all that are refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from branches import head_folder, random_adapter
from chunkformer_tiny import tiny_folder as chunkformer_folder
from omegaconf import OmegaConf
from recipes import settings_of, toy_corpus, train, weights
from tiny import noise, tiny_folder

import streaming_asr.train  # noqa: F401 (registers the schema of its configuration)
from streaming_asr.config.build import new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.methods.chunkformer.train import ChunkFormerRecipe
from streaming_asr.methods.hush_word.train import HushWordRecipe
from streaming_asr.methods.simul_whisper.train import TruncationRecipe
from streaming_asr.methods.star.train import StarRecipe
from streaming_asr.methods.u2.branch_train import U2BranchRecipe
from streaming_asr.methods.u2.train import U2Recipe
from streaming_asr.methods.whisperrt.train import WhisperRTRecipe
from streaming_asr.models.hash import weights_hash
from streaming_asr.training.loop import FitConfig

Make = Callable[..., Any]
RECIPES = {
    "chunkformer": (
        ChunkFormerRecipe,
        {"vocabulary": 60, "d": 16, "heads": 2, "layers": 2, "hidden": 32, "decoder_layers": 1}
        | {"batch_s": 6.0, "full_until": 0.0},
    ),
    "hush_word": (HushWordRecipe, {}),
    "simul_whisper": (TruncationRecipe, {"batch": 4}),
    "star": (StarRecipe, {"rank": 4, "batch": 2, "layers": 1, "stage": "segmenter"}),
    "u2": (U2Recipe, {"rank": 4, "batch": 2, "stage": "hybrid"}),
    "u2_branch": (
        U2BranchRecipe,
        {"branch_layers": 1, "branch_rank": 4, "pieces": 60, "batch": 3, "frames_share": 0.0},
    ),
    "whisperrt": (WhisperRTRecipe, {"rank": 4, "batch": 3, "buckets": 4}),
}
"""By the name of conf/recipe: the class, and settings that make it small."""
SHARED = {"star": "wait_k", "chunkformer": "context"}
"""What is drawn for all ranks of a step together."""


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes a recipe by its name on 8 utterances; dev has word times too."""
    corpus = toy_corpus(tmp_path_factory.mktemp("corpus"), n=8, n_lengths=3, word_s=0.4)
    words = [["the", 0.2, 0.6], ["quick", 0.6, 1.0], ["fox", 1.1, 1.4]]
    rows = map(json.loads, (corpus / "dev.jsonl").read_text().splitlines())
    text = "".join(json.dumps(row | {"words": words}) + "\n" for row in rows)
    (corpus / "dev.jsonl").write_text(text)
    adapter = str(random_adapter(tiny_folder(), tmp_path_factory.mktemp("adapter")))

    def recipe(name, **options):
        torch.manual_seed(0)
        kind, small = RECIPES[name]
        model = None if name == "chunkformer" else tiny_folder()
        start = {"start": adapter} if name == "u2_branch" else {}
        return kind(**settings_of(name, corpus, model, **{**start, **small, **options}))

    return recipe


def content(value):
    """All that a batch holds, comparable."""
    if isinstance(value, torch.Tensor):
        value = value.float().numpy()
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if is_dataclass(value):
        return [content(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, Mapping):
        return {key: content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [content(each) for each in value]
    return repr(value)


@pytest.mark.parametrize("name", RECIPES)
def test_the_configuration_names_the_recipe_and_settings_that_the_loop_knows(name):
    method = name.removesuffix("_branch")
    config = compose_raw([f"method={method}", f"recipe={name}", "model=mini"], config_name="train")
    assert (
        config.recipe.target._target_
        == f"{RECIPES[name][0].__module__}.{RECIPES[name][0].__name__}"
    )
    fit = OmegaConf.to_container(config.recipe.fit)
    assert FitConfig(out="", **fit).max_minutes == fit["max_minutes"]
    stages = [stage for stage in config.recipe.get("stages", {}).values() if stage]
    for stage in stages:
        FitConfig(out="", **{**fit, **{key: stage[key] for key in stage if key != "share"}})


@pytest.mark.parametrize("name", RECIPES)
def test_a_batch_follows_from_seed_step_and_rank(make, name):
    one, same, seeded = make(name), make(name), make(name, seed=1)

    def drawn(recipe, step=3, rank=0):
        return recipe.draw(step, rank=rank, world=2, progress=0.3)

    drawn(same, 5)  # what was drawn before does not matter
    batch = content(drawn(one))
    assert content(drawn(same)) == batch
    others = [drawn(one, step=4), drawn(one, rank=1), drawn(seeded)]
    assert all(content(each) != batch for each in others)
    if name in SHARED:
        assert getattr(others[1], SHARED[name]) == getattr(drawn(one), SHARED[name])


@pytest.mark.parametrize("name", RECIPES)
def test_a_few_steps_lower_the_loss_and_leave_what_the_method_runs(make, name, tmp_path):
    recipe = make(name)
    fixed = recipe.draw(0, rank=0, world=1, progress=0.0)
    recipe.draw = lambda *_, **__: fixed
    figures = train(recipe, tmp_path, 12, log_every=1, evaluate_every=12)
    assert figures["score"] >= 0
    rows = map(json.loads, (tmp_path / "curve.jsonl").read_text().splitlines())
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < 0.95 * losses[0]
    folder, method = tmp_path / "best", name.removesuffix("_branch")
    card = json.loads((folder / "training.json").read_text())
    assert card["method"] == method and str(tmp_path.parent) not in json.dumps(card)
    if name == "chunkformer":
        trained = new_method(method, weights=str(folder), chunk_s=0.32)
    else:
        assert card["base"] == weights_hash(tiny_folder())
        trained = new_method(method, str(tiny_folder()), weights=str(folder))
    assert trained.step(trained.start(), noise(2.0), last=True).partial == ()


@pytest.mark.parametrize("name", ["star", "u2_branch"])
def test_a_killed_run_goes_on_to_the_same_weights(make, name, tmp_path):
    whole, part, resumed = (make(name) for _ in range(3))
    train(whole, tmp_path / "whole", 4)
    train(part, tmp_path / "parts", 2)
    train(resumed, tmp_path / "parts", 4)
    other = weights(resumed)
    for key, weight in weights(whole).items():
        torch.testing.assert_close(weight, other[key], rtol=1e-4, atol=1e-6, msg=key)


REFUSED = [
    ("chunkformer", {"ctc_weight": 0.0}, "ctc_weight=0.0"),
    ("chunkformer", {"chunks": [0]}, "-1 in chunks is the full context"),
    ("chunkformer", {"rights": [-1]}, "rights="),
    ("chunkformer", {"lefts": []}, "at least one number"),
    ("chunkformer", {"initial": "nowhere"}, "no such folder"),
    ("chunkformer", {"vocabulary": 8}, "vocabulary=8: the texts have "),
    (
        "chunkformer",
        {"teacher": str(tiny_folder()), "window_s": 100.0},
        "less than window_s=100; make the windows as short",
    ),
    ("hush_word", {"clamp": -0.1}, "a positive bound"),
    ("hush_word", {"clamp": "loud"}, "a positive bound"),
    ("hush_word", {"length_s": 3.0}, "half of it"),
    ("hush_word", {"batch": 0}, "1 or more"),
    ("simul_whisper", {"at_word_end": 1.5}, "at_word_end=1.5: 0 or more, 1 at most"),
    ("star", {"stage": "last"}, "plain, segmenter, frozen"),
    ("star", {"waits": [0, 1]}, "1 or more"),
    ("star", {"start": "nowhere"}, "no such folder"),
    ("star", {"rescale": False}, "stage=frozen"),
    ("u2", {"stage": "both"}, "stage='both': one of attention, frames, ctc, hybrid"),
    ("u2", {"head_init": "zero"}, "head_init='zero': one of random, embedding"),
    ("u2", {"ctc_weight": 1.5}, "ctc_weight=1.5: more than 0, 1 at most"),
    ("u2", {"start": "nowhere"}, "start=nowhere: no such folder"),
    ("u2", {"ctc_tokens": 255}, "cannot spell every text; give 256 or more"),
    ("u2", {"ctc_tokens": 10**6}, "at most"),
    ("u2_branch", {"start": None}, "start=null: the branch is trained behind a WhisperRT adapter"),
    ("u2_branch", {"start": "nowhere"}, "start=nowhere: no such folder"),
    ("u2_branch", {"branch_layers": 3}, "branch_layers=3: 1 or more, 2 at most"),
    ("u2_branch", {"branch_layers": 0}, "branch_layers=0: 1 or more"),
    ("u2_branch", {"branch_rank": -1}, "branch_rank=-1: 1 or more"),
    ("u2_branch", {"pieces": 20}, "pieces=20: 28 or more"),
    ("u2_branch", {"frames_share": 1.5}, "frames_share=1.5: 0 or more, 1 at most"),
    ("u2_branch", {"language": "de"}, "holds de, and the branch spells English"),
    ("whisperrt", {"mode": "slow"}, "mode='slow'"),
    ("whisperrt", {"init": "zero"}, "init='zero'"),
    ("whisperrt", {"modules": "fc"}, "modules='fc': one of attention, all"),
    ("whisperrt", {"learn": "ear"}, "learn='ear': one of all, encoder, decoder"),
    ("whisperrt", {"last_tokens": 0}, "last_tokens=0"),
    ("whisperrt", {"augment": {"nose": 0.5}}, "did you mean noise"),
    ("whisperrt", {"point_fraction": 0.0}, "point_fraction=0.0"),
]


@pytest.mark.parametrize(
    ("name", "options", "answer"),
    REFUSED,
    ids=[f"{n} {name}" for n, (name, *_) in enumerate(REFUSED)],
)
def test_a_setting_out_of_range_is_refused(make, name, options, answer):
    with pytest.raises(UserError) as refusal:
        make(name, **options)
    assert answer in str(refusal.value)


# -- settings of methods --

ZEROS = {"padding": "zeros"}
HEAD = {"weights": head_folder(tiny_folder())}
LONG = {"mode": "longform", "total_duration_s": 5.0}
OF_METHODS = [
    ("chunkformer", {"mode": "batch"}, "mode='batch': one of stream, longform"),
    ("chunkformer", {"chunk_frames": 0}, "chunk_frames=0: 1 or more"),
    ("chunkformer", {"left_frames": -1}, "left_frames=-1"),
    ("chunkformer", LONG, "less than one chunk of 64 frames, 5.12 s"),
    ("chunkformer", {"weights": None}, "streaming_asr.train method=chunkformer"),
    ("hush_word", {}, "a hush word is trained"),
    ("hush_word", {"padding": "silence"}, "one of full, none, zeros, noise, hush"),
    ("hush_word", {"padding": "full", "padding_s": 1.0}, "leave padding_s out"),
    ("hush_word", ZEROS | {"padding_s": 0.0}, "more than 0"),
    ("hush_word", ZEROS | {"padding_s": 2.5}, "more than half of the context"),
    ("hush_word", ZEROS | {"beam": -1}, "beam=-1: 0 or more"),
    ("hush_word", ZEROS | {"n": 0}, "n=0: 1 or more"),
    ("hush_word", ZEROS | {"trim_s": 0.0}, "more than 0"),
    ("hush_word", ZEROS | {"chunk_s": 0.01}, "multiple of 0.02 s"),
    ("hush_word", {"weights": "/nowhere"}, "train method=hush_word"),
    ("offline", {"beam": -1}, "beam=-1"),
    ("reencode", {"first_chunk_s": 0.05}, "first_chunk_s=0.05"),
    ("simul_whisper", {"truncation": "sometimes"}, "'sometimes': one of cif, never, always"),
    ("simul_whisper", {"truncation": "cif"}, "`python -m streaming_asr.train method=simul_whisper"),
    ("simul_whisper", {"truncation": "cif"}, "which method.weights=auto finds"),
    ("simul_whisper", {"frame_threshold": -1}, "frame_threshold=-1"),
    ("simul_whisper", {"beam": -2}, "beam=-2"),
    ("simul_whisper", {"chunk_s": 0.01}, "chunk_s=0.01: must be a positive multiple of 0.02 s"),
    ("simul_whisper", {"first_chunk_s": 0.0}, "first_chunk_s=0"),
    ("star", {"wait_k": 0}, "wait_k=0: 1 or more"),
    ("star", {"compressor": "lstm"}, "star, none"),
    ("u2", {}, "python -m streaming_asr.train method=u2"),
    ("u2", HEAD | {"word_times": "none"}, "one of alignment, ctc"),
    ("u2", HEAD | {"beam": 4, "rescore": 6}, "rescore=6: 0 or more, 4 at most"),
    ("u2", HEAD | {"rescore": 11}, "rescore=11: 0 or more, 10 at most"),
    ("u2", HEAD | {"beam": 0}, "beam=0: 1 or more"),
    ("u2", HEAD | {"chunk_s": 0.01}, "chunk_s=0.01: must be a positive multiple of 0.02 s"),
    ("u2", HEAD | {"max_delay_s": 3.9}, "do not fit into this model's context of 4 s"),
    ("u2", HEAD | {"blank_threshold": 0.0}, "blank_threshold=0.0: more than 0, 1 at most"),
    ("ufal", {"backend": "jax"}, "backend='jax'"),
    ("ufal", {"chunk_s": 0.01}, "multiple of 0.02"),
    ("ufal", {"beam": -1}, "beam=-1"),
    ("ufal", {"temperatures": []}, "temperatures"),
    ("ufal", {"trim_s": 0.0}, "trim_s=0.0"),
    ("ufal", {"n": 0}, "n=0"),
    ("ufal", {"compute_type": "int3"}, "int3"),
    ("whisperrt", {"commit": "never"}, "commit='never': one of"),
    ("whisperrt", {"n": -1}, "n=-1: 0 or more"),
    ("whisperrt", {"chunk_s": 0.03}, "chunk_s=0.03"),
]
SMALL = {"simul_whisper": {"truncation": "never"}, "star": {"weights": None}}


# HEAD is a folder of its own in each process, so it is in no name of a test.
@pytest.mark.parametrize(
    ("name", "options", "answer"), OF_METHODS, ids=[f"{name}: {why}" for name, _, why in OF_METHODS]
)
def test_a_setting_of_a_method_out_of_range_is_refused(name, options, answer, tmp_path):
    if name == "chunkformer":
        settings = {"weights": str(chunkformer_folder()), "chunk_s": 0.32}
    else:
        settings = {"model_path": str(tiny_folder()), **SMALL.get(name, {})}
    if name == "ufal":
        settings["cache"] = str(tmp_path)
    with pytest.raises(UserError) as refusal:
        new_method(name, **(settings | options))
    assert answer in str(refusal.value)
