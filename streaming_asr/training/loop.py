"""The training loop that every recipe shares: one process or many, resumable, logged.

A recipe says what is trained (`model`), what a step sees (`batch`), what it minimises (`loss`),
how good it is (`evaluate`) and what it leaves behind (`save`). `batch(step, ...)` is a pure
function of the seed, the step and the rank, so a run that was killed goes on in the middle of an
epoch with the very batches it would have seen.

Averaging over processes is accelerate's (gloo on CPU, NCCL on GPUs). Two single-threaded processes
beat two OpenMP threads on small CPUs: a preempted thread stalls every operation of its process.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from streaming_asr.data import Utterance
from streaming_asr.data.shards import Item
from streaming_asr.errors import UserError
from streaming_asr.hashes import weights_hash
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.text import normaliser
from streaming_asr.training.cache import BatchCache

Log = Callable[[Mapping[str, float], int], None]
Example = TypeVar("Example")


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast; everything that is not of one recipe alone.

    Training ends at `max_steps` or `max_minutes` (wall clock, resumed time counted in), whichever
    comes first; `progress`, the share done of the nearer limit, drives schedule and curriculum.
    With `patience` it also ends when so many evaluations in a row have brought no better score.
    With `cached_batches` it goes through so many batches again and again, their features kept in
    `out/features` (`training_cache`)."""

    out: str
    max_steps: int
    max_minutes: float
    optimizer: str = "adamw"  # "adamw" | "muon", for the matrices inside layers
    lr: float = 1e-3
    schedule: str = "linear_tail"  # "linear_tail" | "plateau" | "constant"
    tail: float = 0.35  # linear_tail: share of progress over which lr falls linearly
    final_lr_ratio: float = 0.04
    warmup_steps: int = 100
    plateau_factor: float = (
        0.5  # plateau: ReduceLROnPlateau's factor, one patience = one evaluation
    )
    plateau_patience: int = 2
    patience: int | None = None  # null: train until a limit
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.98
    grad_clip: float = 1.0
    accumulate: int = 1
    mixed_precision: str = "no"  # "no" | "bf16"; bf16 is slower than fp32 on CPUs without AMX
    seed: int = 0
    log_every: int = 50
    evaluate_every: int = 500
    checkpoint_minutes: float = 5.0
    cached_batches: int | None = None  # of each rank; null: new windows without end
    recipe: Mapping[str, Any] = field(default_factory=dict)  # its settings, kept by a resumed run


class Recipe(Protocol):
    """What one method trains. `model` holds every parameter that can need a gradient."""

    model: nn.Module

    def batch(self, step: int, *, rank: int, world: int, progress: float) -> Any: ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, float]]:
        """`model` is `self.model` wrapped: call this one, or gradients are not averaged.

        The figures beside the loss are logged; `weight` among them, not logged, says of how many
        (tokens, frames) the loss is the mean, so that ranks and accumulated parts with unequal
        shares together take the step of one batch. Without it they count alike."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Figures on dev; the key `score` (lower is better) chooses the best checkpoint."""
        ...

    def save(self, folder: Path) -> None: ...


def _optimizers(model: nn.Module, config: FitConfig) -> list[torch.optim.Optimizer]:
    """AdamW, and with `optimizer: muon` a Muon (K. Jordan, 2024) beside it.

    Muon takes the matrices inside layers, with the scale of arXiv 2502.16982, section 2.2, under
    which both go at one rate. Convolutions, embeddings, norms and biases stay AdamW's."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            inside = parameter.ndim == 2 and "layers." in name
            (matrices if inside and config.optimizer == "muon" else others).append(parameter)
    betas, decay = (config.beta1, config.beta2), config.weight_decay
    scaled = "match_rms_adamw"
    optimizers: list[torch.optim.Optimizer] = []
    if others:
        optimizers.append(torch.optim.AdamW(others, config.lr, betas, weight_decay=decay))
    if matrices:  # of an adapter they are all there is
        muon = torch.optim.Muon(matrices, config.lr, weight_decay=decay, adjust_lr_fn=scaled)
        optimizers.append(muon)
    return optimizers


def lr_factor(config: FitConfig, step: int, progress: float) -> float:
    """Multiplier of `lr`: linear warm-up, then flat, then (linear_tail) a linear fall."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule != "linear_tail" or progress <= 1 - config.tail:
        return warm
    left = max(0.0, (1 - progress) / config.tail)
    return warm * (config.final_lr_ratio + (1 - config.final_lr_ratio) * left)


