"""What one AlignAtt decision costs: carried along, and with all rows built anew at each token."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from experiments.bench.frame import cpu_ms
from streaming_asr.methods.simul_whisper.alignatt import LEAST_DEVIATION, RunningRows
from streaming_asr.whisper.alignment import median_filter

N_PROMPT, REPEATS = 4, 5


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
    n_tokens: int, *, n_heads: int = 8, n_frames: int = 500, context_frames: int = 1500
) -> tuple[float, float, bool]:
    """Decide on token after token both ways (Whisper base: 8 alignment heads).

    Both get attention rows over the context; `n_frames` of them were heard. Returns the median
    milliseconds of the last decision, carried along and built anew, and whether all were equal.
    """
    weights = attention(N_PROMPT + n_tokens, n_heads, n_frames, context_frames, seed=0)
    prompt, *rows = weights.split([N_PROMPT, *[1] * n_tokens], dim=1)
    carried_ms: list[float] = []
    rebuilt_ms: list[float] = []
    equal = True
    for _ in range(REPEATS):
        running = RunningRows(prompt[None, ..., : n_frames + 3])
        decided: list[int] = []
        n_rows_of: list[int] = []

        def carry(row: torch.Tensor, running=running, decided=decided) -> None:
            running.add(row[None, ..., : n_frames + 3])
            decided += running.attended(n_frames)

        def rebuild(n_rows: int, n_rows_of=n_rows_of) -> None:
            n_rows_of.append(rebuilt([prompt, *rows[:n_rows]], n_frames))

        for i, row in enumerate(rows, start=1):
            spent = cpu_ms(carry, row)
            if i == n_tokens or not carried_ms:  # the early decisions are compared once
                spent_rebuilding = cpu_ms(rebuild, i)
        equal = equal and decided[-len(n_rows_of) :] == n_rows_of
        carried_ms.append(spent)
        rebuilt_ms.append(spent_rebuilding)
    return statistics.median(carried_ms), statistics.median(rebuilt_ms), equal
