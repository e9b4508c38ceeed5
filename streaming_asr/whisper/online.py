"""The online policy of one stream: a buffer of audio, what is agreed of it, and when it is trimmed.

Each round transcribes the whole buffer, after the last 200 characters of text whose audio is gone,
and commits what the agreement makes final. Beyond `trim_s` the buffer is cut at the end of a
segment whose words are all committed. A buffer without such an end is cut after a
committed word, and one in which nothing was ever agreed is cut before it exceeds the model's
context, its older words committed unchanged: memory is bounded by the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streaming_asr.errors import check_range
from streaming_asr.method import SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.whisper.agreement import LocalAgreement
from streaming_asr.whisper.recogniser import BufferTranscript, Recogniser
from streaming_asr.whisper.window import StreamState

PROMPT_CHARACTERS = 200
TRIM_S = 15.0
CONTEXT_SHARE = 0.8
"""Of the model's context that the buffer may fill."""


@dataclass(frozen=True, slots=True)
class OnlinePolicy:
    """Settings of the online policy."""

    n: int
    trim_s: float
    context_s: float

    def __post_init__(self) -> None:
        check_range(0, above=True, trim_s=self.trim_s)
        check_range(1, n=self.n)

    @classmethod
    def of(
        cls, model_context_s: float, context_s: float, *, n: int, trim_s: float | None
    ) -> OnlinePolicy:
        """Return the settings; trim_s is by default 15 s, or half of the model's context."""
        default_s = min(TRIM_S, model_context_s / 2)
        return cls(n, default_s if trim_s is None else trim_s, context_s)

    @property
    def limit_s(self) -> float:
        """Return the longest buffer that a round may leave, in seconds."""
        return max(self.trim_s, CONTEXT_SHARE * self.context_s)


