"""Many prefixes of an utterance in one pass: the network that WhisperRT's fine-tuning sees.

A block-causal encoding of a window holds the encoding of each of its prefixes that ends with a
block. The token rows of these prefixes stand end to end in one sequence; masks keep them apart and
let each see the frames of its prefix only. The logits equal those of one pass per prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.whisper.encoder import encode_masked, merge_heads, split_heads


@dataclass(frozen=True)
class Example:
    """One window and the prefixes of it to train on."""

    mel: Tensor  # (n_mels, 2F + 1), clamped at the running maximum of the blocks below
    ends: list[int]  # block ends in encoder frames, the last one F
    prefixes: list[tuple[int, list[int]]]  # (frames heard, text tokens that have ended by then)


@dataclass(frozen=True)
class Batch:
    """Windows, and per window the token rows of its prefixes packed end to end, (B, S) each."""

    mels: list[Tensor]
    ends: list[list[int]]
    tokens: Tensor
    labels: Tensor  # next token; -100 in the prompt and in padding
    positions: Tensor  # position in its row
    rows: Tensor  # which row of the window
    heard: Tensor  # encoder frames this row may see

    def to(self, device: torch.device) -> Batch:
        moved = {
            name: getattr(self, name).to(device)
            for name in ("tokens", "labels", "positions", "rows", "heard")
        }
        return Batch([mel.to(device) for mel in self.mels], self.ends, **moved)


def pack(examples: Sequence[Example], prompt: Sequence[int], eot: int) -> Batch:
    """Every prefix becomes the row prompt + tokens with labels tokens + <|endoftext|>."""
    columns: dict[str, list[Tensor]] = {}
    for example in examples:
        packed: dict[str, list[int]] = {}
        for index, (heard, tokens) in enumerate(example.prefixes):
            n = len(prompt) + len(tokens)
            for name, values in {
                "tokens": [*prompt, *tokens],
                "labels": [-100] * (len(prompt) - 1) + [*tokens, eot],
                "positions": range(n),
                "rows": [index] * n,
                "heard": [heard] * n,
            }.items():
                packed.setdefault(name, []).extend(values)
        for name, values in packed.items():
            columns.setdefault(name, []).append(torch.tensor(values))
    # A padding position sees its like and the first frame, so that no softmax is empty.
    padding = {"tokens": eot, "labels": -100, "positions": 0, "rows": -1, "heard": 1}
    padded = {
        name: pad_sequence(values, batch_first=True, padding_value=padding[name])
        for name, values in columns.items()
    }
    return Batch([e.mel for e in examples], [e.ends for e in examples], **padded)


class PrefixModel(nn.Module):
    """A Whisper, wrapped by peft, whose decoder reads many prefixes of each window at once."""

    def __init__(self, whisper: nn.Module) -> None:
        super().__init__()
        self.whisper = whisper

    def forward(self, batch: Batch) -> Tensor:
        """Logits (n, V) of the positions that have a label, in the order of labels[labels >= 0]."""
        # One window at a time: without padding, which costs a CPU more than the batch would save.
        z = pad_sequence(
            [
                encode_masked(self.whisper, mel[None], ends=ends)[0]
                for mel, ends in zip(batch.mels, batch.ends, strict=True)
            ],
            batch_first=True,
        )
        base: Any = self.whisper.get_base_model()  # type: ignore[operator]
        decoder = base.model.decoder
        n = batch.tokens.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=z.device).tril()
        own_row = (batch.rows[:, None, :, None] == batch.rows[:, None, None, :]) & causal
        heard = torch.arange(z.shape[1], device=z.device) < batch.heard[:, None, :, None]
        x = decoder.embed_tokens(batch.tokens) + decoder.embed_positions.weight[batch.positions]
        for layer in decoder.layers:
            h = layer.self_attn_layer_norm(x)
            x = x + _attend(layer.self_attn, h, h, own_row)
            x = x + _attend(layer.encoder_attn, layer.encoder_attn_layer_norm(x), z, heard)
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        logits: Tensor = base.proj_out(decoder.layer_norm(x)[batch.labels >= 0])
        return logits


def _attend(attention: Any, x: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (
        split_heads(project(h), attention.num_heads)
        for project, h in (
            (attention.q_proj, x),
            (attention.k_proj, source),
            (attention.v_proj, source),
        )
    )
    out: Tensor = attention.out_proj(
        merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    )
    return out
