"""The policy of ufal/whisper_streaming (1f25a1a) as it is, its faults included, for `compat`.

`ReferenceAgreement` goes by times and compares spellings exactly. `ReferenceBuffer` cuts
only at the end of a segment, and never transcribes what came after the last round.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_asr.method import Word
from streaming_asr.text.tokens import common_prefix
from streaming_asr.whisper.agreement import LocalAgreement
from streaming_asr.whisper.online import OnlineBuffer, end_of

SLACK_S = 0.1
NEAR_S = 1.0
LONGEST_NGRAM = 5


class ReferenceAgreement(LocalAgreement):
    """LocalAgreement-2 as ufal/whisper_streaming (1f25a1a) has it, its faults included.

    Words that start more than 0.1 s before the last committed end are taken as committed. If the
    next one starts within 1 s of it, an n-gram of at most 5 words that repeats the end of the
    committed ones is dropped, the shortest that fits. What remains is compared letter by letter.
    """

    def __init__(self) -> None:
        super().__init__(n=2)
        self._last_end_s = 0.0
        self._unconfirmed: list[Word] = []

    @property
    def partial(self) -> tuple[Word, ...]:
        return tuple(self._unconfirmed)

    def observe(self, hypothesis: Sequence[Word]) -> list[Word]:
        """Take in a transcript of the buffer; return the words that it and the one before share."""
        new = [w for w in hypothesis if _start_s(w) > self._last_end_s - SLACK_S]
        if new and abs(_start_s(new[0]) - self._last_end_s) < NEAR_S:
            longest = min(len(self.committed), len(new), LONGEST_NGRAM)
            for n in range(1, longest + 1):
                if [w.text for w in self.committed[-n:]] == [w.text for w in new[:n]]:
                    new = new[n:]
                    break
        n_agreed = common_prefix([w.text for w in new], [w.text for w in self._unconfirmed])
        self._unconfirmed = new
        return self._commit(n_agreed)

    def finish(self) -> list[Word]:
        """Return the partial words; they do not count as committed."""
        words, self._unconfirmed = self._unconfirmed, []
        return words

    def forget(self, before_s: float) -> None:
        """Forget the committed words that end before a time of the stream."""
        while self.committed and end_of(self.committed[0]) <= before_s:
            self.committed.pop(0)

    def _commit(self, n_words: int) -> list[Word]:
        agreed, self._unconfirmed = self._unconfirmed[:n_words], self._unconfirmed[n_words:]
        if agreed:
            self._last_end_s = end_of(agreed[-1])
        self.committed += agreed
        return agreed


class ReferenceBuffer(OnlineBuffer):
    """The buffer, trimmed and prompted as there."""

    def process(self) -> list[Word]:
        """Transcribe the whole buffer; return the words that became final."""
        hypothesis = self._transcribe(self.prompt())  # an empty text is a prompt of one blank
        with self._recorder.part("policy"):
            committed = self._agreement.observe(hypothesis.words)
            self._committed += committed
            if self.end_s - self.start_s > self._policy.trim_s:
                cut_s = self._segment_end(hypothesis.segment_ends_s)
                if cut_s is not None:
                    self._cut(cut_s)
        return committed

    def finish(self) -> list[Word]:
        """Make all final that a round has transcribed."""
        with self._recorder.part("finalise"):
            rest = self._agreement.finish()
            self._committed += rest
        return rest

    def prompt(self) -> str:
        """Return the prompt without the last committed word, which never is in it."""
        return self._prompt_of(self._committed[:-1])

    def _new_agreement(self) -> LocalAgreement:
        return ReferenceAgreement()

    def _in_buffer(self, cut_s: float) -> float | None:
        return cut_s

    def _cut(self, cut_s: float) -> None:
        self._begin_at(cut_s)


def _start_s(word: Word) -> float:
    if word.start is None:
        raise ValueError(f"{word}: the reference's agreement goes by times, and it has none")
    return word.start