def fit(recipe: Recipe, config: FitConfig, *, log: Log | None = None) -> dict[str, float]:
    """Trains until a limit is reached, from `out/checkpoint.pt` on; returns the last evaluation.

    Leaves `out/final` and `out/best` (whatever `recipe.save` writes), `out/curve.jsonl` and the
    checkpoint. Raises UserError for an unknown schedule, a patience of no evaluation or a folder
    that belongs to another run."""
    if config.schedule not in ("linear_tail", "plateau", "constant"):
        raise UserError(
            f"schedule={config.schedule!r} is unknown; use linear_tail, plateau or constant"
        )
    if config.optimizer not in ("adamw", "muon"):
        raise UserError(f"optimizer={config.optimizer!r} is unknown; use adamw or muon")
    if config.patience is not None and config.patience < 1:
        raise UserError(
            f"patience={config.patience}: so many evaluations without a better score end the "
            "training, 1 or more; null trains until a limit"
        )
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(), mixed_precision=config.mixed_precision
    )
    rank, world = accelerator.process_index, accelerator.num_processes
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    trainable = [p for p in recipe.model.parameters() if p.requires_grad]
    optimizers = _optimizers(recipe.model, config)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizers[0], factor=config.plateau_factor, patience=config.plateau_patience
    )
    step, spent_s, best, n_stale = 0, 0.0, math.inf, 0
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        _same_run(saved["config"], config, checkpoint)
        named = dict(recipe.model.named_parameters())
        with torch.no_grad():
            for name, value in saved["model"].items():
                named[name].copy_(value)
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        plateau.load_state_dict(saved["plateau"])
        step, spent_s, best = saved["step"], saved["spent_s"], saved["best"]
        n_stale = saved.get("n_stale", 0)
        if accelerator.is_main_process:
            _cut_curve(out / "curve.jsonl", step)
    model, *wrapped = accelerator.prepare(recipe.model, *optimizers)
    # not before: accelerate loads the optimizers' states anew
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    started = time.monotonic() - spent_s
    if accelerator.is_main_process:
        print(
            f"training: {sum(p.numel() for p in trainable) / 1e6:.2f} M parameters, "
            f"{world} process(es), at most {config.max_steps} steps or {config.max_minutes:g} min"
            + (f"; resumed at step {step} ({spent_s / 60:.1f} min spent)" if step else ""),
            flush=True,
        )

    def save_checkpoint() -> None:
        state = {
            "config": asdict(config),
            "model": {n: p.detach() for n, p in recipe.model.named_parameters() if p.requires_grad},
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "plateau": plateau.state_dict(),
            "step": step,
            "spent_s": time.monotonic() - started,
            "best": best,
            "n_stale": n_stale,
        }
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)

    def evaluate() -> dict[str, float]:
        recipe.model.eval()
        with torch.no_grad():
            figures = recipe.evaluate()
        recipe.model.train()
        return figures

    def out_of_patience() -> bool:
        return config.patience is not None and n_stale >= config.patience

    cache = None
    if config.cached_batches is not None:
        cache = BatchCache(recipe, config.cached_batches, out / "features", rank)
    draw = recipe.batch if cache is None else cache.batch
    figures: dict[str, float] = {}
    sums: dict[str, float] = {}
    n_summed, evaluated_at = 0, -1
    last_checkpoint = time.monotonic()
    recipe.model.train()
    done = False
    while not done:
        # one clock for all ranks, or they would disagree about the last step
        clock = torch.tensor([time.monotonic() - started], dtype=torch.float64)
        clock = accelerator.reduce(clock.to(accelerator.device).float(), "mean")
        progress = max(step / config.max_steps, float(clock) / 60 / config.max_minutes)
        done = progress >= 1 or out_of_patience()
        if not done:
            factor = lr_factor(config, step, progress)
            for group in groups:
                scale = group.get("plateau_scale", 1.0)
                group["lr"] = config.lr * factor * scale
            weight = 0.0
            for part in range(config.accumulate):
                batch = draw(
                    step * config.accumulate + part, rank=rank, world=world, progress=progress
                )
                loss, logs = recipe.loss(model, batch)
                share = logs.pop("weight", 1.0)
                weight += share
                accelerator.backward(loss * share)
            total = torch.tensor(weight, device=accelerator.device)
            # over ranks, as the gradients are
            total = accelerator.reduce(total, "mean").clamp(min=1e-8)
            for parameter in trainable:
                if parameter.grad is not None:
                    parameter.grad /= total
            accelerator.clip_grad_norm_(trainable, config.grad_clip)
            for optimizer in wrapped:
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            for key, value in {"loss": float(loss.detach()), **logs}.items():
                sums[key] = sums.get(key, 0.0) + value
            n_summed += 1
        evaluated = step != evaluated_at and (done or step % config.evaluate_every == 0)
        if evaluated:
            evaluated_at = step
            figures = evaluate()  # on every rank: the same figures, and nobody waits at a barrier
            score = figures.get("score", math.inf)
            is_best = score <= best
            n_stale = 0 if score < best else n_stale + 1
            best = min(best, score)
            done = done or out_of_patience()
            if config.schedule == "plateau":
                before = groups[0]["lr"]
                plateau.step(figures["score"])  # which sees the first optimizer only
                for group in groups if before else ():
                    scale = group.get("plateau_scale", 1.0)
                    group["plateau_scale"] = scale * groups[0]["lr"] / before
        if accelerator.is_main_process:
            if evaluated or (step % config.log_every == 0 and sums):
                row = {key: value / n_summed for key, value in sums.items()}
                row |= {"lr": groups[0]["lr"], "minutes": float(clock) / 60}
                row |= {f"dev/{key}": value for key, value in figures.items()} if evaluated else {}
                sums, n_summed = {}, 0
                _append(out / "curve.jsonl", {"step": step, **row})
                print(
                    f"step {step:6d} {progress:6.1%} "
                    + " ".join(f"{key} {value:.4g}" for key, value in row.items()),
                    flush=True,
                )
                if log is not None:
                    log(row, step)
            if evaluated and is_best:
                recipe.save(out / "best")
            if done or time.monotonic() - last_checkpoint > 60 * config.checkpoint_minutes:
                save_checkpoint()
                last_checkpoint = time.monotonic()
    if cache is not None:
        cache.clear()
    if accelerator.is_main_process:
        recipe.save(out / "final")
    accelerator.end_training()
    return figures


