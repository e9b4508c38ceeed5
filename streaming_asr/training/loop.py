"""The training loop that every recipe shares: one process or many, resumable, logged.

A recipe defines what is trained (`model`), what a step sees (`draw`), what it minimises (`loss`),
how good it is (`evaluate`) and what it leaves behind (`save`). `draw(step, ...)` is a pure
function of the seed, the step and the rank, so a run that was killed goes on in the middle of an
epoch with the very batches it would have seen.

Averaging over processes is accelerate's (gloo on CPU, NCCL on GPUs). Two single-threaded processes
beat two OpenMP threads on small CPUs: a preempted thread stalls every operation of its process.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from torch import Tensor, nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.files import replacing, write_text
from streaming_asr.training.ahead import DrawnAhead

Log = Callable[[Mapping[str, float], int], None]

CHECKPOINTED = ("spent_s", "best", "n_stale", "evaluated_at", "figures", "best_figures")
"""The counts and scores of a training that are in its checkpoint."""


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast; everything that several recipes share.

    Training ends at `max_steps` or `max_minutes` (wall clock, resumed time counted in), whichever
    comes first; `progress`, the share done of the nearer limit, drives schedule and curriculum.
    With `patience` it also ends after so many evaluations in a row without a better score.
    With `average` the result has the means of the parameters over the steps of that last share of
    progress (averaging of iterates, Polyak and Juditsky, 1992).
    With `workers` so many processes draw the batches ahead (`training.ahead`)."""

    out: str
    max_steps: int
    max_minutes: float
    lr: float = 1e-3
    schedule: str = "linear_tail"  # "linear_tail" | "plateau" | "constant" | "noam"
    tail: float = 0.35  # linear_tail: share of progress over which lr falls linearly
    final_lr_ratio: float = 0.04
    warmup_steps: int = 100
    plateau_patience: int = 2  # plateau: evaluations without a better score that halve lr
    patience: int | None = None  # null: train until a limit
    weight_decay: float = 0.01
    beta2: float = 0.98
    grad_clip: float = 1.0
    accumulate: int = 1
    average: float = 0.0  # share of progress; 0: the last step's parameters
    mixed_precision: str = "no"  # "no" | "bf16"; bf16 is slower than fp32 on CPUs without AMX
    seed: int = 0
    log_every: int = 50
    evaluate_every: int = 500
    checkpoint_minutes: float = 1.0
    workers: int = 0  # of each rank, for a GPU; 0: the rank draws its own batches
    recipe: Mapping[str, Any] = field(default_factory=dict)  # its settings, kept by a resumed run


class Recipe(Protocol):
    """What one method trains. `model` holds every parameter that can need a gradient."""

    model: nn.Module

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> Any:
        """Return this rank's batch of a step; with the same arguments always the same.

        step: counts batches, `accumulate` of them for each step of the optimizer."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Mapping[str, float | Tensor]]:
        """Return the loss, a scalar, and figures to log. `model` is `self.model` wrapped: call this
        one, or gradients are not averaged.

        A figure may be a scalar tensor, which is read only when it is logged, so that a step need
        not wait for a GPU. The figure `weight`, which is not logged, is the number of tokens or
        frames of which the loss is the mean: ranks and accumulated batches with unequal numbers
        then together take the step of one batch. Without it they count alike."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Return figures on dev; the key `score` (lower is better) chooses the best checkpoint."""
        ...

    def save(self, folder: Path) -> None: ...


def lr_factor(config: FitConfig, step: int, progress: float) -> float:
    """Return the multiplier of `lr` in a step, counted from 0.

    All schedules rise linearly over the warm-up. Then noam falls with the root of the step, the
    others are flat; linear_tail falls linearly over the last share `tail` of `progress`."""
    warm_up = min(1.0, (step + 1) / max(1, config.warmup_steps))
    if config.schedule == "noam" and warm_up == 1:
        return (max(1, config.warmup_steps) / (step + 1)) ** 0.5
    if config.schedule != "linear_tail" or progress <= 1 - config.tail:
        return warm_up
    remaining = max(0.0, (1 - progress) / config.tail)
    return warm_up * (config.final_lr_ratio + (1 - config.final_lr_ratio) * remaining)


