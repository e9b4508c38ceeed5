"""Loads a Whisper from a folder of either form or a hub name, with an adapter merged; saves it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import FRAME_SAMPLES, SAMPLE_RATE
from streaming_asr.models.find import MULTILINGUAL_TOKENS, Found, find
from streaming_asr.models.shared import shared
from streaming_asr.models.tensors import refuse_not_finite
from streaming_asr.whisper import model_files
from streaming_asr.whisper.model_files import Tokens
from streaming_asr.whisper.network import WhisperNetwork
from streaming_asr.whisper.quantise import quantise
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
        """Write a Hugging Face folder: weights, settings, tokenizer, feature extractor's."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        # Training may have untied them.
        is_tied = self.model.proj_out.weight is self.model.get_input_embeddings().weight
        weights = {name: x.contiguous() for name, x in self.model.state_dict().items()}
        if is_tied:
            del weights["proj_out.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        n_samples = self.context_frames * FRAME_SAMPLES
        contents = {
            "config": {
                **self.config.to_dict(),
                "dtype": str(self.model.dtype).removeprefix("torch."),
                "tie_word_embeddings": is_tied,
            },
            "generation_config": self.generation.to_dict(),
            "preprocessor_config": {
                "feature_extractor_type": "WhisperFeatureExtractor",
                "feature_size": self.n_mels,
                "sampling_rate": SAMPLE_RATE,
                "hop_length": FRAME_SAMPLES // 2,
                "n_fft": 400,
                "chunk_length": round(self.context_s),
                "n_samples": n_samples,
                "nb_max_frames": 2 * self.context_frames,
                "padding_side": "right",
                "padding_value": 0.0,
                "return_attention_mask": False,
            },
        }
        for name, content in contents.items():
            text = json.dumps(content, indent=2, sort_keys=True) + "\n"
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
        self.tokenizer.save(folder)

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

    def tokens_before(self, text: str | None) -> list[int]:
        """Return the last tokens of a text before, fewer than half of the decoder's positions, as
        OpenAI's Whisper keeps of a prompt."""
        if not text or not text.strip():
            return []
        return self.text_tokens(" " + text.strip())[-(self.max_tokens // 2 - 1) :]

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
) -> Whisper:
    """Return the Whisper at `path` (folder, hub name, name@revision), with an adapter merged.

    adapter: a peft folder or a published checkpoint; `adapter_scale` of its change is merged.
    tokenizer_path: the model whose tokenizer it shares, by default its own.
    dtype: float32, float16, bfloat16, or int8 on a CPU: the linear layers of encoder and decoder in
    8 bits, the adapter merged before; the output layer, which is the embedding too, in float32.
    The cells of a sweep share it (`models.shared`): a training changes only a model of its own.
    Raises UserError where the model or the adapter is missing or of another form.
    """
    check_one_of(LOADED_AS, dtype=dtype)
    named = [None if each is None else str(each) for each in (path, adapter, tokenizer_path)]
    return shared(
        ("whisper", device, dtype, adapter_scale, *named),
        lambda: _loaded(path, device, dtype, adapter, tokenizer_path, adapter_scale),
        lambda whisper: sum(each.nbytes for each in whisper.model.parameters()),
    )


def _loaded(
    path: str | Path,
    device: str,
    dtype: str,
    adapter: str | Path | None,
    tokenizer_path: str | Path | None,
    adapter_scale: float,
) -> Whisper:
    """Load the model that `load_whisper` describes, without sharing it."""
    from streaming_asr.whisper.adapters import check_adapter, merge_adapter

    if dtype == "int8" and device != "cpu":
        raise UserError(
            f"dtype=int8 on {device}: dynamic quantisation is for the CPU; give device=cpu, or "
            "dtype=float16 on a GPU"
        )
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device={device!r}: torch sees no CUDA device here; use device=cpu")
    if adapter is not None:
        check_adapter(adapter)
    source = find(path)
    try:
        model = _network(path, source, LOADED_AS[dtype])
        tokenizer = Tokens(source.folder if tokenizer_path is None else find(tokenizer_path).folder)
        model_files.check_tokens(path, model.config, tokenizer)
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file raises
        raise UserError(
            f"model {str(path)!r} could not be loaded: {str(error).partition(chr(10))[0]}; "
            "give the folder or the hub name of a Whisper model in Hugging Face's form"
        ) from error
    network: Any = model if adapter is None else merge_adapter(model, adapter, adapter_scale)
    # Only now, so that merging the adapter costs no memory of the device.
    network.to(torch.device(device))
    if dtype == "int8":
        quantise(network.model.encoder, network.model.decoder)
    return Whisper(network, tokenizer)


def _network(path: str | Path, source: Found, dtype: torch.dtype) -> WhisperNetwork:
    """Return the network of a folder in `dtype`. Raises UserError where the files lack a tensor
    that the configuration asks for, hold a layer that it does not have, or hold numbers that are
    not finite; whatever a damaged file makes the libraries raise."""
    config, generation, stored = model_files.read(source)
    network = WhisperNetwork(config, generation)
    expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if network.is_tied:
        del expected["proj_out.weight"]
    missing = sorted(expected.keys() - stored.keys())
    surplus = sorted(name for name in stored.keys() - expected.keys() if ".layers." in name)
    problem = None
    if names := missing or surplus:
        more = f" and {len(names) - 1} more tensors" if len(names) > 1 else ""
        problem = f"its files {'lack' if missing else 'also hold'} {names[0]}{more}"
    for name, shape in () if missing else expected.items():
        if tuple(stored[name].shape) != shape:
            problem = f"{name} is {tuple(stored[name].shape)}, not {shape}"
    if problem:
        raise UserError(
            f"model {str(path)!r}: {problem}, against config.json; {model_files.REMEDY}"
        )
    # A copy, as the file may change while the model is in use.
    tensors = {name: stored[name].to(dtype, copy=True) for name in expected}
    refuse_not_finite(f"model {str(path)!r}", tensors.items())
    network.fill(tensors)
    return network
