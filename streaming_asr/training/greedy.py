"""Greedy decoding of many utterances at once, for the scores on dev during training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from streaming_asr.whisper.decoder import Decoder, DecoderCache
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
    decoder = Decoder(whisper)
    with_control_tokens = torch.zeros_like(whisper.suppressed)
    caches = [DecoderCache(decoder) for _ in encoded]
    for cache, frames in zip(caches, encoded, strict=True):
        decoder.append_frames(cache, frames[None], 0)
    n_frames = encoded.shape[1]
    texts: list[list[int]] = [[] for _ in caches]
    feed = {row: list(prompt) for row in range(len(caches))}  # of those that have not ended
    start = 0
    for _ in range(min(max_tokens, whisper.max_tokens - len(prompt))):
        parts = [
            decoder.part(caches[row], [tokens], [start], n_frames, bias=with_control_tokens)
            for row, tokens in feed.items()
        ]
        best = torch.cat(decoder.next_log_probs(parts)).argmax(-1).tolist()
        start += len(next(iter(feed.values())))
        feed = {row: [token] for row, token in zip(feed, best, strict=True) if token != whisper.eot}
        for row, (token,) in list(feed.items()):
            if token < whisper.eot:
                text = texts[row]
                text.append(token)
                copy = unsupported(text, even(len(text), n_frames))
                if copy is not None:
                    del text[-copy.n_tokens :]
                    del feed[row]
        if not feed:
            break
    return texts
