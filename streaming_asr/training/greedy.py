"""Greedy decoding of utterances, for the scores on dev during training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from streaming_asr.method import NULL
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.search import BeamSearch
from streaming_asr.whisper.together import alone


@torch.inference_mode()
def greedy(whisper: Whisper, frames: Tensor, prompt: Sequence[int], max_tokens: int) -> str:
    """Return the text of encoder output (1, F, d), of at most `max_tokens` tokens.

    It ends before its first copy that no speech supports (`whisper/guard.py`), or one utterance
    with a loop would decide the score.
    """
    search = BeamSearch(Decoder(whisper), whisper.eot, 1, guard="repeats")
    cache = DecoderCache(search.decoder)
    search.decoder.append_frames(cache, frames, 0)
    passes = search.passes(cache, prompt, frames.shape[1], max_tokens, NULL)
    return whisper.tokenizer.decode(list(alone(passes, NULL).tokens)).strip()
