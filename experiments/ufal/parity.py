"""ufal/whisper_streaming and this project's `compat` mode, for `experiments.parity`.

The reference's classes run on faster-whisper's own WhisperModel: only its loading is ours, since
theirs asks for a GPU. Both sides search at temperature 0.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import parity
from streaming_asr.config.build import new_method
from streaming_asr.models.find import find
from streaming_asr.utterance import Utterance

CODE = "ufal/whisper_streaming"
PACKAGES = ("faster-whisper", "ctranslate2")
SETTINGS = {"chunk_s": 1.0, "trim_s": 15.0, "temperatures": [0.0]}

Words = list[list[Any]]
"""[text, start, end] of each."""


def their_words(module: Any, asr: Any, audio: np.ndarray) -> list[Words]:
    """What the reference commits at every chunk, at the last one with what the end gives out."""
    online = module.OnlineASRProcessor(asr, buffer_trimming=("segment", SETTINGS["trim_s"]))
    steps: list[Words] = []
    for piece, _ in parity.pieces(audio, 1.0):
        n_before = len(online.commited)
        online.insert_audio_chunk(piece)
        online.process_iter()
        steps.append([[text, float(a), float(b)] for a, b, text in online.commited[n_before:]])
    buffered = online.transcript_buffer.complete()
    steps[-1] += [[text, float(a), float(b)] for a, b, text in buffered]
    return steps


def our_method() -> Any:
    return new_method(
        "ufal", parity.MODEL, chunk_s=1.0, first_chunk_s=1.0, temperatures=[0.0], compat=True
    )


def our_words(method: Any, audio: np.ndarray) -> list[Words]:
    """Committed words per step, the last step's with what the end gives out."""
    state = method.start(language="en")
    steps = []
    for piece, last in parity.pieces(audio, 1.0):
        update = method.step(state, piece, last=last)
        steps.append([[word.text, word.start, word.end] for word in update.committed])
    return steps


def text_row(steps: Sequence[Words]) -> dict[str, Any]:
    """Of the words that each chunk committed: how many, and two hashes."""
    words = parity.summary([[text for text, _, _ in step] for step in steps])
    times = parity.digest(f"{a:.2f} {b:.2f}" for step in steps for _, a, b in step)
    return words | {"times": times}


def rows(checkout: Path, clips: Sequence[Utterance]) -> Iterator[dict[str, Any]]:
    """A row for each clip."""
    from faster_whisper import WhisperModel

    sys.modules.setdefault("librosa", types.ModuleType("librosa"))  # of parts that are not run
    sys.path.insert(0, str(checkout))
    module = importlib.import_module("whisper_online")
    asr = object.__new__(module.FasterWhisperASR)
    asr.logfile, asr.original_language = sys.stderr, "en"
    folder = str(find(parity.MODEL).folder)
    asr.model = WhisperModel(folder, device="cpu", compute_type="float32")
    asr.transcribe_kargs = {"temperature": [0.0]}
    method = our_method()
    for clip in clips:
        theirs, ours = their_words(module, asr, clip.load()), our_words(method, clip.load())
        if theirs != ours:
            print(f"  theirs {theirs}\n  ours   {ours}")
        yield parity.compared(clip, text_row(theirs), text_row(ours))
