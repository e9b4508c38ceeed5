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
        """Return the hidden states (n, d) of all n tokens, from one pass with gradients.

        vectors (m, d), scores (m,); visible: for each token, how many of the vectors it sees.
        """
        cross = [self._cross(layer, vectors) for layer in self.layers]
        return self._pass(tokens, 0, None, cross, _cross_bias(scores, visible))

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x[None], self.n_heads)[0]

    def _cross(self, layer: Any, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the layer's cross-attention keys and values of vectors (m, d)."""
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
        """Feed the tokens that follow the cached ones; return the hidden state (d,) of the last.

        visible: for each of them, how many anchors it sees.
        """
        # Anchors that no token sees are left out, which saves work.
        n_anchors = max(visible)
        cross = [
            (k[:, :n_anchors], v[:, :n_anchors])
            for k, v in zip(cache.cross_keys, cache.cross_values, strict=True)
        ]
        bias = _cross_bias(cache.scores[:n_anchors], visible)
        return self._pass(tokens, cache.keys[0].shape[1], cache, cross, bias)[-1]

    def _pass(
        self,
        tokens: Sequence[int],
        start: int,
        cache: AnchorCache | None,
        cross: list[tuple[Tensor, Tensor]],
        bias: Tensor,
        heads: Sequence[tuple[int, int]] = (),
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the hidden states (n, d) of n tokens at the positions from `start` on.

        cache: keys and values of the tokens before `start`, to which those of the tokens are added;
        None where start is 0. cross: keys and values of m anchors for each layer. bias: (n, m), on
        the logits of cross-attention. maps: takes the cross-attention (n, m) of `heads`, each
        (layer, head), sorted by layer.
        """
        n = len(tokens)
        device = self.embedding.device
        x = self.embedding[torch.tensor(tokens, device=device)]
        x = x + self._decoder.embed_positions.weight[start : start + n]
        mask = None  # a single token is the newest and sees all
        if n > 1:
            positions = torch.arange(start + n, device=device)
            mask = positions[None] <= positions[start:, None]
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
                for head in (head for layer_index, head in heads if layer_index == i):
                    logits = q[head] @ k[head].T * self.head_size**-0.5 + bias
                    maps.append(logits.float().softmax(-1))
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
        """Return the index of each token's first anchor, by time warping over the alignment heads.

        heads: (layer, head) of each.
        """
        if not tokens or cache.n_anchors == 0:
            return [0] * len(tokens)
        ids = [*prompt, *tokens]
        cross = list(zip(cache.cross_keys, cache.cross_values, strict=True))
        bias = _cross_bias(cache.scores, [cache.n_anchors] * len(ids))
        maps: list[Tensor] = []
        self._pass(ids, 0, None, cross, bias, heads, maps)
        # The query before a token is the one that predicts it; the last predicts what follows.
        weights = torch.stack(maps)[:, len(prompt) - 1 : -1]
        deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
        cost = -((weights - mean) / deviation.clamp(min=1e-8)).mean(0)
        return [int(i) for i in warp(cost.double().cpu().numpy())]


def _cross_bias(scores: Tensor, visible: Sequence[int]) -> Tensor:
    """Return what to add to the logits of cross-attention, (tokens, anchors).

    That is the anchor's score, of scores (anchors,), and -inf where a token does not see the
    anchor: token i sees the first visible[i]. Raises ValueError where a token sees none.
    """
    if min(visible) < 1:
        raise ValueError("a position that sees no anchor: wait for the first one")
    index = torch.arange(scores.shape[0], device=scores.device)
    limit = torch.tensor(visible, device=scores.device)[:, None]
    return scores[None].masked_fill(index[None] >= limit, -torch.inf)


def seen(position: int, n_prompt: int, wait_k: int, ready: Sequence[int]) -> int:
    """Return how many vectors the decoder sees at a position (infinite lookback, equation 6).

    The position predicts token t = position - (n_prompt - 1) and sees the segments
    0 .. t + wait_k - 1, as many as there are. ready: for each segment, the vectors that it and
    those before it have.
    """
    t = max(0, position - (n_prompt - 1))
    return ready[min(t + wait_k, len(ready)) - 1]