def fit(
    recipe: Recipe, config: FitConfig, *, keep: str = "final", log: Log | None = None
) -> dict[str, float]:
    """Train until a limit is reached, from `out/checkpoint.pt` on if it exists.

    Writes `out/final` and `out/best` (whatever `recipe.save` writes), `out/curve.jsonl` and the
    checkpoint; returns the figures on dev of `out/<keep>`. A training that had ended changes
    nothing. log: gets each row of the curve and its step. Raises UserError for settings out of
    range, a folder that belongs to another run, and a loss that is no number."""
    _check(config)
    run = _Training(recipe, config, log)
    run.restore()
    run.announce()
    while not run.ended:
        progress = run.progress()
        run.ended = progress >= 1 or run.out_of_patience()
        if run.ended:
            run.take_means()
        else:
            run.step(progress)
            run.average(progress)
        evaluated = run.evaluate() if run.evaluation_is_due() else False
        run.write(progress, evaluated)
    return run.finish(keep)


def _check(config: FitConfig) -> None:
    """Raise UserError for settings that are unknown, out of range, or exclude each other."""
    check_one_of(("linear_tail", "plateau", "constant", "noam"), schedule=config.schedule)
    check_range(1, patience=config.patience)
    check_range(0, 0.99, average=config.average)
    check_range(0, workers=config.workers)


