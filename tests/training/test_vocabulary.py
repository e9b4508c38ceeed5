"""The loss over a vocabulary in slices: the numbers and gradients of one product."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from streaming_asr.training import vocabulary
from streaming_asr.training.vocabulary import vocabulary_loss


def example(n: int):
    torch.manual_seed(n)
    hidden = torch.randn(n, 16, requires_grad=True)
    return hidden, torch.randn(50, 16), torch.randint(0, 50, (n,))


@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_loss_gradient_and_likeliest_are_those_of_one_product(n, monkeypatch):
    monkeypatch.setattr(vocabulary, "ROWS", 8)
    hidden, weight, labels = example(n)
    loss, likeliest = vocabulary_loss(hidden, weight, labels)
    (3 * loss).backward()
    found = hidden.grad.clone()
    hidden.grad = None
    logits = hidden @ weight.T
    expected = F.cross_entropy(logits, labels)
    (3 * expected).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(found, hidden.grad, atol=1e-6)
    assert likeliest.tolist() == logits.argmax(-1).tolist()


def test_autocast_multiplies_in_its_type_and_the_gradient_keeps_the_hidden_states(monkeypatch):
    hidden, weight, labels = example(20)
    exact, _ = vocabulary_loss(hidden, weight, labels)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = vocabulary_loss(hidden, weight, labels)
    loss.backward()
    assert hidden.grad.dtype == torch.float32
    assert loss.item() != exact.item() and loss.item() == pytest.approx(exact.item(), rel=0.02)


def test_nothing_is_learned_of_no_row():
    hidden = torch.zeros(0, 16, requires_grad=True)
    loss, likeliest = vocabulary_loss(hidden, torch.randn(50, 16), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0 and len(likeliest) == 0 and hidden.grad.shape == (0, 16)
