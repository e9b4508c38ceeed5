"""STAR's network on a Whisper: what it is made of, and its folder on disk.

A trained STAR is a folder with star.json (what it is), star.safetensors (segmenter and semantic
encoder) and a LoRA adapter of Whisper's (adapter_config.json).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.methods.star.compressors import COMPRESSORS, Compressor, Segmenter
from streaming_asr.methods.star.semantic import POOLS, SemanticEncoder
from streaming_asr.models.tensors import load_tensors, save_half
from streaming_asr.whisper.load import Whisper, load_whisper

CONFIG_FILE, WEIGHTS_FILE = "star.json", "star.safetensors"
GONE = {"shift": (None, 0, "916c7372"), "rate": (None, "12931f89"),
        "features": (None, "whisper", "12931f89")}  # fmt: skip
"""Settings of earlier networks: values that change nothing, and the last commit to run others."""
TRAIN = "`python -m streaming_asr.train method=star`"


@dataclass(frozen=True)
class StarConfig:
    """The settings of a network.

    compressor: star | none. layers: of the semantic encoder. pool: what an anchor comes in as,
    frame | mean (`semantic`). carry: the sum of scores after an anchor keeps its residual (code),
    or is set to 0 (algorithm 1), which loses anchors: 0.84 a token where training has one.
    """

    compressor: str = "star"
    layers: int = 4
    pool: str = "frame"
    carry: bool = True

    def __post_init__(self) -> None:
        check_one_of(COMPRESSORS, compressor=self.compressor)
        check_one_of(POOLS, pool=self.pool)
        check_range(0, layers=self.layers)


class StarNetwork(nn.Module):
    """The compressor for a Whisper's frames, as a module."""

    def __init__(self, whisper: Whisper, config: StarConfig) -> None:
        super().__init__()
        self.config = config
        sizes = whisper.config
        heads, hidden = sizes.encoder_attention_heads, sizes.encoder_ffn_dim
        compresses = config.compressor == "star"
        # Without anchors a compact mask would hide everything before.
        mask = "compact" if compresses else "history"
        encoder = SemanticEncoder(sizes.d_model, heads, hidden, config.layers, mask, config.pool)
        segmenter = Segmenter(sizes.d_model) if compresses else None
        self.compressor = Compressor(encoder, segmenter, carry=config.carry)


def read_config(folder: Path) -> StarConfig:
    """Return a folder's star.json. Raises UserError where there is none or it is malformed."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise UserError(
            f"{folder}: no {CONFIG_FILE} there, so no STAR network; train one with {TRAIN} and "
            "name its folder with method.weights=, or try it untrained with method.weights=none"
        )
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        for key, (*idle, commit) in GONE.items():
            if row.get(key) not in idle:
                raise ValueError(f"{key}={row[key]}, which commit {commit} was the last to run")
        names = {f.name for f in fields(StarConfig)}
        return StarConfig(**{key: value for key, value in row.items() if key in names})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not readable ({error}); train the network again") from error


def save_network(network: StarNetwork, folder: Path) -> None:
    """Write star.json and star.safetensors (fp16)."""
    save_half(network.state_dict(), folder / WEIGHTS_FILE)
    text = json.dumps(asdict(network.config), indent=2, sort_keys=True)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def fill(network: StarNetwork, folder: Path, *, partly: bool = False) -> None:
    """Put the weights of a folder into a network.

    partly: weights that the folder lacks stay as they are, for a compressor that begins on the
    model without compression. Raises UserError where names or shapes do not fit.
    """
    path = folder / WEIGHTS_FILE
    weights = load_tensors(path)
    parts = network.state_dict()
    unfit = [] if partly else [name for name in parts if name not in weights]
    unfit += [n for n, w in weights.items() if n not in parts or parts[n].shape != w.shape]
    if unfit:
        raise UserError(
            f"{path}: {unfit[0]} does not fit this model and {CONFIG_FILE}; use the model it was "
            "trained on"
        )
    network.load_state_dict(weights, strict=False)


def load_star(
    model_path: str,
    folder: str | Path | None,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    compressor: str | None = None,
) -> tuple[Whisper, StarNetwork]:
    """Return Whisper and a network ready for inference, untrained where `folder` is None.

    compressor: the one that the network must have, None for any. Raises UserError where the folder
    has no such network or is not of this model.
    """
    if folder is None:
        torch.manual_seed(0)  # the same untrained network in every process
        config = StarConfig(compressor=compressor or "star")
    else:
        folder = Path(folder)
        config = read_config(folder)
        if compressor is not None and config.compressor != compressor:
            raise UserError(
                f"compressor={compressor}: {folder} was trained as compressor={config.compressor}; "
                "name a network of that compressor with method.weights=, or leave compressor out"
            )
    adapted = folder is not None and (Path(folder) / "adapter_config.json").is_file()
    whisper = load_whisper(
        model_path, device=device, dtype=dtype, adapter=folder if adapted else None
    )
    network = StarNetwork(whisper, config)
    if folder is not None:
        fill(network, Path(folder))
    return whisper, network.to(whisper.device, whisper.model.dtype).eval().requires_grad_(False)
