"""CTC branches with random weights, the WhisperRT adapters that they stand behind, and heads."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch

from streaming_asr.methods.u2.branch import STRIDE, Branch
from streaming_asr.methods.u2.branch_files import save_branch
from streaming_asr.methods.u2.head import embedding_head, save_head
from streaming_asr.methods.u2.pieces import PieceTokenizer, learn_pieces
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.load import load_whisper

TEXTS = (
    "The quick brown fox runs away, and she had wash water.",
    "I'm here; the fox and I don't run.",
    "She had the water, and he had the quick fox.",
)


def random_adapter(model: str | Path, folder: Path, *, seed: int = 0) -> Path:
    """Leave an adapter that changes the model noticeably."""
    torch.manual_seed(seed)
    network = with_lora(load_whisper(model).model, 4, LINEAR)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.1)
    save_lora(network, folder, "a model")
    return folder


@functools.cache
def head_folder(model: str | Path, n_tokens: int | None = None) -> str:
    """A folder with a head of the decoder's embeddings, of all text tokens or the first."""
    whisper = load_whisper(model)
    folder = Path(tempfile.mkdtemp(prefix="tiny-head-"))
    save_head(embedding_head(whisper, whisper.eot if n_tokens is None else n_tokens), folder)
    return str(folder)


def random_branch(model: str | Path, adapter: Path, folder: Path) -> Path:
    """Leave a branch behind the adapter that spells something, mostly blanks."""
    whisper = load_whisper(model, adapter=adapter)
    tokenizer = PieceTokenizer(whisper, learn_pieces(TEXTS, 60), STRIDE)
    torch.manual_seed(1)
    branch = Branch(whisper, 1, 4, tokenizer.n_tokens + 1)
    with torch.no_grad():
        for name, weight in branch.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.1)
        branch.head.weight.mul_(12)
        branch.head.bias[-1] += 3
    save_branch(branch, tokenizer, adapter, folder)
    return folder
