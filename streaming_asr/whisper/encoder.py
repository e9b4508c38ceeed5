"""Whisper's encoder in four forms over the same Hugging Face weights.

`encode_padded`   the offline encoder on exactly its context;
`encode`          the same on fewer frames, nothing padded, or with a mask;
`encode_masked`   block-causal over a whole input in one pass (training, tests);
`StreamingEncoder` block-causal, block by block, keys and values kept: equal to `encode_masked`.

Windows and blocks of many streams are `Part`s of one pass (`encode_parts`), wherever they begin.

transformers' own WhisperEncoder insists on its full context and drops masks, so the layers are
looped here. Dropout is not applied. Shapes: mel (batch, n_mels, mel frames), frames of 20 ms out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from streaming_asr.errors import UserError
from streaming_asr.machine import is_intel
from streaming_asr.whisper.masks import mask_from_ends
from streaming_asr.whisper.quantise import is_quantised

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Called with a layer's number and the new queries, keys and values (batch, heads, n, d / heads);
returns what the queries attend to, of the queries' shape."""


def encoder_of(model: Any) -> Any:
    """Return the encoder of a WhisperForConditionalGeneration, wrapped by peft or not."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return base.model.encoder


def split_heads(x: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (batch, heads, n, d / heads) of (batch, n, d), a view."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """Return (batch, n, d) of (batch, heads, n, d / heads)."""
    return x.transpose(1, 2).flatten(-2)


def _convolve(encoder: Any, mel: torch.Tensor, *, at_start: bool) -> torch.Tensor:
    """Run the two convolutions, (batch, n_mels, frames) to (batch, n, d).

    At the start of a window mel begins with frame 0 and zeros precede it; later it begins
    with frame 2s - 2 for the first wanted encoder frame s, and nothing is padded.
    """
    conv1, conv2 = encoder.conv1, encoder.conv2
    if at_start:
        mel = F.pad(mel, (1, 0))
    x = F.gelu(F.conv1d(mel, conv1.weight, conv1.bias))
    if at_start:
        x = F.pad(x, (1, 0))
    return F.gelu(F.conv1d(x, conv2.weight, conv2.bias, stride=2)).transpose(1, 2)


def pack(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return (1, n, d), the rows of all parts (batch, n_i, d) one after another; one as it is."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([part.flatten(0, 1) for part in parts])[None]


def unpack(x: torch.Tensor, shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
    """Return the parts that `pack` joined, each (batch, n_i, d) of its shape (batch, n_i)."""
    if len(shapes) == 1:
        return [x]
    rows = x[0].split([shape.numel() for shape in shapes])
    return [row.unflatten(0, shape) for row, shape in zip(rows, shapes, strict=True)]


def of_rows(product: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Return `product`, a product with a matrix, of x (..., d).

    On a CPU rows of zeros are added to 15 rows (a chunk of 300 ms), on Intel's to 8 to 15: MKL
    takes up to 2.5 times as long for them as for 16 (docs/bench.md).
    """
    rows = x.flatten(0, -2)
    n_rows = len(rows)
    least = 8 if is_intel() else 15
    if x.device.type != "cpu" or not least <= n_rows < 16:
        return product(x)
    padded = F.pad(rows, (0, 0, 0, 16 - n_rows))
    return product(padded)[:n_rows].unflatten(0, x.shape[:-1])


def feed_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Return what the feed-forward part of a layer adds to its input x (..., d)."""
    return of_rows(lambda h: layer.fc2(F.gelu(layer.fc1(h))), layer.final_layer_norm(x))


@dataclass(frozen=True, slots=True)
class Part:
    """Frames (batch, n, d) with their positions, ready for the layers, and how they attend."""

    frames: torch.Tensor
    attend: Attend


def encode(model: Any, mel: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the encoding (batch, mel frames // 2, d) of mel (batch, n_mels, mel frames).

    mask: bool, (F, F) or (batch, 1, F, F), True where frame i sees frame j; None: all see all.
    """
    return encode_parts(model, [part_of(model, mel, mask)])[0]


def part_of(model: Any, mel: torch.Tensor, mask: torch.Tensor | None = None) -> Part:
    """Return mel (batch, n_mels, mel frames) of whole windows as a part of a pass.

    mask: see `encode`.
    """
    encoder = encoder_of(model)
    n_frames = mel.shape[-1] // 2
    if mel.shape[-1] == 2 * n_frames:  # the convolution of the last frame needs one more: zero
        mel = F.pad(mel, (0, 1))
    x = _convolve(encoder, mel.to(encoder.conv1.weight.dtype), at_start=True)

    def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return Part(x + encoder.embed_positions.weight[:n_frames], attend)


def encode_parts(model: Any, parts: Sequence[Part]) -> list[torch.Tensor]:
    """Run the layers and the last norm over all parts in one pass; return (batch, n, d) of each."""
    encoder = encoder_of(model)
    return [encoder.layer_norm(x) for x in run_layers(encoder.layers, parts)]


