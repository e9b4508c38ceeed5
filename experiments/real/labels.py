"""Texts for speech that has none: Whisper base's, where tiny.en outputs nearly the same.

    python -m experiments.real.labels MANIFEST --out OUT/labelled.jsonl

OUT/labelled.jsonl is what data=manifest reads, with base's word times; OUT/labels.jsonl keeps what
both models wrote. A command that was stopped goes on when it is given again. Both models run in
CTranslate2's int8 form, greedily.

Nobody checks the texts. An utterance is kept where tiny.en's word errors against base are at most
`AGREED` of the normalised words, and left out where base repeats itself, is unsure of its words, or
writes too few or too many words for the time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.real.training_set import well_aligned
from streaming_asr.corpora.manifest import read_manifest, write_manifest
from streaming_asr.corpora.rows import drop_torn_line, json_rows
from streaming_asr.run.obtain import table
from streaming_asr.terminal import exit_status
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import TimedWord, Utterance

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

AGREED = 0.1
SURE = 0.6  # the least mean probability of an utterance's words
WORDS_A_SECOND = (0.8, 6.0)
COMPRESSION = 2.4  # Whisper's own limit for a text that repeats itself


def load(folder: str) -> WhisperModel:
    """A model in CTranslate2's int8 form, for one core."""
    from faster_whisper import WhisperModel

    return WhisperModel(folder, compute_type="int8", cpu_threads=1)


def hear(model: WhisperModel, samples: np.ndarray, *, times: bool = True) -> dict[str, Any]:
    """What the model transcribes in `samples`, (n,) float32 at 16 kHz.

    `words` are [word, start_s, end_s, probability] (none without `times`), `text` what it writes,
    `compression` the worst compression ratio of its segments."""
    segments, _ = model.transcribe(
        samples,
        language="en",
        beam_size=1,
        temperature=0,
        word_timestamps=times,
        condition_on_previous_text=False,
    )
    heard = list(segments)
    words = [
        [w.word, round(w.start, 3), round(w.end, 3), round(w.probability, 3)]
        for segment in heard
        for w in segment.words or ()
    ]
    ratio = max((segment.compression_ratio for segment in heard), default=0.0)
    text = "".join(segment.text for segment in heard).strip()
    return {"words": words, "compression": ratio, "text": text}


def both(
    utterances: Sequence[Utterance], path: Path, models: Sequence[str] = ("base", "tiny.en")
) -> dict[str, dict[str, Any]]:
    """Base's words of each utterance, and tiny.en's text as `other`; `path` keeps them, and only
    what it lacks is made."""
    from rich.progress import track

    row_of: dict[str, dict[str, Any]] = {}
    if path.is_file():
        drop_torn_line(path)
        row_of = {row["id"]: row for _, row in json_rows(path)}
    missing = [each for each in utterances if each.id not in row_of]
    if not missing:
        return row_of
    base, other = (load(str(table()[model]().folder)) for model in models)
    with path.open("a", encoding="utf-8", buffering=1) as file:
        for each in track(missing, "writing down"):
            samples = each.load()
            row = {"id": each.id, **hear(base, samples)}
            row["other"] = hear(other, samples, times=False)["text"]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            row_of[each.id] = row
    return row_of


def agreed(text: str, other: str) -> bool:
    """Whether `other` has at most `AGREED` word errors a word of `text`, both normalised."""
    import jiwer

    normalise = normaliser("en")
    letters, heard = normalise(text), normalise(other)
    return bool(letters) and jiwer.wer(letters, heard) <= AGREED


def labelled(utterance: Utterance, row: dict[str, Any]) -> Utterance | None:
    """The utterance with base's text and times, or None where they cannot be trusted."""
    words = row["words"]
    rate = len(words) / utterance.duration_s
    if not words or not WORDS_A_SECOND[0] <= rate <= WORDS_A_SECOND[1]:
        return None
    if row["compression"] > COMPRESSION or sum(w[3] for w in words) / len(words) < SURE:
        return None
    timed = tuple(TimedWord(word.strip(), start, end) for word, start, end, _ in words)
    text = " ".join(word.text for word in timed)
    result = replace(utterance, text=text, words=timed, language="en")
    return result if well_aligned(result) and agreed(text, row["other"]) else None


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the manifest with texts")
    options = parser.parse_args(argv)
    utterances = read_manifest(options.manifest)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    heard = both(utterances, options.out.with_name("labels.jsonl"))
    rows = [row for each in utterances if (row := labelled(each, heard[each.id]))]
    print(f"{write_manifest(rows, options.out)} of {len(utterances)} utterances in {options.out}")


if __name__ == "__main__":
    sys.exit(exit_status(program))
