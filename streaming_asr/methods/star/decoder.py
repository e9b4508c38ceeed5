"""The decoder over anchors: segmenter scores in its cross-attention, wait-k in what it may see.

Whisper's decoder layers, looped here since a score is added to every logit of cross-attention
(equation 2, all layers and heads) and every query sees its own number of anchors. Keys and values
of an anchor are projected once and appended: anchors never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from streaming_asr.whisper.alignment import warp
from streaming_asr.whisper.decoder import times_vocabulary
from streaming_asr.whisper.encoder import merge_heads, split_heads


class AnchorCache:
    """One stream's keys and values: of anchors (cross) and of tokens (own), for every layer, each
    (heads, n, d / heads); and the anchors' scores (n,).
    """

    def __init__(self, decoder: AnchorDecoder) -> None:
        empty = decoder.embedding.new_empty(decoder.n_heads, 0, decoder.head_size)
        n = len(decoder.layers)
        self.keys, self.values = [empty] * n, [empty] * n
        self.cross_keys, self.cross_values = [empty] * n, [empty] * n
        self.scores = decoder.embedding.new_empty(0)

    @property
    def n_anchors(self) -> int:
        return len(self.scores)

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all keys, values and scores."""
        parts = (*self.keys, *self.values, *self.cross_keys, *self.cross_values, self.scores)
        return sum(part.nbytes for part in parts)


