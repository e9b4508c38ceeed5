"""Builds the method of a folder: the class that its config.json names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.methods.native.base import Native
from streaming_asr.models.hub import on_this_machine
from streaming_asr.models.native import KINDS, check, kind_of


def native(
    *,
    weights: str | None,
    device: str,
    dtype: str,
    chunk_s: float,
    delay_s: float | None = None,
) -> Native:
    """Return the method of the model in the folder or repository `weights`.

    chunk_s: audio of a chunk, in seconds. delay_s: of Voxtral's text behind its audio; None for the
    model's own. Raises UserError for settings that the model does not take and for a folder that
    does not hold one.
    """
    if weights in (None, "none", "auto"):
        raise UserError(
            f"method.weights={weights}: method=native runs a model built for streaming; give model="
            f"{', '.join(KINDS)}, or such a folder with model.path=<folder>"
        )
    folder = Path(on_this_machine(str(weights))).expanduser()
    kind = kind_of(folder)
    chunk_ms = round(chunk_s * 1000)
    check(kind, folder, chunk_ms=chunk_ms, device=device, dtype=dtype)
    if delay_s is not None and kind.name != "voxtral_realtime":
        raise UserError(f"delay_s={delay_s}: only voxtral_realtime has it; leave it out")
    placed: dict[str, Any] = {"chunk_ms": chunk_ms, "device": device, "dtype": dtype}
    if kind.name == "nemotron":
        from streaming_asr.methods.native.nemotron import Nemotron

        return Nemotron(folder, kind, **placed)
    if kind.name == "voxtral_realtime":
        from streaming_asr.methods.native.voxtral import Voxtral

        return Voxtral(folder, kind, delay_s=delay_s, **placed)
    if kind.name == "kyutai_stt":
        from streaming_asr.methods.native.kyutai import Kyutai

        return Kyutai(folder, kind, **placed)
    if kind.name == "moonshine_streaming":
        from streaming_asr.methods.native.moonshine import Moonshine

        return Moonshine(folder, kind, **placed)
    from streaming_asr.methods.native.qwen3 import Qwen3

    return Qwen3(folder, kind, **placed)
