"""Reads the tensors of a CTranslate2 Whisper folder under Hugging Face's names, without torch.

model.bin, versions 5 and 6 (little endian): u32 version, the spec's name, u32 revision; u32 number
of variables, each a name, u8 rank, u32 dimensions, u8 type, u32 bytes, the bytes; u32 number of
aliases, each two names. A name is u16 length, its characters and a zero byte. See ctranslate2's
specs/model_spec.py (`_serialize`, `_quantize`) and converters/transformers.py (`WhisperLoader`).
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streaming_asr.errors import UserError

TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")
VERSIONS = (5, 6)
NAMES = {
    "position_encodings": "embed_positions",
    "layer_norm": "layer_norm",
    "conv1": "conv1",
    "conv2": "conv2",
    "self_attention/layer_norm": "self_attn_layer_norm",
    "self_attention/linear_0": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_1": "encoder_attn.k_proj encoder_attn.v_proj",
    "attention/linear_2": "encoder_attn.out_proj",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
"""CTranslate2's modules of a side, and of its layers, and Hugging Face's; a fused linear layer is
several of these, one after the other."""
LEAVES = {"gamma": "weight", "beta": "bias", "encodings": "weight"}


class _Damaged(ValueError):
    """The parts of a file contradict one another; the message names them."""


def spec_of(folder: Path) -> str | None:
    """Return the kind of model in a CTranslate2 folder, as `WhisperSpec`; None for others."""
    try:
        with (folder / "model.bin").open("rb") as stream:
            version, length = struct.unpack("<IH", stream.read(6))
            name = stream.read(length)
    except (OSError, struct.error):
        return None
    if not 1 <= version <= 99 or not name.endswith(b"Spec\0"):
        return None
    return name[:-1].decode("ascii", "replace")


class Variables(dict[str, np.ndarray]):
    """The variables of a model.bin by their own names, mapped into memory.

    Aliases are resolved; bfloat16 comes as float32. Raises UserError on a file that is truncated or
    of another form, and for a variable that it lacks.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            with file.open("rb") as stream:
                self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._position = 0  # in bytes
            self._read()
        except (struct.error, ValueError, IndexError) as error:
            raise UserError(
                f"{file}: truncated or damaged ({error}); delete it, then copy or download it again"
            ) from error

    def _read(self) -> None:
        """Read the whole file, in the order of the module's description.

        Raises struct.error, ValueError or IndexError where it is damaged."""
        version, name, revision = self._take("I"), self._name(), self._take("I")
        if name != "WhisperSpec" or version not in VERSIONS:
            raise _Damaged(f"{name} of version {version}, revision {revision}, not a WhisperSpec")
        self.types: set[str] = set()
        for _ in range(self._take("I")):
            key, rank = self._name(), self._take("B")
            shape = tuple(self._take("I") for _ in range(rank))
            kind, n_bytes = TYPES[self._take("B")], self._take("I")
            self[key] = self._values(key, shape, kind, n_bytes)
        for _ in range(self._take("I")):
            alias, key = self._name(), self._name()
            if key not in self:
                raise _Damaged(f"{alias} is another name of {key}, which is not there")
            self[alias] = self[key]

    def _take(self, form: str) -> int:
        """Read the next number; form: its letter in `struct`, as B, H or I."""
        (value,) = struct.unpack_from("<" + form, self._data, self._position)
        self._position += struct.calcsize(form)
        return int(value)

    def _name(self) -> str:
        """Read the next name, whose length counts the zero byte after it."""
        start = self._position + 2
        self._position = start + self._take("H")
        if self._position > len(self._data):
            raise _Damaged("ends within a name")
        return self._data[start : self._position - 1].decode()

    def _values(self, key: str, shape: tuple[int, ...], kind: str, n_bytes: int) -> np.ndarray:
        """Read the next `n_bytes` as an array of a type in TYPES."""
        stored = np.dtype("<u2" if kind == "bfloat16" else kind)
        count = int(np.prod(shape, dtype=np.int64))
        if n_bytes != count * stored.itemsize:
            raise _Damaged(f"{key} of shape {shape} has {n_bytes} bytes")
        # A view of the mapped file: nothing is read before it is used.
        values = np.frombuffer(self._data, stored, count, self._position).reshape(shape)
        self._position += n_bytes
        if shape:  # a single number is a setting, no weight
            self.types.add(kind)
        if kind == "bfloat16":
            # bfloat16 is the upper half of a float32.
            values = (values.astype("<u4") << 16).view("<f4")
        return values

    def __missing__(self, key: str) -> np.ndarray:
        raise UserError(f"{self._file}: no variable {key}; it is not a whole Whisper")

    def weight(self, key: str) -> np.ndarray:
        """Return a floating-point tensor; integers are divided by their scales."""
        values = self[key]
        if values.dtype.kind == "f":
            return values
        scale = self[f"{key}_scale"].astype(np.float32)
        if scale.size not in (1, len(values)) or not np.all(np.isfinite(scale) & (scale > 0)):
            raise UserError(
                f"{self._file}: {key} of shape {values.shape} has {scale.size} scales, which must "
                "be one or one a row, and positive; convert the model again"
            )
        return values.astype(np.float32) / scale.reshape(-1, *[1] * (values.ndim - 1))


def tensors(v: Variables, *, scaled: bool = True) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, values) of every tensor of the model under Hugging Face's names; the embeddings,
    which are the output layer too, once.

    scaled: integers are divided by their scales, which reads them; else only shapes count. Raises
    UserError where layers that are fused in one have not its shape.
    """
    value_of = v.weight if scaled else v.__getitem__
    for key in v:
        match = re.fullmatch(r"(encoder|decoder)/(?:layer_(\d+)/)?(.+)/(\w+)", key)
        if match is None or match[3] not in NAMES or match[4].endswith("_scale"):
            continue
        side, layer, module, leaf = match.groups()
        names, values = NAMES[module].split(), value_of(key)
        if len(values) % len(names):
            raise UserError(
                f"{key}: the shape {values.shape} is not that of {len(names)} linear layers; "
                "convert the model again"
            )
        place = f"model.{side}.layers.{layer}" if layer else f"model.{side}"
        for name, part in zip(names, np.split(values, len(names)), strict=True):
            # Whisper's keys have no bias; the fused layer has zeros there.
            if not (leaf == "bias" and name.endswith("k_proj")):
                yield f"{place}.{name}.{LEAVES.get(leaf, leaf)}", part
    yield "model.decoder.embed_tokens.weight", value_of(embeddings(v))


def embeddings(v: Variables) -> str:
    """Return the key of the token embeddings, (vocabulary, width); older converters number it."""
    plain = "decoder/embeddings/weight"
    return plain if plain in v else f"{plain}_0"
