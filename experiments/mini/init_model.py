"""Makes mini's untrained model: its tokenizer and a Whisper-architecture network, random weights.

    python -m experiments.mini.init_model --corpus outputs/mini/train --out outputs/mini/init

The folder has Hugging Face's Whisper layout, so transformers loads it and CTranslate2 converts it.
Token order is Whisper's: text, <|endoftext|>, <|startoftranscript|>, languages, tasks,
<|startofprev|>, <|nospeech|>, <|notimestamps|>, then one timestamp each 20 ms. The model is of the
English-only kind (prompt: only <|startoftranscript|>), since CTranslate2 takes every vocabulary
below 51,865 for one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

CONTEXT_S = 15  # 750 encoder positions: half of Whisper's, a full pass costs some 30 ms on 2 cores
N_BPE, WIDTH, ENCODER_LAYERS, DECODER_LAYERS = 1600, 192, 4, 3
SPECIALS = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]


def make_tokenizer(texts: list[str]):
    """Byte-level BPE of `N_BPE` entries (256 bytes included) and Whisper's control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import WhisperTokenizer

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=N_BPE, initial_alphabet=alphabet, show_progress=False)
    )
    learned = json.loads(bpe.to_str())["model"]
    vocab = dict(learned["vocab"])
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    for token in SPECIALS:
        vocab[token] = len(vocab)
    end = "<|endoftext|>"
    tokenizer = WhisperTokenizer(
        vocab=vocab,
        merges=merges,
        unk_token=end,
        bos_token=end,
        eos_token=end,
        pad_token=end,
        additional_special_tokens=SPECIALS[1:],
    )
    times = [f"<|{i * 0.02:.2f}|>" for i in range(CONTEXT_S * 50 + 1)]
    tokenizer.add_tokens(times, special_tokens=False)
    return tokenizer


def make_model(tokenizer):
    """A WhisperForConditionalGeneration with random weights (head width 64, as Whisper has)."""
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIALS}
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=80,
        d_model=WIDTH,
        encoder_layers=ENCODER_LAYERS,
        decoder_layers=DECODER_LAYERS,
        encoder_attention_heads=WIDTH // 64,
        decoder_attention_heads=WIDTH // 64,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_source_positions=CONTEXT_S * 50,
        max_target_positions=448,
        dropout=0.0,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
        suppress_tokens=[],
        begin_suppress_tokens=[tokenizer.convert_tokens_to_ids("Ġ"), end],
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        is_multilingual=False,
        return_timestamps=False,
        max_initial_timestamp_index=50,
        max_length=448,
        suppress_tokens=[],
        begin_suppress_tokens=[tokenizer.convert_tokens_to_ids("Ġ"), end],
        # every head of the last half, as Whisper's own default; `align_heads` finds better ones
        alignment_heads=[
            [layer, head]
            for layer in range(DECODER_LAYERS // 2, DECODER_LAYERS)
            for head in range(WIDTH // 64)
        ],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder of training shards")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    from transformers import WhisperFeatureExtractor

    from streaming_asr.corpora.shards import read_shards

    texts = [item.text for item in read_shards(args.corpus)]
    # half with a leading space, so that sentence-initial words have the form they take in a stream
    tokenizer = make_tokenizer([t if i % 2 else " " + t for i, t in enumerate(texts)])
    model = make_model(tokenizer)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    # faster-whisper reads preprocessor_config.json, which transformers 5 writes only this way
    WhisperFeatureExtractor(feature_size=80, chunk_length=CONTEXT_S).save_pretrained(args.out)
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.2f} M parameters, {len(tokenizer)} tokens, written to {args.out}")


if __name__ == "__main__":
    main()
