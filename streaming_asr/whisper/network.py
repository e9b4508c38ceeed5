"""Whisper's weights in modules with the names of transformers' class, for inference and training.

transformers is not imported: that takes longer than most recordings. The passes over the modules
are those of `encoder.py`, `decoder.py` and `batched.py`; peft wraps the network as it does
transformers' (tests/whisper/test_network.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import nn


class JsonSettings(SimpleNamespace):
    """The content of a JSON file as attributes; what it does not hold is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        return dict(vars(self))


class WhisperNetwork(nn.Module):
    """Whisper, its output layer tied to the token embedding unless the configuration unties it.

    The modules, and their order, are those of transformers' WhisperForConditionalGeneration, so
    that adapters and seeds mean the same. Without weights until `fill`.
    """

    _tied_weights_keys: ClassVar = {
        "proj_out.weight": "model.decoder.embed_tokens.weight"
    }  # for peft

    def __init__(self, config: JsonSettings, generation: JsonSettings) -> None:
        super().__init__()
        self.config, self.generation_config = config, generation
        self.model: Any = nn.Module()
        self.model.encoder, self.model.decoder = _encoder(config), _decoder(config)
        self.proj_out = _empty(nn.Linear, config.d_model, config.vocab_size, bias=False)

    @property
    def is_tied(self) -> bool:
        """Return whether the output layer is the token embedding."""
        return self.config.tie_word_embeddings is not False

    def fill(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the tensors of `state_dict` as weights, uncopied; a tied output layer comes once."""
        embedding = tensors["model.decoder.embed_tokens.weight"]
        tied = {"proj_out.weight": embedding} if self.is_tied else {}
        self.load_state_dict({**tensors, **tied}, assign=True)
        if self.is_tied:
            self.proj_out.weight = self.model.decoder.embed_tokens.weight

    @property
    def device(self) -> torch.device:
        return self.proj_out.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.proj_out.weight.dtype

    def get_input_embeddings(self) -> Any:
        """Return the decoder's token embedding."""
        return self.model.decoder.embed_tokens

    def get_output_embeddings(self) -> Any:
        """Return the output layer."""
        return self.proj_out

    def prepare_inputs_for_generation(self, *_: object, **__: object) -> None:
        """Exist for peft, which asks every model of text for it and never calls it here."""
        raise NotImplementedError


def _empty(kind: type[nn.Module], *sizes: Any, **options: Any) -> Any:
    """Return a module whose weights are shapes without memory.

    Its own __init__ would draw random weights, which takes longer than reading them.
    """
    undrawn = type(kind.__name__, (kind,), {"reset_parameters": lambda _: None})
    module = undrawn(*sizes, device="meta", **options)
    module.__class__ = kind
    return module


def _encoder(config: JsonSettings) -> nn.Module:
    module, d = nn.Module(), config.d_model
    module.add_module("conv1", _empty(nn.Conv1d, config.num_mel_bins, d, 3, padding=1))
    module.add_module("conv2", _empty(nn.Conv1d, d, d, 3, stride=2, padding=1))
    module.add_module("embed_positions", _empty(nn.Embedding, config.max_source_positions, d))
    return _with_layers(module, config, "encoder", ("self_attn",))


def _decoder(config: JsonSettings) -> nn.Module:
    module, d = nn.Module(), config.d_model
    module.add_module("embed_tokens", _empty(nn.Embedding, config.vocab_size, d))
    module.add_module("embed_positions", _empty(nn.Embedding, config.max_target_positions, d))
    return _with_layers(module, config, "decoder", ("self_attn", "encoder_attn"))


def _with_layers(
    module: nn.Module, config: JsonSettings, side: str, attentions: Sequence[str]
) -> nn.Module:
    """Add the layers of a side and its last norm; attentions: their names in each layer."""
    sizes = config.to_dict()
    d, hidden, n_heads = (
        sizes[key] for key in ("d_model", f"{side}_ffn_dim", f"{side}_attention_heads")
    )
    layers = nn.ModuleList()
    for _ in range(sizes[f"{side}_layers"]):
        layer = nn.Module()
        for name in attentions:
            attention = nn.Module()
            attention.num_heads = n_heads
            for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                has_bias = part != "k_proj"
                attention.add_module(part, _empty(nn.Linear, d, d, bias=has_bias))
            layer.add_module(name, attention)
            layer.add_module(f"{name}_layer_norm", _empty(nn.LayerNorm, d))
        layer.add_module("fc1", _empty(nn.Linear, d, hidden))
        layer.add_module("fc2", _empty(nn.Linear, hidden, d))
        layer.add_module("final_layer_norm", _empty(nn.LayerNorm, d))
        layers.append(layer)
    module.add_module("layers", layers)
    module.add_module("layer_norm", _empty(nn.LayerNorm, d))
    return module
