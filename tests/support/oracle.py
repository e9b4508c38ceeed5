"""transformers' Whisper with the weights of ours: what our passes must compute."""

from __future__ import annotations

from typing import Any

from streaming_asr.whisper.adapters import _wrapped
from streaming_asr.whisper.load import Whisper


def oracle(whisper: Whisper) -> Any:
    """Return transformers' model; it shares the weights of `whisper`, which it leaves alone."""
    model = _empty(whisper.model)
    model.load_state_dict(whisper.model.state_dict(), assign=True)
    return model.eval().requires_grad_(False)


def oracle_of_peft(wrapped: Any) -> Any:
    """Return transformers' model with the unmerged adapter that peft put around our network."""
    theirs = _wrapped(_empty(wrapped.get_base_model()), wrapped.peft_config["default"])
    theirs.load_state_dict(wrapped.state_dict())
    return theirs.eval().get_base_model()


def _empty(network: Any) -> Any:
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig.from_dict(network.config.to_dict())
    config.tie_word_embeddings = network.is_tied
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig.from_dict(network.generation_config.to_dict())
    return model