def length_buckets(
    examples: Sequence[Example], n_batches: int, length: Callable[[Example], float], key: str
) -> list[list[Example]]:
    """Length bucketing: `examples` as `n_batches` batches of alike lengths, in an order drawn from
    `key`. With the same key all ranks have long batches at the same time. One batch stays as it is.
    """
    if n_batches == 1:
        return [list(examples)]
    ordered = sorted(examples, key=length)
    size = len(ordered) // n_batches
    batches = [ordered[at : at + size] for at in range(0, n_batches * size, size)]
    random.Random(key).shuffle(batches)
    return batches


def dev_wer(dev: Sequence[Utterance], texts: Sequence[str], language: str | None = None) -> float:
    """WER in percent of `texts` for the utterances of `dev`, normalised; `language` overrides."""
    import jiwer

    normalise = normaliser(language or dev[0].language)
    return float(100 * jiwer.wer([normalise(u.text) for u in dev], [normalise(t) for t in texts]))


def write_training(
    folder: Path,
    told: Mapping[str, Any],
    *,
    items: Sequence[Item],
    train_data: str,
    dev: Sequence[Utterance],
    dev_manifest: str,
    base: str | None = None,
) -> None:
    """`folder/training.json`: how the weights beside it came about, `told` and the corpora.

    base: the model without which they mean nothing; its weights' hash is kept, so that
    `method.weights=auto` does not put them on another.
    """
    content = {
        **({} if base is None else {"base": weights_hash(base)}),
        **told,
        "train_data": published_name(train_data),
        "train_hours": round(sum(i.n_samples for i in items) / SAMPLE_RATE / 3600, 2),
        "dev": published_name(dev_manifest),
        "n_dev": len(dev),
    }
    (folder / "training.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def published_name(path: str) -> str:
    """A path as it can stand in a published file: without what is of one machine only."""
    return Path(path).name if Path(path).is_absolute() else path


def _append(path: Path, row: Mapping[str, float]) -> None:
    with path.open("a") as f:
        f.write(json.dumps({k: float(f"{v:.6g}") for k, v in row.items()}) + "\n")


def _cut_curve(path: Path, step: int) -> None:
    """Drops what was logged after the checkpoint: these steps are taken again."""
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if json.loads(line)["step"] <= step))


def _same_run(saved: Mapping[str, Any], config: FitConfig, path: Path) -> None:
    """A checkpoint goes on under its own settings only; the limits may be raised."""
    free = {"max_steps", "max_minutes", "patience", "out"}
    free |= {"log_every", "evaluate_every", "checkpoint_minutes", "recipe"}
    now = {key: value for key, value in asdict(config).items() if key not in free}
    before = {key: saved.get(key) for key in now}
    if saved.get("recipe"):
        now |= {f"recipe.target.{k}": v for k, v in config.recipe.items() if k != "n_dev"}
        before |= {f"recipe.target.{k}": v for k, v in saved["recipe"].items()}
    for key, value in now.items():
        if before.get(key) != value:
            raise UserError(
                f"{path} was trained with {key}={before.get(key)!r}, this run asks for {value!r}; "
                f"use another entry= for the new settings, or remove that folder to start over"
            )


def launch(processes: int) -> int | None:
    """Starts this very command once per process; None where it should just go on itself.

    For one process, or under torchrun or `accelerate launch` (RANK is set), nothing is to do."""
    if processes <= 1 or "RANK" in os.environ:
        return None
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    common = {
        **os.environ,
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true" if not torch.cuda.is_available() else "false",
    }
    command = [sys.executable, *sys.orig_argv[1:]]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(processes)
    ]
    try:
        # a rank that fails would leave the others waiting for its gradients
        while all(p.poll() is None for p in ranks):
            time.sleep(0.5)
        failed = next((p.returncode for p in ranks if p.poll()), 0)
    except KeyboardInterrupt:
        failed = 130
    for p in ranks:
        if failed:
            p.terminate()
        p.wait()
    return failed or next((p.returncode for p in ranks if p.returncode), 0)
