"""transformers' Whisper with the weights of ours: what our passes must compute."""

from __future__ import annotations

from typing import Any

from streaming_asr.whisper.load import Whisper


def oracle(whisper: Whisper) -> Any:
    """Return transformers' model; it shares the weights of `whisper`, which it leaves alone."""
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig.from_dict(whisper.config.to_dict())
    config.tie_word_embeddings = whisper.model.is_tied
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(whisper.model.state_dict(), assign=True)
    model.generation_config = GenerationConfig.from_dict(whisper.generation.to_dict())
    return model.eval().requires_grad_(False)
