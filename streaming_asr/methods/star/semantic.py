"""The semantic encoder: condenses the frames since the last anchor into the next one.

Causal pre-norm blocks over feature frames (the paper's 4-layer GPT-2, here with the shape of
Whisper's encoder layers and no positions of its own: the features carry them). Output projections
begin at zero, so that an untrained encoder hands its features on unchanged.

Masks. `compact`: a frame sees its own block and the anchors before it, F_enc(B | Z) of algorithm
1, so that a stream keeps keys and values of the anchors and of the open block only. `history`: it
sees every frame before it, as in the published code.

Anchors come in as the frame that they are (`frame`, paper), or as the mean of their block, from the
frame after the last anchor on (`mean`, not in the paper): a pretrained decoder can read means from
the first step, where it takes the encoder thousands to learn to gather a block in one frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.whisper.encoder import merge_heads, split_heads

POOLS = ("frame", "mean")


def visible(anchors: Tensor, mask: str) -> Tensor:
    """Return (T, T) bool, True where frame i sees frame j, for anchors (T,) bool.

    mask: history or compact (see the module).
    """
    n = anchors.shape[0]
    index = torch.arange(n, device=anchors.device)
    is_past = index[None, :] <= index[:, None]
    if mask == "history":
        return is_past
    # A frame's block is the number of anchors before it: an anchor belongs to the block it closes.
    block = anchors.long().cumsum(0) - anchors.long()
    is_same_block = block[None, :] == block[:, None]
    return is_past & (is_same_block | anchors[None, :])


@dataclass(slots=True)
class SemanticCache:
    """Keys and values of the frames that later ones may see, per layer (1, heads, m, d / heads)."""

    keys: list[Tensor]
    values: list[Tensor]
    anchors: Tensor
    """(m,) bool: which of the kept frames are anchors; the others are of the open block
    (`history`: of any)."""
    sums: Tensor
    """(2, d) float32: the sum of the open block's frames, and the same without the newest one."""
    n_open: int = 0
    """Frames of the open block."""


