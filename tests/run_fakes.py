"""A method and a corpus for tests of the program around them; no torch, no files, no sleeping."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streaming_asr.data.utterance import TimedWord, Utterance
from streaming_asr.method import NULL, Recorder, Samples, Update, Word

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again"]
WORD_SAMPLES = 4800  # 0.3 s


@dataclass
class State:
    recorder: Recorder
    audio: list[Samples] = field(default_factory=list)
    n_committed: int = 0


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
