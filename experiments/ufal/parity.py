"""ufal/whisper_streaming and this project's `compat` mode, on one converted model.

Both are fed the same fixed chunks, at temperature 0, and must commit the same words with the same
times. The reference's code is not part of this project: check it out first.

    git clone https://github.com/ufal/whisper_streaming outputs/ufal/reference
    git -C outputs/ufal/reference checkout 1f25a1a
    python -m experiments.ufal.parity outputs/ufal/reference --write tests/fixtures/ufal_parity.json

`--write` keeps, for every round, what the reference handed to the recogniser, what it got back and
what it committed: the test replays it without the model and without the reference.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.parity import pieces
from streaming_asr.config.build import new_method
from streaming_asr.corpora import Mini
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.methods.ufal import Ufal
from streaming_asr.methods.ufal.faster import FasterWhisper
from streaming_asr.models.hash import model_hash

COMMIT = "1f25a1a"
MODEL = str(Path(__file__).parents[2] / "streaming_asr" / "data" / "mini" / "model")
N_CLEAN, LONG_S = 20, 60.0  # recordings of mini's `clean`, and the length of one of `long`
CHUNK_TRIM_S = ((0.3, 7.5), (1.0, 3.0))
N_WRITTEN = 4  # recordings of each setting in the fixture, and with the last one the long one


@dataclass
class Run:
    """One recording through the reference."""

    utterance: str
    chunk_s: float
    trim_s: float
    rounds: list[dict[str, Any]] = field(default_factory=list)
    """n_samples, prompt: what was transcribed. words [text, start, end], segment_ends: the answer.
    committed [text, start, end]: what was final after it, in seconds of the stream."""
    finished: list[list[Any]] = field(default_factory=list)
    """What the end of the stream gave out."""


def load_reference(folder: Path) -> Any:
    """whisper_online.py as a module; librosa is only used by parts that are not run."""
    sys.modules.setdefault("librosa", types.ModuleType("librosa"))
    sys.path.insert(0, str(folder))
    return importlib.import_module("whisper_online")


def reference_asr(module: Any, model: Any, temperature: float | list[float] = 0) -> Any:
    """Its faster-whisper class on a loaded WhisperModel: its own constructor wants a GPU."""
    asr = object.__new__(module.FasterWhisperASR)
    asr.logfile = sys.stderr
    asr.model = model
    asr.original_language = "en"
    asr.transcribe_kargs = {"temperature": temperature}
    return asr


def run_reference(module: Any, asr: Any, audio: np.ndarray, run: Run) -> None:
    online = module.OnlineASRProcessor(asr, buffer_trimming=("segment", run.trim_s))
    transcribe = asr.transcribe

    def recorded(buffer: np.ndarray, init_prompt: str = "") -> Any:
        segments = transcribe(buffer, init_prompt=init_prompt)
        run.rounds.append(
            {
                "n_samples": len(buffer),
                "prompt": init_prompt,
                "words": [[text, float(a), float(b)] for a, b, text in asr.ts_words(segments)],
                "segment_ends": [float(end) for end in asr.segments_end_ts(segments)],
            }
        )
        return segments

    asr.transcribe = recorded
    try:
        for piece, _ in pieces(audio, run.chunk_s):
            n_before = len(online.commited)
            online.insert_audio_chunk(piece)
            online.process_iter()
            run.rounds[-1]["committed"] = [
                [text, float(a), float(b)] for a, b, text in online.commited[n_before:]
            ]
        buffered = list(online.transcript_buffer.complete())
        begin_s, _, text = online.finish()
        assert begin_s is None or text == "".join(word[2] for word in buffered)
        run.finished = [[text, float(a), float(b)] for a, b, text in buffered]
    finally:
        asr.transcribe = transcribe


def run_ours(method: Ufal, audio: np.ndarray, run: Run) -> list[list[list[Any]]]:
    """Committed words per step, the last step's with what the end gave out."""
    state = method.start(language="en")
    steps = []
    for piece, last in pieces(audio, run.chunk_s):
        update = method.step(state, piece, last=last)
        steps.append([[word.text, word.start, word.end] for word in update.committed])
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", type=Path, help="a checkout of ufal/whisper_streaming")
    parser.add_argument("--write", type=Path, help="keep the reference's rounds here")
    options = parser.parse_args()

    module = load_reference(options.reference)
    recordings = Mini("clean").utterances(N_CLEAN) + Mini("long").utterances(1)
    n_long = round(LONG_S * SAMPLE_RATE)
    rows: list[dict[str, Any]] = []
    n_words = n_equal = 0
    for chunk_s, trim_s in CHUNK_TRIM_S:
        method = new_method(
            "ufal",
            MODEL,
            chunk_s=chunk_s,
            first_chunk_s=chunk_s,
            trim_s=trim_s,
            compat=True,
        )
        asr = reference_asr(module, FasterWhisper(MODEL, skip_blank=False).model)
        for i, utterance in enumerate(recordings):
            audio = utterance.load()[:n_long]
            run = Run(utterance.id, chunk_s, trim_s)
            run_reference(module, asr, audio, run)
            expected = [each["committed"] for each in run.rounds]
            expected[-1] = expected[-1] + run.finished
            got = run_ours(method, audio, run)
            n_words += sum(max(map(len, pair)) for pair in zip(expected, got, strict=True))
            n_equal += sum(
                a == b
                for step, other in zip(expected, got, strict=True)
                for a, b in zip(step, other, strict=False)
            )
            for k, (step, other) in enumerate(zip(expected, got, strict=True)):
                if step != other:
                    print(f"{utterance.id}, chunk {chunk_s} s, step {k}:\n  {step}\n  {other}")
            is_long = i == len(recordings) - 1
            if i < N_WRITTEN or (is_long and (chunk_s, trim_s) == CHUNK_TRIM_S[-1]):
                rows.append(vars(run))
    model = model_hash({"model": {"path": MODEL}})
    print(f"model {model}: {n_equal} of {n_words} words equal, text and times")
    if options.write:
        header = {"reference": f"ufal/whisper_streaming@{COMMIT}", "model_hash": model}
        options.write.write_text(json.dumps(header | {"runs": rows}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
