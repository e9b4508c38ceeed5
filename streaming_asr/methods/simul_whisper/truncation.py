"""Was the last word cut off by the end of the audio?

Continuous integrate-and-fire (CIF) on the encoder's output: one linear layer gives each frame a
weight in (0, 1), and the weights of a clip sum to its number of words. The weights are scaled to
sum to the nearest whole number and added up; each time the sum passes a whole number a word ends.
Where the last word ends with the last frames, nothing is cut off. Otherwise the last word of a
hypothesis is a guess at a word of which only a part is in the audio (Simul-Whisper, section 3.2).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from streaming_asr.errors import UserError
from streaming_asr.models.tensors import load_pickled, refuse_not_finite, weights_at

FILE_NAME = "detector.safetensors"
FULL = 0.999  # of a word's weight: from here on it counts as one
MAX_SMOOTHING = 10


class TruncationDetector(nn.Module):
    """The linear layer, (d,) -> weight; its parameters are those of the published files."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, 1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the weights (..., n) float32 in (0, 1) of encoder output (..., n, d)."""
        return self.linear(hidden.float()).squeeze(-1).sigmoid()

    @torch.inference_mode()
    def ends_with_a_word(self, hidden: torch.Tensor) -> bool:
        """Return whether a word ends with the audio so far, (n, d)."""
        return fires_at_the_end(self(hidden))


def fires_at_the_end(weights: torch.Tensor) -> bool:
    """Return whether a word ends with a clip, by its frame weights (n,) and the published rule.

    The rule leaves out the last frame. The running sum up to the frame before it must reach a whole
    number of words there, and not with an earlier frame.
    """
    total = weights.sum()
    if len(weights) < 2 or total.round() < 1:
        return False
    # Scaled to sum to a whole number of words.
    running_sum = smooth(weights * (total.round() / total))[:-1].cumsum(0)
    n_words = (running_sum[-1] / FULL).floor()
    is_reached = running_sum >= n_words
    return bool(is_reached[-1]) and not bool(is_reached[:-1].any())


def smooth(weights: torch.Tensor) -> torch.Tensor:
    """Return weights (n,) of the same sum in which no frame holds a whole word.

    While a frame does, all weights move half the way to their mean, at most ten times.
    """
    for _ in range(MAX_SMOOTHING):
        if not bool((weights > FULL).any()):
            break
        weights = 0.5 * weights + 0.5 * weights.mean()
    return weights


def load_detector(path: str | Path, d_model: int, device: torch.device | str) -> TruncationDetector:
    """Load a folder that training wrote, or a published file: weight (1, d) and bias (1,).

    Raises UserError where there is none, or one for a model of another width.
    """
    file, what = Path(path).expanduser(), f"truncation detector {str(path)!r}"
    if file.suffix == ".pt" and file.is_file():
        tensors = load_pickled(file, what)
    else:
        train = "give the folder that `python -m streaming_asr.train method=simul_whisper` made"
        tensors = weights_at(file, FILE_NAME, what, f"{train}, or a published .pt file")
    detector = TruncationDetector(d_model)
    try:
        # Published files prefix the names, as in "linear.weight".
        state = {name.rpartition(".")[2]: tensor.float() for name, tensor in tensors.items()}
        detector.linear.load_state_dict(state)
    except (AttributeError, RuntimeError) as error:
        raise UserError(
            f"{what}: not one linear layer, weight (1, d) and bias (1,), for a model of width "
            f"{d_model} ({str(error).splitlines()[-1].strip()}); use the detector of its size, or "
            "train one with `python -m streaming_asr.train method=simul_whisper`"
        ) from error
    refuse_not_finite(what, state.items())
    return detector.to(device).eval().requires_grad_(False)
