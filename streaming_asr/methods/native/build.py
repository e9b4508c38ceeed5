"""Builds the method of a folder: the class that its config.json names."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.methods.native.base import Native, Placed
from streaming_asr.models.hub import on_this_machine
from streaming_asr.models.native import KINDS, check, kind_of

# Whole names, so that a cell's code hash covers the modules.
CLASSES = {
    "kyutai_stt": "streaming_asr.methods.native.kyutai.Kyutai",
    "moonshine_streaming": "streaming_asr.methods.native.moonshine.Moonshine",
    "nemotron": "streaming_asr.methods.native.nemotron.Nemotron",
    "qwen3_asr": "streaming_asr.methods.native.qwen3.Qwen3",
    "voxtral_realtime": "streaming_asr.methods.native.voxtral.Voxtral",
}


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
    module, _, class_name = CLASSES[kind.name].rpartition(".")
    method_class = getattr(import_module(module), class_name)
    options = {"delay_s": delay_s} if kind.name == "voxtral_realtime" else {}
    method: Native = method_class(folder, kind, Placed(chunk_ms, device, dtype), **options)
    return method
