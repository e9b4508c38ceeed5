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
        """Return the settings, in seconds; trim_s is by default 15 s, or half of the model's
        context where that is less. context_s: the context that a buffer may have."""
        default_s = min(TRIM_S, model_context_s / 2)
        return cls(n, default_s if trim_s is None else trim_s, context_s)

    @property
    def limit_s(self) -> float:
        """Return the longest buffer that a round may leave, in seconds."""
        return max(self.trim_s, CONTEXT_SHARE * self.context_s)


class OnlineBuffer:
    """Audio that is not yet trimmed and the text of it; times are in seconds of the stream."""

    def __init__(
        self,
        recogniser: Recogniser,
        policy: OnlinePolicy,
        language: str | None,
        recorder: Recorder,
        prompt: str | None = None,
    ) -> None:
        """prompt: a text before that of the stream, in every round."""
        self._recogniser = recogniser
        self._policy = policy
        self._language = language
        self._text_before = prompt or ""
        self._recorder = recorder
        self._agreement = LocalAgreement(policy.n)
        self._committed: list[Word] = []
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

    def insert(self, audio: Samples) -> None:
        """Append (n,) samples."""
        self.audio = np.concatenate([self.audio, np.asarray(audio, np.float32)])
        self._n_new += audio.size

    def process(self) -> list[Word]:
        """Transcribe the whole buffer and trim it; return the words that became final."""
        hypothesis = self._transcribe(self.prompt() or None)
        with self._recorder.part("policy"):
            # Else two hypotheses could agree on a piece, and half of a word would be committed.
            hypothesis = hypothesis.in_whole_words(self._language)
            committed = self._agreement.observe(hypothesis.words)
            self._committed += committed
            if self.end_s - self.start_s > self._policy.trim_s:
                committed += self._trim(hypothesis.segment_ends_s)
        return committed

    def finish(self) -> list[Word]:
        """Transcribe audio that is new, make the whole text final and return its new words."""
        committed = self.process() if self._n_new else []
        with self._recorder.part("finalise"):
            rest = self._agreement.finish()
            self._committed += rest
        return committed + rest

    def prompt(self) -> str:
        """Return the stream's prompt and the last words whose audio is gone, until these are 200
        characters or more."""
        newest_first: list[str] = []
        n_characters = 0
        for word in reversed(self._committed[: self._n_trimmed()]):
            if n_characters >= PROMPT_CHARACTERS:
                break
            newest_first.append(word.text)
            n_characters += len(word.text) + 1
        return self._text_before + "".join(reversed(newest_first))

    def _transcribe(self, prompt: str | None) -> BufferTranscript:
        self._n_new = 0
        return self._recogniser.transcribe(
            self.audio, prompt=prompt, language=self._language, recorder=self._recorder
        ).shifted(self.start_s)

    def _n_trimmed(self) -> int:
        """Return how many of the committed words ended before the buffer begins."""
        n = len(self._committed)
        while n and end_of(self._committed[n - 1]) > self.start_s:
            n -= 1
        return n

    # ---- trimming ---------------------------------------------------------------------------

    def _trim(self, segment_ends_s: tuple[float, ...]) -> list[Word]:
        """Cut the buffer after committed text; where it stays longer than `limit_s`, return the
        words that had to be made final to cut it."""
        cut_s = self._segment_end(segment_ends_s)
        cut_s = self._word_end() if cut_s is None else cut_s
        if cut_s is not None:
            self._cut(cut_s)
        is_too_long = self.end_s - self.start_s > self._policy.limit_s
        return self._force_cut() if is_too_long else []

    def _segment_end(self, ends_s: tuple[float, ...]) -> float | None:
        """Return the last segment end but one, or an earlier one, within the committed text; None
        where none lies in the buffer."""
        committed_end_s = end_of(self._committed[-1]) if self._committed else -1.0
        # The last segment may still grow.
        for end_s in reversed(ends_s[:-1]):
            if end_s <= committed_end_s:
                return self._in_buffer(end_s)
        return None

    def _word_end(self) -> float | None:
        """Return the end of the last committed word that is older than half of `trim_s`, or else of
        the last committed word; None where none lies in the buffer."""
        ends_s = [end_of(word) for word in self._agreement.committed]
        if not ends_s:
            return None
        # The newest words' times are the least certain, and context helps the next round.
        older_s = [end_s for end_s in ends_s if end_s <= self.end_s - self._policy.trim_s / 2]
        return self._in_buffer(max(older_s or ends_s))

    def _in_buffer(self, cut_s: float) -> float | None:
        """Return the time if a cut there would shorten the buffer, else None."""
        return cut_s if cut_s > self.start_s else None

    def _force_cut(self) -> list[Word]:
        """Cut a buffer that is too long although no committed word ends in it.

        The newest half of the limit stays. Return the words before the cut, which become final
        without agreement.
        """
        cut_s = self.end_s - self._policy.limit_s / 2
        committed = self._agreement.commit_until(cut_s)
        self._committed += committed
        after = self._agreement.partial
        if after and after[0].start is not None and after[0].start < cut_s:
            # The next word begins before the cut: cut before it, but after the committed ones.
            cut_s = max(after[0].start, *(end_of(word) for word in committed[-1:]), self.start_s)
            # Even where a word began long ago: memory is bounded by the context.
            cut_s = max(cut_s, self.end_s - self._policy.limit_s)
        self._cut(cut_s)
        return committed

    def _cut(self, cut_s: float) -> None:
        """Drop the audio before `cut_s`, in seconds of the stream, and the words that lie in it."""
        start_s = min(cut_s, self.end_s)
        self.audio = self.audio[int((start_s - self.start_s) * SAMPLE_RATE) :].copy()
        self.start_s = start_s
        self._agreement.forget(start_s)
        # Of the trimmed words the last 200 stay: a prompt of 200 characters needs no more.
        del self._committed[: max(0, self._n_trimmed() - PROMPT_CHARACTERS)]


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
        """Count (n,) new samples; return whether a round is due: a chunk or more has come since the
        last one. chunk: in samples."""
        self.n_samples += audio.size
        self.sound.hear(np.asarray(audio, np.float32))
        if self.n_samples < self.next_decode:
            return False
        # Counted from here, not from the last multiple: several chunks that come at once are
        # transcribed in one round.
        self.next_decode = self.n_samples + chunk
        return True

    def given_out(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Return words that became final as the stream commits them: spaced, their times in order
        and inside the audio so far."""
        emit, heard_s = self.emitter.emit, self.heard_s
        return tuple(
            emit(w.text, w.start or 0.0, w.end or 0.0, heard_s, w.probability, overlap=True)
            for w in words
        )

    def partial_words(self) -> tuple[Word, ...]:
        """Return the unconfirmed words, of which the first is spaced."""
        words = self.buffer.partial
        if not words:
            return ()
        # A buffer may begin in mid-text; its first word then lacks the space before it.
        return replace(words[0], text=self.emitter.spaced(words[0].text)), *words[1:]
