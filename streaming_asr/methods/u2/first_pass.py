"""The first pass: from the encoder to log-probabilities of the CTC classes.

Two forms, each with the Whisper that it was trained with. A head is one linear layer on the
encoder's last frames. A branch has the encoder's last layers to itself (`branch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from streaming_asr.methods.u2.branch import STRIDE, Branch, BranchStream
from streaming_asr.methods.u2.branch_files import is_branch, load_branch, read_branch
from streaming_asr.methods.u2.head import load_head, load_trained
from streaming_asr.methods.u2.pieces import PieceTokenizer, load_pieces
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.whisper.encoder import (
    Part,
    encode_masked,
    encode_parts,
    encode_tapped,
    encoder_of,
    part_of,
    run_layers,
)
from streaming_asr.whisper.flops import layer_flops
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.masks import mask_from_ends
from streaming_asr.whisper.quantise import quantise


class EncoderOutput(NamedTuple):
    """What the encoder gives of some frames, each (1, n, d)."""

    frames: Tensor
    """For the decoder."""
    states: Tensor
    """For the first pass."""


class HeadPass:
    """One linear layer on the encoder's frames; it keeps nothing of a stream."""

    stride = 1  # encoder frames in a row of log-probabilities

    def __init__(
        self, whisper: Whisper, tokenizer: CtcTokenizer, head: nn.Linear, *, int8: bool
    ) -> None:
        self.whisper, self.tokenizer = whisper, tokenizer
        layer = nn.Sequential(head.to(whisper.device, whisper.model.dtype).requires_grad_(False))
        if int8:
            quantise(layer)
        self.head = layer[0]

    def encode(self, parts: Sequence[Part]) -> list[EncoderOutput]:
        """Run the encoder over parts of several streams."""
        return [EncoderOutput(frames, frames) for frames in encode_parts(self.whisper.model, parts)]

    def start(self) -> HeadPass:
        """Return the first pass of a new stream."""
        return self

    @torch.inference_mode()
    def advance(self, states: Tensor, start: int, ends: Sequence[int]) -> Tensor:
        """Return the log-probabilities of the rows that new frames complete, (rows, classes).

        states: (1, n, d) of the window's frames from `start` on, in blocks that end at `ends`. With
        start 0 a new window begins.
        """
        log_probs: Tensor = self.head(states[0]).float().log_softmax(-1)
        return log_probs

    def flush(self) -> Tensor:
        """Return the log-probabilities (n, classes) of frames that waited for more; here none."""
        return torch.empty(0, self.tokenizer.n_tokens + 1, device=self.whisper.device)

    def log_probs(self, mel: Tensor, ends: Sequence[int]) -> Tensor:
        """Return the log-probabilities (rows, classes) of a whole input.

        mel: (n_mels, 2F + 1); ends: where its blocks end, in frames, the last one F.
        """
        with torch.inference_mode():
            frames = encode_masked(self.whisper.model, mel[None], ends=ends)
        return self.advance(frames, 0, ends)

    def flops(self, start: int, ends: Sequence[int]) -> float:
        """Return the FLOPs of its own layers over the blocks that end at `ends`."""
        return 0.0  # the head's one product a frame is not counted


class BranchPass:
    """Layers of its own parallel to the encoder's last ones; the methods are those of a head."""

    stride = STRIDE

    def __init__(self, whisper: Whisper, branch: Branch, pieces: Any, *, int8: bool) -> None:
        self.whisper = whisper
        self.tokenizer = PieceTokenizer(whisper, pieces, STRIDE)
        branch.merge()
        self.branch = branch.to(whisper.device, whisper.model.dtype)
        if int8:
            quantise(self.branch)

    def encode(self, parts: Sequence[Part]) -> list[EncoderOutput]:
        tapped = encode_tapped(self.whisper.model, parts, self.branch.n_below)
        return [EncoderOutput(frames, states) for frames, states in tapped]

    def start(self) -> BranchStream:
        return BranchStream(self.branch, encoder_of(self.whisper.model).embed_positions.weight)

    @torch.inference_mode()
    def log_probs(self, mel: Tensor, ends: Sequence[int]) -> Tensor:
        model = self.whisper.model
        mask = mask_from_ends(ends, mel.device)
        part = part_of(model, mel[None], mask)
        (states,) = run_layers(encoder_of(model).layers[: self.branch.n_below], [part])
        (logits,) = self.branch([Part(states, part.attend)])
        return logits.float().log_softmax(-1)

    def flops(self, start: int, ends: Sequence[int]) -> float:
        config, d = self.whisper.config, self.whisper.config.d_model
        blocks = list(zip([start, *ends[:-1]], ends, strict=True))
        layers = sum(layer_flops(config, end - begin, end) for begin, end in blocks)
        n_rows = (ends[-1] - start) / STRIDE
        return len(self.branch.layers) * layers + 2 * n_rows * STRIDE * d * d


FirstPass = HeadPass | BranchPass
FirstPassStream = HeadPass | BranchStream
"""The first pass of one stream."""


def load_first_pass(
    model_path: str, folder: str | Path, *, device: str = "cpu", dtype: str = "float32"
) -> FirstPass:
    """Return the first pass that was trained in `folder`: a head or a branch.

    Raises UserError where there is none, or it is of another model.
    """
    int8 = dtype == "int8"
    if not is_branch(folder):
        whisper = load_trained(model_path, folder, device=device, dtype=dtype)
        head = load_head(folder, whisper)
        return HeadPass(whisper, CtcTokenizer(whisper, head.out_features - 1), head, int8=int8)
    card = read_branch(folder, model_path)
    whisper = load_whisper(model_path, device=device, dtype=dtype, adapter=folder)
    # The branch copies layers of the encoder, which it cannot do of layers in 8 bits.
    source = load_whisper(model_path, adapter=folder) if int8 else whisper
    branch = load_branch(folder, card, source)
    return BranchPass(whisper, branch, load_pieces(folder), int8=int8)
