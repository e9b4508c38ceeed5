"""The networks that U2's training sees: encoder, decoder and CTC head with the losses of both, or a
frozen encoder and a CTC branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.methods.u2.branch import Branch
from streaming_asr.methods.u2.pieces import PieceTokenizer
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.training.windows import Window
from streaming_asr.training.word_tokens import tokens_in_frames, write_labels
from streaming_asr.whisper.batched import decode_windows, encode_windows, in_slices
from streaming_asr.whisper.encoder import Part, encoder_of, part_of, run_layers
from streaming_asr.whisper.load import Whisper


@dataclass(frozen=True)
class Masks:
    """What is hidden of a window's states: spans (first, end) of its frames and of its channels."""

    frames: Sequence[tuple[int, int]] = ()
    channels: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class U2Batch:
    """Windows and the text of each in CTC classes; the rest is of a head, or of a branch."""

    mels: list[Tensor]  # (n_mels, 2F + 1) each
    ends: list[list[int]]  # block ends in encoder frames, the last one F
    classes: list[list[int]]
    spoken: Sequence[Tensor | None]  # (rows,) class spoken in each row; None without word times
    texts: Sequence[list[int]] = ()  # in tokens of the decoder
    masks: Sequence[Masks] = ()  # what is hidden from the branch
    n_words: int = 0
    audio: Tensor | None = None  # (batch, n) int16: what `mels` are made of where the model is

    def pin_memory(self) -> U2Batch:
        """Return the batch with its samples in memory from which a GPU copies by itself."""
        return self if self.audio is None else replace(self, audio=self.audio.pin_memory())


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
        """Return the losses whose name is True: `ctc`, `attention` (per token), `frames`.

        label_smoothing: of the attention loss.
        """
        encoded = self.encode(batch)
        losses: dict[str, Tensor] = {}
        if names.get("frames"):
            logits = torch.cat([self.head(frames).float() for frames in encoded])
            spoken = [labels for labels in batch.spoken if labels is not None]
            labels = torch.cat(spoken).to(logits.device)
            losses["frames"] = F.cross_entropy(logits, labels)
        if names.get("ctc"):
            total = nats([self.head(frames) for frames in encoded], batch.classes).sum()
            losses["ctc"] = total / max(1, sum(map(len, batch.classes)))
        if names.get("attention"):
            losses["attention"] = self._attention_loss(encoded, batch.texts, label_smoothing)
        return losses

    def encode(self, batch: U2Batch) -> list[Tensor]:
        """Return each window's frames, (F, d)."""
        mels = [mel.to(self.head.weight.device) for mel in batch.mels]
        return encode_windows(self.whisper, mels, batch.ends)

    def _attention_loss(
        self, encoded: list[Tensor], texts: Sequence[list[int]], label_smoothing: float
    ) -> Tensor:
        """Return the mean cross-entropy of the texts' tokens and ends, given frames (F, d)."""
        sequences = [[*self._prompt, *text] for text in texts]
        first = len(self._prompt) - 1  # the position that predicts the first token of the text
        logits = [rows[first:] for rows in decode_windows(self.whisper, sequences, encoded)]
        labels = [token for text in texts for token in (*text, self._eot)]
        return F.cross_entropy(
            torch.cat(logits),
            torch.tensor(labels, device=encoded[0].device),
            label_smoothing=label_smoothing,
        )


class BranchModel(nn.Module):
    """A Whisper with a frozen encoder, and the branch that learns."""

    def __init__(self, whisper: Whisper, branch: Branch) -> None:
        super().__init__()
        self.whisper = whisper.model.requires_grad_(False)
        self.branch = branch

    def forward(self, batch: U2Batch) -> list[Tensor]:
        """Return the logits (rows, classes) of each window."""
        with torch.no_grad():
            parts = self._below(batch)
        logits: list[Tensor] = self.branch(parts)
        return logits

    def _below(self, batch: U2Batch) -> list[Part]:
        """Return the states (1, F, d) in front of the branch; masked ones have their mean."""
        device = self.branch.head.weight.device
        parts = [
            replace(part_of(self.whisper, mel[None].to(device)), attend=in_slices(ends, device))
            for mel, ends in zip(batch.mels, batch.ends, strict=True)
        ]
        states = run_layers(encoder_of(self.whisper).layers[: self.branch.n_below], parts)
        masked_parts = []
        for part, frames, masks in zip(parts, states, batch.masks, strict=True):
            masked, mean = frames.clone(), frames.mean(1, keepdim=True)
            for first, end in masks.frames:
                masked[:, first:end] = mean
            for first, end in masks.channels:
                masked[..., first:end] = mean[..., first:end]
            masked_parts.append(replace(part, frames=masked))
        return masked_parts


def nats(logits: Sequence[Tensor], classes: Sequence[Sequence[int]]) -> Tensor:
    """Return the CTC loss of each text, (texts,): minus its log-probability.

    logits: (rows, classes) of each, the blank last. The loss is 0 for a text with more classes than
    rows, from which nothing can be learned.
    """
    padded = pad_sequence([rows.float() for rows in logits])
    return F.ctc_loss(
        padded.log_softmax(-1),  # (T, B, classes)
        torch.tensor([label for text in classes for label in text], device=padded.device),
        torch.tensor([len(rows) for rows in logits]),
        torch.tensor([len(text) for text in classes]),
        blank=padded.shape[-1] - 1,
        reduction="none",
        zero_infinity=True,
    )


def spoken_classes(
    window: Window, tokenizer: CtcTokenizer | PieceTokenizer, n_rows: int, row_s: float
) -> Tensor:
    """Return the class spoken in each row of `row_s` seconds, (n_rows,) int64.

    Where nobody speaks it is the blank.
    """
    labels = np.full(n_rows, tokenizer.blank, np.int64)
    placed = tokens_in_frames(
        window.words, lambda word: tokenizer.encode(f" {word}"), frame_s=row_s
    )
    return torch.from_numpy(write_labels(labels, placed))
