"""ufal/SimulStreaming's AlignAtt and ours, greedily, for `experiments.parity`.

It is backspacetg/simul_whisper, which goes on there; the older code takes tiny.en's tokenizer for a
multilingual one. Their code runs unmodified. Both sides drop no last word and wait within 4 frames
of the audio's end, at the stream's end too (`last_frame_threshold=4`, the reference's; our default
is 0). Commit 00f21ede has a program that corrects four of its faults, of which none changes a clip.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments import parity
from streaming_asr.config.build import new_method
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.openai import dimensions, openai_state

CODE = "ufal/SimulStreaming"
PACKAGES = ("torch", "tiktoken")
CHUNK_S, THRESHOLD = 1.0, 4
SETTINGS = {"chunk_s": CHUNK_S, "threshold": THRESHOLD}


def reference(checkout: Path, whisper: Whisper) -> Any:
    """Their decoder on our weights."""
    sys.path.insert(0, str(checkout))
    from simulstreaming.whisper.simul_whisper import (  # type: ignore[import-not-found]
        config,
        simul_whisper,
    )
    from simulstreaming.whisper.simul_whisper import whisper as theirs

    model = theirs.model.Whisper(theirs.model.ModelDimensions(**dimensions(whisper.config)))
    model.load_state_dict(openai_state(whisper.model))
    model.set_alignment_heads(theirs._ALIGNMENT_HEADS["tiny.en"])
    simul_whisper.load_model = lambda **asked: model.eval()  # theirs can only download by name
    settings = config.AlignAttConfig(
        model_path="tiny.en.pt",
        language="en",
        segment_length=CHUNK_S,
        frame_threshold=THRESHOLD,
        audio_min_len=0.0,
        decoder_type="greedy",
        beam_size=1,
        logdir=None,
    )
    return simul_whisper.PaddedAlignAttWhisper(settings)


def their_tokens(model: Any, audio: np.ndarray) -> list[list[int]]:
    """The tokens that each chunk adds."""
    model.refresh_segment(complete=True)
    steps = []
    for piece, last in parity.pieces(audio, CHUNK_S):
        model.insert_audio(torch.from_numpy(piece))
        steps.append(model.infer(is_last=last)[0])
    return steps


def our_method() -> Any:
    return new_method(
        "simul_whisper",
        parity.MODEL,
        chunk_s=CHUNK_S,
        first_chunk_s=CHUNK_S,
        truncation="never",
        frame_threshold=THRESHOLD,
        last_frame_threshold=THRESHOLD,
    )


def our_tokens(method: Any, audio: np.ndarray) -> list[list[int]]:
    """The tokens that each chunk adds, of audio that fits the window."""
    state = method.start(language="en")
    steps: list[list[int]] = []
    for piece, last in parity.pieces(audio, CHUNK_S):
        n_before = len(state.tokens)
        method.step(state, piece, last=last)
        steps.append(state.tokens[n_before:])
    return steps


def rows(checkout: Path, clips: Sequence[Utterance]) -> Iterator[dict[str, Any]]:
    """A row for each clip."""
    model = reference(checkout, load_whisper(parity.MODEL))
    method = our_method()
    for clip in clips:
        theirs, ours = their_tokens(model, clip.load()), our_tokens(method, clip.load())
        if theirs != ours:
            print(f"  theirs {theirs}\n  ours   {ours}")
        yield parity.compared(clip, parity.summary(theirs), parity.summary(ours))