class _Training:
    """The phases of `fit`: restore, draw, step, evaluate, save."""

    def __init__(self, recipe: Recipe, config: FitConfig, log: Log | None) -> None:
        self.recipe, self.config, self.log = recipe, config, log
        self.accelerator = Accelerator(
            cpu=not torch.cuda.is_available(), mixed_precision=config.mixed_precision
        )
        self.out = Path(config.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.checkpoint = self.out / "checkpoint.pt"
        torch.manual_seed(config.seed)
        self.trainable = [p for p in recipe.model.parameters() if p.requires_grad]
        self.means = [torch.zeros_like(p) for p in self.trainable if config.average]
        self.n_averaged = 0
        betas, decay = (0.9, config.beta2), config.weight_decay
        self.optimizer = torch.optim.AdamW(self.trainable, config.lr, betas, weight_decay=decay)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=config.plateau_patience
        )
        self.ended = False
        self.n_steps, self.spent_s = 0, 0.0
        self.evaluated_at = -1
        """The step after which dev was last evaluated."""
        self.figures: dict[str, float] = {}
        self.best, self.best_figures = math.inf, dict[str, float]()
        self.n_stale = 0
        """Evaluations in a row without a better score."""
        self.sums: dict[str, float | Tensor] = {}
        """The sum of each figure over the `n_summed` batches since the last row of the curve."""
        self.unread_losses: list[tuple[int, Tensor]] = []
        """Steps and their losses that `check_losses` has not read yet."""
        self.n_summed = 0

    # -- 1. restore -----------------------------------------------------------------------------

    def restore(self) -> None:
        """Load the checkpoint, if there is one, and prepare model, optimizer and batches."""
        if self.checkpoint.exists():
            try:
                self._load(torch.load(self.checkpoint, map_location="cpu", weights_only=True))
            except UserError:
                raise
            except Exception as error:  # torch's readers raise whatever the bytes make them do
                raise UserError(
                    f"{self.checkpoint}: not a whole checkpoint ({type(error).__name__}: "
                    f"{str(error).partition(chr(10))[0]}); remove it to begin again, the folders "
                    "best and final next to it hold the weights so far"
                ) from error
        self.restored_at = self.n_steps
        self.model, self.wrapped = self.accelerator.prepare(self.recipe.model, self.optimizer)
        # prepare has moved the parameters to a GPU; without averaging the list of means is empty
        self.means = [m.to(p.device) for m, p in zip(self.means, self.trainable, strict=False)]
        # not before prepare, which replaces the group as it loads the optimizer's state again
        (self.group,) = self.optimizer.param_groups
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        self.source: DrawnAhead | None = None
        if self.config.workers:
            first = self.n_steps * self.config.accumulate
            workers = self.config.workers
            self.source = DrawnAhead(self.recipe, workers, first, rank=rank, world=world)
        self.draw = self.recipe.draw if self.source is None else self.source.draw
        self.started = time.monotonic() - self.spent_s
        self.saved_at = time.monotonic()
        self.recipe.model.train()

    def _load(self, saved: Mapping[str, Any]) -> None:
        """Take the state of a checkpoint (`_write_checkpoint`). Raises UserError for another run's.

        The curve loses its rows after the checkpoint."""
        _same_run(saved["config"], self.config, self.checkpoint)
        # Frozen parameters are not in it: the recipe has loaded them.
        self.recipe.model.load_state_dict(saved["model"], strict=False)
        if saved["means"] and self.means:  # both runs average
            self.means, self.n_averaged = saved["means"], saved["n_averaged"]
        self.optimizer.load_state_dict(saved["optimizers"][0])
        self.plateau.load_state_dict(saved["plateau"])
        self.n_steps = saved["step"]
        for name in CHECKPOINTED:
            setattr(self, name, saved[name])
        if self.accelerator.is_main_process:
            _cut_curve(self.out / "curve.jsonl", self.n_steps)

    def announce(self) -> None:
        """Print what is trained, how long, and from which step on."""
        if not self.accelerator.is_main_process:
            return
        n_trained = sum(p.numel() for p in self.trainable)
        resumed = f"; resumed at step {self.n_steps} ({self.spent_s / 60:.1f} min spent)"
        print(
            f"training: {n_trained / 1e6:.2f} M parameters, "
            f"{self.accelerator.num_processes} process(es), at most {self.config.max_steps} "
            f"steps or {self.config.max_minutes:g} min{resumed if self.n_steps else ''}",
            flush=True,
        )

    def progress(self) -> float:
        """Return the share of the nearer limit (steps or minutes) that is done."""
        self.minutes = (time.monotonic() - self.started) / 60
        if self.accelerator.num_processes > 1:
            # One clock for all ranks, or they would disagree about the last step.
            clock = torch.tensor([self.minutes], device=self.accelerator.device)
            self.minutes = float(self.accelerator.reduce(clock, "mean"))
        return max(self.n_steps / self.config.max_steps, self.minutes / self.config.max_minutes)

    def out_of_patience(self) -> bool:
        """Return whether `patience` evaluations in a row have brought no better score."""
        return self.config.patience is not None and self.n_stale >= self.config.patience

    # -- 2. draw, 3. step -----------------------------------------------------------------------

    def step(self, progress: float) -> None:
        """Take one step of the optimizer, on `accumulate` batches of each rank. The figures that
        are logged are the means over these batches, as those of `accumulate` steps would be."""
        config, accelerator = self.config, self.accelerator
        rank, world = accelerator.process_index, accelerator.num_processes
        factor = lr_factor(config, self.n_steps, progress)
        self.group["lr"] = config.lr * factor * self.group.get("plateau_scale", 1.0)
        # Gradients are summed with the weights of the batches, then divided by their sum.
        weight_sum = 0.0
        for i in range(config.accumulate):
            index = self.n_steps * config.accumulate + i
            batch = self.draw(index, rank=rank, world=world, progress=progress)
            # Dropout follows from these too, so that a resumed training has what it would have had.
            torch.manual_seed(hash((config.seed, index, rank)) % 2**63)
            loss, figures = self.recipe.loss(self.model, batch)
            logs = {"loss": loss.detach(), **figures}
            self.unread_losses.append((self.n_steps + 1, loss.detach()))
            if self.reads_at_once:
                self.check_losses()
            weight = float(logs.pop("weight", 1.0))
            weight_sum += weight
            accelerator.backward(loss * weight)
            for key, value in logs.items():
                self.sums[key] = self.sums.get(key, 0.0) + value
            self.n_summed += 1
        divisor: float | Tensor = max(weight_sum, 1e-8)
        if world > 1:  # the mean over ranks, as of the gradients
            local = torch.tensor(weight_sum, device=accelerator.device)
            divisor = accelerator.reduce(local, "mean").clamp(min=1e-8)
        for parameter in self.trainable:
            if parameter.grad is not None:
                parameter.grad /= divisor
        accelerator.clip_grad_norm_(self.trainable, config.grad_clip)
        self.wrapped.step()
        self.wrapped.zero_grad()
        self.n_steps += 1

    @property
    def reads_at_once(self) -> bool:
        """Return whether a loss is checked in its step; on a GPU the step would wait for it."""
        return self.accelerator.device.type == "cpu"

    def check_losses(self) -> None:
        """Raise UserError where a loss since the last call is not finite."""
        if not self.unread_losses:
            return
        losses = torch.stack([loss.float() for _, loss in self.unread_losses]).tolist()
        for (step, _), loss in zip(self.unread_losses, losses, strict=True):
            if not math.isfinite(loss):
                raise UserError(
                    f"step {step}: the loss is {loss}; the last checkpoint is from before. Begin "
                    "again under another entry= with a lower recipe.fit.lr or grad_clip, and "
                    "without mixed_precision"
                )
        self.unread_losses.clear()

    def average(self, progress: float) -> None:
        """Add the step's parameters to their means, in the last share `average` of progress."""
        if not self.config.average or progress < 1 - self.config.average:
            # Not 0 already where a training that had ended goes on to a further limit.
            self.n_averaged = 0
            return
        self.n_averaged += 1
        for mean, parameter in zip(self.means, self.trainable, strict=True):
            mean.lerp_(parameter.detach(), 1 / self.n_averaged)

    def take_means(self) -> None:
        """Set the parameters to their means, once."""
        if self.n_averaged:
            with torch.no_grad():
                for mean, parameter in zip(self.means, self.trainable, strict=True):
                    parameter.copy_(mean)
            self.n_averaged = 0

    # -- 4. evaluate ----------------------------------------------------------------------------

    def evaluation_is_due(self) -> bool:
        """Return whether it is time: every `evaluate_every` steps and at the end."""
        is_time = self.ended or self.n_steps % self.config.evaluate_every == 0
        return is_time and self.evaluated_at != self.n_steps

    def evaluate(self) -> bool:
        """Evaluate dev, and update the best score, the patience and the plateau schedule.

        Every rank does it by itself, with the same result, so that none waits. Returns True."""
        self.evaluated_at = self.n_steps
        self.recipe.model.eval()
        with torch.no_grad():
            figures = self.recipe.evaluate()
        self.figures = {name: float(value) for name, value in figures.items()}
        self.recipe.model.train()
        score = self.figures.get("score", math.inf)
        self.n_stale = 0 if score < self.best else self.n_stale + 1
        if score <= self.best:
            self.best, self.best_figures = score, self.figures
        self.ended = self.ended or self.out_of_patience()
        if self.config.schedule == "plateau":
            lr_before = self.group["lr"]
            self.plateau.step(self.figures["score"])
            if lr_before:  # `step` sets the rate from this scale
                scale = self.group.get("plateau_scale", 1.0)
                self.group["plateau_scale"] = scale * self.group["lr"] / lr_before
        return True

    # -- 5. save --------------------------------------------------------------------------------

    def write(self, progress: float, evaluated: bool) -> None:
        """Write the curve's row, the best weights and the checkpoint, where they are due.

        evaluated: whether dev was evaluated after this step."""
        is_row_due = evaluated or (self.n_steps % self.config.log_every == 0 and bool(self.sums))
        since_saved_s = time.monotonic() - self.saved_at
        is_checkpoint_due = self.ended or since_saved_s > 60 * self.config.checkpoint_minutes
        if is_row_due or is_checkpoint_due:
            self.check_losses()  # before anything is written
        if not self.accelerator.is_main_process:
            return
        if is_row_due:
            self._write_row(progress, self.figures if evaluated else {})
        if evaluated and self.best_figures is self.figures:
            self._save("best")
        if is_checkpoint_due:
            self._write_checkpoint()

    def _write_row(self, progress: float, figures: Mapping[str, float]) -> None:
        """Write a row of the curve: means of the figures since the last row; `figures` of dev."""
        row = {key: float(value) / self.n_summed for key, value in self.sums.items()}
        row |= {"lr": self.group["lr"], "minutes": self.minutes}
        row |= {f"dev/{key}": value for key, value in figures.items()}
        self.sums, self.n_summed = {}, 0
        _append(self.out / "curve.jsonl", {"step": self.n_steps, **row})
        numbers = " ".join(f"{key} {value:.4g}" for key, value in row.items())
        print(f"step {self.n_steps:6d} {progress:6.1%} {numbers}", flush=True)
        if self.log is not None:
            self.log(row, self.n_steps)

    def _write_checkpoint(self) -> None:
        """Write `checkpoint.pt`. A full disk is only a warning unless the training has ended."""
        parameters = self.recipe.model.named_parameters()
        self.spent_s = time.monotonic() - self.started
        state = {
            "config": asdict(self.config),
            "model": {name: p.detach() for name, p in parameters if p.requires_grad},
            "optimizers": [self.optimizer.state_dict()],  # a list, as in earlier checkpoints
            "plateau": self.plateau.state_dict(),
            "means": self.means,
            "n_averaged": self.n_averaged,
            "step": self.n_steps,
            **{name: getattr(self, name) for name in CHECKPOINTED},
        }
        try:
            with replacing(self.checkpoint) as scratch, _writing():
                torch.save(state, scratch)
        except UserError as error:
            if self.ended:
                raise
            print(f"warning: {error}. The training goes on and tries again", file=sys.stderr)
        self.saved_at = time.monotonic()

    def _save(self, name: str) -> None:
        with replacing(self.out / name) as folder, _writing():
            self.recipe.save(folder)

    def finish(self, keep: str) -> dict[str, float]:
        """Write `out/final`; return the figures of `out/<keep>`."""
        if self.source is not None:
            self.source.clear()
        has_trained = self.n_steps > self.restored_at
        if self.accelerator.is_main_process and (has_trained or not (self.out / "final").exists()):
            self._save("final")
        if self.accelerator.num_processes > 1:
            # A thread of gloo needs the interpreter's lock to free the last gradients. If the main
            # thread frees the group meanwhile, it holds that lock and waits for the thread: both
            # wait for ever.
            self.accelerator.wait_for_everyone()
            time.sleep(0.5)
        self.accelerator.end_training()
        return self.figures if keep == "final" else self.best_figures


