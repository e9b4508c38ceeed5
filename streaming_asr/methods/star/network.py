"""STAR's network on a Whisper: what it is made of, and its folder on disk.

A trained STAR is a folder with star.json (what it is), star.safetensors (segmenter and semantic
encoder), a LoRA adapter of Whisper's (adapter_config.json) and, where the features
are not Whisper's, their extractor in a folder of its name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.methods.star.compressors import (
    COMPRESSORS,
    Anchors,
    Compressor,
    Uncompressed,
)
from streaming_asr.methods.star.features import EXTRACTORS, WhisperFeatures
from streaming_asr.methods.star.semantic import POOLS, SemanticEncoder
from streaming_asr.models.tensors import load_tensors, save_half
from streaming_asr.whisper.load import Whisper, load_whisper

CONFIG_FILE, WEIGHTS_FILE = "star.json", "star.safetensors"
SELECT = ("accumulate", "top_k")
TRAIN = "`python -m streaming_asr.train method=star`"


@dataclass(frozen=True)
class StarConfig:
    """The settings of a network.

    compressor: star | none. layers: of the semantic encoder. pool: what an anchor comes in as,
    frame | mean (`semantic`). carry: the sum of scores after an anchor keeps its residual (code),
    or is set to 0 (algorithm 1), which loses anchors: 0.84 a token where training has one. rate:
    frames per vector it was trained for, where it was not one segment per token. select: see
    `Compressor`. features: whisper | one of `EXTRACTORS`.
    """

    compressor: str = "star"
    layers: int = 4
    pool: str = "frame"
    carry: bool = True
    rate: float | None = None
    select: str = "top_k"  # of networks without this setting
    features: str = "whisper"

    def __post_init__(self) -> None:
        check_one_of(COMPRESSORS, compressor=self.compressor)
        check_one_of(POOLS, pool=self.pool)
        check_one_of(SELECT, select=self.select)
        if self.features != "whisper" and self.features not in EXTRACTORS:
            raise UserError(
                f"features={self.features!r}: {', '.join(('whisper', *EXTRACTORS))}; in a checkout "
                "of the project `python -m experiments.star.wav2vec2 run` and `train` know wav2vec2"
            )
        check_range(0, layers=self.layers)
        check_range(1, rate=self.rate)


class StarNetwork(nn.Module):
    """Whisper, the compressor and an extractor with weights of its own as one module."""

    def __init__(self, whisper: Whisper, config: StarConfig, trained: Any = None) -> None:
        """Take the Whisper; trained: an extractor with weights of its own (`EXTRACTORS`)."""
        super().__init__()
        self.config = config
        sizes = whisper.config
        heads, hidden = sizes.encoder_attention_heads, sizes.encoder_ffn_dim
        # Algorithm 1 for a stream, equation 4 for audio compressed as a whole.
        mask = "compact" if config.rate is None else "history"
        encoder = SemanticEncoder(sizes.d_model, heads, hidden, config.layers, mask, config.pool)
        self.compressor = compressor(config.compressor, sizes.d_model, encoder, carry=config.carry)
        self.compressor.select = config.select
        self.trained = trained
        self.extractor: Any = trained or WhisperFeatures(whisper)

    def parts(self) -> dict[str, torch.Tensor]:
        """Return what star.safetensors holds."""
        result = dict(self.compressor.state_dict(prefix="compressor."))
        return result if self.trained is None else result | self.trained.parts()


def compressor(name: str, d: int, encoder: SemanticEncoder, *, carry: bool = False) -> Compressor:
    """Return the compressor of that name; `carry` is for star."""
    if name == "star":
        return Anchors(encoder, d, carry=carry)
    encoder.mask = "history"  # without anchors a compact mask would hide everything before
    return Uncompressed(encoder)


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
        if row.get("shift"):
            raise ValueError(f"shift={row['shift']}, which commit 916c7372 was the last to run")
        names = {f.name for f in fields(StarConfig)}
        return StarConfig(**{key: value for key, value in row.items() if key in names})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not readable ({error}); train the network again") from error


def save_network(network: StarNetwork, folder: Path) -> None:
    """Write star.json and star.safetensors (fp16), and the extractor where it has weights."""
    save_half(network.parts(), folder / WEIGHTS_FILE)
    text = json.dumps(asdict(network.config), indent=2, sort_keys=True)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    if network.trained is not None:
        network.trained.save(folder / network.config.features)


def fill(network: StarNetwork, folder: Path, *, partly: bool = False) -> None:
    """Put the weights of a folder into a network.

    partly: weights that the folder lacks stay as they are, for a compressor that begins on the
    model without compression. Raises UserError where names or shapes do not fit.
    """
    path = folder / WEIGHTS_FILE
    weights = load_tensors(path)
    parts = network.parts()
    unfit = [] if partly else [name for name in parts if name not in weights]
    unfit += [n for n, part in parts.items() if n in weights and weights[n].shape != part.shape]
    unfit += [name for name in weights if name not in parts]
    if unfit:
        raise UserError(
            f"{path}: {unfit[0]} does not fit this model and {CONFIG_FILE}; use the model it was "
            "trained on"
        )
    with torch.no_grad():
        for name, value in weights.items():
            parts[name].copy_(value)


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
    trained = None
    if config.features != "whisper" and folder is not None:
        trained = EXTRACTORS[config.features](str(Path(folder) / config.features), whisper)
    network = StarNetwork(whisper, config, trained)
    if folder is not None:
        fill(network, Path(folder))
    return whisper, network.to(whisper.device, whisper.model.dtype).eval().requires_grad_(False)
