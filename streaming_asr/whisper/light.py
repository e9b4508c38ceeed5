"""Loads a plain Whisper for inference without importing transformers and peft.

Their imports take longer than most recordings. Plain is: config.json, generation_config.json and
tokenizer.json, one safetensors file with exactly the tensors of the configuration, and an adapter
that is LoRA of one rank and one alpha on linear layers. `load_plain` returns None for everything
else, damaged files too. `load.py` then takes transformers' way, which loads unusual forms and
reports what is wrong. Both ways give the same bits (tests/whisper/test_light.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from streaming_asr.whisper.tensors import all_finite

WEIGHTS = "model.safetensors"
LINEAR = frozenset({"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"})
SIZES = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "num_mel_bins",
    "max_source_positions",
    "max_target_positions",
    "vocab_size",
)
EXPECTED = {"model_type": "whisper", "activation_function": "gelu", "scale_embedding": False}

# What an adapter's configuration may hold next to rank, alpha and modules; all else must be unset.
IDLE_OPTIONS = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "task_type",
    }
)
LORA_FILES = ("adapter_config.json", "adapter_model.safetensors")


class JsonSettings(SimpleNamespace):
    """The content of a JSON file as attributes; what it does not hold is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        return dict(vars(self))


def settings_of(file: Path) -> JsonSettings:
    """Return the content of a JSON file as attributes. Raises OSError and ValueError."""
    return JsonSettings(**_json(file))


class Tokens:
    """The tokenizer of a folder, as far as inference uses one of transformers."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        unknown = _json(folder / "tokenizer_config.json").get("unk_token")
        self.unk_token = unknown.get("content") if isinstance(unknown, dict) else unknown
        self.unk_token_id = self.backend_tokenizer.token_to_id(self.unk_token or "")

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> SimpleNamespace:
        """Return the tokens of a text as `input_ids`."""
        encoded = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return SimpleNamespace(input_ids=encoded.ids)

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Return the added tokens by their ids."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def get_vocab(self) -> dict[str, int]:
        """Return the token ids by spelling, added tokens too."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token; that of the unknown token for one that is not there."""
        number = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if number is None else int(number)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the spellings of token ids in the visible characters of byte-level BPE; None for
        an id that has none."""
        return [self.backend_tokenizer.id_to_token(number) for number in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, control tokens too."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def add_tokens(self, tokens: Sequence[str]) -> int:
        """Add tokens behind the last one; return how many were new."""
        return int(self.backend_tokenizer.add_tokens(list(tokens)))


class WhisperNetwork(nn.Module):
    """Whisper's weights in modules with the names of transformers' class; the passes are those of
    `encoder.py` and `decoder.py`."""

    def __init__(
        self, config: JsonSettings, generation: JsonSettings, tensors: Mapping[str, Any]
    ) -> None:
        """tensors: in one dtype, by transformers' names; they are not copied."""
        super().__init__()
        self.config, self.generation_config = config, generation
        self.model: Any = nn.Module()
        decoder: Any = _decoder(tensors, config)
        self.model.encoder, self.model.decoder = _encoder(tensors, config), decoder
        embedding = decoder.embed_tokens.weight
        self.proj_out = _bare(nn.Linear, in_features=config.d_model, out_features=config.vocab_size)
        self.proj_out.weight, self.proj_out.bias = embedding, None

    @property
    def device(self) -> torch.device:
        return self.proj_out.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.proj_out.weight.dtype

    def get_input_embeddings(self) -> Any:
        """Return the decoder's token embedding."""
        return self.model.decoder.embed_tokens


def load_plain(
    folder: Path,
    tokenizer_folder: Path,
    *,
    dtype: torch.dtype,
    adapter: Path | None = None,
    adapter_scale: float = 1.0,
) -> tuple[WhisperNetwork, Tokens] | None:
    """Return the network of a folder in `dtype`, its adapter merged, and the tokenizer.

    adapter: a peft folder; adapter_scale: the share of its change. None where a file is not plain
    (see the module), is damaged or does not fit.
    """
    try:
        config = _json(folder / "config.json")
        generation = _json(folder / "generation_config.json")
        if not _is_plain(config):
            return None
        tensors = _tensors(folder / WEIGHTS, dict(_shapes(config)), dtype)
        if tensors is None:
            return None
        if adapter is not None and not _add_lora(tensors, config, adapter, adapter_scale):
            return None
        tokens = Tokens(tokenizer_folder)
    except Exception:  # whatever a damaged file raises; `load.py` then reports what is wrong
        return None
    if not all(all_finite(value) for value in tensors.values()):
        return None
    return WhisperNetwork(JsonSettings(**config), JsonSettings(**generation), tensors), tokens


def has_plain_lora(folder: Path) -> bool:
    """Return whether a folder holds an adapter that `load_plain` may merge."""
    try:
        files_are_there = all((folder / name).is_file() for name in LORA_FILES)
        return files_are_there and _is_plain_lora(_json(folder / LORA_FILES[0]))
    except Exception:  # whatever a damaged file raises
        return False