@contextmanager
def _writing() -> Iterator[None]:
    """Turn what torch and safetensors raise on a full disk into OSError."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(str(error).splitlines()[0]) from error


def _append(path: Path, row: Mapping[str, float]) -> None:
    """Append a row as a line of JSON, with six digits of each number."""
    with path.open("a") as file:
        file.write(json.dumps({key: float(f"{value:.6g}") for key, value in row.items()}) + "\n")


def _cut_curve(path: Path, step: int) -> None:
    """Remove the rows of a curve after the checkpoint's `step`, and incomplete lines."""
    if not path.exists():
        return
    lines = ""
    for line in path.read_text(errors="replace").split("\n"):
        with suppress(ValueError, KeyError, TypeError):
            if json.loads(line)["step"] <= step:
                lines += f"{line}\n"
    write_text(path, lines)


def _same_run(saved: Mapping[str, Any], config: FitConfig, path: Path) -> None:
    """Raise UserError where a checkpoint's settings `saved` differ from `config` in one that may
    not change during a training; the limits and how often it logs may, for example."""
    may_change = {"max_steps", "max_minutes", "patience", "out", "average", "workers"}
    may_change |= {"log_every", "evaluate_every", "checkpoint_minutes"}
    now = {key: value for key, value in asdict(config).items() if key not in may_change}
    del now["recipe"]
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
