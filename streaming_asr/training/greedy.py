"""Greedy decoding of many utterances at once, for the scores on dev during training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from streaming_asr.whisper.guard import even, unsupported
from streaming_asr.whisper.load import Whisper


@torch.inference_mode()
def greedy(
    whisper: Whisper, encoded: Tensor, prompt: Sequence[int], max_tokens: int
) -> list[list[int]]:
    """Return the text tokens of each utterance, given encoder output (B, T, d).

    They are without prompt, timestamps and <|endoftext|>. A text ends before its first copy that no
    speech supports (`whisper/guard.py`), or one utterance with a loop would decide the score.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    decoder = whisper.model.model.decoder
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    n = len(encoded)
    tokens = torch.tensor([list(prompt)] * n, device=encoded.device)
    ended = torch.zeros(n, dtype=torch.bool, device=encoded.device)
    texts: list[list[int]] = [[] for _ in range(n)]
    for _ in range(min(max_tokens, whisper.max_tokens - len(prompt))):
        hidden = decoder(
            input_ids=tokens, encoder_hidden_states=encoded, past_key_values=cache, use_cache=True
        )
        best = whisper.model.proj_out(hidden.last_hidden_state[:, -1]).argmax(-1)
        ended |= best == whisper.eot
        if bool(ended.all()):
            break
        for row, token in enumerate(best.tolist()):
            if not ended[row] and token < whisper.eot:
                text = texts[row]
                text.append(token)
                copy = unsupported(text, even(len(text), encoded.shape[1]))
                if copy is not None:
                    del text[-copy.n_tokens :]
                    ended[row] = True
        tokens = best[:, None]
    return texts
