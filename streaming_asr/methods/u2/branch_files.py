"""A trained CTC branch on disk.

A folder holds branch.safetensors (fp16: what was trained, of the copied layers their low-rank
changes), tokenizer.json (the pieces), branch.json (the shape, and behind which adapter it was
trained) and that WhisperRT adapter.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from torch import Tensor

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.methods.u2.branch import STRIDE, Branch
from streaming_asr.methods.u2.pieces import PieceTokenizer, load_pieces
from streaming_asr.models.find import find_here
from streaming_asr.models.tensors import load_tensors, save_half
from streaming_asr.whisper.adapters import WEIGHTS_FILE
from streaming_asr.whisper.load import Whisper

BRANCH_FILE, CARD_FILE = "branch.safetensors", "branch.json"
ADAPTER_FILES = ("adapter_config.json", WEIGHTS_FILE)
COPIED = "copy all files of the branch from where it was trained"
_INSIDE, _OUTSIDE = ".parametrizations.weight.0.", "."  # names in the network and in the file


@dataclass(frozen=True)
class BranchCard:
    """The content of branch.json."""

    layers: int
    """Of the encoder's last layers so many are copied."""
    rank: int
    """Of the low-rank changes; 0: the copies themselves are in the file."""
    stride: int
    width: int
    """Numbers in a frame of the model's."""
    classes: int
    """Pieces and the blank."""
    adapter: str
    """The sha256 of the adapter's weights that it was trained behind."""


def is_branch(folder: str | Path) -> bool:
    """Return whether a branch lies in `folder`, or a part of one."""
    return any((Path(folder) / name).is_file() for name in (BRANCH_FILE, CARD_FILE))


def sha256_of(adapter: Path) -> str:
    """Return the sha256 of the weights of a peft folder. Raises UserError where there are none."""
    for name in ADAPTER_FILES:
        if not (adapter / name).is_file():
            raise UserError(
                f"{adapter}: no {name} there; give the folder of a WhisperRT adapter, as `python "
                "-m streaming_asr.train method=whisperrt` leaves it"
            )
    return hashlib.sha256((adapter / WEIGHTS_FILE).read_bytes()).hexdigest()


def read_branch(folder: str | Path, model_path: str) -> BranchCard:
    """Return the content of branch.json, no weights loaded.

    Raises UserError where a file is missing, or does not fit the others or the model.
    """
    folder = Path(folder)
    card = _card(folder / CARD_FILE)
    n_pieces = load_pieces(folder).get_vocab_size()
    if n_pieces != card.classes - 1:
        raise UserError(
            f"{folder}: tokenizer.json has {n_pieces} pieces, the branch {card.classes} classes "
            f"with the blank; {COPIED}"
        )
    width = _width(model_path)
    if width not in (None, card.width):
        raise UserError(
            f"{folder}: a branch for frames of {card.width} numbers, but those of model "
            f"{model_path} have {width}; use the model that it was trained on"
        )
    actual = sha256_of(folder)
    if actual != card.adapter:
        raise UserError(
            f"{folder}: the adapter's weights have the sha256 {actual[:12]}..., and the branch was "
            f"trained behind those with {card.adapter[:12]}...; {COPIED}"
        )
    return card


def _card(path: Path) -> BranchCard:
    """Return the content of branch.json. Raises UserError where it is missing or malformed."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        card = BranchCard(**{field.name: row[field.name] for field in fields(BranchCard)})
    except OSError as error:
        raise UserError(
            f"{path}: no such file, and a branch has its shape there; {COPIED}"
        ) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"{path}: does not hold the shape of a branch ({error}); {COPIED}"
        ) from error
    numbers = (card.layers, card.rank, card.width, card.classes)
    are_integers = all(type(n) is int for n in numbers)  # `type`: True is no number of layers
    if not are_integers or min(numbers) < 0 or card.layers == 0 or card.stride != STRIDE:
        raise UserError(f"{path}: holds no shape that a branch can have; {COPIED}")
    return card


def _width(model_path: str) -> int | None:
    """Return the numbers in a frame of the model's, None where its files lack it."""
    model = find_here(model_path)
    try:
        row = json.loads((model.folder / "config.json").read_text("utf-8")) if model else {}
        return row.get("d_model")
    except (OSError, ValueError, AttributeError):
        return None  # the loader reports what is wrong


def save_branch(branch: Branch, tokenizer: PieceTokenizer, adapter: Path, folder: Path) -> None:
    """Write the folder of a branch that was trained behind `adapter`, which is copied."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = {name: p for name, p in branch.named_parameters() if p.requires_grad}
    tensors = {name.replace(_INSIDE, _OUTSIDE): value for name, value in trained.items()}
    save_half(tensors, folder / BRANCH_FILE)
    tokenizer.save(folder)
    width = branch.pair.out_features
    card = BranchCard(
        len(branch.layers), branch.rank, STRIDE, width, branch.n_classes, sha256_of(adapter)
    )
    write_text(folder / CARD_FILE, json.dumps(asdict(card), indent=2) + "\n")
    for name in ADAPTER_FILES:
        shutil.copyfile(adapter / name, folder / name)


def load_branch(folder: str | Path, card: BranchCard, whisper: Whisper) -> Branch:
    """Return the branch in `folder` on the layers of `whisper`, which has its adapter, trainable.

    card: of `read_branch`. Raises UserError where the file does not match it.
    """
    path = Path(folder) / BRANCH_FILE
    if not path.is_file():
        raise UserError(f"{path}: no such file, and a branch has its weights there; {COPIED}")
    tensors = load_tensors(path)
    if card.layers > whisper.config.encoder_layers:
        raise UserError(
            f"{folder}: a branch of {card.layers} encoder layers, but this model has "
            f"{whisper.config.encoder_layers}; use the model that it was trained on"
        )
    branch = Branch(whisper, card.layers, card.rank, card.classes)
    parameters = {name: p for name, p in branch.named_parameters() if p.requires_grad}
    state: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        name_in_file = name.replace(_INSIDE, _OUTSIDE)
        tensor = tensors.pop(name_in_file, None)
        if tensor is None or tensor.shape != parameter.shape:
            shape = "none" if tensor is None else tuple(tensor.shape)
            raise UserError(
                f"{path}: {name_in_file} has the shape {shape}, and branch.json asks for "
                f"{tuple(parameter.shape)}; {COPIED}"
            )
        state[name] = tensor.float()
    if tensors:
        raise UserError(
            f"{path}: also holds {min(tensors)}, which branch.json does not name; {COPIED}"
        )
    branch.load_state_dict(state, strict=False)
    return branch
