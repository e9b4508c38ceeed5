"""Tiny folders of the models that are built for streaming, with random weights that make words.

Each is built from its class's configuration, once per test session.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
from tiny import noise

from streaming_asr.whisper.tensors import quiet

WORDS = ("the", "fox", "runs", "over", "a", "dog")
PIECES = ("ed", "s", "ing", ".")


def tokenizer(*specials: str, vocabulary_size: int) -> Any:
    """A tokenizer of `vocabulary_size` tokens: words, pieces of them, fillers, then `specials`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    texts = ["<unk>", *(f"▁{word}" for word in WORDS), *PIECES]
    texts += [f"▁w{i}" for i in range(vocabulary_size - len(texts) - len(specials))]
    texts += specials
    level = Tokenizer(models.WordLevel({text: i for i, text in enumerate(texts)}, "<unk>"))
    level.pre_tokenizer = pre_tokenizers.Metaspace()
    level.decoder = decoders.Sequence([decoders.Fuse(), decoders.Metaspace()])
    level.add_special_tokens(["<unk>", *specials])
    return PreTrainedTokenizerFast(tokenizer_object=level, unk_token="<unk>")


def spread(model: torch.nn.Module, seed: int) -> None:
    """Draw weights large enough for the audio to decide."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                weight.normal_(0.0, 1.2 * weight[0].numel() ** -0.5)
            elif "bias" in name:
                weight.normal_(0.0, 0.1)


def even(head: torch.nn.Linear, logits: torch.Tensor) -> None:
    """Scale a head that makes these logits, (n, vocabulary), so that no token is always the best.

    Call it with gradients off.
    """
    mean, deviation = logits.mean(0), logits.std(0)
    head.bias.copy_((head.bias - mean) / deviation)
    head.weight /= deviation[:, None]


@functools.cache
def nemotron_folder(*, multilingual: bool = False, seed: int = 1) -> Path:
    """A Nemotron; multilingual: the class with language prompts. It takes 80, 160 and 560 ms."""
    import transformers

    name = "Nemotron3_5Asr" if multilingual else "NemotronAsrStreaming"
    encoder = transformers.NemotronAsrStreamingEncoderConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        subsampling_conv_channels=8,
        num_mel_bins=80,
        sliding_window=11,
        max_position_embeddings=400,
    )
    tags = ("<en-US>", "<de-DE>") if multilingual else ()
    prompts = {"num_prompts": 4, "default_prompt_id": 2, "prompt_intermediate_size": 16}
    size = 24
    config = getattr(transformers, f"{name}Config")(
        encoder_config=encoder,
        vocab_size=size,
        blank_token_id=size - 1,
        pad_token_id=0,
        decoder_start_token_id=size - 1,
        decoder_hidden_size=24,
        num_decoder_layers=1,
        max_symbols_per_step=3,
        **(
            {"num_prompts": 4, "default_prompt_id": 2, "prompt_intermediate_size": 16}
            if tags
            else {}
        ),
    )
    model = getattr(transformers, f"{name}ForRNNT")(config).eval()
    spread(model, seed)
    extractor = transformers.NemotronAsrStreamingFeatureExtractor()
    mel = extractor(noise(8.0, seed=9), sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        frames = model.get_audio_features(mel, num_lookahead_tokens=1).pooler_output[0]
        # Frames differ in all that they have in common else; then tokens come in turn.
        projector, head = model.encoder_projector, model.joint.head
        projector.bias.copy_((projector.bias - frames.mean(0)) / frames.std(0))
        projector.weight /= frames.std(0)[:, None]
        frames = (frames - frames.mean(0)) / frames.std(0)
        after_blank = model.decoder(torch.tensor([[size - 1]]))[0]
        even(head, model.joint.head(torch.relu(frames + after_blank)))
        head.bias[size - 1] += 1.5
        head.bias[0] = -30  # <unk>
    words = tokenizer(*tags, "<blank>", vocabulary_size=size)
    prompts = {"prompt_dictionary": {"en-US": 0, "de-DE": 1, "de": 1, "auto": 2}, "num_prompts": 4}
    processor = getattr(transformers, f"{name}Processor")(
        extractor,
        words,
        supported_num_lookahead_tokens=[6, 1, 0],
        **(prompts if tags else {}),
    )
    return saved(model, processor)


def saved(model: Any, processor: Any) -> Path:
    """The folder of a model and its processor."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-native-"))
    with quiet():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def sizes_of(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config.json that has the sizes of the first stack of layers."""
    parts = (config.get(key) for key in ("encoder_config", "audio_config", "text_config"))
    return next((part for part in parts if part), config)
