"""Tiny folders of the models that are built for streaming, with random weights that make words.

Each is built from its class's configuration, once per test session.
"""

from __future__ import annotations

import base64
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from tiny import noise

from streaming_asr.models.tensors import quiet

WORDS = ("the", "fox", "runs", "over", "a", "dog")
PIECES = ("ed", "s", "ing", ".")
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2
}  # fmt: skip


def tokenizer(*specials: str, vocabulary_size: int, **settings: Any) -> Any:
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
    return PreTrainedTokenizerFast(tokenizer_object=level, unk_token="<unk>", **settings)


def spread(model: torch.nn.Module, seed: int) -> None:
    """Draw weights large enough for the audio to decide."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                weight.normal_(0.0, 1.2 * weight[0].numel() ** -0.5)
            elif "bias" in name:
                weight.normal_(0.0, 0.1)


def even(head: torch.nn.Linear, outputs: torch.Tensor) -> None:
    """Scale a layer that makes these outputs, (n, d), to mean 0 and deviation 1 over the rows.

    Of a head no token is then always the best. Call it with gradients off.
    """
    mean, deviation = outputs.mean(0), outputs.std(0)
    head.bias.copy_((head.bias - mean) / deviation)
    head.weight /= deviation[:, None]


@functools.cache
def nemotron_folder(*, multilingual: bool = False, seed: int = 1) -> Path:
    """A Nemotron; multilingual: the class with language prompts. It takes 80, 160 and 560 ms."""
    import transformers

    name = "Nemotron3_5Asr" if multilingual else "NemotronAsrStreaming"
    encoder = transformers.NemotronAsrStreamingEncoderConfig(
        **SMALL,
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
        **(prompts if tags else {}),
    )
    model = getattr(transformers, f"{name}ForRNNT")(config).eval()
    spread(model, seed)
    extractor = transformers.NemotronAsrStreamingFeatureExtractor()
    mel = extractor(noise(8.0, seed=9), sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        frames = model.get_audio_features(mel, num_lookahead_tokens=1).pooler_output[0]
        # Frames differ in all that they have in common else; then tokens come in turn.
        head = model.joint.head
        even(model.encoder_projector, frames)
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


def even_after(head: torch.nn.Linear, hidden: torch.Tensor) -> None:
    """Scale a head without bias, so that of hidden states, (n, d), no token is always the best.

    Call it with gradients off.
    """
    mean = hidden.mean(0)
    head.weight -= torch.outer(head.weight @ mean, mean) / mean.square().sum()
    head.weight /= (hidden @ head.weight.T).std(0)[:, None]


N_SPECIAL = 6  # of Voxtral's tokens


def tekken(n_left: int) -> dict[str, Any]:
    """The content of tekken.json: 26 tokens, of which the first 6 spell nothing."""
    texts = [f" {word}" for word in WORDS] + [*PIECES, " caf", "é"] + [f" w{i}" for i in range(8)]
    names = ("<unk>", "<s>", "</s>", "[STREAMING_PAD]", "[STREAMING_WORD]", "<pad>")
    vocabulary = [{"token_bytes": base64.b64encode(text.encode()).decode()} for text in texts]
    return {
        "config": {"default_num_special_tokens": N_SPECIAL},
        "vocab": vocabulary,
        "special_tokens": [{"rank": i, "token_str": name} for i, name in enumerate(names)],
        "audio": {"streaming_n_left_pad_tokens": n_left},
    }


@functools.cache
def voxtral_folder(seed: int = 2) -> Path:
    """A Voxtral Realtime whose text is 4 tokens behind, after 5 tokens of silence."""
    import transformers

    size = N_SPECIAL + len(tekken(5)["vocab"])
    config = transformers.VoxtralRealtimeConfig(
        audio_config={**SMALL, "head_dim": 16, "num_mel_bins": 80, "sliding_window": 20},
        text_config={
            **SMALL,
            "model_type": "voxtral_realtime_text",
            "num_key_value_heads": 1,
            "head_dim": 16,
            "vocab_size": size,
            "sliding_window": 15,
            "tie_word_embeddings": False,
        },
        default_num_delay_tokens=4,
        tie_word_embeddings=False,
    )
    model = transformers.VoxtralRealtimeForConditionalGeneration(config).eval()
    spread(model, seed)
    extractor = transformers.VoxtralRealtimeFeatureExtractor(feature_size=80)
    mel = extractor(noise(8.0, seed=9), sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        model.model.multi_modal_projector.linear_2.weight *= 4
        made = model.model(
            input_ids=torch.full((1, mel.shape[-1] // 8), 3),
            input_features=mel[..., : mel.shape[-1] // 8 * 8],
            num_delay_tokens=4,
        )
        even_after(model.lm_head, made.last_hidden_state[0])
        model.lm_head.weight[2] = 0  # </s> would end the text
    folder = saved(model, extractor)
    (folder / "tekken.json").write_text(json.dumps(tekken(5)))
    return folder


@functools.cache
def kyutai_folder(seed: int = 3) -> Path:
    """A Kyutai speech-to-text, 0.5 s behind, after 0.25 s of silence."""
    import transformers

    size = 24
    config = transformers.KyutaiSpeechToTextConfig(
        codebook_vocab_size=17,
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        sliding_window=15,
        max_position_embeddings=400,
        ffn_dim=48,
        num_codebooks=4,
        audio_bos_token_id=16,
        audio_pad_token_id=size + 4 * 17,
        pad_token_id=3,
        bos_token_id=size,
        codec_config={
            **SMALL,
            "model_type": "mimi",
            "num_filters": 4,
            "num_key_value_heads": 2,
            "codebook_size": 16,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_quantizers": 4,
            "head_dim": 16,
            "upsample_groups": 32,
            "sliding_window": 20,
        },
    )
    model = transformers.KyutaiSpeechToTextForConditionalGeneration(config).eval()
    spread(model.model, seed)
    torch.manual_seed(seed)
    audio = torch.from_numpy(noise(8.0, seed=9))[None, None]
    with torch.no_grad():
        codec = model.codec_model
        latents = codec.encoder(audio).latents[0].T
        for quantizer in (
            codec.quantizer.semantic_residual_vector_quantizer,
            codec.quantizer.acoustic_residual_vector_quantizer,
        ):
            projected = latents @ quantizer.input_proj.weight[..., 0].T
            for layer in quantizer.layers:  # codes are vectors that come, so that all are used
                book = projected[torch.randperm(len(projected))[:16]]
                layer.codebook.embed_sum.copy_(book)
                layer.codebook.cluster_usage.fill_(1.0)
                projected = projected - book[torch.cdist(projected, book).argmin(1)]
        codes = codec.encode(audio).audio_codes[0].T
        texts = torch.full((len(codes), 1), 3)
        made = model.model(input_ids=torch.cat([texts, codes], 1)[None])
        even_after(model.lm_head, made.last_hidden_state[0])
    words = tokenizer(vocabulary_size=size)
    extractor = transformers.KyutaiSpeechToTextFeatureExtractor(
        audio_delay_seconds=0.5, audio_silence_prefix_seconds=0.25
    )
    return saved(model, transformers.KyutaiSpeechToTextProcessor(extractor, words))


@functools.cache
def moonshine_folder(seed: int = 4) -> Path:
    """A Moonshine Streaming whose frames see 6 frames ahead and 19 back."""
    import transformers

    size = 24
    config = transformers.MoonshineStreamingConfig(
        encoder_config={
            **SMALL,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "sliding_windows": [[9, 4], [5, 0], [8, 4]],
        },
        vocab_size=size,
        **SMALL,
        num_key_value_heads=2,
        max_position_embeddings=400,
        bos_token_id=size - 3,
        eos_token_id=size - 2,
        pad_token_id=size - 1,
        decoder_start_token_id=size - 3,
    )
    model = transformers.MoonshineStreamingForConditionalGeneration(config).eval()
    spread(model, seed)
    audio = torch.from_numpy(noise(6.0, seed=9))[None]
    with torch.no_grad():
        model.model.decoder.pos_emb.weight *= 0.2
        frames = model.model.encoder(audio, attention_mask=torch.ones_like(audio).long())
        tokens = torch.randint(1, 15, (1, 40))
        made = model.model.decoder(input_ids=tokens, encoder_hidden_states=frames[0])
        even_after(model.proj_out, made.last_hidden_state[0])
        model.proj_out.weight[size - 3 :] *= 0.3
        model.proj_out.weight[0] = 0  # <unk>
    words = tokenizer("<s>", "</s>", "<pad>", vocabulary_size=size)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    return saved(model, transformers.MoonshineStreamingProcessor(extractor, words))


# The published template but for what the tests do not reach.
QWEN_TEMPLATE = """{%- for message in messages -%}
<|im_start|> {{ message.role }}
{%- for content in message.content -%}
{%- if content.type == 'audio' -%}<|audio_start|><|audio_pad|><|audio_end|>
{%- else -%}{{ content.text }}{%- endif -%}
{%- endfor -%}<|im_end|>
{%- endfor -%}"""


@functools.cache
def qwen3_folder(seed: int = 5) -> Path:
    """A Qwen3-ASR; it begins its text with a language and a mark where it is given none."""
    import transformers

    specials = ("<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
    size = 30
    words = tokenizer(
        *specials,
        "<asr_text>",
        vocabulary_size=size,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        extra_special_tokens={
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
            "audio_token": "<|audio_pad|>",
        },
    )
    end = words.convert_tokens_to_ids("<|im_end|>")
    config = transformers.Qwen3ASRConfig(
        audio_config={
            "num_mel_bins": 80,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "d_model": 32,
            "output_dim": 32,
            "downsample_hidden_size": 8,
        },
        text_config={
            **SMALL,
            "model_type": "qwen3",
            "vocab_size": size,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "max_position_embeddings": 1000,
            "tie_word_embeddings": False,
        },
        audio_token_id=size - 2,
        timestamp_token_id=0,
        pad_token_id=end,
        eos_token_id=end,
        tie_word_embeddings=False,
    )
    model = transformers.Qwen3ASRForConditionalGeneration(config).eval()
    spread(model, seed)
    with torch.no_grad():
        model.model.multi_modal_projector.linear_2.weight *= 3
        made = model.model(input_ids=torch.randint(1, 20, (1, 200)))
        even_after(model.lm_head, made.last_hidden_state[0])
        for special in (0, size - 2, *range(size - 6, size - 2)):
            model.lm_head.weight[special] *= 0.2
    extractor = transformers.Qwen3ASRFeatureExtractor(feature_size=80)
    processor = transformers.Qwen3ASRProcessor(extractor, words, chat_template=QWEN_TEMPLATE)
    return saved(model, processor)


def saved(model: Any, processor: Any) -> Path:
    """The folder of a model and its processor."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-native-"))
    with quiet():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
