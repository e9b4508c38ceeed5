"""Methods and utterances that need no weights: what they say follows from what they hear.

`Ticker` keeps the contract. Each of the others breaks it in the one way its name tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update, Word
from streaming_asr.utterance import TimedWord, Utterance


@dataclass
class TickerState:
    recorder: Recorder
    heard: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    n_committed: int = 0


class Ticker:
    """Says a word for every quarter of a second heard; its number follows from the samples.

    The newest `lag` words stay partial; the last step commits everything.
    """

    word_samples = 4000

    def __init__(self, lag: int = 1, lookahead_samples: int = 0) -> None:
        self.lag = lag
        self.lookahead_samples = lookahead_samples

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> TickerState:
        return TickerState(recorder)

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        with state.recorder.part("feature"):
            state.heard = np.concatenate([state.heard, audio])
        with state.recorder.part("decode"):
            words = self.words(state.heard)
            state.recorder.count(frames_real=len(audio) // 320, frames_computed=len(audio) // 320)
            state.recorder.count(decode_steps=len(words), beam_sum=len(words), encoder_flops=1.5)
        stable = len(words) if last else max(len(words) - self.lag, state.n_committed)
        committed, partial = words[state.n_committed : stable], words[stable:]
        state.n_committed = stable
        return Update(committed=committed, partial=partial)

    def words(self, heard: Samples) -> tuple[Word, ...]:
        n = len(heard) // self.word_samples
        words = []
        for i in range(n):
            piece = heard[i * self.word_samples : (i + 1) * self.word_samples]
            number = int(1e4 * float(np.abs(piece).mean()))
            start_s = i * self.word_samples / SAMPLE_RATE
            words.append(Word(f" w{number}", start_s, start_s + 0.25, 0.5))
        return tuple(words)


class BatchedTicker(Ticker):
    """Ticker that also advances many streams at once."""

    def start_many(
        self, n: int, *, language: str | None = None, recorder: Recorder = NULL
    ) -> list[TickerState]:
        return [self.start(language=language, recorder=recorder) for _ in range(n)]

    def step_many(
        self, states: Sequence[TickerState], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        rows = zip(states, audio, last, strict=True)
        return [self.step(state, samples, last=ends) for state, samples, ends in rows]


class Retracting(Ticker):
    """Takes a committed word back and commits it again, once."""

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        before = state.n_committed
        if before != 2:
            return super().step(state, audio, last=last)
        state.n_committed -= 1
        return replace(super().step(state, audio, last=last), retracted=1)


class LeavesPartial(Ticker):
    """Never commits the end."""

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        return super().step(state, audio, last=False)


class OneStreamOnly(Ticker):
    """Keeps the stream in the method, where two streams meet."""

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> TickerState:
        self.only = TickerState(recorder)
        return self.only

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        return super().step(self.only, audio, last=last)


class Remembers(Ticker):
    """Says the number of the stream with each word: the past leaks into the next stream."""

    def __init__(self) -> None:
        super().__init__()
        self.n_started = 0

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> TickerState:
        self.n_started += 1
        return super().start(language=language, recorder=recorder)

    def words(self, heard: Samples) -> tuple[Word, ...]:
        return tuple(replace(w, text=f"{w.text}-{self.n_started}") for w in super().words(heard))


class BatchMatters(BatchedTicker):
    """Says something else in company."""

    def step_many(
        self, states: Sequence[TickerState], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        updates = super().step_many(states, audio, last=last)
        if len(updates) == 1:
            return updates
        changed = [tuple(Word(word.text + "s") for word in u.committed) for u in updates]
        return [replace(u, committed=words) for u, words in zip(updates, changed, strict=True)]


class Peeks(Ticker):
    """Reads the whole recording behind the view that it is given."""

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        update = super().step(state, audio, last=last)
        whole = audio if audio.base is None else np.asarray(audio.base)
        seen = () if last else self.words(whole)[-1:]
        return replace(update, partial=(*update.partial, *seen))


class FailsOn(Ticker):
    """Raises where `condition` holds of the audio of a step and of everything heard."""

    def __init__(self, condition: Callable[[Samples, Samples], bool]) -> None:
        super().__init__()
        self.condition = condition

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        update = super().step(state, audio, last=last)
        if self.condition(audio, state.heard):
            raise ArithmeticError("the fake was told to fail here")
        return update


class FailsOnEmpty(FailsOn):
    """Raises in a stream without audio."""

    def __init__(self) -> None:
        super().__init__(lambda audio, heard: len(heard) == 0)


class FailsOnOneSample(FailsOn):
    """Raises in a stream of one sample."""

    def __init__(self) -> None:
        super().__init__(lambda audio, heard: len(heard) == 1)


class CountsItsOwn(Ticker):
    """Reports a count of a name that a run refuses."""

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> TickerState:
        recorder.count(seconds_spoken=1)
        return super().start(language=language, recorder=recorder)


class FailsAtTheEnd(Ticker):
    """Raises in the last step."""

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        update = super().step(state, audio, last=last)
        if last:
            raise ArithmeticError("the fake was told to fail here")
        return update


class InventsWords(Ticker):
    """Outputs a word where there is no audio."""

    def words(self, heard: Samples) -> tuple[Word, ...]:
        return super().words(heard) or (Word(" hello"),)


class TimesRunBackwards(Ticker):
    """Its second word starts before its first."""

    def words(self, heard: Samples) -> tuple[Word, ...]:
        words = super().words(heard)
        return (*words[:1], *(replace(w, start=0.0, end=0.01) for w in words[1:2]), *words[2:])


class Changed(Ticker):
    """A base of methods that change each word."""

    def words(self, heard: Samples) -> tuple[Word, ...]:
        return tuple(map(self.changed, super().words(heard)))


class TimesRunAhead(Changed):
    """Its words end a second after their audio."""

    def changed(self, word: Word) -> Word:
        return replace(word, end=(word.end or 0.0) + 1.0)


class Draws(Changed):
    """Outputs words that a generator of the process draws."""

    def changed(self, word: Word) -> Word:
        return replace(word, text=f"{word.text}{np.random.randint(10**6)}")


class NoBlanks(Changed):
    """Its words lack the blank before them."""

    def changed(self, word: Word) -> Word:
        return replace(word, text=word.text.strip())


class CountsPieces(Ticker):
    """Outputs a word for each piece, whatever its length."""

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        state.n_committed += 1
        return Update((Word(f" w{state.n_committed}"),) if len(audio) else ())


def noise(seconds: float, seed: int = 0) -> Samples:
    """White noise whose loudness wanders, so that every quarter of a second differs."""
    rng = np.random.default_rng(seed)
    n = round(seconds * SAMPLE_RATE)
    loudness = np.interp(
        np.arange(n),
        np.arange(0, n + 1600, 1600),
        rng.uniform(0.02, 0.2, len(range(0, n + 1600, 1600))),
    )
    return (loudness * rng.uniform(-1, 1, n)).astype(np.float32)


def utterance(name: str = "u1", seconds: float = 2.0, seed: int = 0, **fields: object) -> Utterance:
    """An utterance of noise with a reference of one timed word."""
    samples = noise(seconds, seed)
    settings: dict[str, object] = {
        "text": "Hello.",
        "speaker": "s1",
        "language": "en",
        "words": (TimedWord("Hello.", 0.1, 0.5),),
        **fields,
    }
    return Utterance(id=name, audio=samples.copy, duration_s=seconds, **settings)  # type: ignore[arg-type]
