"""How well do a Whisper's last two frames tell a word that is cut off from one that has ended?

    python -m experiments.simul_whisper.separability model=tiny.en train_data=... dev_manifest=...
    python -m experiments.simul_whisper.separability model=base ... --detector cif_models/base.pt

The truncation detector is one linear layer on these frames, so that it can hardly do better than
the best such layer. Clips are drawn as its training draws them; those of 80 speakers, 8 each, are
kept apart. A logistic regression on the mean of the two frames learns from more and more clips of
the others, its weight decay chosen on a fifth of them. Its AUC on the clips kept apart, the chance
that a whole word scores above a cut one, is printed with the 95 % interval over speakers. With
--detector also the AUC of that detector, and how often the published rule is right with it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import streaming_asr.train  # noqa: F401  makes its settings known to Hydra
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.methods.simul_whisper.train import TruncationRecipe
from streaming_asr.methods.simul_whisper.truncation import (
    TruncationDetector,
    end_weight,
    fires_at_the_end,
    load_detector,
)
from streaming_asr.metrics.intervals import Counts, Values, bootstrap
from streaming_asr.terminal import exit_status

N_SPEAKERS, PER_SPEAKER = 80, 8
N_CLIPS = (480, 960, 1920)
WEIGHT_DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0)
SEED = 0


class Clips:
    """Clips as frames heard, (n, d) each, and whether no word is cut at their ends."""

    def __init__(self) -> None:
        self.frames: list[Tensor] = []
        self.whole: list[float] = []

    def draw(self, recipe: TruncationRecipe, step: int) -> None:
        """Add a batch of the recipe's."""
        batch = recipe.precompute(recipe.draw(step, rank=0, world=1, progress=0.0))
        for hidden, n in zip(batch["hidden"], batch["n_frames"].tolist(), strict=True):
            self.frames.append(hidden[:n].float())
        self.whole += batch["whole"].tolist()

    def ends(self) -> tuple[Tensor, Tensor]:
        """The mean of the last two frames, (clips, d), and the labels."""
        return torch.stack([each[-2:].mean(0) for each in self.frames]), torch.tensor(self.whole)


def fitted(x: Tensor, y: Tensor, weight_decay: float) -> torch.nn.Linear:
    """The logistic regression of labels y on x, by full-batch L-BFGS."""
    layer = torch.nn.Linear(x.shape[1], 1)
    torch.nn.init.zeros_(layer.weight)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(layer(x)[:, 0], y)
        loss = loss + weight_decay * layer.weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    return layer


def auc(scores: Tensor, whole: Tensor, speaker: np.ndarray) -> str:
    """The area under the ROC curve with its interval over speakers, as text."""
    above, below = scores[whole == 1].numpy(), scores[whole == 0].numpy()
    wins = (above[:, None] > below) + 0.5 * (above[:, None] == below)
    of_above, of_below = speaker[whole.numpy() == 1], speaker[whole.numpy() == 0]

    def statistics(counts: Counts) -> dict[str, Values]:
        a, b = counts[:, of_above].astype(float), counts[:, of_below].astype(float)
        with np.errstate(invalid="ignore"):  # of draws that have clips of one kind alone: left out
            return {"auc": ((a @ wins) * b).sum(1) / (a.sum(1) * b.sum(1))}

    interval = bootstrap(statistics, int(speaker.max()) + 1)["auc"]
    assert interval is not None
    bounds = "" if interval.low is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    return f"{interval.value:.2f}{bounds}"


def best_layer(x: Tensor, y: Tensor) -> torch.nn.Linear:
    """The regression whose weight decay does best on the last fifth of the clips, fitted to all."""
    n = len(x) * 4 // 5

    def loss(weight_decay: float) -> float:
        logits = fitted(x[:n], y[:n], weight_decay)(x[n:])[:, 0].detach()
        return float(F.binary_cross_entropy_with_logits(logits, y[n:]))

    return fitted(x, y, min(WEIGHT_DECAYS, key=loss))


def report(recipe: TruncationRecipe, detector: TruncationDetector | None) -> None:
    """Draw the clips and print the figures."""
    voices = sorted({item.speaker for item in recipe.items})
    apart = random.Random(SEED).sample(voices, min(N_SPEAKERS, len(voices) // 5))
    items = recipe.items
    others = [item for item in items if item.speaker not in set(apart)]
    held, seen = Clips(), Clips()
    for number, voice in enumerate(apart):
        recipe.train_on([item for item in items if item.speaker == voice])
        for step in range(PER_SPEAKER // recipe.batch):
            held.draw(recipe, number * PER_SPEAKER + step)
    recipe.train_on(others)
    for step in range(0 if detector else max(N_CLIPS) // recipe.batch):
        seen.draw(recipe, 10**6 + step)
    x, whole = held.ends()
    speaker = np.arange(len(whole)) // (len(whole) // len(apart))
    print(f"{len(whole)} clips of {len(apart)} speakers, {whole.mean():.0%} end with a whole word")
    if detector is not None:
        with torch.no_grad():
            weights = [detector(frames) for frames in held.frames]
        scores = torch.stack([end_weight(each) for each in weights])
        right = torch.tensor([fires_at_the_end(each) for each in weights]) == whole.bool()
        share_kept, dropped = (float(right[whole == label].float().mean()) for label in (1, 0))
        print(f"detector: AUC {auc(scores, whole, speaker)}; by the published rule")
        print(
            f"{share_kept:.0%} of the whole words are kept, {dropped:.0%} of the cut ones dropped"
        )
        return
    inputs, labels = seen.ends()
    middle, spread = inputs.mean(0), inputs.std(0) + 1e-3
    print("| clips | AUC on them | AUC on the speakers kept apart |\n| ---: | ---: | ---: |")
    for n in N_CLIPS:
        inside = (inputs[:n] - middle) / spread
        layer = best_layer(inside, labels[:n])
        with torch.no_grad():
            plain, other = layer(inside)[:, 0], layer((x - middle) / spread)[:, 0]
        itself = auc(plain, labels[:n], np.arange(n)).partition(" ")[0]
        print(f"| {n} | {itself} | {auc(other, whole, speaker)} |")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--detector", help="a trained detector, in place of a new layer")
    arguments, overrides = parser.parse_known_args(argv)

    def job() -> None:
        torch.manual_seed(SEED)
        asked = ["method=simul_whisper", "recipe.target.batch=8", *overrides]
        recipe = build(compose_raw(asked, config_name="train").recipe.target)
        width = recipe.whisper.config.d_model
        report(
            recipe, arguments.detector and load_detector(arguments.detector, width, recipe.device)
        )

    return exit_status(job)


if __name__ == "__main__":
    sys.exit(main())
