"""Reads and writes a folder of a ChunkFormer: configuration, weights, vocabulary, statistics.

config.yaml             sizes, in the names of the package's first or second generation
pytorch_model.bin       (or .pt, .ckpt: the first that is there) the state dict
vocab.txt               one line a token: "token id"; blank is 0
global_cmvn             JSON {mean_stat, var_stat, frame_num}: sums over the training frames, read
                        where the state dict has no mean and deviation of them
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from streaming_asr.errors import UserError
from streaming_asr.methods.chunkformer.context import KERNEL
from streaming_asr.methods.chunkformer.encoder import Network, Shape
from streaming_asr.models.hub import on_this_machine
from streaming_asr.models.tensors import load_pickled, refuse_not_finite

WEIGHTS = ("pytorch_model.bin", "pytorch_model.pt", "pytorch_model.ckpt")
TRAIN = "python -m streaming_asr.train method=chunkformer entry=any_chunk"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# Two generations of names for the same thing.
KNOWN: dict[str, set[Any]] = {
    "input_layer": {"depthwise", "dw_striding"},
    "pos_enc_layer_type": {"stream_rel_pos", "chunk_rel_pos"},
    "selfattention_layer_type": {"stream_rel_selfattn", "chunk_rel_seflattn"},
    "activation_type": {"swish"},
    "cnn_module_norm": {"layer_norm"},
    "cnn_module_kernel": {KERNEL},
    "macaron_style": {True},
    "use_cnn_module": {True},
    "normalize_before": {True},
    "causal": {False},
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network ready for inference and the text of its tokens, by id."""

    network: Network
    tokens: list[str]


def load(folder: str | Path, *, device: str = "cpu", dtype: str = "float32") -> Loaded:
    """Read a checkpoint folder, or a repository of the hub. Attention decoders in it are passed
    over.

    Raises UserError where something is missing, of an unknown kind or of the wrong size.
    """
    if dtype not in DTYPES:
        raise UserError(
            f"dtype={dtype}: one of {', '.join(DTYPES)}; 8 bits scale by all that is in a pass, "
            "and ChunkFormer's passes hold chunks of many recordings"
        )
    folder = Path(on_this_machine(str(folder))).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; name a ChunkFormer's folder or train: {TRAIN}")
    config = _config(folder / "config.yaml")
    tokens = read_vocabulary(folder / "vocab.txt")
    weights = _weights(folder)
    ctc_weight = weights.get("ctc.ctc_lo.weight")
    if ctc_weight is None:
        raise UserError(f"{folder}: its weights have no CTC head (ctc.ctc_lo); only CTC is decoded")
    stated = config.get("output_dim", len(ctc_weight))
    if not len(tokens) == len(ctc_weight) == stated:
        raise UserError(
            f"{folder}: vocab.txt has {len(tokens)} tokens, the CTC head {len(ctc_weight)}, "
            f"config.yaml states {stated}; the three must agree: take vocab.txt from the "
            "checkpoint's own folder"
        )
    network = Network(_shape(config, len(tokens), folder))
    _fill(network, weights, folder)
    network = network.to(device=device, dtype=DTYPES[dtype]).eval().requires_grad_(False)
    return Loaded(network, tokens)


def save(folder: Path, network: Network, tokens: Sequence[str]) -> None:
    """Write a folder that `load` reads; weights at 16 bits, the features' statistics exact."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = network.shape
    config = {
        "input_dim": shape.n_mels,
        "output_dim": shape.vocabulary,
        "encoder": "chunkformer",
        "encoder_conf": {
            "output_size": shape.d,
            "attention_heads": shape.heads,
            "linear_units": shape.hidden,
            "num_blocks": shape.layers,
            "input_layer": "dw_striding",
            "pos_enc_layer_type": "chunk_rel_pos",
            "selfattention_layer_type": "chunk_rel_seflattn",
            "activation_type": "swish",
            "cnn_module_norm": "layer_norm",
            "cnn_module_kernel": KERNEL,
            "dynamic_conv": True,
        },
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    lines = [f"{token} {i}\n" for i, token in enumerate(tokens)]
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")
    state = {
        name: value if "global_cmvn" in name else value.half()
        for name, value in network.state_dict().items()
    }
    torch.save(state, folder / WEIGHTS[0])


def read_vocabulary(path: Path) -> list[str]:
    """Return the tokens in the order of their ids. Raises UserError for gaps, other forms."""
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not readable ({error}); a checkpoint needs its vocab.txt"
        ) from error
    # Not splitlines(): a token may be U+2028.
    pairs = [line.rpartition(" ") for line in text.split("\n")]
    tokens = {token_id: token for token, _, token_id in pairs if token}
    ids = [str(i) for i in range(len(pairs))]
    if tokens.keys() != set(ids):
        raise UserError(
            f'{path}: a line is "token id", and the ids run from 0 to {ids[-1]} without a gap; '
            "take the checkpoint's own file"
        )
    return [tokens[i] for i in ids]


def normalisation(
    sums: torch.Tensor, squares: torch.Tensor, n: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and the inverse standard deviation of features, (n_mels,) float32 each.

    sums, squares: of the values and their squares over n frames, (n_mels,) float64 each.
    """
    mean = sums / n
    variance = (squares / n - mean.square()).clamp_min(1e-20)
    return mean.float(), variance.rsqrt().float()


