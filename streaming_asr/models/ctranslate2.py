"""Reads the tensors of a CTranslate2 Whisper folder under Hugging Face's names, without torch.

model.bin, versions 5 and 6 (little endian): u32 version, the spec's name, u32 revision; u32 number
of variables, each a name, u8 rank, u32 dimensions, u8 type, u32 bytes, the bytes; u32 number of
aliases, each two names. A name is u16 length, its characters and a zero byte. See ctranslate2's
specs/model_spec.py (`_serialize`, `_quantize`) and converters/transformers.py (`WhisperLoader`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streaming_asr.errors import UserError

TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")
VERSIONS = (5, 6)

# CTranslate2's names below a layer of the encoder or the decoder, and Hugging Face's. Fused
# projections are cut into parts.
NORMS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
}
LINEARS = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
DECODER_NORMS = {"attention/layer_norm": "encoder_attn_layer_norm"}
DECODER_LINEARS = {
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
}


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
                f"{file}: truncated or damaged ({error}); copy or download it again"
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

    def layers(self, side: str) -> int:
        """Return the number of layers of `encoder` or `decoder`."""
        parts = (key.split("/")[1] for key in self if key.startswith(f"{side}/layer_"))
        return 1 + max((int(part[6:]) for part in parts if part[6:].isdigit()), default=-1)


def tensors(v: Variables) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, values) of every tensor of the model under Hugging Face's names; the embeddings,
    which are the output layer too, once. Raises UserError where one is missing or of a wrong shape.
    """
    for side in ("encoder", "decoder"):
        ours = f"model.{side}"
        yield f"{ours}.embed_positions.weight", v.weight(f"{side}/position_encodings/encodings")
        yield from _norm(v, f"{side}/layer_norm", f"{ours}.layer_norm")
        is_decoder = side == "decoder"
        norms = NORMS | DECODER_NORMS if is_decoder else NORMS
        linears = LINEARS | DECODER_LINEARS if is_decoder else LINEARS
        for i in range(v.layers(side)):
            for norm, name in norms.items():
                yield from _norm(v, f"{side}/layer_{i}/{norm}", f"{ours}.layers.{i}.{name}")
            for linear, names in linears.items():
                parts = [f"{ours}.layers.{i}.{name}" for name in names]
                yield from _linear(v, f"{side}/layer_{i}/{linear}", parts)
    for conv in ("conv1", "conv2"):
        yield f"model.encoder.{conv}.weight", v.weight(f"encoder/{conv}/weight")
        yield f"model.encoder.{conv}.bias", v.weight(f"encoder/{conv}/bias")
    yield "model.decoder.embed_tokens.weight", v.weight(embeddings(v))


def embeddings(v: Variables) -> str:
    """Return the key of the token embeddings, (vocabulary, width); older converters number it."""
    plain = "decoder/embeddings/weight"
    return plain if plain in v else f"{plain}_0"


def _norm(v: Variables, theirs: str, ours: str) -> Iterator[tuple[str, np.ndarray]]:
    yield f"{ours}.weight", v.weight(f"{theirs}/gamma")
    yield f"{ours}.bias", v.weight(f"{theirs}/beta")


def _linear(v: Variables, theirs: str, ours: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield weight and bias of the linear layers `ours`, which are fused, one after the other, in
    `theirs`. Raises UserError where the shapes do not fit."""
    weight, bias = v.weight(f"{theirs}/weight"), v.weight(f"{theirs}/bias")
    if weight.ndim != 2 or len(weight) % len(ours) or bias.shape != weight.shape[:1]:
        raise UserError(
            f"{theirs}: weight {weight.shape} and bias {bias.shape} are not those of "
            f"{len(ours)} linear layers; convert the model again"
        )
    weights, biases = np.split(weight, len(ours)), np.split(bias, len(ours))
    for name, part_weight, part_bias in zip(ours, weights, biases, strict=True):
        yield f"{name}.weight", part_weight
        if not name.endswith("k_proj"):  # Whisper's have no bias; the fused layer has zeros there
            yield f"{name}.bias", part_bias