class AnchorDecoder:
    """The passes; `model` is a WhisperForConditionalGeneration, wrapped by peft or not."""

    def __init__(self, model: Any) -> None:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._decoder, self._head = base.model.decoder, base.proj_out
        self.layers: list[Any] = list(self._decoder.layers)
        self.n_heads: int = base.config.decoder_attention_heads
        self.head_size: int = base.config.d_model // self.n_heads
        self.max_tokens: int = base.config.max_target_positions

    @property
    def embedding(self) -> Tensor:
        weight: Tensor = self._decoder.embed_tokens.weight
        return weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (n, vocabulary) of hidden states (n, d)."""
        logits: Tensor = self._head(hidden)
        return logits

    def next_logits(self, hidden: Tensor) -> Tensor:
        """Return logits (vocabulary,) of one hidden state (d,), without gradients."""
        return times_vocabulary(hidden[None], self._head.weight)[0]

    def forward(
        self, tokens: Sequence[int], vectors: Tensor, scores: Tensor, visible: Sequence[int]
    ) -> Tensor:
        """Return the hidden states (n, d) of all positions, from one pass with gradients.

        vectors (m, d), scores (m,); visible: how many of them each of the n positions sees.
        """
        cross = [self._cross(layer, vectors) for layer in self.layers]
        return self._pass(tokens, 0, None, cross, _bias(scores, visible))

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x[None], self.n_heads)[0]

    def _cross(self, layer: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        attention = layer.encoder_attn
        return self._split(attention.k_proj(vectors)), self._split(attention.v_proj(vectors))

    @torch.inference_mode()
    def append(self, cache: AnchorCache, vectors: Tensor, scores: Tensor) -> None:
        """Project new anchors (m, d) with scores (m,), once and for all."""
        if vectors.shape[0] == 0:
            return
        cache.scores = torch.cat([cache.scores, scores])
        for i, layer in enumerate(self.layers):
            keys, values = self._cross(layer, vectors)
            cache.cross_keys[i] = torch.cat([cache.cross_keys[i], keys], dim=1)
            cache.cross_values[i] = torch.cat([cache.cross_values[i], values], dim=1)

    @torch.inference_mode()
    def step(self, cache: AnchorCache, tokens: Sequence[int], visible: Sequence[int]) -> Tensor:
        """Feed tokens at the positions that follow the cached ones, each with the number of anchors
        it sees; return the hidden state (d,) of the last.
        """
        # What no query sees would be multiplied in vain.
        most = max(visible)
        cross = [
            (k[:, :most], v[:, :most])
            for k, v in zip(cache.cross_keys, cache.cross_values, strict=True)
        ]
        bias = _bias(cache.scores[:most], visible)
        return self._pass(tokens, cache.keys[0].shape[1], cache, cross, bias)[-1]

    def _pass(
        self,
        tokens: Sequence[int],
        start: int,
        cache: AnchorCache | None,
        cross: list[tuple[Tensor, Tensor]],
        bias: Tensor,
        attention_of: Sequence[tuple[int, int]] = (),
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        n = len(tokens)
        device = self.embedding.device
        x = self.embedding[torch.tensor(tokens, device=device)]
        x = x + self._decoder.embed_positions.weight[start : start + n]
        at = torch.arange(start, start + n, device=device)
        # A single query is the newest position and sees all.
        mask = torch.arange(start + n, device=device)[None] <= at[:, None] if n > 1 else None
        for i, layer in enumerate(self.layers):
            attention = layer.self_attn
            h = layer.self_attn_layer_norm(x)
            q, k, v = (
                self._split(project(h))
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            if cache is not None:
                k = cache.keys[i] = torch.cat([cache.keys[i], k], dim=1)
                v = cache.values[i] = torch.cat([cache.values[i], v], dim=1)
            h = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)
            x = x + attention.out_proj(merge_heads(h)[0])
            attention = layer.encoder_attn
            q = self._split(attention.q_proj(layer.encoder_attn_layer_norm(x)))
            k, v = cross[i]
            if maps is not None:
                for head in (head for at_layer, head in attention_of if at_layer == i):
                    weights = q[head] @ k[head].T * self.head_size**-0.5 + bias
                    maps.append(weights.float().softmax(-1))
            h = F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=bias.to(q.dtype)[None, None]
            )
            x = x + attention.out_proj(merge_heads(h)[0])
            h = layer.final_layer_norm(x)
            x = x + layer.fc2(F.gelu(layer.fc1(h)))
        hidden: Tensor = self._decoder.layer_norm(x)
        return hidden

    @torch.inference_mode()
    def align(
        self,
        cache: AnchorCache,
        heads: Sequence[tuple[int, int]],
        prompt: Sequence[int],
        tokens: Sequence[int],
    ) -> list[int]:
        """Return each token's first anchor, by time warping over the alignment heads."""
        if not tokens or cache.n_anchors == 0:
            return [0] * len(tokens)
        ids = [*prompt, *tokens]
        cross = list(zip(cache.cross_keys, cache.cross_values, strict=True))
        bias = _bias(cache.scores, [cache.n_anchors] * len(ids))
        maps: list[Tensor] = []
        self._pass(ids, 0, None, cross, bias, heads, maps)
        # The query before a token is the one that predicts it; the last predicts what follows.
        weights = torch.stack(maps)[:, len(prompt) - 1 : -1]
        deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
        cost = -((weights - mean) / deviation.clamp(min=1e-8)).mean(0)
        return [int(i) for i in warp(cost.double().cpu().numpy())]


def _bias(scores: Tensor, visible: Sequence[int]) -> Tensor:
    """Return (positions, anchors): the scores (anchors,), -inf where a position sees none."""
    if min(visible) < 1:
        raise ValueError("a position that sees no anchor: wait for the first one")
    index = torch.arange(scores.shape[0], device=scores.device)
    limit = torch.tensor(visible, device=scores.device)[:, None]
    return scores[None].masked_fill(index[None] >= limit, -torch.inf)


def seen(position: int, n_prompt: int, wait_k: int | None, ready: Sequence[int]) -> int:
    """Return how many anchors the query at `position` sees (infinite lookback, equation 6).

    It predicts token t = position - (n_prompt - 1) and sees the segments 0 .. t + wait_k - 1, as
    many as there are; with wait_k None, all.
    """
    if wait_k is None:
        return ready[-1]
    t = max(0, position - (n_prompt - 1))
    return ready[min(t + wait_k, len(ready)) - 1]
