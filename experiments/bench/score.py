"""What scoring costs: `python -m experiments.bench score`.

A made-up log of a corpus the size of LibriSpeech's test sets is scored by `streaming_asr.score` in
a process of its own on one thread; then the draws of an interval are timed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streaming_asr.chunking import parse_duration
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.metrics.intervals import N_RESAMPLES
from streaming_asr.utterance import TimedWord

WORDS_PER_S = 2.8
SCORE_S, SCORE_MIB, BOOTSTRAP_S = 20.0, 1024.0, 2.0  # at most
TARGET_STEPS = 150_000  # the targets are for a log of about 180,000
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class ScoreSettings:
    """The corpus: its utterances, their length in seconds, the speakers, the chunk."""

    utterances: int = 2600
    seconds: float = 7.0
    speakers: int = 40
    chunk: str = "100ms"

    def __post_init__(self) -> None:
        for name in ("utterances", "seconds", "speakers"):
            if not getattr(self, name) > 0:
                raise UserError(f"--{name} {getattr(self, name)}: must be above 0")
        parse_duration(self.chunk, "--chunk")


def write_log(
    path: Path, settings: ScoreSettings, *, header: dict[str, Any] | None = None, seed: int = 0
) -> int:
    """A log of mini's words in random order, one in twenty misheard and a quarter shown wrong
    before; returns its number of steps."""
    rng = random.Random(seed)
    words = _vocabulary()
    n_steps = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with EventWriter(path, {"config": {}, "versions": {}, "machine": {}, **(header or {})}) as log:
        for n in range(settings.utterances):
            said = rng.choices(words, k=max(round(settings.seconds * WORDS_PER_S), 1))
            heard = [rng.choice(words) if rng.random() < 0.05 else word for word in said]
            utterance = UtteranceLog(
                f"u{n:05d}",
                " ".join(said),
                round(settings.seconds * SAMPLE_RATE),
                [
                    TimedWord(word, round(i / WORDS_PER_S, 3), round((i + 0.9) / WORDS_PER_S, 3))
                    for i, word in enumerate(said)
                ],
                f"s{n % settings.speakers:03d}",
                "en",
            )
            utterance.audio_hash = f"made up {n}"
            utterance.steps = _steps(heard, words, utterance.duration_samples, settings, rng)
            n_steps += len(utterance.steps)
            log.write_utterance(utterance)
    return n_steps


def _steps(
    heard: Sequence[str],
    words: Sequence[str],
    n_samples: int,
    settings: ScoreSettings,
    rng: random.Random,
) -> list[Step]:
    """Two words are shown before they are committed."""
    chunk = parse_duration(settings.chunk) * SAMPLE_RATE // 1000
    steps: list[Step] = []
    final = 0
    for audio in [*range(chunk, n_samples, chunk), n_samples]:
        is_last = audio == n_samples
        n = len(heard) if is_last else min(int(audio / SAMPLE_RATE * WORDS_PER_S), len(heard))
        settled = n if is_last else max(n - 2, final)
        partial = [
            f" {rng.choice(words) if rng.random() < 0.25 else word}" for word in heard[settled:n]
        ]
        steps.append(
            Step(
                "flush" if is_last else "audio",
                audio,
                {"wall": round(rng.uniform(0.02, 0.06) * 1e9)},
                committed=[f" {word}" for word in heard[final:settled]],
                partial=partial,
            )
        )
        final = settled
    return steps


def _vocabulary() -> list[str]:
    from streaming_asr.corpora import MINI
    from streaming_asr.corpora.rows import text_lines

    rows = text_lines(MINI / "clean.jsonl")
    return sorted({word for row in rows for word in json.loads(row)["text"].split()})


def bench_score(settings: ScoreSettings) -> dict[str, Any]:
    """CPU seconds and peak MiB of scoring, CPU seconds of the draws."""
    from streaming_asr import machine

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "cell" / "events.jsonl"
        n_steps = write_log(log, settings)
        scoring = _score(Path(folder))
        draws = _draws(log)
    return {
        "settings": asdict(settings),
        "machine": machine.machine(),
        "n_steps": n_steps,
        "score": scoring,
        "bootstrap": draws,
    }


def _score(folder: Path) -> dict[str, float]:
    """`score FOLDER` as a user calls it: its CPU time, its elapsed time and its peak of memory."""
    environment = os.environ | dict.fromkeys(THREADS, "1")
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "streaming_asr.score", str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"score ended with status {process.returncode}")
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "elapsed_s": time.perf_counter() - begin,
        "peak_mib": usage.ru_maxrss / per_mib,
    }


def _draws(log: Path) -> dict[str, Any]:
    """The time of 10,000 paired draws of a run and a baseline, over speakers and utterances."""
    from dataclasses import replace

    from streaming_asr.events.log import read_log
    from streaming_asr.metrics import trace
    from streaming_asr.score.sample import Sample, difference

    sample = Sample.of([trace(utterance) for utterance in read_log(log).utterances])
    found: dict[str, Any] = {"n_draws": N_RESAMPLES}
    for drawn, each in (
        ("speakers", sample),
        ("utterances", replace(sample, speakers=[None] * len(sample.utts))),
    ):
        other = replace(each, errors=each.errors[::-1], latencies=(each.latencies or [])[::-1])
        begin = time.process_time()
        clusters = other.clusters
        difference(clusters, each, other)
        found[drawn] = {"cpu_s": time.process_time() - begin, "of": str(clusters)}
    return found


def show(result: dict[str, Any]) -> None:
    """Print the figures, and beside each what was to be reached."""
    settings, scoring = result["settings"], result["score"]
    print(
        f"{settings['utterances']} utterances of {settings['seconds']:g} s, chunks of "
        f"{settings['chunk']}, {result['n_steps']} steps; one thread of {result['machine']['cpu']}"
    )
    is_full = result["n_steps"] >= TARGET_STEPS

    def line(text: str, value: float, most: float, unit: str) -> None:
        target = f" (target: at most {most:g} {unit})" if is_full else ""
        missed = "  missed" if is_full and value > most else ""
        print(f"{text}: {value:.1f} {unit}{target}{missed}")

    line("score, CPU time", scoring["cpu_s"], SCORE_S, "s")
    print(f"score, elapsed: {scoring['elapsed_s']:.1f} s")
    line("score, peak memory", scoring["peak_mib"], SCORE_MIB, "MiB")
    n_draws = result["bootstrap"]["n_draws"]
    for drawn in ("speakers", "utterances"):
        each = result["bootstrap"][drawn]
        line(f"{n_draws} paired draws of {each['of']}, CPU time", each["cpu_s"], BOOTSTRAP_S, "s")
