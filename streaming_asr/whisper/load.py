"""Load Whisper weights from a Hugging Face folder or hub name, with a LoRA adapter merged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import FRAME_SAMPLES, SAMPLE_RATE
from streaming_asr.models.find import MULTILINGUAL_TOKENS
from streaming_asr.models.hash import check_floats
from streaming_asr.models.shared import shared
from streaming_asr.whisper.from_ctranslate2 import locate
from streaming_asr.whisper.light import has_plain_lora, load_plain
from streaming_asr.whisper.model_files import check_added_tokens, check_sizes
from streaming_asr.whisper.quantise import check_device, quantise
from streaming_asr.whisper.tensors import quiet, refuse_not_finite
from streaming_asr.whisper.words import Detokenizer, refuse_other_than_english

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LOADED_AS = {**DTYPES, "int8": torch.float32}


class Whisper:
    """A model ready for inference, its tokenizer and the numbers every method asks for."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.config = model.config
        self.generation = model.generation_config
        self.n_mels: int = model.config.num_mel_bins
        self.context_frames: int = model.config.max_source_positions
        self.max_tokens: int = model.config.max_target_positions
        self.device: torch.device = model.device
        self.eot = self._id("<|endoftext|>")
        self.sot = self._id("<|startoftranscript|>")
        declared = getattr(self.generation, "is_multilingual", None)
        guessed = self.config.vocab_size >= MULTILINGUAL_TOKENS
        self.multilingual = bool(guessed if declared is None else declared)

    @property
    def context_s(self) -> float:
        """Return the length of the model's window in seconds."""
        return self.context_frames * FRAME_SAMPLES / SAMPLE_RATE

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder: weights, tokenizer and feature extractor."""
        from transformers import WhisperFeatureExtractor

        with quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        WhisperFeatureExtractor(
            feature_size=self.n_mels, chunk_length=round(self.context_s)
        ).save_pretrained(folder)

    def _id(self, token: str) -> int:
        """Return the id of a control token. Raises UserError where the tokenizer lacks it."""
        number = self.tokenizer.convert_tokens_to_ids(token)
        unknown = number == self.tokenizer.unk_token_id and token != self.tokenizer.unk_token
        if number is None or unknown:
            raise UserError(
                f"the tokenizer has no token {token!r}; a Whisper tokenizer has all control tokens"
            )
        return int(number)

    @cached_property
    def first_timestamp(self) -> int | None:
        """Return the id of <|0.00|>, the first of the timestamps; None for a model without them."""
        first = self._id("<|notimestamps|>") + 1
        return first if first + self.context_frames < self.config.vocab_size else None

    def prompt(
        self,
        language: str | None = None,
        previous: Sequence[int] = (),
        *,
        timestamps: bool = False,
    ) -> list[int]:
        """Return the token ids of the prompt before the text.

        previous: tokens of earlier text, which come first as context, after <|startofprev|>. Then
        sot, for multilingual models also language (default en) and transcribe; then
        <|notimestamps|>, unless the text is to have timestamps. Raises UserError for a language
        that the model does not know.
        """
        ids = [self._id("<|startofprev|>"), *previous] if previous else []
        ids.append(self.sot)
        if self.multilingual:
            ids += [self._language_id(language or "en"), self._id("<|transcribe|>")]
        else:
            refuse_other_than_english(language)
        return ids if timestamps else [*ids, self._id("<|notimestamps|>")]

    def _language_id(self, language: str) -> int:
        token = f"<|{language}|>"
        languages = getattr(self.generation, "lang_to_id", None) or {}
        if languages and token not in languages:
            names = ", ".join(sorted(name.strip("<|>") for name in languages))
            raise UserError(f"language {language!r}: this model knows {names}")
        return int(languages[token]) if token in languages else self._id(token)

    def text_tokens(self, text: str) -> list[int]:
        """Return the tokens of a text as it is, without control tokens."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    @cached_property
    def suppressed(self) -> torch.Tensor:
        """Return the bias on the logits, (vocabulary,) float32: -inf on tokens that no text holds
        (control tokens, timestamps, those that the configuration suppresses), else 0."""
        bias = torch.zeros(self.config.vocab_size, device=self.device)
        bias[self.eot + 1 :] = -torch.inf
        # -1 means no token; the end must stay possible, or no text ever ends.
        listed = [i for i in (self.generation.suppress_tokens or []) if 0 <= i != self.eot]
        bias[torch.tensor(listed, dtype=torch.long, device=self.device)] = -torch.inf
        return bias

    @cached_property
    def alignment_heads(self) -> list[tuple[int, int]]:
        """Return the (decoder layer, head) pairs whose cross-attention follows time.

        From the generation config; where it names none, all heads of the last half of the layers.
        """
        heads = getattr(self.generation, "alignment_heads", None)
        if heads:
            return [(int(layer), int(head)) for layer, head in heads]
        n_layers, n_heads = self.config.decoder_layers, self.config.decoder_attention_heads
        return [(i, h) for i in range(n_layers // 2, n_layers) for h in range(n_heads)]

    @cached_property
    def detokenizer(self) -> Any:
        """Return what turns token ids into words (`words.Detokenizer`)."""
        return Detokenizer(self.tokenizer, self.eot)


def load_whisper(
    path: str | Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    adapter: str | Path | None = None,
    tokenizer_path: str | Path | None = None,
    adapter_scale: float = 1.0,
    trainable: bool = False,
) -> Whisper:
    """Return the Whisper at `path` (folder, hub name, name@revision), with an adapter merged.

    adapter: a peft folder or a published checkpoint; `adapter_scale` of its change is merged.
    tokenizer_path: the model whose tokenizer it shares, by default its own.
    dtype: float32, float16, bfloat16, or int8 on a CPU: the linear layers of encoder and decoder in
    8 bits, the adapter merged before; the output layer, which is the embedding too, in float32.
    trainable: load transformers' class, which training, saving and peft need; without it a plain
    model is loaded without transformers (`light.py`), with the same numbers.
    The cells of a sweep share it (`models.shared`): a training changes only a model of its own.
    Raises UserError where the model or the adapter is missing or of another form.
    """
    check_one_of(LOADED_AS, dtype=dtype)
    named = [None if each is None else str(each) for each in (path, adapter, tokenizer_path)]
    return shared(
        ("whisper", device, dtype, adapter_scale, trainable, *named),
        lambda: _loaded(path, device, dtype, adapter, tokenizer_path, adapter_scale, trainable),
        lambda whisper: sum(each.nbytes for each in whisper.model.parameters()),
    )


def _loaded(
    path: str | Path,
    device: str,
    dtype: str,
    adapter: str | Path | None,
    tokenizer_path: str | Path | None,
    adapter_scale: float,
    trainable: bool,
) -> Whisper:
    """Load the model that `load_whisper` describes, without sharing it."""
    check_device(dtype, device)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device={device!r}: torch sees no CUDA device here; use device=cpu")
    plain = None
    has_plain_adapter = adapter is None or has_plain_lora(Path(adapter))
    if has_plain_adapter and not trainable:
        folder = Path(locate(path))
        check_sizes(folder)
        plain = load_plain(
            folder,
            Path(locate(tokenizer_path or path)),
            dtype=LOADED_AS[dtype],
            adapter=None if adapter is None else Path(adapter),
            adapter_scale=adapter_scale,
        )
    model: Any
    tokenizer: Any
    if plain is None or not _can_spell(path, *plain):
        model, tokenizer = _by_transformers(path, dtype, adapter, tokenizer_path, adapter_scale)
    else:
        model, tokenizer = plain
    # Only now, so that merging the adapter costs no memory of the device.
    model.to(torch.device(device))
    if dtype == "int8":
        quantise(model.model.encoder, model.model.decoder)
    return Whisper(model, tokenizer)


def _can_spell(path: str | Path, model: Any, tokenizer: Any) -> bool:
    """Return whether the tokenizer spells every token of text; adds timestamps that it lacks.

    Raises UserError for the tokenizer of another model, and for one with added tokens of text.
    """
    _add_timestamps(model.config, tokenizer)
    _check_tokenizer(path, model.config, tokenizer)
    eot = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    if eot is None:
        return False
    check_added_tokens(path, tokenizer, eot)
    return None not in tokenizer.convert_ids_to_tokens(range(eot))  # text lies before the end


def _by_transformers(
    path: str | Path,
    dtype: str,
    adapter: str | Path | None,
    tokenizer_path: str | Path | None,
    adapter_scale: float,
) -> tuple[Any, Any]:
    """Return transformers' model with the adapter merged, and its tokenizer.

    Raises UserError where a file is missing or damaged, or does not fit the others.
    """
    from transformers import AutoTokenizer, WhisperForConditionalGeneration

    if adapter is not None:
        from streaming_asr.whisper.adapters import check_adapter, merge_adapter

        check_adapter(adapter)
    source = locate(path)
    check_sizes(Path(source))
    try:
        for file in sorted(Path(source).glob("*.safetensors")):
            check_floats(file)  # transformers would take integers for weights
        with quiet():
            result: Any = WhisperForConditionalGeneration.from_pretrained(
                source, dtype=LOADED_AS[dtype], output_loading_info=True
            )
            model, loading_info = result
            tokenizer = AutoTokenizer.from_pretrained(locate(tokenizer_path or path))
            _add_timestamps(model.config, tokenizer)
            _check_tokenizer(path, model.config, tokenizer)
            eot: Any = tokenizer.convert_tokens_to_ids("<|endoftext|>")
            check_added_tokens(path, tokenizer, eot)
            Detokenizer(tokenizer, eot)  # fails here where a token of text has no spelling
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes transformers raise
        raise UserError(
            f"model {str(path)!r} could not be loaded: {str(error).partition(chr(10))[0]}\n"
            "Give the folder or the hub name of a Whisper model in Hugging Face's form."
        ) from error
    _check_weights(path, model, loading_info)
    if adapter is not None:
        model = merge_adapter(model, adapter, adapter_scale)
    return model, tokenizer


def _check_weights(path: str | Path, model: Any, loading_info: Mapping[str, Any]) -> None:
    """Raise UserError where the files lack a tensor that the configuration asks for, hold a layer
    that it does not have, or hold numbers that are not finite.

    loading_info: of transformers.
    """
    missing = sorted(loading_info["missing_keys"])
    surplus = sorted(key for key in loading_info["unexpected_keys"] if ".layers." in key)
    if missing or surplus:
        verb, names = ("lack", missing) if missing else ("also hold", surplus)
        more = f" and {len(names) - 1} more tensors" if len(names) > 1 else ""
        raise UserError(
            f"model {str(path)!r}: its files {verb} {names[0]}{more}, against config.json; take "
            "all files from where the model comes from"
        )
    refuse_not_finite(f"model {str(path)!r}", model.state_dict().items())


def _add_timestamps(config: Any, tokenizer: Any) -> None:
    """Add the timestamps (every 0.02 s of the context, both ends included) that older tokenizers
    lack, though the model has these tokens."""
    no_timestamps = tokenizer.convert_tokens_to_ids("<|notimestamps|>")
    n_stamps = config.max_source_positions + 1
    tokenizer_ends_there = no_timestamps == len(tokenizer) - 1
    if tokenizer_ends_there and len(tokenizer) + n_stamps <= config.vocab_size:
        tokenizer.add_tokens([f"<|{i * 0.02:.2f}|>" for i in range(n_stamps)])


def _check_tokenizer(path: str | Path, config: Any, tokenizer: Any) -> None:
    """Raise UserError where the tokenizer is another model's.

    `.en` and multilingual ones differ by one token: texts would be garbled without an error.
    """
    vocabulary = tokenizer.get_vocab()
    if config.vocab_size <= vocabulary.get("<|0.00|>", -1):  # a model trained without timestamps
        timestamp = re.compile(r"<\|\d+\.\d+\|>")
        vocabulary = {t: i for t, i in vocabulary.items() if not timestamp.fullmatch(t)}
    largest = max(vocabulary.values())
    eot = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    if largest >= config.vocab_size:
        problem = f"it has token {largest}, the model {config.vocab_size} tokens"
    elif config.eos_token_id is not None and eot != config.eos_token_id:
        problem = f"its <|endoftext|> is {eot}, the model's {config.eos_token_id}"
    else:
        return
    raise UserError(
        f"model {str(path)!r}: the tokenizer next to it is not this model's ({problem}); "
        "take the tokenizer's files from where the model comes from"
    )
