"""The network that U2's training sees: encoder, decoder and CTC head, with the losses of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.whisper.encoder import encode_masked


@dataclass(frozen=True)
class Batch:
    """Windows and what is said in each: in tokens of the decoder, and in CTC classes."""

    mels: list[Tensor]  # (n_mels, 2F + 1) each
    ends: list[list[int]]  # block ends in encoder frames, the last one F
    texts: list[list[int]]
    classes: list[list[int]]
    encoded: list[Tensor] | None = None  # (F, d) each, of an encoder that is frozen


class TwoPassModel(nn.Module):
    """A Whisper (wrapped by peft or not) and its CTC head, with the losses of both."""

    def __init__(self, whisper: nn.Module, head: nn.Linear, prompt: Sequence[int], eot: int):
        super().__init__()
        self.whisper = whisper
        self.head = head
        self._prompt, self._eot = list(prompt), eot

    def forward(
        self, batch: Batch, *, ctc: bool, attention: bool, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """CTC and attention loss, each per token; zero where it is not asked for."""
        device = self.head.weight.device
        encoded = self.encode(batch)
        nothing = torch.zeros((), device=device)
        return (
            self._ctc_loss(encoded, batch.classes) if ctc else nothing,
            self._attention_loss(encoded, batch.texts, label_smoothing) if attention else nothing,
        )

    def encode(self, batch: Batch) -> list[Tensor]:
        """Each window's frames, (F, d)."""
        device = self.head.weight.device
        if batch.encoded is not None:
            return [frames.to(device) for frames in batch.encoded]
        # One window at a time: without padding, which costs a CPU more than the batch would save.
        return [
            encode_masked(self.whisper, mel[None].to(device), ends=ends)[0]
            for mel, ends in zip(batch.mels, batch.ends, strict=True)
        ]

    def _ctc_loss(self, encoded: list[Tensor], classes: list[list[int]]) -> Tensor:
        log_probs = self.head(pad_sequence(encoded)).float().log_softmax(-1)  # (T, B, classes)
        total = F.ctc_loss(
            log_probs,
            torch.tensor([u for each in classes for u in each], device=log_probs.device),
            torch.tensor([len(frames) for frames in encoded]),
            torch.tensor([len(each) for each in classes]),
            blank=self.head.out_features - 1,
            reduction="sum",
            zero_infinity=True,  # a text with more tokens than frames teaches nothing
        )
        return total / max(1, sum(map(len, classes)))

    def _attention_loss(
        self, encoded: list[Tensor], texts: list[list[int]], label_smoothing: float
    ) -> Tensor:
        model: Any = self.whisper
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        first = len(self._prompt) - 1
        logits, labels = [], []
        for frames, text in zip(encoded, texts, strict=True):
            ids = torch.tensor([[*self._prompt, *text]], device=frames.device)
            hidden = base.model.decoder(
                input_ids=ids, encoder_hidden_states=frames[None], use_cache=False
            ).last_hidden_state[0, first:]
            logits.append(base.proj_out(hidden))
            labels += [*text, self._eot]
        return F.cross_entropy(
            torch.cat(logits),
            torch.tensor(labels, device=logits[0].device),
            label_smoothing=label_smoothing,
        )