def _config(path: Path) -> dict[str, Any]:
    """Return config.yaml. Raises UserError where the encoder is of another kind than this one."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: not readable ({error}); a checkpoint needs it") from error
    if not isinstance(config, dict) or not isinstance(config.get("encoder_conf"), dict):
        raise UserError(f"{path}: has no encoder_conf; this is not a ChunkFormer's config.yaml")
    for key, allowed in KNOWN.items():
        value = config["encoder_conf"].get(key)
        if value is not None and value not in allowed:
            names = " or ".join(str(name) for name in sorted(allowed, key=str))
            raise UserError(f"{path}: encoder_conf.{key} is {value}; read is only {names}")
    return config


def _shape(config: Mapping[str, Any], n_tokens: int, folder: Path) -> Shape:
    encoder = config["encoder_conf"]
    features = (config.get("dataset_conf") or {}).get("fbank_conf") or {}
    try:
        return Shape(
            d=int(encoder["output_size"]),
            heads=int(encoder["attention_heads"]),
            layers=int(encoder["num_blocks"]),
            hidden=int(encoder["linear_units"]),
            vocabulary=n_tokens,
            n_mels=int(config.get("input_dim") or features.get("num_mel_bins", 80)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{folder / 'config.yaml'}: {error}; encoder_conf needs output_size, attention_heads, "
            "num_blocks and linear_units"
        ) from error


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the state dict, its names without "model.". Raises UserError where there is none."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: none of {', '.join(WEIGHTS)} in it; a checkpoint has one")
    state = load_pickled(path, str(path))
    refuse_not_finite(path, state.items())
    weights = {str(name).removeprefix("model."): value for name, value in state.items()}
    for name in ("ctc.ctc_lo.weight", "ctc.ctc_lo.bias"):  # an alias of older checkpoints
        if name not in weights and f"encoder.{name}" in weights:
            weights[name] = weights[f"encoder.{name}"]
    return weights


def _fill(network: Network, weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Put weights and feature statistics into the network. Raises UserError where they do not fit.

    Attention decoders and the like are left out. Without statistics the features are taken as they
    are: the network keeps the mean 0 and the deviation 1.
    """
    cmvn = network.encoder.global_cmvn
    if "encoder.global_cmvn.mean" not in weights and (folder / "global_cmvn").is_file():
        cmvn.mean, cmvn.istd = _statistics(folder / "global_cmvn")
    state = network.state_dict()
    result = {name: value for name, value in state.items() if "global_cmvn" in name}
    for name, value in weights.items():
        # A weight of the encoder that the network lacks is not passed over: it is an error below.
        in_encoder = name.startswith("encoder.") and not name.startswith("encoder.ctc.")
        if name in state or in_encoder:
            result[name] = value
    try:
        network.load_state_dict(result)
    except RuntimeError as error:
        first_fault = str(error).splitlines()[1].strip().split('", "')[0]
        raise UserError(
            f"{folder}: its weights do not fit its config.yaml ({first_fault})"
        ) from error


def _statistics(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and inverse deviation of a file global_cmvn. Raises UserError."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        sums = torch.tensor(row["mean_stat"], dtype=torch.float64)
        squares = torch.tensor(row["var_stat"], dtype=torch.float64)
        return normalisation(sums, squares, int(row["frame_num"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: not readable ({error}); it is JSON with mean_stat, var_stat and frame_num"
        ) from error
