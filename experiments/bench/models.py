"""Whispers of published dimensions with random weights, and made-up audio: nothing is downloaded.

A chunk costs the same whatever the weights are. They are drawn so that the audio decides the
tokens, since two implementations that agree on a constant text would have shown nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

DIMENSIONS = {  # width, attention heads, layers of the encoder and of the decoder
    "tiny": (384, 6, 4),
    "base": (512, 8, 6),
    "small": (768, 12, 12),
    "medium": (1024, 16, 24),
    "large-v2": (1280, 20, 32),
}
N_TEXT_TOKENS = 50257
VOCABULARY = 51865  # of the multilingual models
CONTROL = {
    "<|endoftext|>": 50257,
    "<|startoftranscript|>": 50258,
    "<|en|>": 50259,
    "<|translate|>": 50358,
    "<|transcribe|>": 50359,
    "<|startoflm|>": 50360,
    "<|startofprev|>": 50361,
    "<|nospeech|>": 50362,
    "<|notimestamps|>": 50363,
}
# Cross-attention picks frames that differ; with gains of 1 every mean of frames is much the same.
GAINS = {
    "conv": 3.0,
    "self_attn.out_proj": 0.3,
    "encoder_attn.q_proj": 8.0,
    "encoder_attn.out_proj": 4.0,
}


def random_whisper(name: str, folder: Path, seed: int = 0) -> Path:
    """Writes weights of `name`'s dimensions and a tokenizer of Whisper's size. Returns `folder`."""
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    d_model, n_heads, n_layers = DIMENSIONS[name]
    end = CONTROL["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=80,
        d_model=d_model,
        encoder_layers=n_layers,
        decoder_layers=n_layers,
        encoder_attention_heads=n_heads,
        decoder_attention_heads=n_heads,
        encoder_ffn_dim=4 * d_model,
        decoder_ffn_dim=4 * d_model,
        max_source_positions=1500,
        max_target_positions=448,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=CONTROL["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "embed" in key:
                if "encoder" not in key:  # the encoder's are sinusoids
                    std = 0.5 if "positions" in key else 0.05
                    weight.normal_(0.0, std, generator=random)
            elif weight.ndim >= 2:
                gain = next((gain for part, gain in GAINS.items() if part in key), 1.0)
                weight.normal_(0.0, gain * weight[0].numel() ** -0.5, generator=random)
    model.generation_config = GenerationConfig(
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=CONTROL["<|startoftranscript|>"],
        no_timestamps_token_id=CONTROL["<|notimestamps|>"],
        is_multilingual=True,
        lang_to_id={"<|en|>": CONTROL["<|en|>"]},
        task_to_id={"transcribe": CONTROL["<|transcribe|>"]},
    )
    model.half().save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer():  # type: ignore[no-untyped-def]
    """Text tokens are words of their own, except 256 that spell any other text; control tokens
    are where Whisper has them."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import WhisperTokenizer

    names = {i: f"Ġw{i}" for i in range(N_TEXT_TOKENS)}
    names |= dict(enumerate(sorted(ByteLevel.alphabet()), start=256))
    names |= {i: f"<|{i}|>" for i in range(N_TEXT_TOKENS, VOCABULARY)}
    names |= {i: token for token, i in CONTROL.items()}
    return WhisperTokenizer(
        vocab={names[i]: i for i in range(VOCABULARY)},
        merges=[],
        unk_token="<|endoftext|>",
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        language="en",
        task="transcribe",
        additional_special_tokens=[token for token in CONTROL if token != "<|endoftext|>"],
    )


def synthetic_audio(duration_s: float, seed: int) -> np.ndarray:
    """A gliding tone and noise that take turns, (n,) float32 in [-1, 1], as long as asked for."""
    random = np.random.default_rng(seed)
    time_s = np.arange(round(duration_s * 16_000)) / 16_000
    tone = np.sin(2 * np.pi * (200 + 40 * np.sin(1.7 * time_s + seed)) * time_s)
    share = 0.5 + 0.5 * np.sin(2 * np.pi * 1.3 * time_s + seed)
    noise = random.standard_normal(time_s.size)
    return np.clip(0.3 * tone * share + 0.1 * noise * (1 - share), -1, 1).astype(np.float32)