def encode_tapped(
    model: Any, parts: Sequence[Part], n_below: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return for each part its encoding (as `encode_parts`) and the hidden states after the first
    `n_below` layers, (batch, n, d) both."""
    encoder = encoder_of(model)
    below = run_layers(encoder.layers[:n_below], parts)
    rest = [replace(part, frames=states) for part, states in zip(parts, below, strict=True)]
    above = run_layers(encoder.layers[n_below:], rest, first=n_below)
    return [(encoder.layer_norm(x), states) for x, states in zip(above, below, strict=True)]


def run_layers(
    layers: Sequence[Any], parts: Sequence[Part], *, first: int = 0
) -> list[torch.Tensor]:
    """Run encoder layers over all parts in one pass; return the states (batch, n, d) of each.

    The frames of all parts go through the linear layers as one, and each part attends by itself.
    So parts of unlike lengths and places share a pass without padding, at the price of one
    attention call for each part and layer. A part's numbers are those it has by itself, except for
    rounding. In int8 the parts go one by one (`whisper.quantise`).
    first: the layer number that `attend` gets for the first of `layers`.
    """
    if len(parts) > 1 and any(is_quantised(layer) for layer in layers):
        return [run_layers(layers, [part], first=first)[0] for part in parts]
    shapes = [part.frames.shape[:2] for part in parts]
    x = pack([part.frames for part in parts])
    for i, layer in enumerate(layers, first):
        attention = layer.self_attn
        n_heads = attention.num_heads
        h = layer.self_attn_layer_norm(x)
        # Queries, keys and values, each a list with one tensor for each part.
        q, k, v = (
            [split_heads(rows, n_heads) for rows in unpack(project(h), shapes)]
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        attended = [
            merge_heads(part.attend(i, part_q, part_k, part_v))
            for part, part_q, part_k, part_v in zip(parts, q, k, v, strict=True)
        ]
        x = x + attention.out_proj(pack(attended))
        x = x + feed_forward(layer, x)
    return unpack(x, shapes)


def encode_masked(model: Any, mel: torch.Tensor, *, ends: Sequence[int]) -> torch.Tensor:
    """Return the block-causal encoding (batch, F, d) in one pass (WhisperRT eq. 8, 37).

    mel: (batch, n_mels, 2F + 1), or 2F: then the last frame sees a zero to its right, as at the end
    of the context. ends: of the blocks, in encoder frames, the last one F. Any prefix of the result
    that ends at a block's end is what a stream has at that moment. Gradients flow; weights wrapped
    by peft work.
    """
    mask = mask_from_ends(ends, mel.device) if len(ends) > 1 else None
    return encode(model, mel, mask)


def encode_padded(model: Any, mel: torch.Tensor) -> torch.Tensor:
    """Return the offline encoding (batch, context, d) of mel (batch, n_mels, 2 * context).

    Raises UserError for mel of another length.
    """
    context = encoder_of(model).embed_positions.weight.shape[0]
    if mel.shape[-1] != 2 * context:
        raise UserError(
            f"mel of {mel.shape[-1]} frames where the context is {2 * context}; pad the audio with "
            f"zeros to {context * 320} samples before the features"
        )
    return encode(model, mel)


class KeyValues:
    """Keys and values of a stream in some layers.

    `keys[l]`, `values[l]`: (1, heads, context, d / heads), allocated once.
    """

    def __init__(self, layers: Sequence[Any], weight: torch.Tensor) -> None:
        """weight: the encoder's positions (context, d); the cache has its dtype and device."""
        n_heads = layers[0].self_attn.num_heads
        context_frames, d = weight.shape
        shape = (1, n_heads, context_frames, d // n_heads)
        self.keys = [weight.new_empty(shape) for _ in layers]
        self.values = [weight.new_empty(shape) for _ in layers]

    def attend(self, start: int, ends: Sequence[int]) -> Attend:
        """Return the attention of the next frames, `start` to ends[-1], in blocks that end at
        `ends`, to themselves and the earlier frames. It stores their keys and values."""
        stop, mask = ends[-1], None
        if len(ends) > 1:  # a single block sees all that is stored
            all_ends = [start, *ends] if start else ends
            mask = mask_from_ends(all_ends, self.keys[0].device)[start:]

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.keys[i], self.values[i]
            # Written before they are read: a block sees itself whole.
            keys[:, :, start:stop], values[:, :, start:stop] = k, v
            keys, values = keys[:, :, :stop], values[:, :, :stop]
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

        return attend


class StreamingEncoder(KeyValues):
    """Keys and values of a stream, and the pass that appends blocks to them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        encoder = encoder_of(model)
        super().__init__(encoder.layers, encoder.embed_positions.weight)

    @torch.inference_mode()
    def part(self, mel: torch.Tensor, start: int, ends: Sequence[int]) -> Part:
        """Return the next frames, `start` to ends[-1], in blocks that end at `ends`, as a part of a
        pass. The pass returns (1, n, d) and stores their keys and values.

        mel: (1, n_mels, k), mel frames 2 start - 2 .. 2 ends[-1] (from 0 where start = 0), so that
        nothing is padded but the left edge of the window.
        """
        encoder = encoder_of(self._model)
        x = _convolve(encoder, mel.to(encoder.conv1.weight.dtype), at_start=start == 0)
        positions = encoder.embed_positions.weight[start : ends[-1]]
        return Part(x + positions, self.attend(start, ends))
