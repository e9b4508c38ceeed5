"""Builds the method of a folder: the class that its config.json names."""

from __future__ import annotations

from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.methods.native.base import Native
from streaming_asr.models.hub import on_this_machine
from streaming_asr.models.native import KINDS, check, kind_of


def native(*, weights: str | None, name: str, device: str, dtype: str, chunk_s: float) -> Native:
    """Return the method of the model in the folder or repository `weights`.

    name: what the settings call the model. chunk_s: audio of a pass, in seconds. Raises UserError
    for settings that the model does not take and for a folder that does not hold one.
    """
    if weights in (None, "none", "auto"):
        raise UserError(
            f"model={name}: method=native runs a model built for streaming; give model="
            f"{', '.join(KINDS)}, or such a folder with model.path=<folder>"
        )
    folder = Path(on_this_machine(str(weights))).expanduser()
    kind = kind_of(folder)
    chunk_ms = round(chunk_s * 1000)
    check(name, kind, folder, chunk_ms=chunk_ms, device=device, dtype=dtype)
    if kind.name == "nemotron":
        from streaming_asr.methods.native.nemotron import Nemotron

        return Nemotron(folder, kind, chunk_ms=chunk_ms, device=device, dtype=dtype)
    raise AssertionError(kind)
