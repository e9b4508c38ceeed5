"""How well frames tell cut words from whole ones: the AUC and the layer that is fitted."""

from __future__ import annotations

import numpy as np
import torch

from experiments.simul_whisper.separability import auc, best_layer, fitted


def test_the_auc_is_the_share_of_pairs_in_the_right_order_and_a_tie_is_half_right() -> None:
    whole = torch.tensor([1.0, 1.0, 0.0, 0.0] * 6)
    speaker = np.arange(24) // 2
    ranked = torch.tensor([3.0, 1.0, 2.0, 0.0] * 6)  # of four pairs 3 > 2, 3 > 0, 1 > 0
    # Every draw of such speakers says the same, so that there is no interval.
    assert auc(ranked, whole, speaker) == "0.75"
    assert auc(torch.zeros(24), whole, speaker) == "0.50"
    assert auc(-ranked, whole, speaker) == "0.25"


def test_speakers_are_drawn_whole() -> None:
    whole = torch.tensor([1.0, 0.0] * 20)
    right = torch.tensor([1.0, 0.0] * 20)
    right[:20] = torch.tensor([0.0, 1.0] * 10)  # half of the clips, of one speaker in two
    few = auc(right, whole, np.arange(40) // 20)
    wide, narrow = (auc(right, whole, np.arange(40) // n) for n in (5, 2))
    low, lower = (float(text.split("[")[1].split(",")[0]) for text in (narrow, wide))
    assert few == "0.50" and lower < low - 0.1


def test_the_layer_tells_apart_what_a_plane_divides_and_shrinks_with_weight_decay() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 5, generator=generator)
    y = (x[:, 0] + 0.2 * torch.randn(300, generator=generator) > 0).float()
    with torch.no_grad():
        right = (best_layer(x, y)(x)[:, 0] > 0).float() == y
    assert float(right.float().mean()) > 0.9
    assert fitted(x, y, 3.0).weight.norm() < fitted(x, y, 0.03).weight.norm()
