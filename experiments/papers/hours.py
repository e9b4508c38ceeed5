"""How many GPU hours the papers' trainings take: estimates of operations, nothing was measured.

    python -m experiments.papers.hours

A step's operations are those of a forward pass over its windows: times 3 where the weights learn
(the backward pass is two more), times 2 where frozen weights hand gradients on, times 1 where
nothing goes back. A window lasts 12.3 s and has 40 tokens, LibriSpeech's means. The recipe says
how many steps there are; where a training goes on until nothing improves, EPOCHS are counted.
A GPU does 100 TFLOP/s, a third of what an A100 states in bf16. Small steps keep it from that:
WhisperFlow's authors report 48 hours of an A40 for base, with one clip a step, where this counts a
quarter of one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NamedTuple

from omegaconf import DictConfig

from streaming_asr.config.compose import compose_raw
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.encoder import Shape
from streaming_asr.methods.chunkformer.encoder import encoder_flops as chunkformer_flops
from streaming_asr.whisper.flops import encoder_flops

PER_S = 100e12
FRAMES, TOKENS = 615, 40
EPOCHS = 10
SIZES = {"base": (512, 6), "small": (768, 12), "medium": (1024, 24), "large-v2": (1280, 32)}
VOCABULARY = 51_865


class Training(NamedTuple):
    """paper: of experiments/papers. settings: of train. flops: of all its steps."""

    paper: str
    settings: str
    flops: float

    @property
    def hours(self) -> float:
        return self.flops / PER_S / 3600


def encode(d: int, layers: int, frames: float = FRAMES) -> float:
    """Return the FLOPs of encoding so many frames of 20 ms."""
    config = SimpleNamespace(
        d_model=d, encoder_ffn_dim=4 * d, num_mel_bins=80, encoder_layers=layers
    )
    return encoder_flops(config, round(frames))


def decode(d: int, layers: int, frames: float = FRAMES, tokens: float = TOKENS) -> float:
    """Return the FLOPs of a decoder's pass over the tokens of a window."""
    per_token = 2 * (4 + 2 + 8) * d * d + 4 * frames * d + 4 * tokens * d
    return layers * (tokens * per_token + 4 * frames * d * d) + 2 * tokens * VOCABULARY * d


def recipe_of(command: str) -> DictConfig:
    import streaming_asr.train  # noqa: F401 (registers its schema)

    recipe: DictConfig = compose_raw(command.split(), config_name="train").recipe
    return recipe


def trainings() -> Iterator[Training]:
    """Yield the trainings of the papers' pages."""
    for model, rest in (
        ("base", "chunk=300ms"),
        ("small", "chunk=300ms"),
        ("large-v2", "chunk=300ms"),
        ("large-v2", "chunk=300ms recipe.row=multilingual"),
    ):
        command = f"recipe=whisperrt_paper model={model} {rest}"
        fit, target = (recipe := recipe_of(command)).fit, recipe.target
        half = encode(*SIZES[model], FRAMES / 2) + decode(*SIZES[model], FRAMES / 2, TOKENS / 2)
        yield Training("whisperrt", command, fit.max_steps * target.batch * 2 * half)

    command = "recipe=u2_paper model=medium"
    recipe, medium = recipe_of(command), SIZES["medium"]
    head = 2 * FRAMES * 1024 * (recipe.target.ctc_tokens + 1)
    both = 3 * (encode(*medium) + decode(*medium))
    stages = recipe.stages
    each = stages.attention.max_steps * both + stages.ctc.max_steps * (encode(*medium) + 3 * head)
    each += EPOCHS * recipe.fit.evaluate_every * (both + 3 * head)
    yield Training("u2", command, recipe.target.batch * each)

    for model in ("base", "medium"):
        command = f"recipe=hush_word_paper model={model}"
        recipe = recipe_of(command)
        one = 2 * (encode(*SIZES[model], FRAMES + 25) + decode(*SIZES[model]))
        yield Training("hush_word", command, recipe.fit.max_steps * recipe.target.batch * one)

    command = "recipe=star_paper model=base"
    recipe = recipe_of(command)
    wav2vec2, rest_ = encode(768, 12), encode(512, recipe.target.layers) + decode(*SIZES["base"])
    stages = recipe.stages
    windows = [
        stages[name].accumulate * recipe.target.batch * n
        for name, n in (
            ("plain", EPOCHS * stages.plain.evaluate_every),
            ("segmenter", stages.segmenter.max_steps),
            ("frozen", EPOCHS * stages.frozen.evaluate_every),
        )
    ]
    flops = windows[0] * 3 * (wav2vec2 + rest_) + sum(windows[1:]) * (wav2vec2 + 3 * rest_)
    yield Training("star", command, flops)

    for row in ("full", "limited"):
        command = f"method=chunkformer recipe=chunkformer_paper recipe.row={row}"
        fit, target = (recipe := recipe_of(command)).fit, recipe.target
        shape = Shape(target.d, target.heads, target.layers, target.hidden, target.vocabulary)
        n, context = round(target.batch_s / 0.08), Context(154, 0, 0)  # of 12.3 s
        step = chunkformer_flops(shape, context, n, round(n / context.chunk))
        n_gpus = 8
        yield Training("chunkformer", command, fit.max_steps * n_gpus * 3 * step)


def main() -> int:
    """Print the trainings; return the exit status."""
    for each in trainings():
        print(
            f"{each.paper:12} {each.flops:8.2e} FLOP {each.hours:8.1f} GPU hours  {each.settings}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
