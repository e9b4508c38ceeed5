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
        """Return logits (B, L, vocabulary) of what follows each of the tokens (B, L).

        encoded: the frames (n_i, d) that row i sees.
        """
        memory = pad_sequence(list(encoded), batch_first=True)
        lengths = torch.tensor([len(frames) for frames in encoded], device=memory.device)
        is_padding = torch.arange(memory.shape[1], device=memory.device) >= lengths[:, None]
        n, d = tokens.shape[1], self.embed.embedding_dim
        # The sinusoids of the distances n - 1 .. 0, reversed: those of the positions 0 .. n - 1.
        positions = distances(Context(n, 0, 0), d, tokens.device)[:n].flip(0)
        is_future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.layers(
            self.embed(tokens) * d**0.5 + positions,
            memory,
            tgt_mask=is_future,
            memory_key_padding_mask=is_padding,
        )
        return self.out(x)
