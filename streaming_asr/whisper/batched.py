"""A Whisper over windows of unequal lengths in one pass, with gradients: what training runs.

Shorter windows are padded at their end. Masks keep the padding from every frame and token, so the
numbers are those of one pass for each window. Weights wrapped by peft work; dropout is not applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.whisper.encoder import (
    Attend,
    Part,
    encode,
    encode_masked,
    encode_parts,
    merge_heads,
    part_of,
    split_heads,
)
from streaming_asr.whisper.masks import visible_until

SLICE = 250  # queries that attend together: half of a masked square is never computed


def encode_windows(
    model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Return block-causal encodings, (F_i, d) each, of mels (n_mels, 2 F_i + 1) with blocks at
    `ends`.

    One by one on a CPU, where the padding costs more than one pass saves: a step of U2's training
    on mini takes 1.45 times as long with it.
    """
    if mels[0].device.type == "cpu":
        return [encode_masked(model, m[None], ends=e)[0] for m, e in zip(mels, ends, strict=True)]
    encoded = _encode_padded(model, mels, ends)
    return [rows[: e[-1]] for rows, e in zip(encoded, ends, strict=True)]


def encode_together(model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> Tensor:
    """Return the block-causal encodings of windows of unequal lengths in one pass: (B, F, d).

    What follows a window's last frame is padding that no frame of the window sees. On a CPU
    each window attends by itself, and the padding comes last.
    """
    if mels[0].device.type != "cpu":
        return _encode_padded(model, mels, ends)
    parts = [
        Part(part_of(model, mel[None]).frames, in_slices(e))
        for mel, e in zip(mels, ends, strict=True)
    ]
    return pad_sequence([rows[0] for rows in encode_parts(model, parts)], batch_first=True)


def _encode_padded(model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> Tensor:
    """Return `encode_together`, (B, F, d), of windows padded first, one attention for all."""
    mel = pad_sequence([m.T for m in mels], batch_first=True).transpose(1, 2)
    # 1, not 0: a frame of padding sees the first one, so that no softmax is empty. Made here, since
    # a GPU would be waited for once a window.
    until = pad_sequence([visible_until(e) for e in ends], batch_first=True, padding_value=1)
    until = until.to(mel.device, non_blocking=True)
    frames = torch.arange(until.shape[1], device=mel.device)
    return encode(model, mel, frames < until[:, None, :, None])


def in_slices(ends: Sequence[int], device: torch.device | str = "cpu") -> Attend:
    """Return how the frames of a window with blocks at `ends` attend, some queries at a time.

    A slice of queries meets only the keys up to the end of its last block. In bfloat16 the plain
    products are twice as fast with their gradients as torch's fused attention on a CPU.
    """
    until = visible_until(ends)  # on the CPU: a GPU would be waited for once a slice
    slices = []
    for first in range(0, len(until), SLICE):
        stops = until[first : first + SLICE]
        stop = int(stops[-1])
        mask = torch.arange(stop) < stops[:, None]
        slices.append((first, first + len(stops), stop, mask.to(device, non_blocking=True)))

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.cat(
            [
                _masked(q[:, :, first:last], k[:, :, :stop], v[:, :, :stop], mask)
                for first, last, stop, mask in slices
            ],
            dim=2,
        )

    return attend


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the attention of q (batch, heads, n, d / heads) to k and v where `mask` is True."""
    if q.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = q @ (k * q.shape[-1] ** -0.5).transpose(-1, -2)
    return scores.masked_fill(~mask, -1e4).softmax(-1) @ v


def decode_windows(
    model: Any, texts: Sequence[Sequence[int]], encoded: Sequence[Tensor]
) -> list[Tensor]:
    """Return logits (L_i, V) after each token; text i attends to its own frames (F_i, d)."""
    frames = pad_sequence(list(encoded), batch_first=True)
    n_frames = torch.tensor([len(rows) for rows in encoded], device=frames.device)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    device = frames.device
    tokens = pad_sequence([torch.tensor(list(t)) for t in texts], batch_first=True).to(device)
    n = tokens.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool, device=device).tril()
    heard = torch.arange(frames.shape[1], device=device) < n_frames.reshape(-1, 1, 1, 1)
    x = decode(base, frames, tokens, torch.arange(n, device=device), causal, heard)
    text_rows = [hidden[: len(text)] for hidden, text in zip(x, texts, strict=True)]
    return list(base.proj_out(torch.cat(text_rows)).split([len(text) for text in texts]))


def decode(
    base: Any,
    frames: Tensor,
    tokens: Tensor,
    positions: Tensor,
    self_mask: Tensor,
    heard: Tensor | None,
) -> Tensor:
    """Return the decoder's hidden states (B, L, d) of tokens (B, L) at `positions`.

    base: a WhisperForConditionalGeneration. self_mask, heard: masks of self-attention and of the
    attention to frames (B, F, d), broadcast to (B, heads, L, L) and (B, heads, L, F); None: all.
    """
    decoder = base.model.decoder
    x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[positions]
    for layer in decoder.layers:
        h = layer.self_attn_layer_norm(x)
        x = x + _attend(layer.self_attn, h, h, self_mask)
        x = x + _attend(layer.encoder_attn, layer.encoder_attn_layer_norm(x), frames, heard)
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    hidden: Tensor = decoder.layer_norm(x)
    return hidden


def _attend(attention: Any, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
    """Return the output (B, L, d) of an attention layer from `x` (B, L, d) to `source` (B, S, d),
    without dropout."""
    q, k, v = (
        split_heads(project(h), attention.num_heads)
        for project, h in (
            (attention.q_proj, x),
            (attention.k_proj, source),
            (attention.v_proj, source),
        )
    )
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    attended: Tensor = attention.out_proj(merge_heads(out))
    return attended
