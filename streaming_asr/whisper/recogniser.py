"""What the online policy asks of a recogniser: the words of a whole buffer, with their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from streaming_asr.method import Recorder, Samples, Word
from streaming_asr.text.tokens import UNSPACED

SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")


@dataclass(frozen=True, slots=True)
class BufferTranscript:
    """One transcript of a buffer; all words have times."""

    words: tuple[Word, ...] = ()
    segment_ends_s: tuple[float, ...] = ()
    """Where the segments end that the recogniser divides its text into."""

    def shifted(self, offset_s: float) -> BufferTranscript:
        """Return the transcript with all times `offset_s` later."""
        words = tuple(
            replace(w, start=(w.start or 0.0) + offset_s, end=(w.end or 0.0) + offset_s)
            for w in self.words
        )
        return BufferTranscript(words, tuple(end + offset_s for end in self.segment_ends_s))

    def in_whole_words(self, language: str | None) -> BufferTranscript:
        """Return the transcript with the pieces of words joined: faster-whisper divides 5:43 into
        " 5" and ":43".

        A word begins with a space, in languages that write them; it is as probable as its least
        probable piece.
        """
        if language in UNSPACED:
            return self
        words: list[Word] = []
        for piece in self.words:
            if not words or piece.text[:1].isspace():
                words.append(piece)
                continue
            before = words[-1]
            # (a recogniser need not give probabilities)
            probabilities = [p for p in (before.probability, piece.probability) if p is not None]
            words[-1] = replace(
                before,
                text=before.text + piece.text,
                end=piece.end,
                probability=min(probabilities) if probabilities else None,
            )
        return replace(self, words=tuple(words))


class Recogniser(Protocol):
    """Transcribes a whole buffer at once; holds weights and settings only."""

    context_s: float
    """The model's window in seconds."""

    def check_language(self, language: str | None) -> None:
        """Raise UserError where the model does not know the language."""

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        """Return the words of (n,) samples, timed from the buffer's start, after text `prompt`."""


def ends_sentence(text: str) -> bool:
    """Return whether a sentence ends with this word; closing quotes and brackets may follow."""
    return text.rstrip("\"'”’)]» ").endswith(SENTENCE_ENDS)


def sentence_ends_s(words: Sequence[Word]) -> tuple[float, ...]:
    """Return where sentences end, in seconds, and where the text ends, even in mid-sentence."""
    last = len(words) - 1
    return tuple(
        w.end
        for i, w in enumerate(words)
        if w.end is not None and (i == last or ends_sentence(w.text))
    )
