"""Trains what a method needs: `python -m streaming_asr.train method=whisperrt chunk=300ms`.

conf/recipe/<method>.yaml holds the hyperparameters and names the recipe class. A killed training
goes on from its last checkpoint when the same command is given again. The result lies in
<output>/train/<model>/<method>/<entry>, where `run` looks for it; checkpoints and the learning
curve in <output>/training/<model>/<method>/<entry>.

A recipe with `stages` runs them in turn, each in its own process and from the weights of the one
before; the weights of all but the last lie in <entry>-<stage>.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict

from streaming_asr.cells import folder as cells
from streaming_asr.chunking import first_chunk_ms, format_duration, parse_duration
from streaming_asr.config.build import build, program
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.schema import check_settings, setting
from streaming_asr.config.types import check_arguments
from streaming_asr.errors import UserError, check_range
from streaming_asr.files import CONF_DIR, replacing
from streaming_asr.machine import let_waiting_threads_sleep, ran_out_of_memory
from streaming_asr.terminal import exit_status


@dataclass
class TrainConfig:
    """The top level of conf/train.yaml. A key that is not here is refused."""

    method: Any = MISSING
    recipe: Any = MISSING  # target: the recipe class and its options; fit: FitConfig
    model: Any = MISSING
    tracker: Any = MISSING
    output: str = "outputs"
    entry: str = MISSING  # name of what is trained: 300ms, random, base ...
    chunk: str = "300ms"
    first_chunk: str | None = None
    train_data: str | None = None  # folder of training shards
    dev_manifest: str | None = None
    processes: int = setting(1, least=1)
    seed: int = setting(0, least=0, most=2**32 - 1)


ConfigStore.instance().store(name="train_schema", node=TrainConfig)


def _job(config: DictConfig) -> None:
    """Train as `config` asks; where memory runs out, print what to change and exit with 1."""
    try:
        train(config, HydraConfig.get().runtime.choices["method"])
    except Exception as error:
        if isinstance(error, UserError) or not ran_out_of_memory(error):
            raise
        print(f"error: {_no_memory(error, config.recipe)}", file=sys.stderr)
        sys.exit(1)


def _no_memory(error: Exception, recipe: DictConfig) -> str:
    """Return the message for a training that ran out of memory, with settings that need less."""
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    batch, accumulate = recipe.target.get("batch"), recipe.fit.get("accumulate", 1)
    smaller = []
    if batch and batch > 1:
        smaller.append(
            f"recipe.target.batch={batch // 2} with ++recipe.fit.accumulate={2 * accumulate}"
        )
    if recipe.fit.get("mixed_precision", "no") == "no":
        smaller.append("++recipe.fit.mixed_precision=bf16")
    smaller.append("a smaller model=")
    return (
        f"out of memory ({reason}); end other programs that use it and give the same command, "
        "which goes on from the last checkpoint, or begin again with entry=<another name> and "
        f"{', '.join(smaller)}"
    )


def train(config: DictConfig, method: str) -> dict[str, float]:
    """Run one recipe to its end; return the last figures on dev.

    method: the name of the method to train. Recipes with stages, and trainings with several
    processes, start this command again for each; their figures are {}. Raises UserError for
    settings or data that are missing or wrong.
    """
    _complete(config)
    _require_data(config)
    if config.recipe.get("stages"):
        if config.recipe.stage is None:
            return _in_turn(_stages(config.recipe))
        _choose_stage(config, method)

    check_fit(config.recipe)  # loads torch, after everything else that can be wrong is checked
    from streaming_asr.training.launch import launch

    status = launch(config.processes)
    if status is None:
        return _fit(config, method)
    if status:
        sys.exit(status)
    return {}


def _complete(config: DictConfig) -> None:
    """Check the settings and fill in defaults, in place."""
    check_settings(config, TrainConfig)
    chunk_ms = parse_duration(config.chunk)
    config.chunk = format_duration(chunk_ms)
    config.first_chunk = format_duration(first_chunk_ms(config.chunk, config.first_chunk))
    _choose_data(config)
    with open_dict(config):
        del config["method"]  # settings of streaming, which training does not need
    OmegaConf.resolve(config)


def _require_data(config: DictConfig) -> None:
    """Raise UserError, with the command that makes them, where shards or dev are missing."""
    if not Path(config.train_data).is_dir():
        raise UserError(
            f"train_data={config.train_data}: no such folder; make it with `streaming-asr data "
            f"shards data=... out={config.train_data}`, or name a folder of training shards"
        )
    if not Path(config.dev_manifest).is_file():
        raise UserError(
            f"dev_manifest={config.dev_manifest}: no such manifest; make it with "
            f"`streaming-asr data manifest data=... out={config.dev_manifest}`, or name another"
        )


def _fit(config: DictConfig, method: str) -> dict[str, float]:
    """Train in this process, one of the ranks; rank 0 puts the weights where `run` looks for them.
    Returns the last figures on dev."""
    import torch
    from transformers.utils import logging

    from streaming_asr.track.tracker import tracker
    from streaming_asr.training.loop import FitConfig, fit

    logging.disable_progress_bar()  # it would come with each saved model, among the figures
    if config.processes > 1:
        torch.set_num_threads(1)
    name = Path(str(config.model.get("name", "model"))) / method / config.entry
    work = Path(config.output) / "training" / name
    target: Any = OmegaConf.to_container(config.recipe.target)
    settings = FitConfig(out=str(work), seed=config.seed, recipe=target, **config.recipe.fit)

    is_main = int(os.environ.get("RANK", 0)) == 0
    with ExitStack() as stack:
        if is_main:
            work.mkdir(parents=True, exist_ok=True)
            stack.enter_context(cells.lock(work))
            cells.save_configuration(work, config, HydraConfig.get().overrides.task)
        torch.manual_seed(config.seed)  # for the layers that begin untrained
        recipe = build(config.recipe.target)
        track = stack.enter_context(
            tracker(OmegaConf.to_container(config), folder=work, experiment="train", cell=str(name))
        )
        figures = fit(
            recipe,
            settings,
            keep=config.recipe.keep,
            log=lambda row, step: track.log(row, step=step),
        )
        track.summary(figures)
        if is_main:
            result = Path(config.output) / "train" / name
            _copy_weights(work / config.recipe.keep, result)
            text = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
            print(f"trained: {result}  ({text})")
            doubt = doubtful(figures)
            if doubt is not None:
                print(f"warning: {result}: {doubt}", file=sys.stderr)
    return figures


LEAST = {"max_steps": 1, "accumulate": 1, "log_every": 1, "evaluate_every": 1, "patience": 1,
         "plateau_patience": 1}  # fmt: skip
ABOVE_0 = ("lr", "max_minutes", "grad_clip", "checkpoint_minutes", "tail")


def check_fit(recipe: Any) -> None:
    """Raise UserError for a setting of `recipe.fit` that no training can have, and for n_dev=0."""
    n_dev = recipe.target.get("n_dev")
    if n_dev is not None and (not isinstance(n_dev, int) or n_dev < 1):
        raise UserError(f"recipe.target.n_dev={n_dev}: must be 1 or more; null takes all of dev")
    fit: Any = OmegaConf.to_container(recipe.fit, resolve=True)
    node = {"_target_": "streaming_asr.training.loop.FitConfig", "out": ".", **fit}
    check_arguments(node, "recipe.fit", extra=())
    for key, value in fit.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"recipe.fit.{key}={value}: must be a finite number")
        if isinstance(value, int | float):
            least = LEAST.get(key, 0)
            check_range(least, above=key in ABOVE_0, **{f"recipe.fit.{key}": value})


def _copy_weights(trained: Path, result: Path) -> None:
    """Copy the trained weights to the folder `result`. Raises UserError where there are none."""
    if not trained.is_dir():
        raise UserError(
            f"{trained}: no evaluation gave a score, so there are no best weights; see curve.jsonl "
            "in the same folder, and train again with another entry= and a lower recipe.fit.lr"
        )
    with replacing(result) as scratch:
        shutil.copytree(trained, scratch)


def doubtful(figures: Mapping[str, float]) -> str | None:
    """Return why weights with these figures on dev should not be used; None without doubt.

    score: a word error rate in percent, or another figure below 100 (nats a word).
    """
    score = figures.get("score", 0.0)
    if score <= 100:
        return None
    return (
        f"{score:.4g} % of the words on dev are wrong, more than of an empty text; train on with a "
        "larger recipe.fit.max_minutes, or train again with another entry= and a lower "
        "recipe.fit.lr or on more data"
    )


def _choose_data(config: DictConfig) -> None:
    """Fill in train_data and dev_manifest with mini's speech where mini is trained. Raises
    UserError for another model, whose user must name them."""
    from streaming_asr.corpora import MINI

    name = str(config.model.get("name", "model"))
    defaults = {"train_data": "outputs/mini/train", "dev_manifest": str(MINI / "dev.jsonl")}
    for key, default in defaults.items():
        if config[key] is None and name != "mini":
            raise UserError(
                f"{key}: has no default for model={name}, as only mini can be trained on mini's "
                "voices; `streaming-asr data shards data=... out=FOLDER` makes "
                "train_data=FOLDER, `... manifest data=... out=FILE.jsonl` dev_manifest=FILE.jsonl"
            )
        config[key] = config[key] or default


def _stages(recipe: DictConfig) -> list[str]:
    """Return the names of the recipe's stages in turn; one that is null is left out."""
    return [name for name, settings in recipe.stages.items() if settings is not None]


