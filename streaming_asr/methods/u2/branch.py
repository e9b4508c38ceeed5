"""The CTC branch: copies of the encoder's last layers, trained to spell; the encoder is frozen.

U2-Whisper (Interspeech 2025, section 2.2) trains one encoder for both passes. Here the encoder is
WhisperRT's, untouched, so that the decoder gets the frames it was trained on, and the first pass
has its last layers once more: copies that take the states in front of them, keys and values of
their own in a stream, and a copy of the last norm. Two frames of 20 ms are joined into a row of
40 ms, which a linear layer turns into classes, the blank last.

A row may straddle the border of two chunks: a frame without its partner waits for the next chunk.
At the end of a segment, or of a whole input, a last frame without one is joined with itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from streaming_asr.whisper.adapters import LINEAR
from streaming_asr.whisper.encoder import KeyValues, Part, encoder_of, pack, run_layers, unpack
from streaming_asr.whisper.load import Whisper

STRIDE = 2  # encoder frames in a row
DROPOUT = 0.1  # before the last layer, in training


class LowRank(nn.Module):
    """What a LoRA of scale 1 makes of a weight: weight + lora_B lora_A."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        n_out, n_in = weight.shape
        self.lora_A = nn.Parameter(torch.empty(rank, n_in))
        self.lora_B = nn.Parameter(torch.zeros(n_out, rank))
        nn.init.uniform_(self.lora_A, -(n_in**-0.5), n_in**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.lora_B @ self.lora_A


class Branch(nn.Module):
    """From the states behind encoder layer N - `n_layers` to the logits of the classes."""

    def __init__(self, whisper: Whisper, n_layers: int, rank: int, n_classes: int) -> None:
        """Copy the last `n_layers` layers and the norm of the encoder, in float32.

        rank: of the low-rank changes that are trained of their linear layers; 0 trains the copies
        themselves. n_classes: blank included.
        """
        super().__init__()
        encoder = encoder_of(whisper.model)
        d = encoder.layer_norm.weight.shape[0]
        self.rank = rank
        self.n_classes = n_classes
        self.n_below = len(encoder.layers) - n_layers
        self.layers = copy.deepcopy(encoder.layers[-n_layers:]).float()
        self.norm = copy.deepcopy(encoder.layer_norm).float()
        for part in (self.layers, self.norm):
            part.requires_grad_(rank == 0)
        for linear in self._linears() if rank else ():
            low_rank = LowRank(linear.weight, rank)
            parametrize.register_parametrization(linear, "weight", low_rank)
        self.pair = nn.Linear(STRIDE * d, d)
        self.drop = nn.Dropout(DROPOUT)
        self.head = nn.Linear(d, n_classes)

    def merge(self) -> None:
        """Add the low-rank changes to the weights, for good."""
        for linear in self._linears() if self.rank else ():
            parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
        self.rank = 0
        self.requires_grad_(False).eval()

    def forward(self, parts: Sequence[Part]) -> list[Tensor]:
        """Return the logits (rows, classes) of whole inputs, whose parts have states (1, n, d)."""
        pairs = [in_pairs(self.norm(frames)) for frames in run_layers(self.layers, parts)]
        logits = self.logits(pack(pairs))
        return [each[0] for each in unpack(logits, [each.shape[:2] for each in pairs])]

    def logits(self, pairs: Tensor) -> Tensor:
        """Return logits (..., rows, classes) of two frames each, (..., rows, 2 d)."""
        logits: Tensor = self.head(self.drop(F.silu(self.pair(pairs))))
        return logits

    def _linears(self) -> Iterator[nn.Linear]:
        """Yield the linear layers of the copies."""
        for name, module in self.layers.named_modules():
            if name.rpartition(".")[2] in LINEAR:
                assert isinstance(module, nn.Linear)
                yield module


def in_pairs(frames: Tensor) -> Tensor:
    """Return frames (1, n, d) two by two, (1, ceil(n / 2), 2 d); a single last one occurs twice."""
    if frames.shape[1] % STRIDE:
        frames = torch.cat([frames, frames[:, -1:]], 1)
    return frames.unflatten(1, (-1, STRIDE)).flatten(2)


class BranchStream:
    """The branch's state of one stream: keys and values of its window, and a frame without its
    partner."""

    def __init__(self, branch: Branch, positions: Tensor) -> None:
        """positions: the encoder's, (context, d)."""
        self._branch = branch
        self._cache = KeyValues(branch.layers, positions)
        self._waiting = positions.new_empty(1, 0, positions.shape[1])

    @torch.inference_mode()
    def advance(self, states: Tensor, start: int, ends: Sequence[int]) -> Tensor:
        """Return the log-probabilities of the rows that new frames complete, (rows, classes).

        states: (1, n, d) in front of the branch, of the window's frames from `start` on, in blocks
        that end at `ends`. With start 0 a new window begins.
        """
        part = Part(states, self._cache.attend(start, ends))
        frames = self._branch.norm(run_layers(self._branch.layers, [part])[0])
        if start:
            frames = torch.cat([self._waiting, frames], 1)
        n_paired = frames.shape[1] // STRIDE * STRIDE
        self._waiting = frames[:, n_paired:]
        return self._log_probs(frames[:, :n_paired])

    @torch.inference_mode()
    def flush(self) -> Tensor:
        """Return the log-probabilities (0 or 1, classes) of a frame without its partner."""
        frames, self._waiting = self._waiting, self._waiting[:, :0]
        return self._log_probs(frames)

    def _log_probs(self, frames: Tensor) -> Tensor:
        """Return the log-probabilities (rows, classes) of frames (1, n, d)."""
        if not frames.shape[1]:  # 8-bit layers do not take an empty tensor
            return frames.new_empty(0, self._branch.n_classes, dtype=torch.float32)
        logits = self._branch.logits(in_pairs(frames))[0]
        return logits.float().log_softmax(-1)
