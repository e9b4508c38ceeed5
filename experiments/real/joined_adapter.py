"""One LoRA adapter of two: the encoder of the first, the decoder of the second; or their mean.

    python -m experiments.real.joined_adapter --encoder FOLDER --decoder FOLDER --rank 16
        --out FOLDER
    python -m experiments.real.joined_adapter --mean FOLDER FOLDER --out FOLDER

With --encoder and --decoder a training of the decoder begins with what an earlier one learned,
behind a new encoder. Matrices of a higher rank are cut to the best approximation of their product
(by its singular values), those of a lower one are filled up with zeros. Where the second adapter
has no matrices, as in feed-forward layers that it did not train, it has the first one's.

The mean is of the matrices A and of the matrices B, so it fits trainings that began with the same
adapter and stayed near it (model soups, arXiv 2203.05482); it is not the mean of their products.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from streaming_asr.errors import UserError, check_range
from streaming_asr.models.tensors import save_half, weights_at
from streaming_asr.terminal import exit_status
from streaming_asr.whisper.adapters import WEIGHTS_FILE

CONFIG_FILE = "adapter_config.json"
Pair = tuple[Tensor, Tensor]


def of_rank(pair: Pair, rank: int) -> Pair:
    """A (r, in) and B (out, r), whose product B A is the change of a layer, at another rank."""
    a, b = (each.float() for each in pair)
    if len(a) <= rank:
        room = rank - len(a)
        pad = torch.nn.functional.pad
        return pad(a, (0, 0, 0, room)), pad(b, (0, room))
    u, s, v = torch.linalg.svd(b @ a, full_matrices=False)
    root = s[:rank].sqrt()
    return root[:, None] * v[:rank], u[:, :rank] * root


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The weights of an adapter by name. Raises UserError where there is none, and for one that
    scales its change."""
    weights = weights_at(folder, WEIGHTS_FILE, "an adapter", "give a folder that train wrote")
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    if config["lora_alpha"] != config["r"]:
        raise UserError(f"{folder}: lora_alpha is not r; this joins only adapters of scale 1")
    return weights


def mean(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each matrix, by name. Raises UserError where the shapes differ."""
    adapters = [weights_of(folder) for folder in folders]
    shapes = [{name: tuple(each.shape) for name, each in one.items()} for one in adapters]
    for folder, each in zip(folders, shapes, strict=True):
        if each != shapes[0]:
            raise UserError(
                f"{folder}: has not the layers and the rank of {folders[0]}; a mean is of adapters "
                "that went on from the same one"
            )
    return {
        name: torch.stack([one[name].float() for one in adapters]).mean(0) for name in adapters[0]
    }


def joined(encoder: Path, decoder: Path, rank: int) -> dict[str, Tensor]:
    """The weights of both at `rank`, by name. Raises UserError as `weights_of` does."""
    check_range(1, rank=rank)
    tensors: dict[str, Tensor] = {}
    for folder in (encoder, decoder):
        weights = weights_of(folder)
        for name, a in weights.items():
            if "lora_A" not in name or (folder == decoder and ".model.encoder." in name):
                continue
            other = name.replace("lora_A", "lora_B")
            tensors[name], tensors[other] = of_rank((a, weights[other]), rank)
    return tensors


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--encoder", type=Path, help="folder of an adapter")
    parser.add_argument("--decoder", type=Path, help="folder of an adapter")
    parser.add_argument("--rank", type=int, help="of what --encoder and --decoder give")
    parser.add_argument("--mean", type=Path, nargs="+", help="folders of adapters")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    if options.mean:
        first, weights = options.mean[0], mean(options.mean)
    elif options.encoder and options.decoder and options.rank:
        first = options.encoder
        weights = joined(options.encoder, options.decoder, options.rank)
    else:
        raise UserError("give --encoder, --decoder and --rank, or --mean")
    config = json.loads((first / CONFIG_FILE).read_text(encoding="utf-8"))
    rank = config["r"] if options.mean else options.rank
    config |= {"r": rank, "lora_alpha": rank}
    options.out.mkdir(parents=True, exist_ok=True)
    save_half(weights, options.out / WEIGHTS_FILE)
    text = json.dumps(config, indent=2) + "\n"
    (options.out / CONFIG_FILE).write_text(text, encoding="utf-8")
    print(f"written: {options.out}, {len(weights) // 2} layers at rank {rank}")


if __name__ == "__main__":
    sys.exit(exit_status(program))
