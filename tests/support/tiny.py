"""Tiny random-weight Whisper folders with a tokenizer of their own, built once per test session.

Weights are drawn large enough for logits to differ well, `eot_logit` is the logit of the end of
the text, and the folder has all that `load_whisper`, transformers and peft ask of one.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.chunking import Schedule
from streaming_asr.method import Method, Update

LANGUAGES = ("en", "zh", "de")
CORPUS = (
    "the quick brown fox jumps over the lazy dog and runs away",
    "she had your dark suit in greasy wash water all year",
    "Bitte noch ein Stück Käse für den Müller",
    "on the third of May he paid $12.50 for 3 books, a pen and an umbrella",
)


@functools.cache
def tiny_folder(
    *,
    multilingual: bool = False,
    context_frames: int = 200,
    n_mels: int = 80,
    seed: int = 7,
    d_model: int = 32,
    layers: int = 2,
    decoder_layers: int | None = None,
    heads: int = 2,
    vocabulary_size: int | None = None,
    eot_logit: float = 3.0,
    max_tokens: int = 64,
) -> Path:
    """A Hugging Face folder; `context_frames` of 20 ms. The same arguments give the same folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    folder = Path(tempfile.mkdtemp(prefix="tiny-whisper-"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = byte_level
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(CORPUS, trainer)
    learned = json.loads(bpe.to_str())["model"]
    specials = [
        "<|endoftext|>",
        "<|startoftranscript|>",
        *(f"<|{language}|>" for language in LANGUAGES),
        "<|translate|>",
        "<|transcribe|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|notimestamps|>",
    ]
    vocabulary = dict(learned["vocab"])
    for token in specials:
        vocabulary[token] = len(vocabulary)
    tokenizer = WhisperTokenizer(
        vocab=vocabulary,
        merges=[tuple(m) if isinstance(m, list) else tuple(m.split()) for m in learned["merges"]],
        unk_token="<|endoftext|>",
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        language="en",
        task="transcribe",
        additional_special_tokens=specials[1:],
    )
    tokenizer.add_tokens([f"<|{i * 0.02:.2f}|>" for i in range(context_frames + 1)])
    tokenizer.save_pretrained(folder)

    torch.manual_seed(seed)
    ids = {token: vocabulary[token] for token in specials}
    config = WhisperConfig(
        vocab_size=vocabulary_size or len(tokenizer),
        num_mel_bins=n_mels,
        d_model=d_model,
        encoder_layers=layers,
        decoder_layers=decoder_layers or layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=2 * d_model,
        decoder_ffn_dim=2 * d_model,
        max_source_positions=context_frames,
        max_target_positions=max_tokens,
        pad_token_id=ids["<|endoftext|>"],
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        decoder_start_token_id=ids["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2 and "embed_positions" not in name:
                weight.normal_(0.0, 1.6 / np.sqrt(weight[0].numel()))
            elif "bias" in name:
                weight.normal_(0.0, 0.1)
        model.model.decoder.embed_tokens.weight.normal_(0.0, 0.25)
        model.model.decoder.embed_positions.weight.normal_(0.0, 0.5)
        for layer in model.model.decoder.layers:  # what is heard decides
            layer.encoder_attn.out_proj.weight *= 4.0
            layer.encoder_attn.q_proj.weight *= 2.0
        for token, i in vocabulary.items():  # words, not endless strings of letters
            if token.startswith("Ġ"):
                model.model.decoder.embed_tokens.weight[i] *= 1.5
        # The end is predicted about as often as it would be in a stream.
        bias = model.model.decoder.layer_norm.bias.normal_(0.0, 0.3)
        end = ids["<|endoftext|>"]
        model.model.decoder.embed_tokens.weight[end] += eot_logit * bias / bias.square().sum()
    generation = GenerationConfig(
        pad_token_id=ids["<|endoftext|>"],
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        decoder_start_token_id=ids["<|startoftranscript|>"],
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        is_multilingual=multilingual,
        alignment_heads=[[min(1, (decoder_layers or layers) - 1), head] for head in range(heads)],
        max_length=max_tokens,
    )
    if multilingual:
        generation.lang_to_id = {f"<|{name}|>": ids[f"<|{name}|>"] for name in LANGUAGES}
        generation.task_to_id = {"transcribe": ids["<|transcribe|>"]}
    model.generation_config = generation
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=n_mels, chunk_length=context_frames // 50).save_pretrained(
        folder
    )
    return folder


def noise(duration_s: float, seed: int = 0) -> np.ndarray:
    """Seeded audio with a changing spectrum and level, (n,) float32 in [-1, 1]."""
    n = round(duration_s * 16_000)
    random = np.random.default_rng(seed)
    time = np.arange(n) / 16_000
    tone = np.sin(2 * np.pi * (200 + 300 * np.sin(1.7 * time + seed)) * time)
    envelope = 0.5 + 0.5 * np.sin(2 * np.pi * 1.3 * time + seed)
    mixed = 0.3 * tone * envelope + 0.1 * random.standard_normal(n) * (1 - envelope)
    return np.clip(mixed, -1, 1).astype(np.float32)


def fed(
    method: Method[Any], audio: np.ndarray, chunk: int, first: int | None = None, state: Any = None
) -> list[Update]:
    """The updates of a stream, new or of that state, in chunks of so many samples."""
    state = state or method.start()
    ends = [*Schedule(chunk, first or chunk, method.lookahead_samples).ends(len(audio))]
    return [
        method.step(state, audio[a:b], last=b == len(audio))
        for a, b in zip([0, *ends], ends, strict=False)
    ]
