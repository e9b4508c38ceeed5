"""The network that the branch's training sees: a frozen encoder and the branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.methods.u2.branch import Branch
from streaming_asr.whisper.batched import in_slices
from streaming_asr.whisper.encoder import Part, encoder_of, part_of, run_layers
from streaming_asr.whisper.load import Whisper


@dataclass(frozen=True)
class BranchBatch:
    """Windows and the text of each."""

    mels: list[Tensor]  # (n_mels, 2F + 1) each
    ends: list[list[int]]  # block ends in encoder frames, the last one F
    masks: list[list[tuple[int, int]]]  # frames hidden from the branch: (first, end)
    classes: list[list[int]]
    n_words: int
    spoken: list[Tensor | None]  # (rows,) class spoken in each row; None without word times
    audio: Tensor | None = None  # (batch, n) int16: what `mels` are made of where the model is

    def pin_memory(self) -> BranchBatch:
        """Return the batch with its samples in memory from which a GPU copies by itself."""
        return self if self.audio is None else replace(self, audio=self.audio.pin_memory())


class BranchModel(nn.Module):
    """A Whisper with a frozen encoder, and the branch that learns."""

    def __init__(self, whisper: Whisper, branch: Branch) -> None:
        super().__init__()
        self.whisper = whisper.model.requires_grad_(False)
        self.branch = branch

    def forward(self, batch: BranchBatch) -> list[Tensor]:
        """Return the logits (rows, classes) of each window."""
        with torch.no_grad():
            parts = self._below(batch)
        logits: list[Tensor] = self.branch(parts)
        return logits

    def _below(self, batch: BranchBatch) -> list[Part]:
        """Return the states (1, F, d) in front of the branch, masked."""
        device = self.branch.head.weight.device
        parts = [
            replace(part_of(self.whisper, mel[None].to(device)), attend=in_slices(ends, device))
            for mel, ends in zip(batch.mels, batch.ends, strict=True)
        ]
        states = run_layers(encoder_of(self.whisper).layers[: self.branch.n_below], parts)
        masked = []
        for frames, masks in zip(states, batch.masks, strict=True):
            heard, mean = frames.clone(), frames.mean(1, keepdim=True)
            for first, end in masks:
                heard[:, first:end] = mean
            masked.append(heard)
        return [replace(part, frames=x) for part, x in zip(parts, masked, strict=True)]


def nats(logits: Sequence[Tensor], classes: Sequence[Sequence[int]]) -> Tensor:
    """Return minus the log-probability of each text, (texts,), given its logits (rows, classes),
    the blank last.

    It is 0 for a text that has more classes than rows, which teaches nothing."""
    padded = pad_sequence([rows.float() for rows in logits])
    return F.ctc_loss(
        padded.log_softmax(-1),  # (T, B, classes)
        torch.tensor([unit for each in classes for unit in each], device=padded.device),
        torch.tensor([len(rows) for rows in logits]),
        torch.tensor([len(each) for each in classes]),
        blank=padded.shape[-1] - 1,
        reduction="none",
        zero_infinity=True,
    )
