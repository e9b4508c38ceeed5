"""A recipe that fits a line: what the training loop is tested on."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from streaming_asr.training.loop import FitConfig


class Line:
    """Least squares on 9 seeded points a step, shared out among the ranks; a frozen offset."""

    def __init__(self, scores=(), stop_at=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.model[2].bias.requires_grad_(False)
        self.scores, self.stop_at = list(scores), stop_at
        self.seen = []

    def draw(self, step, *, rank, world, progress):
        if step == self.stop_at:
            raise KeyboardInterrupt
        self.seen.append(step)
        points = torch.randn(9, 3, generator=torch.Generator().manual_seed(step))
        return points[rank::world]

    def loss(self, model, batch):
        error = model(batch)[:, 0] - batch.sum(1).sin()
        return (error**2).mean(), {"n": float(len(batch)), "weight": float(len(batch))}

    def evaluate(self):
        return {"score": self.scores.pop(0) if self.scores else 1.0}

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), folder / "model.pt")


def settings(out, **changes):
    base = {"max_steps": 12, "max_minutes": 1e6, "lr": 0.05, "warmup_steps": 3, "log_every": 4}
    return FitConfig(out=str(out), **(base | changes))


def weights(folder):
    return torch.load(Path(folder) / "model.pt")


def same(one, other):
    """Whether two trainings left the same weights."""
    ours, theirs = weights(one / "final"), weights(other / "final")
    return all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)