class SemanticLayer(nn.Module):
    """Self-attention and a feed-forward layer, both after a norm and both residual."""

    def __init__(self, d: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(d)
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.norm = nn.LayerNorm(d)
        self.fc1, self.fc2 = nn.Linear(d, hidden), nn.Linear(hidden, d)
        for last in (self.out, self.fc2):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of x (1, n, d), (1, heads, n, d / heads) each."""
        h = self.attention_norm(x)
        q, k, v = (split_heads(project(h), self.heads) for project in (self.q, self.k, self.v))
        return q, k, v

    def forward(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(merge_heads(h))
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class SemanticEncoder(nn.Module):
    """One pass over everything, or frame by frame with a cache: the same numbers.

    Anchors get an embedding of their type (footnote 2), which begins at zero.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        hidden: int,
        layers: int,
        mask: str = "compact",
        pool: str = "frame",
    ) -> None:
        super().__init__()
        self.mask, self.pool = mask, pool
        self.heads = heads
        self.types_embedding = nn.Parameter(torch.zeros(2, d))
        self.blocks = nn.ModuleList(SemanticLayer(d, heads, hidden) for _ in range(layers))

    def _typed(self, x: Tensor, anchors: Tensor) -> Tensor:
        return x + anchors[:, None] * self.types_embedding[1]

    def forward(self, x: Tensor, anchors: Tensor) -> Tensor:
        """Return (T, d) of frames x (T, d), of which `anchors` (T,) bool are anchors."""
        mask = visible(anchors, self.mask)
        h = self._typed(self._pooled(x, anchors), anchors)[None]
        for block in self._blocks():
            h = block(h, *block.project(h), mask)
        return h[0]

    def _pooled(self, x: Tensor, anchors: Tensor, cache: SemanticCache | None = None) -> Tensor:
        """Return frames x (T, d), with pool=mean each anchor replaced by the mean of its block.

        With a cache the first block may have begun before x, and the cache is brought up to the
        block that is open after x.
        """
        if self.pool == "frame" or not len(x):
            return x
        n_before, n = 0, len(x)  # frames of the first block before x, frames of x
        sums = x.float().cumsum(0)  # from the first block's start on, (T, d)
        anchor_index = anchors.nonzero()[:, 0]
        if cache is not None:
            sums, n_before = sums + cache.sums[0], cache.n_open
            without_newest = sums[-2] if n > 1 else cache.sums[0]
            if len(anchor_index):
                last_anchor = int(anchor_index[-1])
                closed_sum, cache.n_open = sums[last_anchor], n - 1 - last_anchor
            else:
                closed_sum, cache.n_open = torch.zeros_like(without_newest), n_before + n
            cache.sums = torch.stack([sums[-1] - closed_sum, without_newest - closed_sum])
        if not len(anchor_index):
            return x
        # A block's mean is the difference of the running sums at its anchor and at the anchor
        # before, divided by the difference of their positions.
        sums_at_anchors = torch.cat([torch.zeros_like(sums[:1]), sums[anchor_index]])
        positions = torch.cat([anchor_index.new_full((1,), -1 - n_before), anchor_index])
        means = sums_at_anchors.diff(dim=0) / positions.diff()[:, None]
        return x.index_copy(0, anchor_index, means.to(x.dtype))

    def _blocks(self) -> list[SemanticLayer]:
        return [block for block in self.blocks if isinstance(block, SemanticLayer)]

    def start(self) -> SemanticCache:
        """Return the cache of a new window."""
        like = self.types_embedding
        empty = like.new_empty(1, self.heads, 0, like.shape[1] // self.heads)
        nothing = torch.zeros(0, dtype=torch.bool, device=like.device)
        n = len(self.blocks)
        sums = torch.zeros(2, like.shape[1], dtype=torch.float32, device=like.device)
        return SemanticCache([empty] * n, [empty] * n, nothing, sums)

    @torch.inference_mode()
    def append(self, cache: SemanticCache, x: Tensor, anchors: Tensor) -> Tensor:
        """Return the encoding (n, d) of the next frames x (n, d).

        anchors: (n,) bool, which of them are anchors. Updates the cache.
        """
        n_cached = cache.anchors.shape[0]
        flags = torch.cat([cache.anchors, anchors])
        mask = visible(flags, self.mask)[n_cached:]
        h = self._typed(self._pooled(x, anchors, cache), anchors)[None]
        for i, block in enumerate(self._blocks()):
            q, k, v = block.project(h)
            cache.keys[i] = torch.cat([cache.keys[i], k], dim=2)
            cache.values[i] = torch.cat([cache.values[i], v], dim=2)
            h = block(h, q, cache.keys[i], cache.values[i], mask)
        cache.anchors = flags
        if self.mask == "compact" and bool(anchors.any()):
            # No later frame sees the frames of a closed block, only its anchor.
            last_anchor = int(flags.nonzero()[-1])
            is_open = torch.arange(len(flags), device=flags.device) > last_anchor
            self._keep(cache, flags | is_open)
        return h[0]

    @staticmethod
    def drop_last(cache: SemanticCache) -> None:
        """Forget the newest frame, which is no anchor, so that it can be appended as one."""
        SemanticEncoder._keep(cache, torch.arange(len(cache.anchors)) < len(cache.anchors) - 1)
        # The second row is the sum without that frame.
        cache.sums, cache.n_open = cache.sums[[1, 1]], cache.n_open - 1

    @staticmethod
    def _keep(cache: SemanticCache, flags: Tensor) -> None:
        """Forget the frames for which flags (m,) bool are False."""
        flags = flags.to(cache.anchors.device)
        cache.keys = [k[:, :, flags] for k in cache.keys]
        cache.values = [v[:, :, flags] for v in cache.values]
        cache.anchors = cache.anchors[flags]
