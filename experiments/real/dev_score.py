"""How far a WhisperRT adapter is from the offline model on the dev sets.

Recipes, checkpoints and settings are chosen by it:

    python -m experiments.real.dev_score --weights FOLDER [--model tiny.en]
        [--sets clean-dev-100=FOLDER/manifest.jsonl ...] [--chunks 300ms 1s] [--at-once]

A set is a manifest under a name. Of a name that is a frozen list only its utterances are scored,
and without a manifest it is read where `streaming-asr get` keeps that list. Each set is
streamed greedily, some streams in phase. Printed are its word errors and those of the offline
model, which --offline keeps so that they are computed once, and at the end the geometric mean over
the sets of WER over offline's WER. A set without an error counts as half an error.

With --at-once a recording arrives in one piece: its frames are as causal as in chunks, and the text
is decoded once, after them. What is left of the distance to the offline model comes from the
frames, what it lacks to a stream's from deciding on words early.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.chunking import first_chunk_ms, parse_duration
from streaming_asr.config.build import new_method
from streaming_asr.corpora.lists import list_names, of_ids, place_of, whole_list
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.run.obtain import table
from streaming_asr.terminal import exit_status
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import Utterance

SETS = (
    "clean-dev-100",
    "cv-dev-2",
)
TOGETHER = 25  # streams in phase
WHOLE_MS = 60_000  # longer than any recording of the dev sets


@dataclass(frozen=True)
class DevSet:
    """Utterances to choose on; `n_words` of their normalised texts."""

    name: str
    utterances: Sequence[Utterance]
    n_words: int

    @property
    def key(self) -> str:
        """What tells its utterances and their texts from others."""
        texts = [[u.id, u.text] for u in self.utterances]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def dev_set(choice: str) -> DevSet:
    """The set of `NAME=MANIFEST`, or of a frozen list's NAME.

    Raises UserError for a NAME that is no list, and for speech that is not the list's."""
    name, _, manifest = choice.partition("=")
    if not manifest and name not in list_names():
        raise UserError(f"--sets {choice}: no frozen list of this name; write NAME=MANIFEST")
    path = Path(manifest) if manifest else place_of(name) / "manifest.jsonl"
    if not path.is_file():
        raise UserError(
            f"--sets {choice}: {path} is not there; name its manifest with NAME=MANIFEST"
            + (f", or get it: streaming-asr get {whole_list(name)}" if not manifest else "")
        )
    utterances = read_manifest(path)
    if name in list_names():
        rows = of_ids(utterances, name)
        if problem := next((each for each in rows if isinstance(each, UserError)), None):
            raise problem
        utterances = [each for each in rows if isinstance(each, Utterance)]
    utterances.sort(key=lambda u: u.duration_s)  # streams in phase end together
    words = normaliser("en").words
    return DevSet(name, utterances, sum(len(words(u.text)) for u in utterances))


def word_errors(method: Any, one: DevSet, chunk_ms: int, first_ms: int) -> int:
    """The errors in what `method` commits of the set."""
    from streaming_asr.training.recipe import stream_dev_wer

    chunk, first = (ms * SAMPLE_RATE // 1000 for ms in (chunk_ms, first_ms))
    words, errors = normaliser("en").words, 0
    for at in range(0, len(one.utterances), TOGETHER):
        part = one.utterances[at : at + TOGETHER]
        wer, _ = stream_dev_wer(method, part, chunk, first, language="en")
        errors += round(wer * sum(len(words(each.text)) for each in part) / 100)
    return errors


def offline_errors(model: Path, sets: Sequence[DevSet], file: Path) -> list[int]:
    """The offline model's errors in each set; `kept` holds those of earlier calls."""
    from streaming_asr.models.hash import weights_hash

    errors_of: dict[str, int] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    base = weights_hash(model)
    method = None
    for one in sets:
        if f"{base} {one.key}" not in errors_of:
            method = method or new_method("offline", model)
            errors_of[f"{base} {one.key}"] = word_errors(method, one, 1000, 1000)
            write_text(file, json.dumps(errors_of, indent=1, sort_keys=True) + "\n")
    return [errors_of[f"{base} {one.key}"] for one in sets]


def geometric_mean(errors: Sequence[int], offline: Sequence[int]) -> float:
    """The mean over sets of errors over offline's errors; none counts as half of one."""
    ratios = [max(a, 0.5) / max(b, 0.5) for a, b in zip(errors, offline, strict=True)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--weights", required=True, help="the adapter's folder")
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME[=MANIFEST]")
    parser.add_argument("--chunks", nargs="+", default=["300ms", "1s"])
    parser.add_argument("--at-once", action="store_true", help="decode once, after the audio")
    parser.add_argument("--offline", type=Path, default=Path("outputs/real/dev_offline.json"))
    options = parser.parse_args(argv)
    lengths = {chunk: (parse_duration(chunk), first_chunk_ms(chunk)) for chunk in options.chunks}
    sets = [dev_set(each) for each in options.sets]
    model = table()[options.model]().folder
    options.offline.parent.mkdir(parents=True, exist_ok=True)
    offline = offline_errors(model, sets, options.offline)
    print(f"{'set':<14} chunk   words  WER % offline  ratio  CPU s")
    for chunk, (chunk_ms, first_ms) in lengths.items():
        method = new_method(
            "whisperrt",
            model,
            weights=options.weights,
            chunk_s=chunk_ms / 1000,
            first_chunk_s=first_ms / 1000,
        )
        errors = []
        for one, least in zip(sets, offline, strict=True):
            begun = time.process_time()
            pieces = (WHOLE_MS, WHOLE_MS) if options.at_once else (chunk_ms, first_ms)
            errors.append(word_errors(method, one, *pieces))
            wer, base = (100 * n / one.n_words for n in (errors[-1], least))
            ratio, took = geometric_mean(errors[-1:], [least]), time.process_time() - begun
            print(
                f"{one.name:<14} {chunk:<6} {one.n_words:>6} {wer:>6.1f} {base:>7.1f} "
                f"{ratio:>6.2f} {took:>6.0f}",
                flush=True,
            )
        print(f"{'geometric mean':<14} {chunk:<6} {geometric_mean(errors, offline):>29.3f}")


if __name__ == "__main__":
    sys.exit(exit_status(program))
