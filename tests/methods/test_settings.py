"""Settings of methods that are out of range are refused: one table for all methods."""

from __future__ import annotations

from typing import Any

import pytest
from chunkformer_tiny import tiny_folder as chunkformer_folder
from tiny import tiny_folder

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError

ZEROS = {"padding": "zeros"}
HEAD = {"head": "embedding"}
LONG = {"mode": "longform", "total_duration_s": 5.0}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chunkformer", {"mode": "batch"}, "mode='batch': one of stream, longform"),
    ("chunkformer", {"chunk_frames": 0}, "chunk_frames=0: 1 or more"),
    ("chunkformer", {"left_frames": -1}, "left_frames=-1"),
    ("chunkformer", LONG, "less than one chunk of 64 frames, 5.12 s"),
    ("chunkformer", {"weights": None}, "streaming_asr.train method=chunkformer"),
    ("hush_word", {}, "a hush word is trained"),
    ("hush_word", {"padding": "silence"}, "one of full, none, zeros, noise, hush"),
    ("hush_word", {"padding": "full", "padding_s": 1.0}, "leave padding_s out"),
    ("hush_word", ZEROS | {"padding_s": 0.0}, "more than 0"),
    ("hush_word", ZEROS | {"padding_s": 2.5}, "more than half of the context"),
    ("hush_word", ZEROS | {"beam": -1}, "beam=-1: 0 or more"),
    ("hush_word", ZEROS | {"n": 0}, "n=0: 1 or more"),
    ("hush_word", ZEROS | {"trim_s": 0.0}, "more than 0"),
    ("hush_word", ZEROS | {"chunk_s": 0.01}, "multiple of 0.02 s"),
    ("hush_word", ZEROS | {"pipeline": "2"}, "with a colon"),
    ("hush_word", ZEROS | {"pipeline": "0:1"}, "with a colon"),
    ("hush_word", ZEROS | {"encoder_device": "cpu"}, "only in the pipeline"),
    ("hush_word", {"weights": "/nowhere"}, "train method=hush_word"),
    ("offline", {"beam": -1}, "beam=-1"),
    ("reencode", {"first_chunk_s": 0.05}, "first_chunk_s=0.05"),
    ("simul_whisper", {"truncation": "sometimes"}, "'sometimes': one of cif, never, always"),
    ("simul_whisper", {"frame_threshold": -1}, "frame_threshold=-1"),
    (
        "simul_whisper",
        {"truncation_threshold": 0.2},
        "truncation_threshold=0.2: only truncation=cif uses it",
    ),
    ("simul_whisper", {"beam": -2}, "beam=-2"),
    ("simul_whisper", {"chunk_s": 0.01}, "chunk_s=0.01: must be a positive multiple of 0.02 s"),
    ("simul_whisper", {"first_chunk_s": 0.0}, "first_chunk_s=0"),
    ("star", {"wait_k": 0}, "wait_k=0: 1 or more"),
    ("star", {"rate": 0.0}, "rate=0.0: 1 or more"),
    ("star", {"rate": 12.0, "stride_s": 0.2}, "leave out stride_s"),
    ("star", {"stride_s": 0.03}, "multiple of 0.02"),
    ("star", {"compressor": "lstm"}, "star, cif, cnn, none"),
    ("star", {"compressor": "cnn"}, "needs its rate"),
    ("u2", {"head": "trained"}, "python -m streaming_asr.train method=u2"),
    ("u2", {"head": "new"}, "one of trained, embedding"),
    ("u2", HEAD | {"word_times": "none"}, "one of alignment, ctc"),
    ("u2", HEAD | {"beam": 4, "rescore": 6}, "rescore=6: 0 or more, 4 at most"),
    ("u2", HEAD | {"rescore": 11}, "rescore=11: 0 or more, 10 at most"),
    ("u2", HEAD | {"beam": 0}, "beam=0: 1 or more"),
    ("u2", HEAD | {"ctc_tokens": 255}, "give 256 or more"),
    ("u2", HEAD | {"ctc_tokens": 10**6}, "at most"),
    ("u2", HEAD | {"chunk_s": 0.01}, "chunk_s=0.01: must be a positive multiple of 0.02 s"),
    ("u2", HEAD | {"max_delay_s": 3.9}, "do not fit into this model's context of 4 s"),
    ("u2", HEAD | {"blank_threshold": 0.0}, "blank_threshold=0.0: more than 0, 1 at most"),
    ("ufal", {"backend": "jax"}, "backend='jax'"),
    ("ufal", {"chunk_s": 0.01}, "multiple of 0.02"),
    ("ufal", {"beam": -1}, "beam=-1"),
    ("ufal", {"temperatures": []}, "temperatures"),
    ("ufal", {"trim_s": 0.0}, "trim_s=0.0"),
    ("ufal", {"n": 0}, "n=0"),
    ("ufal", {"n": 3, "compat": True}, "n=3 with compat"),
    ("ufal", {"compute_type": "int3"}, "int3"),
    ("whisperrt", {"commit": "never"}, "commit='never': one of"),
    ("whisperrt", {"n": -1}, "n=-1: 0 or more"),
    ("whisperrt", {"tolerance": -1e-5}, "tolerance=-1e-05: 0 or more"),
    ("whisperrt", {"chunk_s": 0.03}, "chunk_s=0.03"),
]
SMALL = {"simul_whisper": {"truncation": "never"}, "star": {"weights": None}}


@pytest.mark.parametrize(("name", "options", "answer"), REFUSED, ids=str)
def test_a_setting_out_of_range_is_refused(name, options, answer, tmp_path):
    if name == "chunkformer":
        settings = {"weights": str(chunkformer_folder()), "chunk_s": 0.32}
    else:
        settings = {"model_path": str(tiny_folder()), **SMALL.get(name, {})}
    if name == "ufal":
        settings["cache"] = str(tmp_path)
    with pytest.raises(UserError) as refusal:
        new_method(name, **(settings | options))
    assert answer in str(refusal.value)
