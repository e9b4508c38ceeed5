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
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.whisper.batched import decode, encode_together
from streaming_asr.whisper.encoder import encode_padded


@dataclass(frozen=True)
class Example:
    """One window and the prefixes of it to train on."""

    mel: Tensor  # (n_mels, 2F + 1), clamped at the running maximum of the blocks below
    ends: list[int]  # block ends in encoder frames, the last one F
    prompt: Sequence[int]  # the control tokens before the text, as many in each window
    prefixes: list[tuple[int, list[int]]]  # (frames heard, text tokens that have ended by then)
    offline: Tensor | None = None  # (n_mels, 2 * context) of the whole window, for a teacher
    text: Sequence[int] = ()  # all its text tokens, for a teacher


@dataclass(frozen=True)
class Batch:
    """Windows, and per window the token rows of its prefixes packed end to end, (B, S) each.

    For distillation also what the offline model hears and reads: `offline` and `text`.
    """

    mels: list[Tensor]
    ends: list[list[int]]
    tokens: Tensor
    labels: Tensor  # next token; -100 in the prompt and in padding
    positions: Tensor  # position in its row
    rows: Tensor  # which row of the window
    heard: Tensor  # encoder frames this row may see
    offline: Tensor | None = None  # (B, n_mels, 2 * context)
    text: Tensor | None = None  # (B, L): prompt and all text tokens of each window

    def to(self, device: torch.device) -> Batch:
        names = ("tokens", "labels", "positions", "rows", "heard", "offline", "text")
        tensors = {name: getattr(self, name) for name in names}
        moved: dict[str, Any] = {
            name: None if tensor is None else tensor.to(device) for name, tensor in tensors.items()
        }
        return Batch([mel.to(device) for mel in self.mels], self.ends, **moved)


def pack(examples: Sequence[Example], eot: int) -> Batch:
    """Return the batch: each prefix a row prompt + tokens, its labels tokens + <|endoftext|>."""
    columns: dict[str, list[Tensor]] = {}
    for example in examples:
        prompt = example.prompt
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
    offline = [e.offline for e in examples if e.offline is not None]
    texts = [torch.tensor([*e.prompt, *e.text]) for e in examples]
    return Batch(
        [e.mel for e in examples],
        [e.ends for e in examples],
        offline=torch.stack(offline) if offline else None,
        text=pad_sequence(texts, batch_first=True, padding_value=eot) if offline else None,
        **padded,
    )


@dataclass(frozen=True)
class Teaching:
    """The offline model's answer to a batch; it hears whole windows."""

    frames: Tensor  # (B, context, d), its encoder's
    chances: Tensor | None  # (B, L, k): of the k likeliest next tokens after each of `Batch.text`
    tokens: Tensor | None  # (B, L, k): which these are


class PrefixModel(nn.Module):
    """A Whisper, wrapped by peft, whose decoder reads many prefixes of each window at once."""

    def __init__(self, whisper: nn.Module) -> None:
        super().__init__()
        self.whisper = whisper

    def forward(
        self, batch: Batch, teacher_tokens: int | None = None
    ) -> tuple[Tensor, Tensor, Teaching | None]:
        """Return logits (n, V) of the positions that have a label, in the order of labels[labels >=
        0], encoder frames (B, F, d), of which row b has ends[b][-1], and what the offline model
        says, its frames and so many of its likeliest tokens; None: it is not asked.
        """
        taught = None if teacher_tokens is None else self._teach(batch, teacher_tokens)
        z = encode_together(self.whisper, batch.mels, batch.ends)
        n = batch.tokens.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=z.device).tril()
        # A token sees those before it in its own row alone; rows stand end to end.
        own_row = (batch.rows[:, None, :, None] == batch.rows[:, None, None, :]) & causal
        heard = torch.arange(z.shape[1], device=z.device) < batch.heard[:, None, :, None]
        hidden = decode(self._base, z, batch.tokens, batch.positions, own_row, heard)
        return self._base.proj_out(hidden[batch.labels >= 0]), z, taught

    @torch.no_grad()
    def _teach(self, batch: Batch, k: int) -> Teaching:
        """Ask the offline model, the network without its adapter, for its `k` likeliest tokens."""
        assert batch.offline is not None and batch.text is not None
        # So the teacher costs no memory of its own.
        with self.whisper.disable_adapter():  # type: ignore[operator]
            z = encode_padded(self.whisper, batch.offline)
            if not k:
                return Teaching(z, None, None)
            n = batch.text.shape[1]
            causal = torch.ones(n, n, dtype=torch.bool, device=z.device).tril()
            positions = torch.arange(n, device=z.device)
            hidden = decode(self._base, z, batch.text, positions, causal, None)
            logits = self._base.proj_out(hidden)
            chances, tokens = logits.float().softmax(-1).topk(k)
        # The chances of the rest are given to the likeliest, so that they sum up to one.
        return Teaching(z, chances / chances.sum(-1, keepdim=True), tokens)

    @property
    def _base(self) -> Any:
        return self.whisper.get_base_model()  # type: ignore[operator]
