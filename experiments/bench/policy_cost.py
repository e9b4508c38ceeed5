"""What one AlignAtt decision costs: carried along, and with all rows built anew at each token.

from experiments.bench.policy_cost import measure
print(measure(n_tokens=60))
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from streaming_asr.methods.simul_whisper.alignatt import LEAST_DEVIATION, RunningRows
from streaming_asr.whisper.alignment import median_filter


def rebuilt(rows: Sequence[torch.Tensor], n_frames: int) -> int:
    """The decision by its definition: join all rows, (heads, 1, frames) each, and standardise them.

    Two rows or fewer are taken as they are. Returns the frame, of `n_frames`, that the last row
    looks at.
    """
    weights = torch.cat(list(rows), dim=1)
    if weights.shape[1] > 2:
        deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
        weights = (weights - mean) / deviation.clamp(min=LEAST_DEVIATION)
    smooth = median_filter(weights)
    return int(smooth.mean(0)[-1, :n_frames].argmax())


@dataclass(frozen=True)
class PolicyCost:
    """Median milliseconds of the decision on the `n_tokens`-th row, and whether all were equal."""

    n_tokens: int
    carried_ms: float
    rebuilt_ms: float
    equal_decisions: bool

    @property
    def ratio(self) -> float:
        return self.rebuilt_ms / self.carried_ms


def attention(
    n_rows: int, n_heads: int, n_frames: int, context_frames: int, seed: int
) -> torch.Tensor:
    """Made-up attention (heads, rows, context): a ridge that moves on, noise, and a sink at 0."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_heads, n_rows, context_frames, generator=random)
    frames = torch.arange(context_frames)
    centre = torch.linspace(3, n_frames - 2, n_rows)[:, None]
    scores += 6.0 * torch.exp(-(((frames - centre) / 4.0) ** 2))
    scores[..., 0] += 5.0
    return scores.softmax(-1)


@torch.inference_mode()
def measure(
    n_tokens: int = 60,
    *,
    n_heads: int = 8,
    n_frames: int = 500,
    context_frames: int = 1500,
    n_prompt: int = 4,
    repeats: int = 5,
    seed: int = 0,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> PolicyCost:
    """Decide on token after token both ways (Whisper base: 8 alignment heads); time the last one.

    Both get attention rows over the context; `n_frames` of them were heard.
    """
    weights = attention(n_prompt + n_tokens, n_heads, n_frames, context_frames, seed)
    prompt, *rows = weights.split([n_prompt, *[1] * n_tokens], dim=1)
    carried_ns: list[int] = []
    rebuilt_ns: list[int] = []
    equal = True
    for _ in range(repeats):
        running = RunningRows(prompt[None, ..., : n_frames + 3])
        for i, row in enumerate(rows):
            begin = clock_ns()
            running.add(row[None, ..., : n_frames + 3])
            (decided,) = running.attended(n_frames)
            spent = clock_ns() - begin
            if i == n_tokens - 1 or not carried_ns:  # the early decisions are compared once
                begin = clock_ns()
                wanted = rebuilt([prompt, *rows[: i + 1]], n_frames)
                spent_rebuilding = clock_ns() - begin
                equal = equal and decided == wanted
        carried_ns.append(spent)
        rebuilt_ns.append(spent_rebuilding)
    return PolicyCost(
        n_tokens, statistics.median(carried_ns) / 1e6, statistics.median(rebuilt_ns) / 1e6, equal
    )