class OnlineBuffer:
    """Audio that is not yet trimmed and the text of it; times are in seconds of the stream."""

    def __init__(
        self, recogniser: Recogniser, policy: OnlinePolicy, language: str | None, recorder: Recorder
    ) -> None:
        self._recogniser = recogniser
        self._policy = policy
        self._language = language
        self._recorder = recorder
        self._agreement = self._new_agreement()
        self._said: list[Word] = []
        """Committed words, those in the buffer and enough before them for a prompt."""
        self._n_new = 0
        """Samples that no round has transcribed."""
        self.audio: Samples = np.zeros(0, np.float32)
        self.start_s = 0.0

    @property
    def end_s(self) -> float:
        return self.start_s + self.audio.size / SAMPLE_RATE

    @property
    def partial(self) -> tuple[Word, ...]:
        """Return the unconfirmed end of the newest hypothesis."""
        return self._agreement.partial

    @property
    def has_unheard(self) -> bool:
        """Return whether audio has come that no round has transcribed."""
        return self._n_new > 0

    def insert(self, audio: Samples) -> None:
        """Append (n,) samples."""
        self.audio = np.concatenate([self.audio, np.asarray(audio, np.float32)])
        self._n_new += audio.size

    def process(self) -> list[Word]:
        """Transcribe the whole buffer; return the words that became final."""
        hypothesis = self._transcribe(self.prompt() or None)
        with self._recorder.part("policy"):
            # Pieces of a word could agree one by one and leave half of it committed.
            hypothesis = hypothesis.in_whole_words(self._language)
            committed = self._agreement.observe(hypothesis.words)
            self._said += committed
            if self.end_s - self.start_s > self._policy.trim_s:
                committed += self._trim(hypothesis.segment_ends_s)
        return committed

    def finish(self) -> list[Word]:
        """Make all final; audio that no round has transcribed is transcribed now."""
        committed = self.process() if self.has_unheard else []
        with self._recorder.part("finalise"):
            rest = self._agreement.finish()
            self._said += rest
        return committed + rest

    def restart(self, start_s: float) -> None:
        """Begin again with an empty buffer."""
        self._agreement = self._new_agreement()
        self.audio = np.zeros(0, np.float32)
        self._n_new = 0
        self.start_s = start_s
        self._forget_old_text()

    def prompt(self) -> str:
        """Return the last words whose audio is gone, until they are 200 characters or more."""
        return self._prompt_of(self._said)

    def _new_agreement(self) -> LocalAgreement:
        return LocalAgreement(self._policy.n)

    def _transcribe(self, prompt: str | None) -> BufferTranscript:
        self._n_new = 0
        return self._recogniser.transcribe(
            self.audio, prompt=prompt, language=self._language, recorder=self._recorder
        ).shifted(self.start_s)

    def _prompt_of(self, words: list[Word]) -> str:
        taken: list[str] = []
        n_characters = 0
        for word in reversed(words[: self._n_trimmed(words)]):
            if n_characters >= PROMPT_CHARACTERS:
                break
            taken.append(word.text)
            n_characters += len(word.text) + 1
        return "".join(reversed(taken))

    def _n_trimmed(self, words: list[Word]) -> int:
        n = len(words)
        while n and end_of(words[n - 1]) > self.start_s:
            n -= 1
        return n

    # ---- trimming ---------------------------------------------------------------------------

    def _trim(self, segment_ends_s: tuple[float, ...]) -> list[Word]:
        """Cut the buffer; the words that had to be made final for it."""
        cut_s = self._segment_end(segment_ends_s)
        cut_s = self._word_end() if cut_s is None else cut_s
        if cut_s is not None:
            self._cut(cut_s)
        return self._force() if self.end_s - self.start_s > self._policy.limit_s else []

    def _segment_end(self, ends_s: tuple[float, ...]) -> float | None:
        """Return the last segment end but one, or an earlier one, within the committed text."""
        said_until_s = end_of(self._said[-1]) if self._said else -1.0
        # The last segment may still grow.
        for end_s in reversed(ends_s[:-1]):
            if end_s <= said_until_s:
                return self._advancing(end_s)
        return None

    def _word_end(self) -> float | None:
        """Return a committed word's end: the last in the older half of `trim_s`, or the last."""
        ends_s = [end_of(word) for word in self._agreement.committed]
        # The newest words' times are the least certain, and context helps the next round.
        older = [end for end in ends_s if end <= self.end_s - self._policy.trim_s / 2]
        return self._advancing(max(older or ends_s)) if ends_s else None

    def _advancing(self, cut_s: float) -> float | None:
        return cut_s if cut_s > self.start_s else None

    def _force(self) -> list[Word]:
        """Keep half of the limit where no word ends to cut after; commit what was before."""
        border_s = self.end_s - self._policy.limit_s / 2
        committed = self._agreement.commit_until(border_s)
        self._said += committed
        after = self._agreement.partial
        if after and after[0].start is not None and after[0].start < border_s:
            border_s = max(after[0].start, *(end_of(word) for word in committed[-1:]), self.start_s)
            # Even where a word began long ago: memory is bounded by the context.
            border_s = max(border_s, self.end_s - self._policy.limit_s)
        self._cut(border_s)
        return committed

    def _cut(self, at_s: float) -> None:
        """Let go of the audio before `at_s` and of the words that lie in it."""
        self._begin_at(min(at_s, self.end_s))

    def _begin_at(self, at_s: float) -> None:
        self.audio = self.audio[int((at_s - self.start_s) * SAMPLE_RATE) :].copy()
        self.start_s = at_s
        self._agreement.forget(at_s)
        self._forget_old_text()

    def _forget_old_text(self) -> None:
        """Drop words too old for a prompt: each counts at least one character of it and a space."""
        del self._said[: max(0, self._n_trimmed(self._said) - PROMPT_CHARACTERS)]


def end_of(word: Word) -> float:
    """Return the word's end. Raises ValueError where it has none."""
    if word.end is None:
        raise ValueError(f"{word}: a recogniser must time its words")
    return word.end


@dataclass(slots=True, kw_only=True)
class BufferedStream(StreamState):
    """A method's state of one stream whose audio is in an online buffer."""

    buffer: OnlineBuffer
    next_decode: int
    """Samples of the stream at which it is decoded next."""

    def hear(self, audio: Samples, chunk: int) -> bool:
        """Count (n,) new samples; return whether a chunk or more has come since the last
        decoding."""
        self.n_samples += audio.size
        self.sound.hear(np.asarray(audio, np.float32))
        if self.n_samples < self.next_decode:
            return False
        # From now on, not from the last border: a late delivery is transcribed in one round.
        self.next_decode = self.n_samples + chunk
        return True

    def given_out(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Return committed words, spaced, their times in order and inside the audio so far."""
        emit, heard_s = self.emitter.emit, self.heard_s
        return tuple(
            emit(w.text, w.start or 0.0, w.end or 0.0, heard_s, w.probability, overlap=True)
            for w in words
        )

    def partial_words(self) -> tuple[Word, ...]:
        """Return the words after the committed ones."""
        words = self.buffer.partial
        if not words:
            return ()
        # A buffer may begin in mid-text; its first word then lacks the space before it.
        return replace(words[0], text=self.emitter.spaced(words[0].text)), *words[1:]