def _in_turn(stages: list[str]) -> dict[str, float]:
    """Run this command again once per stage; exit where one fails."""
    for stage in stages:
        print(f"stage {stage}", flush=True)
        command = [sys.executable, *sys.orig_argv[1:], f"recipe.stage={stage}"]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(code)
    return {}


def _choose_stage(config: DictConfig, method: str) -> None:
    """Turn the configuration into that of the stage `recipe.stage`, in place.

    Changed are its minutes, its settings of `fit`, the weights that it starts from, those of the
    stage before, and its entry. Raises UserError for an unknown stage.
    """
    recipe, names = config.recipe, _stages(config.recipe)
    if recipe.stage not in names:
        raise UserError(
            f"recipe.stage={recipe.stage}: one of {', '.join(names)}, or null for all in turn"
        )
    settings = dict(recipe.stages[recipe.stage])
    recipe.fit.max_minutes *= settings.pop("share")
    recipe.target.stage = recipe.stage
    earlier = names[: names.index(recipe.stage)]
    if earlier and recipe.target.start is None:
        trained = Path(config.output) / "train" / str(config.model.get("name", "model")) / method
        recipe.target.start = str(trained / f"{config.entry}-{earlier[-1]}")
    if recipe.stage != names[-1]:
        config.entry = f"{config.entry}-{recipe.stage}"
    with open_dict(recipe.fit):
        recipe.fit.update(settings)


def _check_recipe(argv: Sequence[str]) -> None:
    """Raise UserError for a method of ours that has no recipe, unless the command names a recipe or
    a folder that may hold one."""
    other_recipes = ("recipe=", "hydra.searchpath=", "--config-dir", "-cd")
    if any(argument.startswith(other_recipes) for argument in argv):
        return
    method = CommandLine(argv).get("method") or "whisperrt"
    methods = {file.stem for file in (CONF_DIR / "method").glob("*.yaml")}
    recipes = {file.stem for file in (CONF_DIR / "recipe").glob("*.yaml")}
    if method in methods - recipes:
        trainable = sorted(methods & recipes)
        raise UserError(
            f"method={method}: needs no training; run it, as streaming-asr method={method} "
            f"chunk=1s. There are recipes for: {', '.join(trainable)}"
        )


def main() -> int:
    """Run the command line and return its exit status."""
    let_waiting_threads_sleep()
    return exit_status(lambda: _check_recipe(sys.argv[1:])) or program(
        "train", _job, loads="the recipe, its model and speech"
    )


if __name__ == "__main__":
    sys.exit(main())
