"""CTC branches with random weights, and the WhisperRT adapters that they stand behind."""

from __future__ import annotations

from pathlib import Path

import torch

from streaming_asr.methods.u2.branch import STRIDE, Branch
from streaming_asr.methods.u2.branch_files import save_branch
from streaming_asr.methods.u2.pieces import PieceTokenizer, learn_pieces
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.load import load_whisper

TEXTS = (
    "The quick brown fox runs away, and she had wash water.",
    "I'm here; the fox and I don't run.",
    "She had the water, and he had the quick fox.",
)


def random_adapter(model: str | Path, folder: Path, *, rank: int = 4, seed: int = 0) -> Path:
    """Leave an adapter that changes the model noticeably."""
    torch.manual_seed(seed)
    network = with_lora(load_whisper(model).model, rank, LINEAR)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.1)
    save_lora(network, folder, "a model")
    return folder


def random_branch(
    model: str | Path,
    adapter: Path,
    folder: Path,
    *,
    rank: int = 4,
    layers: int = 1,
    pieces: int = 60,
) -> Path:
    """Leave a branch behind the adapter that spells something, mostly blanks."""
    whisper = load_whisper(model, adapter=adapter)
    tokenizer = PieceTokenizer(whisper, learn_pieces(TEXTS, pieces), STRIDE)
    torch.manual_seed(1)
    branch = Branch(whisper, layers, rank, tokenizer.n_tokens + 1)
    with torch.no_grad():
        for name, weight in branch.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.1)
        branch.head.weight.mul_(12)
        branch.head.bias[-1] += 3
    save_branch(branch, tokenizer, adapter, folder)
    return folder
