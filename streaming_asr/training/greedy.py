"""Greedy decoding of many utterances at once: what training uses to look at dev."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from streaming_asr.whisper.encoder import encode_padded, encode_short
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
from streaming_asr.whisper.load import Whisper


@torch.inference_mode()
def transcribe_batch(
    whisper: Whisper,
    audios: Sequence[np.ndarray],
    *,
    padded: bool = True,
    batch: int = 16,
    max_tokens: int = 120,
) -> list[str]:
    """Texts of `audios`, (n,) float32 each, of at most one context.

    `padded=False` encodes each alone at its own length, as Whisper was not trained for."""
    texts: list[str] = []
    for first in range(0, len(audios), batch if padded else 1):
        group = audios[first : first + (batch if padded else 1)]
        longest = max(len(a) for a in group)
        n_frames = whisper.context_frames if padded else max(1, -(-longest // FRAME_SAMPLES))
        samples = np.zeros((len(group), n_frames * FRAME_SAMPLES), np.float32)
        for row, audio in zip(samples, group, strict=True):
            row[: len(audio)] = audio[: len(row)]
        mel = log_mel(torch.from_numpy(samples).to(whisper.device), whisper.n_mels)
        encoded = (encode_padded if padded else encode_short)(whisper.model, mel)
        for tokens in greedy(whisper, encoded, whisper.prompt(), max_tokens):
            texts.append(whisper.tokenizer.decode(tokens).strip())
    return texts


@torch.inference_mode()
def greedy(
    whisper: Whisper, encoded: Tensor, prompt: Sequence[int], max_tokens: int
) -> list[list[int]]:
    """Text tokens of encoder output (B, T, d), without prompt, timestamps and <|endoftext|>."""
    from transformers import DynamicCache, EncoderDecoderCache

    decoder = whisper.model.model.decoder
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    n = len(encoded)
    tokens = torch.tensor([list(prompt)] * n, device=encoded.device)
    ended = torch.zeros(n, dtype=torch.bool, device=encoded.device)
    found: list[list[int]] = [[] for _ in range(n)]
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
                found[row].append(token)
        tokens = best[:, None]
    return found
