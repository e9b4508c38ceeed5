"""The network that U2's training sees: encoder, decoder and CTC head, with the losses of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.whisper.batched import decode_windows, encode_windows


@dataclass(frozen=True)
class U2Batch:
    """Windows and the text of each: in tokens of the decoder, and in CTC classes."""

    mels: list[Tensor]  # (n_mels, 2F + 1) each
    ends: list[list[int]]  # block ends in encoder frames, the last one F
    texts: list[list[int]]
    classes: list[list[int]]
    spoken: list[Tensor]  # (F,) class spoken in each frame, by the word times
    encoded: list[Tensor] | None = None  # (F, d) each, of an encoder that is frozen


class TwoPassModel(nn.Module):
    """A Whisper (wrapped by peft or not) and its CTC head, with the losses of both."""

    def __init__(self, whisper: nn.Module, head: nn.Linear, prompt: Sequence[int], eot: int):
        super().__init__()
        self.whisper = whisper
        self.head = head
        self._prompt, self._eot = list(prompt), eot

    def forward(
        self, batch: U2Batch, *, label_smoothing: float, **names: bool
    ) -> dict[str, Tensor]:
        """Return the losses named: `ctc` and `attention` per token, `frames` per frame."""
        encoded = self.encode(batch)
        losses: dict[str, Tensor] = {}
        if names.get("frames"):
            logits = torch.cat([self.head(frames).float() for frames in encoded])
            labels = torch.cat(batch.spoken).to(logits.device)
            losses["frames"] = F.cross_entropy(logits, labels)
        if names.get("ctc"):
            losses["ctc"] = self._ctc_loss(encoded, batch.classes)
        if names.get("attention"):
            losses["attention"] = self._attention_loss(encoded, batch.texts, label_smoothing)
        return losses

    def encode(self, batch: U2Batch) -> list[Tensor]:
        """Return each window's frames, (F, d)."""
        device = self.head.weight.device
        if batch.encoded is not None:
            return [frames.to(device) for frames in batch.encoded]
        mels = [mel.to(device) for mel in batch.mels]
        return encode_windows(self.whisper, mels, batch.ends)

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
        sequences = [[*self._prompt, *text] for text in texts]
        first = len(self._prompt) - 1
        logits = [rows[first:] for rows in decode_windows(self.whisper, sequences, encoded)]
        labels = [token for text in texts for token in (*text, self._eot)]
        return F.cross_entropy(
            torch.cat(logits),
            torch.tensor(labels, device=encoded[0].device),
            label_smoothing=label_smoothing,
        )