def _json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Return whether a model's configuration is of a Whisper that this module can build."""
    are_sizes = all(type(config.get(name)) is int and config[name] > 0 for name in SIZES)
    are_tied = config.get("tie_word_embeddings", True) is True
    # A key that is missing has transformers' default, which is the expected value.
    others = all(config.get(name, value) == value for name, value in EXPECTED.items())
    return are_sizes and are_tied and others and "quantization_config" not in config


def _shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of every tensor of a Whisper with this configuration."""
    d = config["d_model"]
    yield "model.encoder.conv1.weight", (d, config["num_mel_bins"], 3)
    yield "model.encoder.conv1.bias", (d,)
    yield "model.encoder.conv2.weight", (d, d, 3)
    yield "model.encoder.conv2.bias", (d,)
    yield "model.encoder.embed_positions.weight", (config["max_source_positions"], d)
    yield "model.decoder.embed_tokens.weight", (config["vocab_size"], d)
    yield "model.decoder.embed_positions.weight", (config["max_target_positions"], d)
    for side in ("encoder", "decoder"):
        norms = ["layer_norm"]
        for i in range(config[f"{side}_layers"]):
            layer = f"layers.{i}"
            attentions = ["self_attn"] if side == "encoder" else ["self_attn", "encoder_attn"]
            for attention in attentions:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield f"model.{side}.{layer}.{attention}.{part}.weight", (d, d)
                    if part != "k_proj":
                        yield f"model.{side}.{layer}.{attention}.{part}.bias", (d,)
            hidden = config[f"{side}_ffn_dim"]
            yield f"model.{side}.{layer}.fc1.weight", (hidden, d)
            yield f"model.{side}.{layer}.fc1.bias", (hidden,)
            yield f"model.{side}.{layer}.fc2.weight", (d, hidden)
            yield f"model.{side}.{layer}.fc2.bias", (d,)
            norms += [f"{layer}.{each}_layer_norm" for each in (*attentions, "final")]
        for norm in norms:
            yield f"model.{side}.{norm}.weight", (d,)
            yield f"model.{side}.{norm}.bias", (d,)


def _tensors(
    file: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, torch.Tensor] | None:
    """Return the tensors of a safetensors file in `dtype`.

    None where their names and shapes are not exactly `shapes`, where one holds integers, or where
    the folder has several such files.
    """
    from safetensors.torch import load_file

    if len(list(file.parent.glob("*.safetensors"))) != 1:
        return None
    content = load_file(file)
    if {name: tuple(value.shape) for name, value in content.items()} != shapes:
        return None
    if not all(value.is_floating_point() for value in content.values()):
        return None
    # A copy, as the file may change while the model is in use.
    return {name: value.to(dtype, copy=True) for name, value in content.items()}


# -- an adapter -----------------------------------------------------------------------------


def _add_lora(
    tensors: dict[str, torch.Tensor], config: Mapping[str, Any], folder: Path, scale: float
) -> bool:
    """Add `scale` of a plain adapter's change to the model's tensors, in place.

    Return False, nothing changed, where the tensors are not float32 or the adapter does not fit
    them. Raises for a damaged adapter, and UserError for one of another base model.
    """
    from safetensors.torch import load_file

    from streaming_asr.whisper.adapter_config import check_base

    content = _json(folder / LORA_FILES[0])
    if tensors["model.encoder.conv1.bias"].dtype != torch.float32:
        return False
    check_base(content, JsonSettings(**config), folder / LORA_FILES[0])
    pairs = load_file(folder / LORA_FILES[1])
    rank, modules = content["r"], set(content["target_modules"])
    layers = [
        name.removesuffix(".weight")
        for name in tensors
        if name.endswith(".weight") and name.split(".")[-2] in modules
    ]
    expected = {}
    for layer in layers:
        n_out, n_in = tensors[f"{layer}.weight"].shape
        expected[_lora_key(layer, "A")] = (rank, n_in)
        expected[_lora_key(layer, "B")] = (n_out, rank)
    if {name: tuple(value.shape) for name, value in pairs.items()} != expected:
        return False
    if not all(value.is_floating_point() and all_finite(value) for value in pairs.values()):
        return False
    factor = content["lora_alpha"] / rank
    for layer in layers:
        a, b = pairs[_lora_key(layer, "A")].float(), pairs[_lora_key(layer, "B")].float()
        base = tensors[f"{layer}.weight"]
        merged = base + (b @ a) * factor
        tensors[f"{layer}.weight"] = merged if scale == 1 else torch.lerp(base, merged, scale)
    return True


def _lora_key(layer: str, side: str) -> str:
    return f"base_model.model.{layer}.lora_{side}.weight"


def _is_plain_lora(content: Mapping[str, Any]) -> bool:
    """Return whether an adapter's configuration is LoRA of linear layers with one rank and alpha,
    and no other option of peft is in use."""
    modules = content.get("target_modules")
    is_plain = (
        content.get("peft_type") == "LORA"
        and type(content.get("r")) is int
        and content["r"] > 0
        and type(content.get("lora_alpha")) in (int, float)
        and content.get("bias", "none") == "none"
        and content.get("init_lora_weights", True) in (True, False, "gaussian")
        and isinstance(modules, list)
        and bool(modules)
        and set(modules) <= LINEAR
    )
    checked = {"peft_type", "r", "lora_alpha", "bias", "init_lora_weights", "target_modules"}
    others = content.keys() - checked - IDLE_OPTIONS
    are_unset = all(content[name] in (None, False, [], {}) for name in others)
    return is_plain and are_unset


# -- modules --------------------------------------------------------------------------------


def _bare(kind: type[nn.Module], **values: Any) -> Any:
    """Return a module of class `kind` with these attributes and no parameters.

    Its own __init__ would draw random weights, which takes longer than reading them.
    """
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name, value in values.items():
        setattr(module, name, value)
    return module


def _parameter(tensors: Mapping[str, torch.Tensor], name: str) -> nn.Parameter | None:
    value = tensors.get(name)
    return None if value is None else nn.Parameter(value, requires_grad=False)


def _with_weights(module: Any, tensors: Mapping[str, torch.Tensor], name: str) -> Any:
    module.register_parameter("weight", _parameter(tensors, f"{name}.weight"))
    module.register_parameter("bias", _parameter(tensors, f"{name}.bias"))
    return module


def _linear(tensors: Mapping[str, torch.Tensor], name: str) -> Any:
    n_out, n_in = tensors[f"{name}.weight"].shape
    return _with_weights(_bare(nn.Linear, in_features=n_in, out_features=n_out), tensors, name)


def _norm(tensors: Mapping[str, torch.Tensor], name: str) -> Any:
    shape = tuple(tensors[f"{name}.weight"].shape)
    values = {"normalized_shape": shape, "eps": 1e-5, "elementwise_affine": True}
    return _with_weights(_bare(nn.LayerNorm, **values), tensors, name)


def _weights(tensors: Mapping[str, torch.Tensor], name: str) -> Any:
    """Return a module with only the weights of an embedding, which our passes index directly."""
    module = nn.Module()
    module.register_parameter("weight", _parameter(tensors, f"{name}.weight"))
    return module


def _convolution(tensors: Mapping[str, torch.Tensor], name: str, stride: int) -> Any:
    """Return a convolution of width 3 over (batch, channels, frames) that keeps the frames' rate
    where `stride` is 1."""
    n_out, n_in, width = tensors[f"{name}.weight"].shape
    values = {
        "in_channels": n_in,
        "out_channels": n_out,
        "kernel_size": (width,),
        "stride": (stride,),
        "padding": (1,),
        "dilation": (1,),
        "groups": 1,
        "padding_mode": "zeros",
    }
    return _with_weights(_bare(nn.Conv1d, **values), tensors, name)


def _attention(tensors: Mapping[str, torch.Tensor], name: str, n_heads: int) -> nn.Module:
    module = _bare(nn.Module, num_heads=n_heads)
    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
        module.add_module(part, _linear(tensors, f"{name}.{part}"))
    return module


def _layer(
    tensors: Mapping[str, torch.Tensor], name: str, attentions: Sequence[str], n_heads: int
) -> nn.Module:
    """Return a layer of encoder or decoder; attentions: their names in transformers."""
    module = nn.Module()
    for attention in attentions:
        module.add_module(attention, _attention(tensors, f"{name}.{attention}", n_heads))
        norm = f"{attention}_layer_norm"
        module.add_module(norm, _norm(tensors, f"{name}.{norm}"))
    for part in ("fc1", "fc2"):
        module.add_module(part, _linear(tensors, f"{name}.{part}"))
    module.add_module("final_layer_norm", _norm(tensors, f"{name}.final_layer_norm"))
    return module


def _encoder(tensors: Mapping[str, torch.Tensor], config: JsonSettings) -> nn.Module:
    """Return the encoder's modules with the names of transformers' class."""
    module, name = nn.Module(), "model.encoder"
    module.add_module("conv1", _convolution(tensors, f"{name}.conv1", 1))
    module.add_module("conv2", _convolution(tensors, f"{name}.conv2", 2))
    module.add_module("embed_positions", _weights(tensors, f"{name}.embed_positions"))
    layers = [
        _layer(tensors, f"{name}.layers.{i}", ("self_attn",), config.encoder_attention_heads)
        for i in range(config.encoder_layers)
    ]
    module.add_module("layers", nn.ModuleList(layers))
    module.add_module("layer_norm", _norm(tensors, f"{name}.layer_norm"))
    return module


def _decoder(tensors: Mapping[str, torch.Tensor], config: JsonSettings) -> nn.Module:
    """Return the decoder's modules with the names of transformers' class."""
    module, name = nn.Module(), "model.decoder"
    for part in ("embed_tokens", "embed_positions"):
        module.add_module(part, _weights(tensors, f"{name}.{part}"))
    attentions = ("self_attn", "encoder_attn")
    layers = [
        _layer(tensors, f"{name}.layers.{i}", attentions, config.decoder_attention_heads)
        for i in range(config.decoder_layers)
    ]
    module.add_module("layers", nn.ModuleList(layers))
    module.add_module("layer_norm", _norm(tensors, f"{name}.layer_norm"))
    return module
