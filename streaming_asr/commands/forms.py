"""Writes a Whisper in the form that another program reads: `streaming-asr get NAME to= form=`."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.files import replacing
from streaming_asr.models.find import find

PLACES = {
    "hf": "{}",
    "ctranslate2": "{}-ctranslate2",
    "openai": "{}.pt",
    "ggml": "ggml-{}.bin",
}
"""The name of what each form becomes inside the folder `to`."""
GGML_MAGIC, GGML_FLOAT16 = 0x67676D6C, 1
GGML_SIZES = (
    *("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels"),
)
GGML_VOCABULARIES = (51864, 51865, 51866)


def place_of(name: str, to: str, form: str) -> Path:
    """Return where model `name` in `form` goes. Raises UserError for another form, and for a place
    that is taken."""
    check_one_of(PLACES, form=form)
    place = Path(to).expanduser() / PLACES[form].format(Path(name).name)
    if place.exists():
        raise UserError(f"{place}: is there already; remove it, or name another folder with to=")
    return place


def write_form(path: str, place: Path, form: str) -> None:
    """Write the Whisper in folder `path` to `place`. Raises UserError where it cannot be."""
    writers: dict[str, Callable[[str, Path], None]] = {
        "hf": lambda path, target: _whisper(path).save(target),
        "ctranslate2": _ctranslate2,
        "openai": _openai,
        "ggml": _ggml,
    }
    with replacing(place) as target:
        writers[form](path, target)


def _whisper(path: str, dtype: str = "float32") -> Any:
    from streaming_asr.whisper.load import load_whisper

    return load_whisper(path, dtype=dtype)


def _ctranslate2(path: str, target: Path) -> None:
    from streaming_asr.methods.ufal.convert import convert

    model = find(path)
    if model.is_ctranslate2:
        shutil.copytree(model.folder, target)
    else:
        convert(model, target)


def _openai(path: str, target: Path) -> None:
    """Write a .pt in float16, as OpenAI's are; whisper.cpp's converter reads no other type."""
    import torch

    from streaming_asr.whisper.openai import dimensions, openai_state

    whisper = _whisper(path, "float16")
    content = {"dims": dimensions(whisper.config), "model_state_dict": openai_state(whisper.model)}
    torch.save(content, target)


def _ggml(path: str, target: Path) -> None:
    """Write whisper.cpp's form: sizes, mel filters, tokens, tensors; matrices in float16.

    Little endian: numbers i32; a tensor is its rank, the length of its name, its type, its sides
    from the last to the first, its name and its values.
    """
    import torch

    from streaming_asr.whisper.features import mel_filters
    from streaming_asr.whisper.openai import dimensions, openai_state

    whisper = _whisper(path)
    sizes = dimensions(whisper.config)
    if sizes["n_vocab"] not in GGML_VOCABULARIES:
        choices = ", ".join(map(str, GGML_VOCABULARIES))
        raise UserError(
            f"form=ggml: whisper.cpp knows vocabularies of {choices} tokens, and this model has "
            f"{sizes['n_vocab']}; take another form"
        )
    with target.open("wb") as file:

        def write(*numbers: int) -> None:
            file.write(struct.pack(f"<{len(numbers)}i", *numbers))

        write(GGML_MAGIC, *(sizes[name] for name in GGML_SIZES), GGML_FLOAT16)
        filters = mel_filters(whisper.n_mels, torch.device("cpu"))
        write(*filters.shape)
        file.write(filters.numpy().astype("<f4").tobytes())
        write(whisper.eot)  # tokens of text; whisper.cpp adds the others by their number
        for token in range(whisper.eot):
            spelling = whisper.detokenizer.token_bytes(token)
            write(len(spelling))
            file.write(spelling)
        for name, value in openai_state(whisper.model).items():
            # A convolution's bias is added to (channels, frames).
            tensor = value[:, None] if name.endswith(("conv1.bias", "conv2.bias")) else value
            is_half = value.ndim > 1 and "positional_embedding" not in name
            encoded = name.encode()
            write(tensor.ndim, len(encoded), int(is_half), *reversed(tensor.shape))
            file.write(encoded)
            file.write(tensor.numpy().astype("<f2" if is_half else "<f4").tobytes())
