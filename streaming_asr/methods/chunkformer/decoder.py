"""The attention decoder that the encoder is trained with and that recognition leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.layers import distances


class AttentionDecoder(nn.Module):
    """A transformer that reads the encoded frames and predicts the next token."""

    def __init__(self, vocabulary: int, d: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d)
        layer = nn.TransformerDecoderLayer(
            d, heads, 4 * d, dropout, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, layers, nn.LayerNorm(d))
        self.out = nn.Linear(d, vocabulary)

    def forward(self, encoded: Sequence[Tensor], tokens: Tensor) -> Tensor:
        """Return logits (B, L, vocabulary) after tokens (B, L); row i sees the frames (n_i, d)."""
        memory = pad_sequence(list(encoded), batch_first=True)
        lengths = torch.tensor([len(part) for part in encoded], device=memory.device)
        absent = torch.arange(memory.shape[1], device=memory.device) >= lengths[:, None]
        n, d = tokens.shape[1], self.embed.embedding_dim
        # (the encoder's sinusoids, read as places)
        places = distances(Context(n, 0, 0), d, tokens.device)[:n].flip(0)  # 0 .. n - 1
        future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.layers(
            self.embed(tokens) * d**0.5 + places,
            memory,
            tgt_mask=future,
            memory_key_padding_mask=absent,
        )
        return self.out(x)
