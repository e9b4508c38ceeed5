"""Many prefixes of an utterance in one pass: the network that WhisperRT's fine-tuning sees.

A block-causal encoding of a window holds the encoding of each of its prefixes that ends with a
block. The token rows of these prefixes follow each other in one sequence; masks keep them apart and
let each see the frames of its prefix only. The logits equal those of one pass per prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.training.windows import as_int16, from_int16
from streaming_asr.whisper.batched import decode, encode_together
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel, log_mel_windows


@dataclass(frozen=True)
class PrefixExample:
    """One window and the prefixes of it to train on."""

    audio: np.ndarray  # (n,) float32 in [-1, 1], the whole window
    ends: list[int]  # block ends in encoder frames, the last one F
    prompt: Sequence[int]  # the control tokens before the text, as many in each window
    prefixes: list[tuple[int, list[int]]]  # (frames so far, text tokens that have ended by then)


@dataclass(frozen=True)
class PrefixBatch:
    """Windows, and per window the token rows of its prefixes packed end to end, (B, S) each.

    `audio` becomes `mels` and `offline` where the model is (`with_features`). The indices are
    the places of a loss's terms, so that nothing has to be counted on a GPU, which would wait
    for it."""

    audio: Tensor  # (B, n) int16, zeros behind each window
    ends: list[list[int]]
    tokens: Tensor
    labels: Tensor  # next token; -100 in the prompt, in padding, and where nothing is learned
    positions: Tensor  # position in its row
    rows: Tensor  # which row of the window
    visible_frames: Tensor  # encoder frames this row may see
    learned: Tensor  # (n,) places in B * S of the labels that are learned
    real: Tensor  # (m,) places in B * F of the frames that are no padding
    mels: list[Tensor] | None = None  # (n_mels, 2F + 1), clamped at the blocks' running maximum
    offline: Tensor | None = None  # (B, n_mels, 2 * context) of the whole windows, for a teacher

    def to(self, device: torch.device) -> PrefixBatch:
        """Return the batch on `device`; from pinned memory the copies run during other work."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> PrefixBatch:
        """Return the batch in memory from which a GPU copies by itself; DataLoader calls it."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> PrefixBatch:
        """Return the batch with `change` applied to every tensor of it."""
        changed: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                changed[name] = change(value)
        if self.mels is not None:
            changed["mels"] = [change(mel) for mel in self.mels]
        return replace(self, **changed)

    @torch.no_grad()
    def with_features(self, n_mels: int, context: int, *, taught: bool) -> PrefixBatch:
        """Return the batch with the features of its audio, `offline` only where `taught`.

        context: encoder frames of the offline model."""
        if self.mels is not None:
            return self
        audio = from_int16(self.audio)
        offline = None
        if taught:
            n_samples = context * FRAME_SAMPLES
            padded = F.pad(audio, (0, max(0, n_samples - audio.shape[-1])))
            offline = log_mel(padded[:, :n_samples], n_mels)
        return replace(self, mels=log_mel_windows(audio, n_mels, self.ends), offline=offline)


def pack(examples: Sequence[PrefixExample], eot: int, last: int | None = None) -> PrefixBatch:
    """Return the batch: each prefix is a row of prompt + tokens with labels tokens + <|endoftext|>.

    eot: id of <|endoftext|>. last: only this many of each row's tokens, the last ones, and its end
    are learned; None: all.
    """
    columns: dict[str, list[Tensor]] = {}  # by field, one tensor (tokens of all rows,) per window
    for example in examples:
        prompt = example.prompt
        packed: dict[str, list[int]] = {}
        for row, (n_frames, tokens) in enumerate(example.prefixes):
            n = len(prompt) + len(tokens)
            n_skipped = 0 if last is None else max(0, len(tokens) - last)
            for name, values in {
                "tokens": [*prompt, *tokens],
                # Of position i the token i + 1; -100 where nothing is learned.
                "labels": [-100] * (len(prompt) - 1 + n_skipped) + [*tokens[n_skipped:], eot],
                "positions": range(n),
                "rows": [row] * n,
                "visible_frames": [n_frames] * n,
            }.items():
                packed.setdefault(name, []).extend(values)
        for name, values in packed.items():
            columns.setdefault(name, []).append(torch.tensor(values))
    # A padding position sees other padding and the first frame, so that no softmax is empty.
    padding = {"tokens": eot, "labels": -100, "positions": 0, "rows": -1, "visible_frames": 1}
    padded: dict[str, Any] = {
        name: pad_sequence(values, batch_first=True, padding_value=padding[name])
        for name, values in columns.items()
    }
    ends = [example.ends for example in examples]
    longest = max(window_ends[-1] for window_ends in ends)
    real = [torch.arange(window_ends[-1]) + i * longest for i, window_ends in enumerate(ends)]
    return PrefixBatch(
        as_int16([example.audio for example in examples]),
        ends,
        learned=(padded["labels"] >= 0).flatten().nonzero()[:, 0],
        real=torch.cat(real),
        **padded,
    )


class PrefixModel(nn.Module):
    """A Whisper, wrapped by peft, whose decoder reads many prefixes of each window at once."""

    def __init__(self, whisper: nn.Module) -> None:
        super().__init__()
        self.whisper = whisper

    def forward(
        self, batch: PrefixBatch, *, decode_it: bool = True, taught: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the encoder's frames, the decoder's hidden states and the teacher's frames.

        Frames (B, F, d), of which window b has ends[b][-1]; hidden states (n, d) at the places
        `batch.learned`, None without `decode_it`; `offline_frames` (B, context, d), None without
        `taught`. The teacher runs in here, so that it has the precision of the training.
        """
        assert batch.mels is not None
        frames = encode_together(self.whisper, batch.mels, batch.ends)
        offline = None
        if taught:
            assert batch.offline is not None
            offline = self.offline_frames(batch.offline)
        if not decode_it:
            return frames, None, offline
        n_tokens, n_frames, device = batch.tokens.shape[1], frames.shape[1], frames.device
        # A token sees those before it in its row only; the rows follow each other. (B, 1, S, S)
        causal = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=device).tril()
        same_row = batch.rows[:, None, :, None] == batch.rows[:, None, None, :]
        # And it sees the frames of its prefix only. (B, 1, S, F)
        in_prefix = torch.arange(n_frames, device=device) < batch.visible_frames[:, None, :, None]
        hidden = decode(
            self._base, frames, batch.tokens, batch.positions, same_row & causal, in_prefix
        )
        return frames, hidden.flatten(0, 1)[batch.learned], offline

    @torch.no_grad()
    def offline_frames(self, mel: Tensor) -> Tensor:
        """Return the offline model's encoder frames (B, context, d) of whole windows.

        mel: (B, n_mels, 2 * context).
        """
        with self._offline():
            return encode_padded(self.whisper, mel)

    @contextmanager
    def _offline(self) -> Iterator[None]:
        """Take the adapter out of the network for a `with` block: a teacher without more memory."""
        flags = [(p, p.requires_grad) for p in self.whisper.parameters()]
        with self.whisper.disable_adapter():  # type: ignore[operator]
            yield
        # peft lets the whole adapter learn again, also what the recipe has frozen.
        for parameter, requires_grad in flags:
            parameter.requires_grad = requires_grad

    @property
    def vocabulary(self) -> Tensor:
        """Return the matrix (V, d) that makes logits of the decoder's hidden states."""
        weight: Tensor = self._base.proj_out.weight
        return weight

    def distance_root(self, frames: Tensor) -> Tensor:
        """Return a matrix (d, d) by which to measure how far apart two frames are for the decoder.

        The squared length of (frame - other frame) @ matrix is the mean square difference of the
        keys and values that all cross-attentions make of the two frames. Each key and value is
        divided by its standard deviation on `frames` (n, d).
        """
        layers = self._base.model.decoder.layers
        projections = []
        for layer in layers:
            attention = layer.encoder_attn
            projections += [attention.k_proj.weight.float(), attention.v_proj.weight.float()]
        with torch.no_grad():
            to_keys_and_values = torch.cat(projections)  # (2 * layers * d, d)
            variance = (frames.float() @ to_keys_and_values.T).var(0).clamp(min=1e-6)
            metric = (to_keys_and_values.T / variance) @ to_keys_and_values
            metric = metric / len(to_keys_and_values)
            # metric = root @ root.T, so that |x @ root|^2 = x @ metric @ x.
            sizes, axes = torch.linalg.eigh(metric)
            root: Tensor = axes * sizes.clamp(min=0).sqrt()
        return root

    @property
    def _base(self) -> Any:
        return self.whisper.get_base_model()  # type: ignore[operator]
