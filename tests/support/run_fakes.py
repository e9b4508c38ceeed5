"""A method and a corpus for tests of the program around them; no torch, no files, no sleeping."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from places import HANG_S

from streaming_asr.events.log import read_log
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.utterance import TimedWord, Utterance

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again"]
WORD_SAMPLES = 4800  # 0.3 s


@dataclass
class State:
    recorder: Recorder
    audio: list[Samples] = field(default_factory=list)
    n_committed: int = 0


def touch(path: str) -> None:
    """Leave a file, so that a test sees that it was called."""
    Path(path).touch()


class Parrot:
    """Hears a word in every 0.3 s of audio, by its mean; commits all but the newest.

    `kill_at`: the process dies by SIGKILL at that step of its life, counted over all streams.
    `counter`: a file that gets one byte for each step. `fail`: how the constructor fails.
    """

    lookahead_samples = 0
    steps = 0

    def __init__(
        self,
        chunk_s: float,
        first_chunk_s: float,
        kill_at: int | None = None,
        counter: str | None = None,
        fail: str | None = None,
        wrong_every: int = 0,
    ) -> None:
        if fail is not None:
            raise RuntimeError(fail)
        self.kill_at = kill_at if kill_at is not None else int(os.environ.get("KILL_AT", "0"))
        self.counter = counter
        self.wrong_every = wrong_every

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> State:
        return State(recorder)

    def step(self, state: State, audio: Samples, *, last: bool) -> Update:
        Parrot.steps += 1
        if Parrot.steps == self.kill_at:
            if os.environ.get("KILL_BY") == "INT":
                raise KeyboardInterrupt
            if os.environ.get("KILL_BY") in ("SIGTERM", "SIGHUP"):
                signal.raise_signal(getattr(signal, os.environ["KILL_BY"]))
                return Update((), ())
            if os.environ.get("KILL_BY") == "MEMORY":
                raise MemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the manual.")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.counter:
            with Path(self.counter).open("ab") as file:
                file.write(b".")
        state.audio.append(audio)
        heard = np.concatenate(state.audio)
        words = []
        for i in range(len(heard) // WORD_SAMPLES):
            level = float(heard[i * WORD_SAMPLES : (i + 1) * WORD_SAMPLES].mean())
            index = round(level * 100) + (self.wrong_every > 0 and i % self.wrong_every == 0)
            words.append(Word(" " + WORDS[index % len(WORDS)]))
        n_final = len(words) if last else max(len(words) - 1, state.n_committed)
        committed = tuple(words[state.n_committed : n_final])
        state.n_committed = n_final
        return Update(committed, tuple(words[n_final:]))


class Phrases:
    """`n` utterances of 5-7 words, each a level of the signal."""

    name = "phrases"

    def __init__(self, n: int = 5, version: str = "1", split: str = "clean") -> None:
        self.n = n
        self.version = version
        self.split = split

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        made = []
        for i in range(self.n if limit is None else min(limit, self.n)):
            index = [(i * 3 + j * 7) % len(WORDS) for j in range(5 + i % 3)]
            levels = np.repeat(np.array(index, dtype=np.float32) / 100, WORD_SAMPLES)
            made.append(
                Utterance(
                    id=f"phrase-{i}",
                    text=" ".join(WORDS[k] for k in index),
                    audio=lambda levels=levels: levels,
                    duration_s=len(levels) / 16_000,
                    words=tuple(
                        TimedWord(WORDS[k], j * 0.3, j * 0.3 + 0.3) for j, k in enumerate(index)
                    ),
                )
            )
        return made

    def data_hash(self) -> str:
        return f"{self.version}-{self.n}-{self.split}"


# -- the program, with these fakes in its configuration -------------------------------------

CONF = {
    "method/parrot.yaml": """
_target_: run_fakes.Parrot
chunk_s: ${duration_s:${chunk}}
first_chunk_s: ${first_chunk_s:${chunk},${first_chunk}}
kill_at: null
counter: null
fail: null
wrong_every: 3
""",
    "data/phrases.yaml": """
_target_: run_fakes.Phrases
n: 5
version: '1'
split: clean
""",
    "model/none.yaml": "name: none\npath: null\n",
    "experiment/grid.yaml": """
# @package _global_
name: grid
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      chunk: 20ms,100ms,200ms,300ms
      seed: 1,2
""",
}


def arguments(folder: Path, *overrides: str) -> list[str]:
    """The command line that runs the fakes; writes their configuration into `folder`/conf."""
    conf = folder / "conf"
    for name, text in CONF.items():
        (conf / name).parent.mkdir(parents=True, exist_ok=True)
        (conf / name).write_text(text, encoding="utf-8")
    fixed = ("method=parrot", "data=phrases", "model=none", "tracker=none")
    given = {override.partition("=")[0] for override in overrides}
    kept = [override for override in fixed if override.partition("=")[0] not in given]
    return ["-cd", str(conf), *kept, *overrides]


RUN = "import sys; from streaming_asr.run.command import main; sys.exit(main())"


def program(
    folder: Path, code: str, *arguments: str, **given: str
) -> subprocess.CompletedProcess[str]:
    """`python -c code arguments` in `folder`, as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def texts(folder: Path) -> list[tuple[str, list[list[str]], list[list[str]]]]:
    log = read_log(folder / "events.jsonl")
    return [
        (u.utt, [s.committed for s in u.steps], [s.partial for s in u.steps])
        for u in log.utterances
    ]


def cu_scores(folder: Path) -> dict[str, Any]:
    """What does not depend on the machine."""
    found = json.loads((folder / "metrics.json").read_text())
    names = ("wer", "cer", "wer_formatted", "rwer", "normalised_erasure", "commit_violations")
    metrics = {k: v for k, v in found["metrics"].items() if k in names or "_cu" in k}
    assert len(metrics) > 20
    return metrics


def errors_of(err: str) -> str:
    """Return what a command wrote to stderr without the lines on loading and progress."""
    lines = err.splitlines(keepends=True)
    return "".join(
        line for line in lines if not line.startswith("loading ") and " recordings, " not in line
    )
