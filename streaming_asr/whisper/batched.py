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
    encode_parts,
    merge_heads,
    part_of,
    split_heads,
)
from streaming_asr.whisper.masks import visible_until

SLICE = 250
"""Queries that attend together, to the keys they may see: half of a masked square is saved."""


def encode_windows(
    model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Return the block-causal encodings, (F_i, d) each, of windows of unequal lengths.

    mels: (n_mels, 2 F_i + 1) each; ends: for each window those of its blocks in encoder frames, the
    last one F_i. On a CPU, where padding costs more than it saves, the windows share only the
    linear layers.
    """
    if mels[0].device.type == "cpu":
        parts = [
            Part(part_of(model, mel[None]).frames, in_slices(row_ends))
            for mel, row_ends in zip(mels, ends, strict=True)
        ]
        return [frames[0] for frames in encode_parts(model, parts)]
    encoded = _encode_padded(model, mels, ends)
    return [frames[: row_ends[-1]] for frames, row_ends in zip(encoded, ends, strict=True)]


def _encode_padded(model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> Tensor:
    """Return the encodings, (B, F, d), of windows padded first, one attention for all."""
    mel = pad_sequence([each.T for each in mels], batch_first=True).transpose(1, 2)
    # (B, F) on the CPU: on a GPU each window would wait for its answer. Padding value 1, not 0: a
    # frame of padding sees the first frame, so that no softmax is empty.
    by_window = [visible_until(row_ends) for row_ends in ends]
    until = pad_sequence(by_window, batch_first=True, padding_value=1)
    until = until.to(mel.device, non_blocking=True)
    frames = torch.arange(until.shape[1], device=mel.device)
    return encode(model, mel, frames < until[:, None, :, None])


def encode_together(model: Any, mels: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> Tensor:
    """Return `encode_windows` as one tensor, (B, F, d), where F is the largest; shorter windows are
    padded at their end."""
    return pad_sequence(encode_windows(model, mels, ends), batch_first=True)


def in_slices(ends: Sequence[int], device: torch.device | str = "cpu") -> Attend:
    """Return the attention of a window whose blocks end at frames `ends`, in slices of queries.

    A slice of queries meets only the keys up to the end of its last block.
    """
    until = visible_until(ends)  # on the CPU: each slice would wait for an answer of a GPU
    slices = []
    for first_query in range(0, len(until), SLICE):
        visible = until[first_query : first_query + SLICE]
        n_keys = int(visible[-1])
        mask = (torch.arange(n_keys) < visible[:, None]).to(device, non_blocking=True)
        slices.append((slice(first_query, first_query + len(visible)), n_keys, mask))

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        attended = [
            _masked(q[:, :, queries], k[:, :, :n_keys], v[:, :, :n_keys], mask)
            for queries, n_keys, mask in slices
        ]
        return torch.cat(attended, dim=2)

    return attend


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the attention of q (batch, heads, n, d / heads) to k and v where `mask` is True.

    In bfloat16 by plain products: on a CPU they and their gradients take half the time of torch's
    fused attention.
    """
    if q.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = q @ (k * q.shape[-1] ** -0.5).transpose(-1, -2)
    return scores.masked_fill(~mask, -1e4).softmax(-1) @ v


def decode_windows(
    model: Any, texts: Sequence[Sequence[int]], encoded: Sequence[Tensor]
) -> list[Tensor]:
    """Return for each text of L_i token ids the logits (L_i, V) of what follows each token.

    Text i attends to the frames (F_i, d) of `encoded` i. Texts and frames are padded to one pass.
    """
    frames = pad_sequence(list(encoded), batch_first=True)
    device = frames.device
    n_frames = torch.tensor([len(rows) for rows in encoded], device=device)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    ids = [torch.tensor(list(text)) for text in texts]
    tokens = pad_sequence(ids, batch_first=True).to(device)
    n = tokens.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool, device=device).tril()
    is_frame = torch.arange(frames.shape[1], device=device) < n_frames.reshape(-1, 1, 1, 1)
    hidden = decode(base, frames, tokens, torch.arange(n, device=device), causal, is_frame)
    lengths = [len(text) for text in texts]
    without_padding = [row[:length] for row, length in zip(hidden, lengths, strict=True)]
    return list(base.proj_out(torch.cat(without_padding)).split(lengths))


def decode(
    base: Any,
    frames: Tensor,
    tokens: Tensor,
    positions: Tensor,
    self_mask: Tensor,
    cross_mask: Tensor | None,
) -> Tensor:
    """Return the decoder's hidden states (B, L, d) of tokens (B, L) at `positions`.

    base: a WhisperForConditionalGeneration. self_mask, cross_mask: of self-attention and of the
    attention to frames (B, F, d), bool, broadcast to (B, heads, L, L) and (B, heads, L, F);
    cross_mask=None: every token attends to all frames.
    """
    decoder = base.model.decoder
    x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[positions]
    for layer in decoder.layers:
        h = layer.self_attn_layer_norm(x)
        x = x + _attend(layer.self_attn, h, h, self_mask)
        h = layer.encoder_attn_layer_norm(x)
        x = x + _attend(layer.encoder_attn, h, frames, cross_mask)
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    hidden: Tensor = decoder.layer_norm(x)
    return hidden


def _attend(attention: Any, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
    """Return the output (B, L, d) of attention from `x` (B, L, d) to `source` (B, S, d)."""
    n_heads = attention.num_heads
    q = split_heads(attention.q_proj(x), n_heads)
    k = split_heads(attention.k_proj(source), n_heads)
    v = split_heads(attention.v_proj(source), n_heads)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    attended: Tensor = attention.out_proj(merge_heads(out))
    return attended
