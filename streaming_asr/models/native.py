"""Models built for streaming: which classes `method=native` runs, and the chunks that they take.

A model is a folder in Hugging Face's form; `config.json` names its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.chunking import format_duration
from streaming_asr.errors import UserError
from streaming_asr.files import json_of


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model: its option of conf/model, its repository, its classes by `model_type`.

    step_ms: chunks are multiples of it. classes: those of transformers. parameters: of the model in
    the repository. rate: of its audio, in Hz. note: what the row of a result must state.
    """

    name: str
    repository: str
    classes: Mapping[str, str]
    step_ms: int
    parameters: float
    rate: int = 16_000
    note: str | None = None


_LIST = (
    Kind(
        "nemotron",
        "nvidia/nemotron-speech-streaming-en-0.6b",
        {
            "nemotron_asr_streaming": "NemotronAsrStreamingForRNNT",
            "nemotron3_5_asr": "Nemotron3_5AsrForRNNT",
        },
        80,
        616.96e6,
    ),
    Kind(
        "voxtral_realtime",
        "mistralai/Voxtral-Mini-4B-Realtime-2602",
        {"voxtral_realtime": "VoxtralRealtimeForConditionalGeneration"},
        80,
        4429.68e6,
    ),
    Kind(
        "kyutai_stt",
        "kyutai/stt-2.6b-en-trfs",
        {"kyutai_speech_to_text": "KyutaiSpeechToTextForConditionalGeneration"},
        80,
        2696.44e6,
        rate=24_000,
    ),
    Kind(
        "moonshine_streaming",
        "UsefulSensors/moonshine-streaming-tiny",
        {"moonshine_streaming": "MoonshineStreamingForConditionalGeneration"},
        20,
        33.57e6,
    ),
    Kind(
        "qwen3_asr",
        "Qwen/Qwen3-ASR-1.7B-hf",
        {"qwen3_asr": "Qwen3ASRForConditionalGeneration"},
        20,
        2039.63e6,
        note="qwen3_asr cannot stream: it decodes all audio again at every chunk",
    ),
)
KINDS = {kind.name: kind for kind in _LIST}
LOOKAHEADS = (0, 1, 6, 13)
"""Look-aheads in frames of 80 ms of the published Nemotron models, where a folder states none."""


def type_of(folder: Path) -> str | None:
    """Return the `model_type` that a folder's config.json states; None without one."""
    stated = json_of(folder / "config.json").get("model_type")
    return stated if isinstance(stated, str) else None


def of_type(stated: str | None) -> Kind | None:
    """Return the kind that has the `model_type` `stated`; None where method=native has none."""
    return next((kind for kind in _LIST if stated in kind.classes), None)


def kind_of(folder: Path) -> Kind:
    """Return the kind of the model in a folder. Raises UserError where no class here runs it."""
    stated = type_of(folder)
    kind = of_type(stated)
    if kind is not None:
        return kind
    if not folder.is_dir():
        raise UserError(f"model.path={folder}: there is no such folder")
    what = f"holds a model of type {stated}" if stated else "has no config.json with a model_type"
    raise UserError(
        f"model.path={folder}: {what}; method=native runs model={', '.join(KINDS)}, and the other "
        "methods run Whisper"
    )


def check(kind: Kind, folder: Path | None, *, chunk_ms: int, device: str, dtype: str) -> None:
    """Raise UserError for a chunk or dtype that a model of this kind does not support.

    folder: of the model; None where it is not downloaded yet.
    """
    dtypes = ("float32", "bfloat16") if device == "cpu" else ("float32", "bfloat16", "float16")
    if dtype == "int8" or (dtype == "float16" and device == "cpu"):
        raise UserError(
            f"dtype={dtype}: {kind.name} on device={device} takes {' or '.join(dtypes)}; leave "
            "dtype out"
        )
    if kind.name == "nemotron":
        allowed = [80 * (frames + 1) for frames in lookaheads(folder)]
        if chunk_ms not in allowed:
            raise UserError(
                f"chunk={format_duration(chunk_ms)}: {kind.name} was trained with chunks of "
                f"{', '.join(map(format_duration, allowed))}; give one of these"
            )
    elif chunk_ms % kind.step_ms:
        shorter_ms = max(1, chunk_ms // kind.step_ms) * kind.step_ms
        shorter, longer = format_duration(shorter_ms), format_duration(shorter_ms + kind.step_ms)
        raise UserError(
            f"chunk={format_duration(chunk_ms)}: {kind.name} takes multiples of {kind.step_ms} ms; "
            f"give chunk={shorter} or chunk={longer}"
        )


def lookaheads(folder: Path | None) -> list[int]:
    """Return the look-aheads, in frames of 80 ms, that a Nemotron's folder states, in order; those
    of the published models without one."""
    stated: Any = None
    for file in ("processor_config.json", "preprocessor_config.json"):
        if folder is not None and stated is None:
            stated = json_of(folder / file).get("supported_num_lookahead_tokens")
    return sorted(stated if isinstance(stated, list) and stated else LOOKAHEADS)
