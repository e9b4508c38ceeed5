"""What the benchmark scores and runs: logs and manifests of English words, drawn by chance."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

SAMPLE_RATE = 16_000
WORDS_PER_S = 2.5
WRONG, WRONG_AT_FIRST = 0.1, 0.25  # shares of the final words, and of those in the partial text
MINI = Path(__file__).parents[2] / "streaming_asr" / "data" / "mini"


def vocabulary() -> list[str]:
    """Return the words of the embedded references, each as often as it occurs."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(MINI.glob("*.jsonl")))
    lines = (json.loads(line) for text in texts for line in text.splitlines())
    return [word for line in lines for word in line["text"].split()]


def log(file: Path, *, n: int, duration_s: int, chunk: str = "1s", seed: int = 0) -> None:
    """Write a log of `n` recordings in steps of 1 s. The references are always the same ones; the
    seed draws the errors."""
    file.parent.mkdir(parents=True, exist_ok=True)
    method = {"name": "whisperrt", "_target_": "streaming_asr.methods.whisperrt.WhisperRT"}
    corpus = {"name": "manifest", "_target_": "streaming_asr.corpora.Manifest", "path": "drawn"}
    config = {"method": method, "data": corpus, "model": {"name": "mini"}, "chunk": chunk}
    words, errors = vocabulary(), random.Random(seed)
    with file.open("w", encoding="utf-8") as out:
        header = {"kind": "header", "schema": 1, "config": config, "n_utterances": n}
        out.write(json.dumps(header) + "\n")
        for i in range(n):
            for line in recording(i, duration_s, words, errors):
                out.write(json.dumps({"utt": f"drawn-{i:04}", **line}) + "\n")


def recording(
    number: int, duration_s: int, words: Sequence[str], errors: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield the lines of one recording. A word is shown when it has ended and final 2 s later; one
    in fifty steps takes a word back."""
    spoken = random.Random(number).choices(words, k=int(duration_s * WORDS_PER_S))
    times = [(i / WORDS_PER_S, (i + 0.9) / WORDS_PER_S) for i in range(len(spoken))]
    yield {
        "kind": "utterance",
        "text": " ".join(spoken),
        "words": [[word, *time] for word, time in zip(spoken, times, strict=True)],
        "speaker": f"speaker-{number % 25}",
        "language": "en",
        "duration_samples": duration_s * SAMPLE_RATE,
        "audio_hash": f"{number:064x}",
    }

    def written(begin: int, end: int, share: float) -> list[str]:
        """Return the words from `begin` to `end` as the method writes them."""
        wrong = (errors.random() < share for _ in range(begin, end))
        pairs = zip(spoken[begin:end], wrong, strict=True)
        return [f" {errors.choice(words) if is_wrong else word}" for word, is_wrong in pairs]

    n_final = n_violations = 0
    for second in range(1, duration_s + 1):
        is_last = second == duration_s
        n_shown = bisect_right(times, second, key=itemgetter(1))
        n_settled = n_shown if is_last else max(n_final, int((second - 2) * WORDS_PER_S))
        retracted = int(n_final > 2 and errors.random() < 0.02)
        committed = written(n_final - retracted, n_settled, WRONG)
        yield {
            "kind": "flush" if is_last else "audio",
            "audio_samples": second * SAMPLE_RATE,
            "compute_ns": {"wall": errors.randrange(10**8, 3 * 10**8)},
            "committed": committed,
            "partial": written(n_settled, n_shown, WRONG_AT_FIRST),
            "retracted": retracted,
        }
        n_final, n_violations = n_settled, n_violations + retracted
    yield {"kind": "end", "status": "ok", "error": None, "commit_violations": n_violations}


def manifest(file: Path, n: int) -> None:
    """Write a manifest of `n` lines, all of them of one short recording."""
    words = vocabulary()
    drawn = random.Random(0)
    audio = str(next((MINI / "audio" / "dev").glob("*.ogg")))
    with file.open("w", encoding="utf-8") as out:
        for i in range(n):
            text = " ".join(drawn.choices(words, k=12))
            line = {"id": f"line-{i}", "audio_filepath": audio, "text": text, "language": "en"}
            out.write(json.dumps({**line, "speaker": f"speaker-{i % 999}"}) + "\n")
